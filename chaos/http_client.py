"""Sends HTTP requests: a call is one request with one attempt, and its error states the outcome.

Decides: which failures of a connection make the outcome unknown (``ConnectionLost``) and which mean that
nothing was sent (``NotSent``). Leaves to others: retries. The module does not use ``raftlog.client.Client``,
so that an error there cannot hide an error in the brokers.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp

from raftlog.client.single_attempt import single_attempt
from raftlog.errors import ConnectionLost, NotSent, RaftlogError
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import Record, build_batch, with_producer
from raftlog.records.reader import read_records
from raftlog.wire import headers, media_types, partitions, problems
from raftlog.wire import records as record_operations

CONNECT_S = 1.0
PRODUCE_TIMEOUT_MS = 3000  # the broker's timeout
ANSWER_S = 6.0  # timeout of a response, for a broker that stopped in the middle of it


@dataclass(frozen=True, slots=True)
class Body:
    """The body and headers of one send, which are identical in every retry."""

    data: bytes
    headers: dict[str, str]
    record_count: int


@dataclass(frozen=True, slots=True)
class Opened:
    """An open transaction: its id, and the producer id and epoch of its batches."""

    id: str
    producer_id: int
    producer_epoch: int

    @classmethod
    def parse(cls, text: str) -> Opened:
        """Parse the id of a transaction, such as ``copy-1@4711.0``."""
        producer_id, _, epoch = text.rpartition("@")[2].partition(".")
        return cls(text, int(producer_id), int(epoch))


@dataclass(frozen=True, slots=True)
class Page:
    """The result of one fetch."""

    records: tuple[tuple[int, str], ...]
    next_offset: int
    high_watermark: int


class Client:
    """Sends requests to one broker at a time; ``rotate`` switches to another broker."""

    def __init__(self, urls: Sequence[str], topic: str, rng: random.Random) -> None:
        self.rng = rng
        self._urls = list(urls)
        self._topic = topic
        self._at = rng.randrange(len(self._urls))
        self._session: aiohttp.ClientSession | None = None

    def rotate(self) -> None:
        """Use the next broker for all later requests."""
        self._at = (self._at + 1) % len(self._urls)

    def body(self, values: Sequence[str], producer_id: int, sequence: int, *, binary: bool) -> Body:
        """Build a produce request outside transactions: with a binary batch, or with JSON and the producer in
        headers.
        """
        if binary:
            data = with_producer(_batch(values), producer_id, 0, sequence)
            return Body(data, {"Content-Type": media_types.BATCH}, len(values))
        identity = {
            headers.PRODUCER_ID: str(producer_id),
            headers.PRODUCER_EPOCH: "0",
            headers.PRODUCER_SEQUENCE: str(sequence),
        }
        return Body(_rows(values), {"Content-Type": media_types.JSON, **identity}, len(values))

    def body_in(self, opened: Opened, values: Sequence[str], sequence: int, *, binary: bool) -> Body:
        """Build a produce request in a transaction: with a binary batch, or with JSON."""
        sent = {headers.TRANSACTION: opened.id}
        if binary:
            producer = opened.producer_id, opened.producer_epoch
            data = with_producer(_batch(values), *producer, sequence, in_transaction=True)
            return Body(data, {"Content-Type": media_types.BATCH, **sent}, len(values))
        sent[headers.PRODUCER_SEQUENCE] = str(sequence)
        return Body(_rows(values), {"Content-Type": media_types.JSON, **sent}, len(values))

    async def producer_id(self) -> int:
        """Allocate a producer id."""
        answer = await self.call(
            "POST", record_operations.CREATE.path, b"{}", {"Content-Type": media_types.JSON}
        )
        return int(json.loads(answer[1])["producer_id"])

    async def produce(self, partition: int, body: Body) -> int:
        """Produce a body with one attempt; return the offset of its first record."""
        path = record_operations.PRODUCE_TO_PARTITION.at(topic=self._topic, partition=partition)
        query = f"?timeout={PRODUCE_TIMEOUT_MS}ms"
        _, data, _ = await self.call("POST", path + query, body.data, body.headers)
        answer = json.loads(data)
        if "base_offset" in answer:
            return int(answer["base_offset"])
        offsets = [int(receipt["offset"]) for receipt in answer["records"]]
        if offsets != list(range(offsets[0], offsets[0] + body.record_count)):
            raise RaftlogError(f"a batch of {body.record_count} records was given the offsets {offsets}")
        return offsets[0]

    async def fetch(self, partition: int, offset: int, *, wait_ms: int, binary: bool) -> Page:
        """Return records from an offset on, as many as fit into one response."""
        path = record_operations.FETCH.at(topic=self._topic, partition=partition)
        query = f"?offset={offset}&wait={wait_ms}ms"
        accept = media_types.BATCH if binary else media_types.JSON
        status, data, found = await self.call("GET", path + query, None, {"Accept": accept})
        following, end = int(found[headers.NEXT_OFFSET]), int(found[headers.HIGH_WATERMARK])
        if status == 204:
            return Page((), following, end)
        if binary:
            stored = [
                record
                for batch in split_batches(data)
                if not batch.header.is_control
                for record in read_records(batch)
                if record.offset >= offset
            ]
            records = tuple((record.offset, (record.value or b"").decode()) for record in stored)
        else:
            records = tuple((row["offset"], row["value"]) for row in json.loads(data)["records"])
        return Page(records, following, end)

    async def end_of(self, partition: int, *, isolation: str = "uncommitted") -> int:
        """Return the end of a partition by a linearizable read: the high watermark, or the last stable offset
        for ``committed``.
        """
        path = partitions.OFFSET_AT.at(topic=self._topic, partition=partition)
        query = f"?at=latest&isolation={isolation}"
        return int(json.loads((await self.call("GET", path + query, None, {}))[1])["offset"])

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(middlewares=(single_attempt,))
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, data: bytes | None, sent: dict[str, str], *, answer_s: float = ANSWER_S
    ) -> tuple[int, bytes, dict[str, str]]:
        """Return status, body and headers of a successful response. A problem is raised as the error that it
        describes.
        """
        assert self._session is not None
        timeout = aiohttp.ClientTimeout(total=answer_s, sock_connect=CONNECT_S)
        try:
            async with self._session.request(
                method, self._urls[self._at] + path, data=data, headers=sent, timeout=timeout
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ConnectionLost(f"{type(error).__name__}: {error}") from error
        if answer.status < 300:
            return answer.status, body, dict(answer.headers)
        raise problems.read_problem(body) or RaftlogError(f"{answer.status}: {body[:300]!r}")


def _batch(values: Sequence[str]) -> bytes:
    records = [Record(value.encode()) for value in values]
    return build_batch(records, codec=Codec.NONE, timestamp_ms=0)


def _rows(values: Sequence[str]) -> bytes:
    return json.dumps({"records": [{"value": value} for value in values]}).encode()
