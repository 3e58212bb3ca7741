"""Simulates one broker's machine: a disk, and one process after another that uses it.

Decides: the state after a crash. The broker is the production ``broker.broker.Broker`` in a simulated
environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from broker.broker import Broker, BrokerEnvironment
from broker.listeners.listener import Listener
from broker.settings import BrokerSettings, DelaySettings, Groups, Limits, Peer, Timing, TransactionSettings
from raftlog.errors import ConnectionLost
from raftlog.exhaustion import exhaustion
from raftlog.testing.fake_filesystem import PowerLost
from raftlog.testing.syncs import in_a_task
from raftlog.types import GroupId, NodeId
from verification.simulator.broker_odds import BrokerOdds
from verification.simulator.disk import SimulatedDisk, SyncQueue
from verification.simulator.event_loop import Process, SimulatedLoop
from verification.simulator.network import Address, SimulatedTransport
from verification.simulator.run import Run

Result = TypeVar("Result")

DATA_DIRECTORY = "/data"
LOCALHOST = "127.0.0.1"
DISK_AGE_INTERVAL_MS = 250  # where files are lost
SECRET = b"of the simulated cluster"
CLUSTER_ID = "c" * 32
WALL_MS_AT_START = 1_700_000_000_000


class Observer(Protocol):
    """Callbacks for the events of a machine."""

    def starts(self, machine: Machine) -> None:
        """Handle a machine that is about to start."""

    def began(self, machine: Machine, process: Process) -> None:
        """Handle a machine on which a new process has begun."""

    def made(self, machine: Machine, broker: Broker) -> None:
        """Handle a process whose broker is created and about to start."""

    async def serves(self, machine: Machine, broker: Broker) -> Listener | None:
        """Handle a broker that has started; returns its HTTP listener, if any."""

    def ended(self, machine: Machine, process: Process, *, silently: bool) -> None:
        """Handle the end of a process, by a kill, a power loss or a stop."""

    def start_again(self) -> None:
        """Start a machine that is off, unless a scheduled fault keeps it off."""

    def died(self, machine: Machine) -> None:
        """Handle a process that was killed; its disk keeps unsynced data."""

    def lost_power(self, machine: Machine) -> None:
        """Handle a machine that is off, and whose disk has lost some of its unsynced data."""

    def files_removed(self, machine: Machine, path: str) -> None:
        """Handle a file or a folder that the broker has removed."""

    def begins_again(self, machine: Machine) -> None:
        """Handle a broker whose disk is recognised as an older copy, and that is about to restart."""


class SimulatedClock:
    """One machine's clocks: the monotonic clock runs at the speed of the process, the wall clock has an
    offset.
    """

    is_known = True

    def __init__(self, loop: SimulatedLoop, process: Process, skew_ms: Callable[[], int]) -> None:
        self._loop = loop
        self._process = process
        self._skew_ms = skew_ms

    def monotonic(self) -> float:
        """Seconds since an arbitrary moment."""
        return self._loop.now * self._process.rate

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by this machine's wall clock."""
        return WALL_MS_AT_START + int(self.monotonic() * 1000) + self._skew_ms()


