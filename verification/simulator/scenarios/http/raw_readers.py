"""Clients that fetch JSON and follow event streams without a client library; ``checker`` checks the
responses.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from chaos.history import Look
from raftlog.errors import ConnectionLost, OffsetOutOfRange
from verification.simulator.scenarios.http.raw import RawAnswer, RawConnection
from verification.simulator.scenarios.http.side import HttpSide
from verification.simulator.scenarios.http.simulated_client import SimulatedClient

_GOES_ON: Final = "A5 an event stream resumes where it was"
BATCH: Final = "application/vnd.raftlog.batch.v1"


class JsonReader(SimulatedClient):
    """Reads a partition from its start on as JSON, with reads of every other kind in between."""

    def __init__(self, side: HttpSide, name: str, partition: int) -> None:
        super().__init__(side, name)
        self._partition = partition
        self._position = 0
        self._path = f"/v1/topics/{self.cluster.checked[0].topic}/partitions/{partition}"

    async def run(self) -> None:
        """Read until the run ends; then continue until all records are read."""
        task = asyncio.get_running_loop().create_task(self._goes_on())
        await self.until_all_is_produced()
        await self.until_caught_up(self._partition, lambda: self._position)
        task.cancel()
        await asyncio.wait([task])
        await self.check_nothing_is_left()

    async def _goes_on(self) -> None:
        connection: RawConnection | None = None
        try:
            while True:
                await self.think()
                try:
                    if connection is None or connection.is_lost or self.rng.random() < 0.05:
                        if connection is not None:
                            connection.disconnect()
                        connection = await RawConnection.dial(self, self.host())
                    await (self._look_around if self.rng.random() < 0.5 else self._read)(connection)
                except ConnectionLost:
                    continue
        finally:
            if connection is not None:
                connection.disconnect()

    async def _read(self, connection: RawConnection) -> None:
        rng = self.rng
        query = f"offset={self._position}"
        query += rng.choice(("", "&limit=1", "&limit=3", "&max_bytes=1", "&max_bytes=400"))
        query += rng.choice(("", "", "&wait=100ms", "&wait=400ms", "&wait=300ms&min_bytes=500"))
        answer = await connection.ask("GET", f"{self._path}/records?{query}")
        if isinstance(answer.error, OffsetOutOfRange) and answer.status == 410:
            self._position = self.deleted(self._partition, self._position, answer.error)
        elif answer.status == 200:
            body = answer.json
            self.polled(self._partition, [(one["offset"], _value(one)) for one in body["records"]])
            self._position = body["next_offset"]
        elif answer.status == 204:
            self._position = answer.number("raftlog-next-offset")

    async def _look_around(self, connection: RawConnection) -> None:
        """Read from other positions: ``checker`` checks the responses, and the reader's position does not
        change.
        """
        rng, here = self.rng, self._path
        time_ms = 1_700_000_000_000 + int(self.cluster.loop.now * 1000) - rng.choice((0, 500, 3000, 60_000))
        offset = max(0, self._position - rng.randrange(5))
        accept = {"Accept": BATCH} if rng.random() < 0.5 else {}
        target, headers = rng.choice(
            (
                (f"{here}/records?offset={offset}&tags={rng.choice(('red', 'blue,red', 'none'))}", accept),
                (f"{here}/records?offset={max(0, offset - 20)}&tags_none=red&max_bytes=400", accept),
                (f"{here}/records?offset={self._position}&tags=red&wait=400ms", accept),
                (
                    f"{here}/records?offset={max(0, offset - 20)}&tags_all=red,blue&tags_none=green&limit=1",
                    {},
                ),
                (f"{here}/records?offset=-{rng.choice((1, 2, 5, 30))}", {}),
                (f"{here}/records?offset=-4&limit=2", {}),
                (f"{here}/records?offset=latest", {}),
                (f"{here}/records?offset=latest&wait=200ms", {}),
                (f"{here}/records?offset=timestamp:{time_ms}", {}),
                (f"{here}/records?limit=2", {}),
                (f"{here}/records?offset={offset}&max_bytes=1", accept),
                (f"{here}/records?offset={offset}&route=redirect", accept),
                (f"{here}/records?offset={self._position + rng.choice((0, 1, 40))}&wait=50ms", accept),
                (f"{here}/offsets?at=timestamp:{time_ms}", {}),
                (f"{here}/offsets?at=-{rng.choice((1, 3))}", {}),
                (f"{here}/offsets", {}),
                (
                    f"/v1/topics/{self.cluster.checked[0].topic}/partitions/{self._partition}/records/{offset}",
                    {},
                ),
            )
        )
        invoked = self.cluster.loop.now
        answer = await connection.ask("GET", target, headers)
        if target.endswith("/offsets") and answer.status == 200:
            self._looked(invoked, answer)

    def _looked(self, invoked: float, answer: RawAnswer) -> None:
        look = Look(
            partition=self._partition,
            invoked_s=invoked,
            completed_s=self.cluster.loop.now,
            high_watermark=answer.json["offset"],
        )
        self.cluster.history.looks.append(look)


class EventReader(SimulatedClient):
    """Follows an event stream, and reconnects with ``Last-Event-ID`` after interruptions."""

    def __init__(self, side: HttpSide, name: str, partition: int) -> None:
        super().__init__(side, name)
        self._partition = partition
        self._last_id = -1
        self._start = 0
        self._path = f"/v1/topics/{self.cluster.checked[0].topic}/partitions/{partition}/records"

    async def run(self) -> None:
        """Follow the stream until the run ends; then continue until all records are read."""
        task = asyncio.get_running_loop().create_task(self._goes_on())
        await self.until_all_is_produced()
        await self.until_caught_up(self._partition, lambda: self._last_id + 1)
        task.cancel()
        await asyncio.wait([task])
        await self.check_nothing_is_left()

    async def _goes_on(self) -> None:
        while True:
            connection: RawConnection | None = None
            try:
                connection = await RawConnection.dial(self, self.host())
                await self._follow(connection)
            except ConnectionLost:
                pass
            finally:
                if connection is not None:
                    connection.disconnect(by_reset=self.rng.random() < 0.5)
            await self.think()

    async def _follow(self, connection: RawConnection) -> None:
        rng = self.rng
        headers = {"Accept": "text/event-stream"}
        target = f"{self._path}?max_bytes={rng.choice((400, 4000, 1 << 20))}"
        if self._last_id >= 0:
            headers["Last-Event-ID"] = str(self._last_id)
        else:
            target += f"&offset={self._start}"
        is_tagged = rng.random() < 0.15  # a stream on the side, which is checked on the wire
        if is_tagged:
            target += "&tags=red,blue"
        connection.send("GET", target, headers)
        leaves_at = self.cluster.loop.now + rng.choice((0.3, 2.0) if is_tagged else (0.3, 2.0, 100.0))
        naps = rng.random() < 0.2
        while self.cluster.loop.now < leaves_at or not (is_tagged or self.cluster.is_producing):
            try:
                async with asyncio.timeout(3 * self.side.odds.heartbeat_ms / 1000 + 3.0):
                    event = await connection.events.get()
            except TimeoutError:
                return  # silent for longer than a stream may be
            if event is None:
                self._refused(connection)
                return
            if not is_tagged:
                self._got(event)
            if naps and self.cluster.is_producing and connection.transport is not None:
                connection.transport.pause_reading()
                await asyncio.sleep(0.05)
                connection.transport.resume_reading()

    def _refused(self, connection: RawConnection) -> None:
        answer = None if connection.answers.empty() else connection.answers.get_nowait()
        if answer is not None and answer.status == 410 and isinstance(answer.error, OffsetOutOfRange):
            self._behind(answer.error)

    def _behind(self, error: OffsetOutOfRange) -> None:
        """Continue at the log start, because the records at the reader's position are deleted."""
        self._start = self.deleted(self._partition, self._last_id + 1, error)
        self._last_id = self._start - 1

    def _got(self, event: bytes) -> None:
        fields = dict(line.split(": ", 1) for line in event.decode().split("\n"))
        data = msgspec.json.decode(fields["data"])
        if fields["event"] == "record":
            if data["offset"] <= self._last_id:
                self.cluster.violated(_GOES_ON, f"{self.name}: {data} behind {self._last_id}")
            self._last_id = int(fields["id"])
            self.polled(self._partition, [(data["offset"], _value(data))])
        elif fields["event"] == "problem" and data.get("start", 0) > self._last_id + 1:
            self._behind(OffsetOutOfRange(data["detail"], start=data["start"], end=data["end"]))


def _value(one: dict[str, object]) -> str:
    return "" if one["value"] is None else str(one["value"])
