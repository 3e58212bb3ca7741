"""Runs copies of brokers beside their originals, starts copies that reach no peer, and moves brokers to other
addresses.

Decides: which broker is copied or moved, when a copy runs, and the content of its settings. Checks that only
a broker on an older copy begins again (I43), and that a copy beside its original is kept out (L15). Leaves to
others: that everything works while a copy runs (``convergence``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import count
from typing import Final

from broker.broker import Broker
from broker.listeners.listener import Listener
from partitions.metadata.image import BrokerInfo
from raftlog.storage import twin_file
from raftlog.storage.disk_age import AGE_FILE, Disk, DiskRecord
from raftlog.types import NodeId
from verification.simulator.convergence import RECOVERY_S, Convergence
from verification.simulator.event_loop import Process
from verification.simulator.faults import Faults
from verification.simulator.lost_files import DATA, known_of
from verification.simulator.machine import LOCALHOST, Machine
from verification.simulator.part import Part, Timed
from verification.simulator.scenarios.hosts.long_cut import hold_cut
from verification.simulator.scenarios.hosts.odds import (
    ADDRESS,
    ADDRESSES,
    BESIDE,
    RESTORED,
    UNHEARD,
    HostOdds,
)
from verification.simulator.scenarios.hosts.restored import CONTRADICTIONS, Copies, restore_all
from verification.simulator.simulated_cluster import SimulatedCluster

ORIGINAL: Final = "I43 only an older copy of a disk begins again"
KEPT_OUT: Final = "L15 a copy beside its original is kept out"
RAN, STARTED, MOVED = "copies that ran", "older copies that started unheard", "moved brokers"
EQUAL: Final = "copies of equal age"
COPY_S: Final = (2.0, 5.0, 60.0)  # until healing at most
LOOKS: Final = 40
STARTS: Final = 34  # more than were once remembered
LOOK_S: Final = 0.05
AGAIN_S: Final = 0.25
NEW_PORTS: Final = 20_000
BROKERS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class _Image:
    """The files of a machine's disk at one moment, and the disk's age at that moment."""

    machine: Machine
    disk: Disk
    files: dict[str, bytes]


class Hosts(Part):
    """The copies and the addresses of brokers in one run."""

    def __init__(self, cluster: SimulatedCluster, faults: Faults, odds: HostOdds) -> None:
        self._cluster = cluster
        self._odds = odds
        self._counts = faults.counts
        self._lost_files = faults.lost_files
        self._start_again = faults.start_again
        self._restored_from = Copies(cluster, odds, faults.transfer) if odds.restores else None
        self._copying: asyncio.Task[None] | None = None
        self._ports = count(NEW_PORTS)
        self._copies: list[Machine] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> list[asyncio.Task[None]]:
        """Begin to copy all brokers, in a run in which they start from copies at the end."""
        if self._restored_from is not None:
            making = self._restored_from.make_while_running()
            self._copying = asyncio.get_running_loop().create_task(making)
        return []

    def faults(self) -> dict[str, Timed]:
        """Return the faults of the scenario: brokers are copied, or moved to other addresses."""
        return {
            BESIDE: lambda rng: self._with_image(rng, self._beside),
            UNHEARD: lambda rng: self._with_image(rng, self._unheard),
            ADDRESS: self._move_one,
            ADDRESSES: self._move_all,
        }

    def _with_image(
        self, rng: random.Random, work: Callable[[_Image, random.Random], Coroutine[None, None, None]]
    ) -> None:
        """Copy the disk of a running broker; call ``work`` once every other disk has noted a newer state of
        this disk.
        """
        able = [machine for machine in self._cluster.members if machine.broker is not None]
        if self._tasks or not able:
            return  # one copy at a time
        machine, rng = rng.choice(able), random.Random(rng.random())
        assert machine.broker is not None
        image = _Image(machine, machine.broker.disks.age.disk, machine.disk.image())
        task = asyncio.get_running_loop().create_task(self._once_old(image, rng, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _once_old(
        self,
        image: _Image,
        rng: random.Random,
        work: Callable[[_Image, random.Random], Coroutine[None, None, None]],
    ) -> None:
        while not self._is_old(image):
            if self._cluster.is_healed:
                return
            await asyncio.sleep(LOOK_S)
        await work(image, rng)

    def _is_old(self, image: _Image) -> bool:
        others = [
            known_of(image.machine, each) for each in self._cluster.members if each is not image.machine
        ]
        return all(disk.disk_id == image.disk.disk_id and disk.age > image.disk.age + 1 for disk in others)

    # A copy beside its original.

    async def _beside(self, image: _Image, rng: random.Random) -> None:
        """Run a copy beside its original.

        In half of the cases all brokers restart after the end of the copy.
        """
        copy = self.start_copy(image.machine, image.files)
        for _ in range(int(rng.choice(COPY_S) / LOOK_S)):
            if not self._cluster.is_healed:
                await asyncio.sleep(LOOK_S)
        if self._cluster.is_healed:
            await Convergence(self._cluster, copy.name).reached()
            await self._check_kept_out(copy)
        self.end_copy(copy)
        if rng.random() < 0.5:
            self._restart_all()

    async def _try_equal(self) -> None:
        """Start a copy whose age equals the original's: it must be kept out, because all brokers are
        connected to the original.

        If a link of the original were lost, no fact would distinguish the two processes.
        """
        rng, members = self._cluster.rng("equal copy"), self._cluster.members
        able = [machine for machine in members if self._is_reached(machine)]
        if able and rng.random() < 0.5:
            original = rng.choice(able)
            copy = self.start_copy(original, original.disk.image())
            await self._check_kept_out(copy)
            self.end_copy(copy)
            self._counts[EQUAL] += 1

    def _is_reached(self, machine: Machine) -> bool:
        peers = [each for each in self._cluster.members if each is not machine]
        is_here = machine.is_up and not machine.is_stopping
        return is_here and all(each.reaches(machine.node) for each in peers)

    def start_copy(self, original: Machine, files: dict[str, bytes]) -> Machine:
        """Start a process on these files, with the settings of the original, at an address of its own."""
        observer = _OfCopy()
        copy = observer.machine = Machine(self._cluster, original.node, observer)
        copy.name = f"copy {next(self._ports)} of {original.name}"
        copy.place = NodeId(-original.node)
        copy.address = self._new_address()
        copy.file = {**original.file, original.node: copy.address}
        copy.disk.load(files)
        self._copies.append(copy)
        copy.start()
        self._counts[RAN] += 1
        return copy

    def end_copy(self, copy: Machine) -> None:
        """End the process of the copy permanently."""
        copy.is_kept_off = True
        copy.kill()
        self._copies.remove(copy)

    async def _check_kept_out(self, copy: Machine) -> None:
        """Check for a while that the copy gets no frames from peers, and that other brokers get frames of the
        original only.
        """
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_S)
            peers = [each for each in self._cluster.members if each.node != copy.node]
            wrong = [each.name for each in peers if (copy.name in each.dialler(copy.node))]
            if wrong or _heard(copy):
                detail = f"{copy.name} is heard by {wrong}, and hears {sorted(_heard(copy))}"
                self._cluster.violated(KEPT_OUT, detail)
                return

    def _restart_all(self) -> None:
        for machine in self._cluster.machines:
            machine.kill()
        self._start_again()

    # Starts that nobody hears.

    async def _unheard(self, image: _Image, rng: random.Random) -> None:
        """Put the copy in the place of the broker's disk, and start the broker many times before it reaches
        any peer.
        """
        machine, network = image.machine, self._cluster.network
        if not self._is_known(machine) or not self._lost_files.may_forget(machine):
            return
        self._lost_files.restore(machine, image.disk, image.files)
        others = [NodeId(number) for number in range(1, BROKERS_MAX + 1) if number != machine.node]
        links = [(machine.node, other) for other in others] + [(other, machine.node) for other in others]
        network.cut(links, holds=False)
        self._counts[STARTED] += 1
        for _ in range(STARTS):
            if not machine.is_up:
                machine.start()
            await asyncio.sleep(rng.uniform(0.3, 0.4))  # as long as an age takes
            machine.kill()
            machine.is_kept_off = True
        network.mend()
        if not machine.is_up:
            machine.start()

    # Addresses.

    def _new_address(self) -> tuple[str, int]:
        return LOCALHOST, next(self._ports)

    def _move_one(self, rng: random.Random) -> None:
        """Move a broker if the metadata has the current addresses of all brokers; the settings of its peers
        keep the old one.
        """
        able = [each for each in self._cluster.members if self._may_move(each)]
        if not able or not all(self._is_known(each) for each in self._cluster.members):
            return
        machine = rng.choice(able)
        self._move([machine])
        machine.file = self._file(machine)
        if rng.random() < 0.5:
            machine.kill()
            self._start_again()
        else:
            machine.stop()  # and starts again

    def _move_all(self, rng: random.Random) -> None:
        self._move([each for each in self._cluster.members if self._may_move(each)])
        for machine in self._cluster.members:
            machine.file = self._file(machine)
        self._restart_all()

    def _may_move(self, machine: Machine) -> bool:
        """Return whether the disk of a broker is registered: brokers ignore the address of an unregistered
        disk.
        """
        known, broker = self._known(machine), machine.broker
        if known is None or broker is None or machine.is_on_older_copy:
            return False
        return known.disk_id == broker.disks.age.disk.disk_id

    def _is_known(self, machine: Machine) -> bool:
        """Return whether the metadata has the broker's current address."""
        known = self._known(machine)
        return known is not None and known.rpc_port == machine.address[1]

    def _known(self, machine: Machine) -> BrokerInfo | None:
        """Return the row of a machine's broker in the newest metadata of any broker, or None."""
        brokers = [each.broker for each in self._cluster.members if each.broker is not None]
        images = [broker.controller.image for broker in brokers]
        image = max(images, key=lambda image: image.version, default=None)
        return None if image is None else image.brokers.get(machine.node)

    def _move(self, machines: list[Machine]) -> None:
        """Give these brokers new addresses, which they use from their next start on."""
        for machine in machines:
            machine.address = self._new_address()
            self._cluster.trace.note(machine.node, f"moves to {machine.address[1]}")
            self._counts[MOVED] += 1

    def _file(self, machine: Machine) -> dict[int, tuple[str, int]]:
        """Return corrected settings of a broker, with its own new address and the addresses of the first
        brokers.
        """
        first = self._cluster.machines[: self._cluster.odds.brokers]
        return {each.node: each.address for each in (*first, machine)}

    def begins_again(self, machine: Machine) -> None:
        """Handle a broker whose disk is recognised as an older copy."""
        record = twin_file.load(machine.disk, DATA, AGE_FILE, DiskRecord)
        is_copy = record is not None and record.disk.disk_id == machine.copied_disk
        if not is_copy:
            self._cluster.violated(ORIGINAL, f"{machine.name} begins again on its own disk")

    async def faults_ended(self) -> None:
        """Wait until brokers hear one another (L2) and none runs on an older copy (L15); then cut a link for
        long.
        """
        await self._settled()
        await hold_cut(self._cluster, self._odds, self._counts)

    async def check(self) -> dict[str, int]:
        """Stop to copy running brokers: the remaining copies are made once all brokers are stopped."""
        if self._copying is not None:
            self._copying.cancel()
        return {}

    def stopped(self) -> None:
        """Start all brokers from copies, as a new cluster that continues from the copied state."""
        if self._restored_from is None:
            return
        self._restored_from.make_the_rest()
        restored = restore_all(self._cluster, self._restored_from)
        self._cluster.violations += restored.violations
        self._cluster.trace.add(restored.trace)
        fits = {f"{RESTORED}, {fit.name.lower()}" for fit in restored.fits.values()}
        self._counts.update({RESTORED, *fits})
        self._counts[CONTRADICTIONS] += bool(restored.contradictions)

    async def _settled(self) -> None:
        await asyncio.gather(*self._tasks)
        deadline = self._cluster.loop.now + RECOVERY_S
        while apart := self._apart():
            if self._cluster.loop.now > deadline:
                self._cluster.violated("L2 a healed cluster works", f"not heard in {RECOVERY_S} s: {apart}")
                return
            await asyncio.sleep(AGAIN_S)
        self._check_left()
        await self._try_equal()

    def _check_left(self) -> None:
        """Check that each older copy in the place of its original has begun again."""
        left = [each.name for each in self._cluster.members if each.is_on_older_copy]
        if left:
            self._cluster.violated(KEPT_OUT, f"{left} take part with older copies")

    def _apart(self) -> dict[str, list[NodeId]]:
        """Return for each broker the peers that it does not hear."""
        members = self._cluster.members
        hears = {each.name: _heard(each) for each in members}
        unheard = {
            each.name: {peer.node for peer in members} - {each.node} - hears[each.name] for each in members
        }
        return {name: sorted(peers) for name, peers in unheard.items() if peers}


class _OfCopy:
    """Observes the machine of a copy, and restarts the copy when its broker ends in order to begin again."""

    machine: Machine

    def starts(self, machine: Machine) -> None: ...

    def began(self, machine: Machine, process: Process) -> None: ...

    def made(self, machine: Machine, broker: Broker) -> None: ...

    async def serves(self, machine: Machine, broker: Broker) -> Listener | None:
        return None

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None: ...

    def start_again(self) -> None:
        if not self.machine.is_kept_off:
            self.machine.start()

    def died(self, machine: Machine) -> None: ...

    def lost_power(self, machine: Machine) -> None: ...

    def files_removed(self, machine: Machine, path: str) -> None: ...

    def begins_again(self, machine: Machine) -> None: ...


def _heard(machine: Machine) -> frozenset[NodeId]:
    return frozenset() if machine.broker is None else machine.broker.host.reachable_peers