class Machine:
    """One broker's machine, on or off."""

    def __init__(self, run: Run, node: NodeId, observer: Observer) -> None:
        self._run = run
        self._observer = observer
        self.node = node
        self.name = f"broker {node}"
        self.disk = SimulatedDisk(self._died, lambda path: observer.files_removed(self, path))
        self.disk.on_wait = self._waits
        self.rate = 1.0
        self.turn_s = run.odds.turn_s * run.rng(f"turns {node}").choice((0.3, 1.0, 1.0))
        self.wall_skew_ms = 0
        self.incarnation = 0
        self.is_stopping = False
        self.is_killed_in_a_change = False  # or loses power
        self.is_restart_needed = False  # a sync has failed in this incarnation, and a replica is stopped
        self.is_kept_off = False  # permanently, for administrators
        self.place = node  # of a copy the negative id
        self.address: Address = LOCALHOST, 9000 + node
        self.file: dict[int, Address] = {}  # the addresses in its settings that are not those of the start
        self.is_gone = False  # dead for good, until its replicas are restored on other machines
        self.is_removed = False  # from the cluster for good, as the metadata say
        self.copied_disk = ""  # the id of the disk of which this one became an older copy
        self.older_copies: set[str] = set()  # folders of replicas that have not been opened since
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.listener: Listener | None = None
        self._disk_rng = run.rng(f"disk {node}")
        self.syncs = SyncQueue(self._disk_rng, run.odds.sync_s, lambda: run.loop.now)
        self._transport: SimulatedTransport | None = None
        self._calls: dict[Callable[[BaseException], None], None] = {}  # observers of the end of the process

    @property
    def is_up(self) -> bool:
        """True if a process runs, paused or not."""
        return self.process is not None

    @property
    def is_on_older_copy(self) -> bool:
        """True while the broker runs on an older copy of its disk and does not know this."""
        return self.broker is not None and self.broker.disks.age.disk.disk_id == self.copied_disk

    def peer(self, number: int) -> Peer:
        """Return the address of a broker in the settings of this machine."""
        host, port = self.file.get(number, (LOCALHOST, 9000 + number))
        return Peer(host=host, port=port)

    def dialler(self, peer: NodeId) -> str:
        """Return the name of the process from which the broker gets frames as from this peer; empty if there
        is none.
        """
        return (
            "" if self.broker is None or self._transport is None else self._transport.dialler(peer).decode()
        )

    def dials(self, peer: NodeId) -> tuple[str, int] | None:
        """Return the address at which this machine's process dials a peer; None if there is none."""
        return None if self._transport is None else self._transport.peers.get(peer)

    def reaches(self, peer: NodeId) -> bool:
        """Return whether the broker's own link to a peer leads to the process from which it gets this peer's
        frames.
        """
        return self.broker is not None and self._transport is not None and self._transport.reaches(peer)

    def leads(self, group_id: GroupId) -> bool:
        """Return whether the machine's broker leads a group and knows all its committed entries."""
        group = None if self.broker is None else self.broker.host.groups.get(group_id)
        return group is not None and group.is_ready

    def start(self) -> None:
        """Start the next process of the broker."""
        run = self._run
        self.is_restart_needed = self.is_kept_off = False
        self.incarnation += 1
        self.is_stopping = False
        self._observer.starts(self)
        name = f"{self.name} incarnation {self.incarnation}"
        self.process = process = Process(name, self.rate, self.turn_s)
        self._transport = run.network.transport(self.node, process, self.address, self.place)
        run.trace.note(self.node, f"starts, incarnation {self.incarnation}")
        self._observer.began(self, process)
        run.loop.start_in(process, self._live(process, self._transport))

    async def _live(self, process: Process, transport: SimulatedTransport) -> None:
        run = self._run
        clock = SimulatedClock(run.loop, process, lambda: self.wall_skew_ms)
        environment = BrokerEnvironment(
            filesystem=self.disk,
            clock=clock,
            transport=transport,
            secret=SECRET,
            rng=random.Random(
                f"{run.seed} {self.name} life {self.incarnation}"
            ),  # a seed means the same for ever
            run_syncs=in_a_task(self.syncs.run),
            on_fatal=self._fatal,
            on_older_copy=self._begin_again,
            frame_limits=run.odds.settings.frame_limits,
        )
        try:
            with run.loop.on_a_thread():  # it serves nothing before it is assembled
                broker = Broker(_settings(self, run), environment, DATA_DIRECTORY, f"http://b{self.node}")
            broker.host.duties.on_failed = self._duty_failed
            self._observer.made(self, broker)
            await broker.start()
        except PowerLost:
            return
        except OSError as error:
            if error.errno != errno.ENOSPC and not self.is_restart_needed:
                run.violated("I11 a broker starts", f"{self.name}: {error}")
            self.kill()
            self._observer.start_again()
            return
        except Exception as error:
            run.violated("I11 a broker starts", f"{self.name}: {type(error).__name__}: {error}")
            self.kill()
            return
        if self.process is process:
            self.broker = broker
            self.listener = await self._observer.serves(self, broker)

    def kill(self) -> None:
        """Kill the process. Data that is not synced stays in the machine's page cache."""
        if self._end("is killed", silently=False):
            self.disk.restart()
            self._observer.died(self)

    def lose_power(self, why: str = "") -> None:
        """Switch the machine off. Its disk keeps synced data, and any part of the other data."""
        if self._end(f"loses power {why}".rstrip(), silently=True):
            self.disk.lose_power(self._disk_rng)
            self._observer.lost_power(self)

    def pause(self) -> None:
        """Pause the process."""
        if self.process is not None:
            self._run.loop.pause(self.process)
            self._run.trace.note(self.node, "is paused")

    def resume(self) -> None:
        """Continue the process."""
        if self.process is not None and self.process.is_paused:
            self._run.trace.note(self.node, "is resumed")
            self._run.loop.resume(self.process)

    def be_fast(self) -> None:
        """Let the callbacks of the process take no simulated time from now on."""
        self.turn_s = 0.0
        if self.process is not None:
            self.process.turn_s = 0.0

    def stop(self) -> None:
        """Stop the process cleanly."""
        if self.process is not None and self.broker is not None and not self.is_stopping:
            self.is_stopping = True
            self._run.trace.note(self.node, "stops in good order")
            self._run.loop.start_in(self.process, self._stop(self.process, self.broker))

    async def _stop(self, process: Process, broker: Broker) -> None:
        await broker.drain()
        if self.listener is not None:
            await self.listener.stop()
        await broker.stop()
        if self.process is process:
            self._end("has stopped", silently=False)
            self.disk.restart()
            self._observer.start_again()

    async def call(self, ask: Callable[[Broker], Awaitable[Result]]) -> Result:
        """Call this machine's broker from outside. Raises ``ConnectionLost`` if its process is not running,
        or ends during the call.
        """
        loop = self._run.loop
        if self.broker is None or self.process is None:
            raise ConnectionLost(f"{self.name} is not there", sent=False)
        future: asyncio.Future[Result] = asyncio.Future(loop=loop)
        fail = future.set_exception
        self._calls[fail] = None

        async def answer(broker: Broker) -> None:
            try:
                result = await ask(broker)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        loop.start_in(self.process, answer(self.broker))
        try:
            return await future
        finally:
            self._calls.pop(fail, None)

    def _end(self, what: str, *, silently: bool) -> bool:
        process, self.process, self.broker, self.listener = self.process, None, None, None
        if process is None:
            return False
        self.disk.fails_sync = lambda path: False
        self._run.trace.note(self.node, what)
        self._run.loop.kill(process)
        assert self._transport is not None
        self._run.network.process_ended(self._transport, silently=silently)
        self._observer.ended(self, process, silently=silently)
        calls, self._calls = self._calls, {}
        for fail in calls:
            with contextlib.suppress(asyncio.InvalidStateError):
                fail(ConnectionLost(f"{self.name} is gone", sent=True))
        return True

    def _waits(self, operation: str, path: str) -> None:
        """Note that a disk operation waits. On the event loop, instead of a thread, this is a violation
        (I31).
        """
        loop = self._run.loop
        if not loop.is_on_a_thread and self.process is not None and self.process.is_alive:
            self._run.violated("I31 the event loop waits for no disk", f"{self.name}: {operation} {path}")

    def _died(self) -> None:
        """Handle the disk's report that the machine crashes right after the last change of the disk."""
        if self.process is not None and self.process.is_alive:
            self.process.is_alive = False  # code that still runs on this stack may send nothing
            self._run.loop.later(0.0, self.kill if self.is_killed_in_a_change else self.lose_power)

    def _begin_again(self) -> None:
        """Restart the broker, because its disk is an older copy."""

        def restart() -> None:
            self.kill()
            self._observer.start_again()

        if self.process is not None and self.process.is_alive:
            self._observer.begins_again(self)
            self._run.loop.later(0.0, restart)

    def _duty_failed(self, duty: str, error: Exception) -> None:
        if exhaustion(error) is None and self.process is not None and self.process.is_alive:
            self._run.violated("I9 no failed assertion", f"{self.name}: {duty}: {error!r}")

    def _fatal(self, error: BaseException) -> None:
        if self.process is not None and self.process.is_alive:
            self._run.violated("I9 no failed assertion", f"{self.name}: {error!r}")
            self._run.loop.later(0.0, self.kill)


