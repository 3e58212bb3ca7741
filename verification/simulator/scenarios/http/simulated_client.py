"""The base of all clients over HTTP: each has a process of its own, and is checked for leaks at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from chaos.history import Outcome, Poll, Send
from raftlog import aio
from raftlog.client.environment import Environment
from raftlog.errors import OffsetOutOfRange, RaftlogError
from verification.simulator.event_loop import Process
from verification.simulator.machine import WALL_MS_AT_START
from verification.simulator.scenarios.http.committed import Committed
from verification.simulator.scenarios.http.connector import SimulatedConnector
from verification.simulator.scenarios.http.side import HttpSide
from verification.simulator.scenarios.http.transport import StreamTransport

_LEAK: Final = "C5 a closed client leaks nothing"
PATIENCE_S: Final = 12.0  # in a calm network: a silent leader is noticed after 5 s
LOOK_S: Final = 0.05


class ClientClock:
    """The clocks of a client process."""

    is_known = True

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def monotonic(self) -> float:
        """Seconds since the run began."""
        return self._now()

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return WALL_MS_AT_START + int(self._now() * 1000)


class SimulatedClient:
    """Base class of a client with its own process."""

    def __init__(self, side: HttpSide, name: str) -> None:
        self.side = side
        self.cluster = side.cluster
        self.name = name
        self.rng: random.Random = self.cluster.rng(f"guest {name}")
        self.process = Process(name)
        self.number = self.cluster.next_process()
        self._values = 0
        self._moments = 0

    async def live(self) -> None:
        """Run the client; report an unexpected exception as a violation."""
        try:
            await self.run()
        except (RaftlogError, ExceptionGroup) as error:
            self.cluster.violated("L8 healed clients work", f"{self.name}: {error!r}")

    async def run(self) -> None:
        """Send requests until all producers have ended; defined by each kind of client."""
        raise NotImplementedError

    def client(self) -> aio.Client:
        """Create a production client on the simulated network."""
        urls = [f"http://b{machine.node}" for machine in self.cluster.machines]
        self.rng.shuffle(urls)
        environment = Environment(
            clock=ClientClock(lambda: self.cluster.loop.now),
            rng=random.Random(self.rng.getrandbits(64)),
            connector=lambda: SimulatedConnector(self.side.streams, self.process),
        )
        some = urls[: self.rng.randint(1, len(urls))]
        return aio.Client(some, request_timeout="2s", retry_timeout="5s", environment=environment)

    def host(self) -> str:
        """Return the host of a random broker."""
        return f"b{self.rng.choice(self.cluster.machines).node}"

    def value(self) -> str:
        """Return a new unique value."""
        self._values += 1
        return f"{self.name}-{self._values}"

    def moment(self) -> float:
        """Return the current time in seconds; each call returns a greater value than the call before."""
        self._moments += 1
        return self.cluster.loop.now + self._moments * 1e-9

    async def until_all_is_produced(self) -> None:
        """Wait until all producers have ended and the cluster works again."""
        while self.cluster.is_producing:
            await self.think()

    async def think(self) -> None:
        """Pause before the next request."""
        await asyncio.sleep(self.rng.expovariate(1.0) * self.side.odds.think_s)

    def sent(
        self, process: int, partition: int, value: str, invoked: float, outcome: Outcome, offset: int | None
    ) -> None:
        """Record the outcome of a send."""
        self.cluster.history.sends.append(
            Send(
                process=process,
                partition=partition,
                value=value,
                invoked_s=invoked,
                completed_s=self.cluster.loop.now,
                outcome=outcome,
                offset=offset,
            )
        )
        self.cluster.trace.note(None, f"{value} {outcome.value} {partition}/{offset}")

    def polled(self, partition: int, records: list[tuple[int, str]]) -> None:
        """Record in the history that these records were read."""
        self._note_poll(partition, records)
        self.cluster.trace.note(None, f"{self.name} reads {partition}/{[offset for offset, _ in records]}")

    def deleted(self, partition: int, position: int, error: OffsetOutOfRange) -> int:
        """Record that the records at a reader's position were deleted; return the new position."""
        start = int(str(error.details["start"]))
        if start <= position:
            self.cluster.violated("I13 a position stays valid", f"{self.name} at {position}: {error}")
        self.cluster.log_starts.reported(self.cluster.checked[partition], start)
        self._note_poll(partition, [], log_start=start)
        return start

    def _note_poll(self, partition: int, records: list[tuple[int, str]], log_start: int = 0) -> None:
        now = self.cluster.loop.now
        self.cluster.history.polls.append(
            Poll(
                process=self.number,
                partition=partition,
                invoked_s=now,
                completed_s=now,
                records=tuple(records),
                log_start=log_start,
            )
        )

    def committed(self, partition: int) -> Committed | None:
        """Return the committed records of a partition; None if the partition is not known or deleted."""
        known = self.side.known
        group = known.group_of(self.cluster.checked[partition])
        return None if group is None or group.is_retired else known.committed_of(group)

    async def until_caught_up(self, partition: int, position: Callable[[], int]) -> None:
        """Check after the faults that a reader progresses until it has read all records that are committed
        now (C4).
        """
        committed = self.committed(partition)
        end = 0 if committed is None or not committed.rows else committed.rows[-1].offset + 1
        deadline, reached = self.cluster.loop.now + PATIENCE_S, position()
        while position() < end:
            if position() > reached:
                deadline, reached = self.cluster.loop.now + PATIENCE_S, position()
            if self.cluster.loop.now > deadline:
                detail = f"{self.name} is at {position()} of {partition}, committed is {end}"
                self.cluster.violated("C4 a reader gets every record once", detail)
                return
            await asyncio.sleep(LOOK_S)

    async def check_nothing_is_left(self) -> None:
        """Check that a closed client has no task, no connection and no timer left."""
        await asyncio.sleep(0.01)
        this = asyncio.current_task()
        tasks = [repr(task) for task in self.process.tasks if not task.done() and task is not this]
        open_ends = sum(end.process is self.process for end in self.side.streams.open)
        timers = [
            repr(handle.function)
            for _, _, handle in self.cluster.loop._timers
            if handle.process is self.process
            and not handle.cancelled()
            and not _is_of_network(handle.function)
        ]
        if tasks or open_ends or timers:
            self.cluster.violated(_LEAK, f"{self.name}: {open_ends} connections, {tasks}, {timers}")


def _is_of_network(function: object) -> bool:
    return isinstance(getattr(function, "__self__", None), StreamTransport)
