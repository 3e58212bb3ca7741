"""Checks after healing that every broker serves HTTP clients (L8).

Decides: the requests and their deadlines. Leaves to others: the content of the responses
(``checker``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from chaos.history import Outcome
from raftlog.errors import ConnectionLost, RaftlogError
from verification.simulator.machine import Machine
from verification.simulator.scenarios.http.raw import RawAnswer, RawConnection, request_bytes
from verification.simulator.scenarios.http.side import HttpSide
from verification.simulator.scenarios.http.simulated_client import SimulatedClient

_WORKS: Final = "L8 healed clients work"
_LEFT: Final = "L6 no leaks"
SOON_S: Final = 1.5  # a quiescent group wakes up within an election timeout
TRIES_MAX: Final = 5
JSON: Final = {"Content-Type": "application/json"}
RAW: Final = {"Content-Type": "application/octet-stream"}


class Prober(SimulatedClient):
    """Sends requests to every broker, and checks that they succeed in time."""

    def __init__(self, side: HttpSide) -> None:
        super().__init__(side, "prober")
        self._topic = self.cluster.checked[0].topic
        self._path = f"/v1/topics/{self._topic}/partitions/0/records"

    async def run(self) -> None:
        """Probe two brokers concurrently, so that at least one of them does not lead."""
        some = self.rng.sample(self.cluster.machines, 2)
        together = (self._wakes, self._streams, self._stores, self._forgets)
        await asyncio.gather(*(self._ask(machine, *together) for machine in some))
        for machine in some:
            await self._ask(machine, self._looks_back)
        await self.check_nothing_is_left()

    async def _ask(self, machine: Machine, *probes: Callable[[Machine], Awaitable[None]]) -> None:
        for probe in probes:
            try:
                await probe(machine)
            except RaftlogError as error:
                self._failed(machine, f"{probe}: {error!r}")

    async def _wakes(self, machine: Machine) -> None:
        """Check that a long poll returns when a new record is stored."""
        poller = await RawConnection.dial(self, f"b{machine.node}")
        end = await self._offset(poller, "latest")
        poller.send("GET", f"{self._path}?offset={end}&wait=20s")
        await asyncio.sleep(0.05)
        value = await self._produce(self.host())
        try:
            answer = await poller.answer(SOON_S)
            if answer.status != 200:  # its content is checked on the wire
                self._failed(machine, f"a poll at {end} got {answer}, not {value}")
        except ConnectionLost:
            self._failed(machine, f"a poll at {end} did not get {value}")
        poller.disconnect(by_reset=False)

    async def _streams(self, machine: Machine) -> None:
        """Check that a stream has heartbeats while no record is written, and new records at once."""
        stream = await RawConnection.dial(self, f"b{machine.node}")
        stream.send("GET", f"{self._path}?offset=latest", {"Accept": "text/event-stream"})
        seen: list[str] = []
        for expected in ("heartbeat", "heartbeat", "record"):
            if expected == "record":
                await self._produce(self.host())
            try:
                async with asyncio.timeout(SOON_S + self.side.odds.heartbeat_ms / 1000):
                    while not seen or seen[-1] != expected:
                        event = await stream.events.get()
                        if event is None:
                            raise TimeoutError
                        seen.append(event.split(b"\n")[0].decode().removeprefix("event: "))
                        if expected == "heartbeat":
                            break
            except TimeoutError:
                self._failed(machine, f"a stream brought {seen}, and no {expected}")
                break
        stream.disconnect()

    async def _forgets(self, machine: Machine) -> None:
        """Check that a waiting request ends when its client disconnects, for both HTTP parsers of a
        broker.
        """
        for headers in ({}, {"Accept": "text/event-stream"}, {"Connection": "Keep-Alive, x"}):
            poller = await RawConnection.dial(self, f"b{machine.node}")
            poller.send("GET", f"{self._path}?offset=latest&wait=50s", headers)
            await asyncio.sleep(0.1)
            poller.disconnect(by_reset=self.rng.random() < 0.5)
        await asyncio.sleep(1.2 + self.side.odds.heartbeat_ms / 1000)
        for what, count in self.side.held_resources(machine):
            if count and "connections" not in what:
                self.cluster.violated(_LEFT, f"{machine.name}: {count} {what}, and all have hung up")

    async def _stores(self, machine: Machine) -> None:
        """Check that records of a complete request are stored, although its client has disconnected."""
        connection = await RawConnection.dial(self, f"b{machine.node}")
        value, invoked = self.value(), self.moment()
        body = msgspec.json.encode({"records": [{"value": value}]})
        assert connection.transport is not None
        connection.transport.write(request_bytes("POST", self._path, JSON, body))
        connection.disconnect(by_reset=False)
        await self._breaks_off(machine)
        self.sent(self.cluster.next_process(), 0, value, invoked, Outcome.UNKNOWN, None)
        for _ in range(30):
            await asyncio.sleep(SOON_S / 30)
            committed = self.committed(0)
            if committed is None or any(row.value == value.encode() for row in committed.rows[-50:]):
                return
        self._failed(machine, f"{value} was sent whole, and is not stored")

    async def _breaks_off(self, machine: Machine) -> None:
        """Check that the value of an incomplete request is not stored."""
        connection = await RawConnection.dial(self, f"b{machine.node}")
        data = request_bytes("POST", self._path, RAW, self.value().encode() * 2)
        assert connection.transport is not None
        connection.transport.write(data[:-8])
        await asyncio.sleep(0.05)
        connection.disconnect()

    async def _looks_back(self, machine: Machine) -> None:
        """Read the newest records, among them the leader change record of a new leader. ``checker`` checks
        the responses.
        """
        connection = await RawConnection.dial(self, f"b{machine.node}")
        transfer = f"{self._path.removesuffix('/records')}:transfer-leadership"
        await connection.ask("POST", transfer, JSON, b"{}")
        await self._produce(f"b{machine.node}")
        offsets = self._path.removesuffix("records") + "offsets"
        start = await self._offset(connection, "earliest")
        end = await self._offset(connection, "latest")
        nearly_all = max(end - start - 1, 1)
        for query in ("-1", "-2", "-3&limit=2", f"-{nearly_all}&limit=20", f"-{end + 5}&limit=4"):
            answer = await connection.ask("GET", f"{self._path}?offset={query}")
            if answer.status != 200:
                self._failed(machine, f"the last {query} are {answer}")
        for offset in range(max(end - 5, start), end + 2):
            await connection.ask("GET", f"{self._path}?offset={offset}&max_bytes=1&wait=1ms")
            await connection.ask("GET", f"{self._path}?offset={offset}&limit=1")
            await connection.ask("GET", f"/v1/topics/{self._topic}/partitions/0/records/{offset}")
        committed = self.committed(0)
        for row in () if committed is None else committed.rows[-2:]:
            for time_ms in (row.timestamp_ms, row.timestamp_ms + 1):
                await connection.ask("GET", f"{offsets}?at=timestamp:{time_ms}")
        connection.disconnect(by_reset=False)

    async def _offset(self, connection: RawConnection, at: str) -> int:
        """Return the offset that the broker gives for a position. Raises the broker's error."""
        answer = await connection.ask("GET", f"{self._path.removesuffix('records')}offsets?at={at}")
        if (error := answer.error) is not None:
            raise error
        return int(answer.json["offset"])

    async def _produce(self, host: str) -> str:
        """Store a value. If the leader is stepping down, a retry finds the next leader."""
        value, answer = await self._try_to_produce(host)
        for _ in range(TRIES_MAX):
            if answer.status == 200:
                return value
            await asyncio.sleep(SOON_S / TRIES_MAX)
            value, answer = await self._try_to_produce(host)
        self.cluster.violated(_WORKS, f"{host} accepts no record: {answer}")
        return value

    async def _try_to_produce(self, host: str) -> tuple[str, RawAnswer]:
        """Send a produce request in pieces, one of which ends within the body."""
        connection = await RawConnection.dial(self, host)
        value, invoked = self.value(), self.moment()
        body = msgspec.json.encode({"records": [{"value": value}]})
        data = request_bytes("POST", self._path, JSON, body)
        assert connection.transport is not None
        for piece in (data[:-20], data[-20:-5], data[-5:]):
            connection.transport.write(piece)
            await asyncio.sleep(0.002)
        answer = await connection.answer()
        connection.disconnect(by_reset=False)
        offset = answer.json["records"][0]["offset"] if answer.status == 200 else None
        outcome = Outcome.UNKNOWN if offset is None else Outcome.ACKNOWLEDGED
        self.sent(self.cluster.next_process(), 0, value, invoked, outcome, offset)
        return value, answer

    def _failed(self, machine: Machine, detail: str) -> None:
        self.cluster.violated(_WORKS, f"{machine.name}: {detail}")
