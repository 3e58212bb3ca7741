"""What goes wrong: at any time, and at the worst moments.

Decides: which fault comes when, and when its effect ends. Everything is drawn from a stream of its
own, so that other draws do not depend on it. Counts what has really happened.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.node.codec import FrameKind
from raftlog.types import GroupId, NodeId

if TYPE_CHECKING:
    from chaos.simulator.machine import Machine
    from chaos.simulator.simulation import Simulation

_VOTE, _APPEND_REPLY = 2, 4


class Faults:
    """The one who breaks things, until ``heal``."""

    def __init__(self, simulation: Simulation) -> None:
        self.counts: Counter[str] = Counter()
        self._simulation = simulation
        self._rng = simulation.rng("faults")
        self._aim_rng = simulation.rng("aimed faults")
        self._odds = simulation.odds
        self._is_healed = False
        self._timed: dict[str, Callable[[], None]] = {
            "kill": lambda: self._down(self._any().kill),
            "lose power": lambda: self._down(self._any().lose_power),
            "lose power in a change": self._lose_power_in_a_change,
            "lose all power": self._lose_all_power,
            "kill all": self._kill_all,
            "pause": self._pause,
            "stop": lambda: self._any().stop(),
            "isolate leader": lambda: self._isolate(self._leader()),
            "isolate": lambda: self._isolate(self._any()),
            "halves": self._halves,
            "one way": self._one_way,
            "ring": self._ring,
            "break connections": self._break_connections,
            "slow disk": self._slow_disk,
            "stall disk": self._stall_disk,
            "full disk": self._full_disk,
            "failing sync": self._failing_sync,
            "wall clock": self._wall_clock,
            "transfer": self._transfer,
        }

    async def run(self) -> None:
        """Break things until it is time to heal."""
        while not self._is_healed:
            await asyncio.sleep(self._rng.expovariate(1 / self._odds.pause_s))
            if not self._is_healed:
                kind = self._rng.choice(self._odds.timed)
                self._count(kind)
                self._timed[kind]()

    def heal(self) -> None:
        """From now on nothing goes wrong; what is broken is mended at once."""
        self._is_healed = True
        simulation = self._simulation
        simulation.trace.note(None, "everything is healed")
        simulation.network.is_calm = True
        simulation.network.heal()
        for machine in simulation.machines:
            self._mend_disk(machine)
            machine.disk.crash_after_changes = None
            machine.resume()
            if machine.is_reboot_needed:
                machine.lose_power("to be started again")
            if not machine.is_up:
                machine.start()

    # The worst moments.

    def frame_left(self, sender: Machine, to: NodeId, frame: bytes) -> None:
        """A vote or an acknowledgement leaves: a good moment to die."""
        if frame[0] != FrameKind.RAFT or len(frame) < 8:
            return
        tag = frame[7] if frame[6] < 0x80 else 0  # small group ids: the tag is the third byte of the head
        if tag == _VOTE:
            self._aimed("after a vote", sender, self._dies)
        elif tag == _APPEND_REPLY:
            self._aimed("after an acknowledgement", sender, self._dies, 0.1)

    def won(self, machine: Machine, group: GroupId, term: int) -> None:
        """A leader is new: cut it off."""
        self._aimed("after winning", machine, self._isolate)

    def committed(self, machine: Machine, group: GroupId, commit: int) -> None:
        """The commit index has just moved."""
        self._aimed("after a commit", machine, self._dies, 0.3)

    def synced(self, machine: Machine) -> None:
        """A disk has just got something that others may lack."""
        self._aimed("after a sync", machine, self._dies, 0.1)

    def _aimed(
        self, kind: str, machine: Machine, strike: Callable[[Machine], None], thinned: float = 1.0
    ) -> None:
        odds = self._odds.aimed[kind] * thinned
        if odds and not self._is_healed and self._aim_rng.random() < odds:
            delay = self._aim_rng.choice((0.0, 0.0005, 0.003))
            self._simulation.loop.later(delay, self._strike, kind, machine, strike)

    def _strike(self, kind: str, machine: Machine, strike: Callable[[Machine], None]) -> None:
        if not self._is_healed and machine.is_up:
            self._count(kind)
            strike(machine)

    def _dies(self, machine: Machine) -> None:
        self._down(self._rng.choice((machine.kill, machine.lose_power, machine.lose_power)))

    # What can go wrong.

    def _any(self) -> Machine:
        return self._rng.choice(self._simulation.machines)

    def _leader(self) -> Machine:
        leading = [machine for machine in self._simulation.machines if self._leads(machine)]
        return self._rng.choice(leading) if leading else self._any()

    @staticmethod
    def _leads(machine: Machine) -> bool:
        broker = machine.broker
        return broker is not None and any(group.is_leader for group in broker.host.groups.values())

    def _count(self, kind: str) -> None:
        self.counts[kind] += 1
        self._simulation.trace.note(None, f"fault: {kind}")

    def _later(self, low: float, high: float, work: Callable[[], None]) -> None:
        self._simulation.loop.later(self._rng.uniform(low, high), self._unless_healed, work)

    def _unless_healed(self, work: Callable[[], None]) -> None:
        if not self._is_healed:
            work()

    def _down(self, dies: Callable[[], None]) -> None:
        dies()
        self.start_again()

    def start_again(self) -> None:
        """Every machine that is off is switched on soon."""
        for machine in self._simulation.machines:
            if not machine.is_up:
                delay = self._rng.uniform(0.05, 2.0)
                self._simulation.loop.later(delay, _start_if_off, machine)

    def _lose_power_in_a_change(self) -> None:
        machine = self._any()
        if machine.is_up:
            machine.disk.crash_after_changes = self._rng.choice((0, 1, 2, 3, 5, 10, 30))
            self._later(0.5, 3.0, self.start_again)

    def _lose_all_power(self) -> None:
        for machine in self._simulation.machines:
            machine.lose_power()
        self.start_again()

    def _kill_all(self) -> None:
        for machine in self._simulation.machines:
            machine.kill()
        self.start_again()

    def _pause(self) -> None:
        machine = self._any()
        machine.pause()
        self._later(0.05, 3.0, machine.resume)

    def _isolate(self, machine: Machine) -> None:
        others = [other.node for other in self._simulation.machines if other is not machine]
        self._block([(machine.node, other) for other in others] + [(other, machine.node) for other in others])

    def _halves(self) -> None:
        nodes = [machine.node for machine in self._simulation.machines]
        side = set(self._rng.sample(nodes, len(nodes) // 2))
        self._block([(one, other) for one in nodes for other in nodes if (one in side) != (other in side)])

    def _one_way(self) -> None:
        nodes = [machine.node for machine in self._simulation.machines]
        pairs = [(one, other) for one in nodes for other in nodes if one != other]
        self._block(self._rng.sample(pairs, self._rng.randint(1, len(pairs) // 2)))

    def _ring(self) -> None:
        """Everybody sees a majority, and no two see the same one."""
        nodes = [machine.node for machine in self._simulation.machines]
        self._rng.shuffle(nodes)
        count = len(nodes)
        near = {0, 1, count - 1}
        self._block(
            [
                (nodes[one], nodes[other])
                for one in range(count)
                for other in range(count)
                if (one - other) % count not in near or (count == 3 and {one, other} == {0, 1})
            ]
        )

    def _block(self, directions: list[tuple[NodeId, NodeId]]) -> None:
        network = self._simulation.network
        self._simulation.trace.note(None, f"nothing passes {directions}")
        network.block(directions, holds=self._rng.random() < 0.5)
        self._later(0.1, 4.0, network.heal)

    def _break_connections(self) -> None:
        nodes = [machine.node for machine in self._simulation.machines]
        for one in nodes:
            for other in nodes:
                if one != other and self._rng.random() < 0.4:
                    self._simulation.network.break_connection((one, other))

    def _slow_disk(self) -> None:
        machine = self._any()
        machine.syncs.slowness = self._rng.choice((5.0, 30.0))
        self._later(0.5, 4.0, lambda: self._mend_disk(machine))

    def _stall_disk(self) -> None:
        machine = self._any()
        machine.syncs.stalled_until = self._simulation.loop.now + self._rng.uniform(0.2, 3.0)

    def _full_disk(self) -> None:
        machine = self._any()
        machine.disk.capacity_bytes = machine.disk.used_bytes + self._rng.choice((0, 100, 2000))
        self._later(0.3, 3.0, lambda: self._mend_disk(machine))

    def _failing_sync(self) -> None:
        """One file's sync fails; only a machine that starts anew knows again what its disk holds."""
        machine = self._any()
        struck: list[str] = []

        def fails(path: str) -> bool:
            if not path.endswith((".log", ".a", ".b")):
                return False
            if not struck:
                struck.append(path)
            machine.is_reboot_needed = True
            return path == struck[0]

        machine.disk.fails_sync = fails
        self._later(0.3, 2.0, lambda: self._reboot(machine))

    def _reboot(self, machine: Machine) -> None:
        self._mend_disk(machine)
        if machine.is_reboot_needed:
            self._down(machine.lose_power)

    def _mend_disk(self, machine: Machine) -> None:
        machine.syncs.slowness = 1.0
        machine.syncs.stalled_until = 0.0
        machine.disk.capacity_bytes = None
        machine.disk.fails_sync = lambda path: False

    def _wall_clock(self) -> None:
        self._any().wall_skew_ms = self._rng.choice((-3_600_000, -200, 0, 200, 3_600_000))

    def _transfer(self) -> None:
        machine = self._leader()
        broker = machine.broker
        if broker is not None and machine.process is not None:
            led = [group for group in broker.host.groups.values() if group.is_leader]
            others = [other.node for other in self._simulation.machines if other is not machine]
            if led:
                group, to = self._rng.choice(led), self._rng.choice(others)
                self._simulation.loop.later_in(machine.process, 0.0, group.transfer_leadership, to)


def _start_if_off(machine: Machine) -> None:
    if not machine.is_up:
        machine.start()
