"""Clients that produce JSON, lines of JSON and raw bodies without a client library. They send one request or
many at a time, and sometimes disconnect.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from chaos.history import Outcome
from raftlog.errors import ConnectionLost, RaftlogError, from_code
from verification.simulator.scenarios.http.raw import RawAnswer, RawConnection, request_bytes
from verification.simulator.scenarios.http.simulated_client import SimulatedClient

HANG_UP_ODDS: Final = 0.1
JSON: Final = {"Content-Type": "application/json"}
LINES: Final = {"Content-Type": "application/x-ndjson"}


class JsonProducer(SimulatedClient):
    """Sends one request after another, of every kind. It never retries, so that each value is sent once."""

    async def run(self) -> None:
        """Produce until the run ends."""
        connection: RawConnection | None = None
        while self.cluster.is_producing:
            await self.think()
            if connection is None or connection.is_lost or self.rng.random() < 0.1:
                if connection is not None:
                    connection.disconnect(by_reset=self.rng.random() < 0.5)
                connection = None
                try:
                    connection = await RawConnection.dial(self, self.host())
                except ConnectionLost:
                    continue
            await self._produce(connection)
        if connection is not None:
            connection.disconnect(by_reset=False)
        await self.check_nothing_is_left()

    async def _produce(self, connection: RawConnection) -> None:
        target, headers, body, records = self._request()
        invoked, process = self.moment(), self.cluster.next_process()
        hangs_up = self.rng.random() < HANG_UP_ODDS
        data = request_bytes("POST", target, headers, body)
        if connection.transport is None or connection.is_lost:
            return
        if hangs_up:
            cut = self.rng.randint(1, len(data))
            connection.transport.write(data[:cut])
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.05)))
            connection.disconnect(by_reset=self.rng.random() < 0.5)
            outcome = Outcome.UNKNOWN if cut == len(data) else Outcome.FAILED
            self._write_down(process, invoked, records, outcome)
            return
        connection.transport.write(data)
        await self.settle(connection, process, invoked, records)

    async def settle(
        self, connection: RawConnection, process: int, invoked: float, records: list[dict[str, Any]]
    ) -> RawAnswer | None:
        """Wait for the response to a request, and record the outcome of each of its records."""
        try:
            answer = await connection.answer()
        except ConnectionLost:
            self._write_down(process, invoked, records, Outcome.UNKNOWN)
            return None
        if answer.status in (200, 207):
            for record, receipt in zip(records, answer.json["records"], strict=True):
                self._write_down_one(process, invoked, record, receipt)
        else:
            error = answer.error
            is_final = error is not None and error.is_definite
            self._check_refusal(error)
            self._write_down(process, invoked, records, Outcome.FAILED if is_final else Outcome.UNKNOWN)
        return answer

    def _check_refusal(self, error: RaftlogError | None) -> None:
        if error is not None and error.code not in _USUAL:
            self.cluster.violated("I12 errors", f"{self.name}: {error!r}")

    def _request(self) -> tuple[str, dict[str, str], bytes, list[dict[str, Any]]]:
        rng, partitions = self.rng, len(self.cluster.checked)
        topic = self.cluster.checked[0].topic
        only = rng.choice((None, rng.randrange(partitions)))
        path = f"/v1/topics/{topic}/records"
        if only is not None:
            path = f"/v1/topics/{topic}/partitions/{only}/records"
        query = rng.choice(("", "", "", "?acks=1", "?timeout=2s", "?acks=quorum&timeout=1s", "?acks=0"))
        if "reassign" not in self.cluster.odds.timed and rng.random() < 0.1:
            query = rng.choice(("?acks=every", f"?acks={self.cluster.odds.replicas}"))
        kind = rng.choice(("json", "json", "lines", "raw"))
        if kind == "raw":
            return self._raw(path + query, only)
        records = [self._record(only) for _ in range(rng.choice((1, 1, 2, 5)))]
        bodies = [{name: value for name, value in one.items() if name != "acks"} for one in records]
        if kind == "json":
            body, headers = msgspec.json.encode({"records": bodies}), JSON
        else:
            body, headers = b"\n".join(map(msgspec.json.encode, bodies)), LINES
        for one in records:
            one["acks"] = query
        return path + query, dict(headers), body, records

    def _record(self, only: int | None) -> dict[str, Any]:
        rng = self.rng
        record: dict[str, Any] = {"value": self.value()}
        if rng.random() < 0.4:
            record["key"] = f"key {rng.randrange(20)}"
        if only is None and rng.random() < 0.2:
            record["partition"] = rng.randrange(len(self.cluster.checked))
        if rng.random() < 0.2:
            record["headers"] = {"source": f"{rng.randrange(9)}", "none": None}
        if rng.random() < 0.2:
            record["tags"] = ["red"]
        if rng.random() < 0.2:
            record["timestamp"] = 1_700_000_000_000 + rng.randrange(1000)
        return record

    def _raw(self, target: str, only: int | None) -> tuple[str, dict[str, str], bytes, list[dict[str, Any]]]:
        record: dict[str, Any] = {"value": self.value(), "acks": target}
        headers = {"Content-Type": "application/octet-stream"}
        if self.rng.random() < 0.5:
            record["key"] = headers["Raftlog-Key"] = f"key {self.rng.randrange(20)}"
        if self.rng.random() < 0.3:
            headers |= {"Raftlog-Tags": "red, ", "Raftlog-Header-source": "raw"}
        return target, headers, record["value"].encode(), [record]

    def _write_down_one(
        self, process: int, invoked: float, record: dict[str, Any], receipt: dict[str, Any]
    ) -> None:
        if "problem" in receipt:
            error = from_code(receipt["problem"]["code"], receipt["problem"]["detail"], {})
            self._check_refusal(error)
            outcome = Outcome.FAILED if error.is_definite else Outcome.UNKNOWN
            self._write_down(process, invoked, [record], outcome)
            return
        is_sure = "acks=1" not in record["acks"]
        outcome = Outcome.ACKNOWLEDGED if is_sure else Outcome.UNKNOWN
        partition, offset = receipt["partition"], receipt["offset"] if is_sure else None
        self.sent(process, partition, record["value"], invoked, outcome, offset)

    def _write_down(
        self, process: int, invoked: float, records: list[dict[str, Any]], outcome: Outcome
    ) -> None:
        """Record the outcome of sent records. If their partition is not known, they may be in any
        partition.
        """
        for record in records:
            for target in self.cluster.checked:
                self.sent(process, target.partition, record["value"], invoked, outcome, None)


class BurstProducer(JsonProducer):
    """Sends many small requests at one moment, so that brokers join them in batches; sometimes several in one
    write.
    """

    async def run(self) -> None:
        """Produce in bursts until the run ends."""
        connections: list[RawConnection] = []
        while self.cluster.is_producing:
            await self.think()
            await self.think()
            connections = [one for one in connections if not one.is_lost]
            while len(connections) < 5:
                try:
                    connections.append(await RawConnection.dial(self, self.host()))
                except ConnectionLost:
                    break
            await self._burst([one for one in connections if not one.is_lost])
        for connection in connections:
            connection.disconnect(by_reset=False)
        await self.check_nothing_is_left()

    async def _burst(self, connections: list[RawConnection]) -> None:
        topic = self.cluster.checked[0].topic
        partition = self.rng.randrange(len(self.cluster.checked))
        path = f"/v1/topics/{topic}/partitions/{partition}/records"
        if self.rng.random() < 0.3:
            path = f"/v1/topics/{topic}/records"
        settling = []
        for connection in connections:
            count = self.rng.choice((1, 1, 1, 2, 3))
            data = b""
            sent = []
            for _ in range(count):
                records: list[dict[str, Any]] = [
                    {"value": self.value(), "timestamp": 1_700_000_000_000 + self._values}
                    for _ in range(self.rng.choice((1, 1, 2)))
                ]
                body = msgspec.json.encode({"records": records})
                data += request_bytes("POST", path, JSON, body)
                for record in records:
                    record["acks"] = ""
                sent.append((self.cluster.next_process(), self.moment(), records))
            assert connection.transport is not None
            connection.transport.write(data)
            if self.rng.random() < HANG_UP_ODDS / 3:
                connection.disconnect(by_reset=False)
                for process, invoked, records in sent:
                    self._write_down(process, invoked, records, Outcome.UNKNOWN)
            else:
                settling.append(self._settle_all(connection, sent))
        await asyncio.gather(*settling)

    async def _settle_all(
        self, connection: RawConnection, sent: list[tuple[int, float, list[dict[str, Any]]]]
    ) -> None:
        for process, invoked, records in sent:
            await self.settle(connection, process, invoked, records)


_USUAL: Final = frozenset(
    (
        "no_leader",
        "not_leader",
        "not_enough_replicas",
        "overloaded",
        "quota_exceeded",
        "draining",
        "storage_full",
        "commit_unknown",
        "connection_lost",
        "topic_not_found",
        "partition_not_found",
    )
)
"""Codes of errors that a valid request may get during faults."""
