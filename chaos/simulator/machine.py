"""One broker's machine: a disk that stays, and one process after the other on it.

Decides: what a death leaves behind. The broker itself is ``api.broker.Broker`` as it ships; its
world is simulated.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from api.broker import Broker, World
from api.connections.listener import HttpListener
from api.settings import BrokerSettings, Limits, Peer, Timing
from chaos.simulator.clocks import SimulatedClock
from chaos.simulator.disk import SimulatedDisk, SyncQueue
from chaos.simulator.event_loop import Process
from raftlog.errors import ConnectionLost
from raftlog.testing.fake_filesystem import PowerLost
from raftlog.types import GroupId, NodeId

if TYPE_CHECKING:
    from chaos.simulator.network import SimulatedTransport
    from chaos.simulator.records import ReplicaRecord
    from chaos.simulator.simulation import Simulation

Result = TypeVar("Result")

DATA_DIRECTORY = "/data"
SECRET = b"of the simulated cluster"
CLUSTER_ID = "c" * 32


class Machine:
    """One broker's machine, on or off."""

    def __init__(self, simulation: Simulation, node: NodeId) -> None:
        self.simulation = simulation
        self.node = node
        self.name = f"broker {node}"
        self.disk = SimulatedDisk(self._died, lambda path: simulation.oracles.files_removed(self, path))
        self.disk.on_wait = self._waits
        self.rate = 1.0
        self.wall_skew_ms = 0
        self.lives = 0
        self.is_stopping = False
        self.is_killed_in_a_change = False  # or loses power
        self.is_restart_needed = False  # a sync has failed in this life, and a replica is out of work
        self.is_kept_off = False  # for good, as far as administrators know
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.listener: HttpListener | None = None
        self.replicas: dict[GroupId, ReplicaRecord] = {}
        self._disk_rng = simulation.rng(f"disk {node}")
        self.syncs = SyncQueue(self._disk_rng, simulation.odds.sync_s, lambda: simulation.loop.now)
        self._transport: SimulatedTransport | None = None
        self._calls: dict[Callable[[BaseException], None], None] = {}  # who hears that the process is gone

    @property
    def is_up(self) -> bool:
        """Whether a process runs, paused or not."""
        return self.process is not None

    def start(self) -> None:
        """Begin a new life."""
        simulation = self.simulation
        self.is_restart_needed = self.is_kept_off = False
        self.lives += 1
        self.is_stopping = False
        simulation.clocks.starts(self)
        self.process = process = Process(f"{self.name} life {self.lives}", self.rate)
        self._transport = simulation.network.transport(self.node, process)
        simulation.trace.note(self.node, f"starts, life {self.lives}")
        simulation.begins(self, process)
        if simulation.http is not None:
            simulation.http.started(self)
        simulation.loop.start_in(process, self._live(process, self._transport))

    async def _live(self, process: Process, transport: SimulatedTransport) -> None:
        simulation = self.simulation
        clock = SimulatedClock(simulation.loop, process, self)
        world = World(
            filesystem=self.disk,
            clock=clock,
            transport=transport,
            secret=SECRET,
            rng=random.Random(f"{simulation.seed} broker {self.node} life {self.lives}"),
            run_syncs=self.syncs.run,
            on_fatal=self._fatal,
        )
        try:
            with simulation.loop.on_a_thread():  # nobody is served before it is made
                broker = Broker(
                    _settings(self.node, simulation), world, DATA_DIRECTORY, f"http://b{self.node}"
                )
            broker.controller.subscribe(partial(simulation.incarnations.shown, self))
            await broker.start()
        except PowerLost:
            return
        except OSError as error:
            if error.errno != errno.ENOSPC and not self.is_restart_needed:
                simulation.violated("I11 a broker starts", f"{self.name}: {error}")
            self.kill()
            simulation.faults.start_again()
            return
        except Exception as error:
            simulation.violated("I11 a broker starts", f"{self.name}: {type(error).__name__}: {error}")
            self.kill()
            return
        if self.process is process:
            self.broker = broker
            if simulation.http is not None:
                self.listener = await simulation.http.serve(self, broker)

    def kill(self) -> None:
        """The process dies; the machine keeps what is in its page cache."""
        if self._end("is killed", silently=False):
            self.disk.restart()
            self.simulation.oracles.died(self)

    def lose_power(self, why: str = "") -> None:
        """The machine goes off; its disk keeps what was synced, and any part of the rest."""
        if self._end(f"loses power {why}".rstrip(), silently=True):
            self.disk.lose_power(self._disk_rng)
            self.simulation.oracles.lost_power(self)
            self.simulation.oracles.died(self)

    def pause(self) -> None:
        """The process stands still."""
        if self.process is not None:
            self.simulation.loop.pause(self.process)
            self.simulation.trace.note(self.node, "is paused")

    def resume(self) -> None:
        """It goes on."""
        if self.process is not None and self.process.is_paused:
            self.simulation.trace.note(self.node, "is resumed")
            self.simulation.loop.resume(self.process)

    def stop(self) -> None:
        """End in good order."""
        if self.process is not None and self.broker is not None and not self.is_stopping:
            self.is_stopping = True
            self.simulation.trace.note(self.node, "stops in good order")
            self.simulation.loop.start_in(self.process, self._stop(self.process, self.broker))

    async def _stop(self, process: Process, broker: Broker) -> None:
        await broker.drain()
        if self.listener is not None:
            await self.listener.stop()
        await broker.stop()
        if self.process is process:
            self._end("has stopped", silently=False)
            self.disk.restart()
            self.simulation.faults.start_again()

    async def call(self, ask: Callable[[Broker], Awaitable[Result]]) -> Result:
        """Ask this machine's broker from outside. Raises ``ConnectionLost`` when it is not there or ends."""
        loop = self.simulation.loop
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
        self.simulation.trace.note(self.node, what)
        self.simulation.loop.kill(process)
        assert self._transport is not None
        self.simulation.network.process_ended(self._transport, silently=silently)
        if self.simulation.http is not None:
            self.simulation.http.ended(self, process, silently=silently)
        calls, self._calls = self._calls, {}
        for fail in calls:
            with contextlib.suppress(asyncio.InvalidStateError):
                fail(ConnectionLost(f"{self.name} is gone", sent=True))
        return True

    def _waits(self, operation: str, path: str) -> None:
        """The disk is waited for: by a thread, or by the event loop, which is deaf meanwhile (I31)."""
        loop = self.simulation.loop
        if not loop.is_on_a_thread and self.process is not None and self.process.is_alive:
            self.simulation.violated(
                "I31 the event loop waits for no disk", f"{self.name}: {operation} {path}"
            )

    def _died(self) -> None:
        """The disk says that its last change was the last before a death."""
        if self.process is not None and self.process.is_alive:
            self.process.is_alive = False  # nothing that still runs on this stack may speak
            self.simulation.loop.later(0.0, self.kill if self.is_killed_in_a_change else self.lose_power)

    def _fatal(self, error: BaseException) -> None:
        if self.process is not None and self.process.is_alive:
            self.simulation.violated("I9 no broken invariant inside", f"{self.name}: {error!r}")
            self.simulation.loop.later(0.0, self.kill)


_settings_made: dict[tuple[object, ...], BrokerSettings] = {}


def _settings(node: NodeId, simulation: Simulation) -> BrokerSettings:
    odds = simulation.odds
    key = (
        node,
        odds.brokers,
        odds.tick_ms,
        odds.election_ticks,
        odds.quiet_ticks,
        odds.retention_check_ms,
        odds.trash_delay_ms,
    )
    if key not in _settings_made:
        _settings_made[key] = BrokerSettings(
            broker_id=node,
            cluster_id=CLUSTER_ID,
            secret_file=Path("secret"),
            data_directory=Path(DATA_DIRECTORY),
            peers={number: Peer(port=9000 + number) for number in range(1, odds.brokers + 1)},
            limits=Limits(disk_reserve_bytes=0),
            timing=Timing(
                tick_ms=odds.tick_ms,
                heartbeat_ticks=1,
                election_ticks=odds.election_ticks,
                quiet_ticks=odds.quiet_ticks,
                dead_timeout_ms=3000,
                retention_check_ms=odds.retention_check_ms,
                trash_delay_ms=odds.trash_delay_ms,
            ),
        )
    return _settings_made[key]