_settings_made: dict[tuple[object, ...], BrokerSettings] = {}


class _SimulatedSettings(BrokerSettings):
    """Broker settings that ignore environment variables, so that a seed gives an equal run in every shell."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: object,
        **__: object,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def _settings(machine: Machine, run: Run) -> BrokerSettings:
    node, brokers, odds, ages_disks = machine.node, run.odds.brokers, run.odds.settings, run.odds.ages_disks
    key = node, brokers, odds, ages_disks, *sorted(machine.file.items())
    if key not in _settings_made:
        _settings_made[key] = _SimulatedSettings(
            broker_id=node,
            cluster_id=CLUSTER_ID,
            secret_file=Path("secret"),
            data_directory=Path(DATA_DIRECTORY),
            peers={number: machine.peer(number) for number in {*range(1, brokers + 1), node}},
            joined=node > brokers,
            rack=odds.rack(node),
            limits=Limits(
                disk_reserve_bytes=0,
                restore_moves_max=odds.restore_moves_max,
                balancing_moves_max=odds.balancing_moves_max,
            ),
            groups=_groups(odds),
            transactions=_transactions(odds),
            delayed=DelaySettings(partitions=odds.delayed_partitions),
            timing=Timing(
                tick_ms=odds.tick_ms,
                heartbeat_ticks=1,
                election_ticks=odds.election_ticks,
                quiesce_ticks=odds.quiesce_ticks,
                broker_timeout_ms=3000,
                restore_after_ms=odds.restore_after_ms,
                balance_after_ms=odds.balance_after_ms,
                retention_check_interval_ms=odds.retention_check_interval_ms,
                trash_delay_ms=odds.trash_delay_ms,
                disk_age_interval_ms=DISK_AGE_INTERVAL_MS if ages_disks else 60_000,
            ),
        )
    return _settings_made[key]


def _groups(odds: BrokerOdds) -> Groups:
    """Return the settings of groups. Retention may be shorter than the least allowed value, because a run is
    short.
    """
    groups = Groups(partitions=odds.offsets_partitions)
    if odds.unused_ms is None:
        return groups
    return groups.model_copy(update={"offsets_retention_ms": odds.unused_ms})


def _transactions(odds: BrokerOdds) -> TransactionSettings:
    """Return the settings of transactions. Retention may be shorter than the least allowed value."""
    transactions = TransactionSettings(partitions=odds.transactions_partitions)
    if odds.unused_ms is None:
        return transactions
    shorter = dict.fromkeys(("id_retention_ms", "key_retention_ms"), odds.unused_ms)
    return transactions.model_copy(update=shorter)
