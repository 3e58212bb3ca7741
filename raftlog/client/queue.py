"""Receives and settles the jobs of a queue: workers share the records of a topic, and lease each record.

Decides: how the next jobs are requested, and which requests are repeated. Acknowledgements are repeated,
since a repetition changes nothing. A receive is repeated, too: the jobs in a lost answer are delivered again
when their leases end.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from typing import Unpack

from msgspec import UNSET, Raw

from raftlog.client.messages import Message
from raftlog.client.options import Duration, TagSettings, milliseconds
from raftlog.client.retries import pause_s
from raftlog.client.session import Session, in_doubt
from raftlog.client.settings import settings_of
from raftlog.errors import ConnectionLost, LeaseLost, RaftlogError
from raftlog.records.tags import TAG_RECORD_HEADER
from raftlog.wire import queues as wire
from raftlog.wire.operation import Operation
from raftlog.wire.tags import checked_selection

WAIT_MS = 20_000  # wait of one request in an endless loop over jobs
GIVE_BACK_S = 2.0  # time to give jobs back at the end of a loop
MARGIN_S = 10.0  # time of a request in addition to the broker's wait


class JobSettings(TagSettings, total=False):
    """Options of ``receive`` and ``jobs`` of a queue, which ``wanted_jobs`` checks.

    All workers of a queue have the same order and tags.
    """

    limit: int  # 1: how many jobs are leased at a time
    lease: Duration  # "30s": how long a lease is
    ordered_by_key: bool  # False: in any order; True delivers one job of a key at a time, in order
    max_deliveries: int  # 10: after the last delivery a job goes to the dead-letter topic


def wanted_jobs(
    wait_ms: int,
    *,
    limit: int = 1,
    lease: Duration = "30s",
    ordered_by_key: bool = False,
    max_deliveries: int = 10,
    tags: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    tags_none: Sequence[str] | None = None,
) -> wire.ReceiveJobs:
    """The body of a receive. Raises ``ValueError`` that names the option."""
    checked_selection(tags, tags_all, tags_none)
    return wire.ReceiveJobs(
        limit=limit,
        wait=wait_ms,
        lease=milliseconds("lease", lease),
        ordered_by_key=ordered_by_key,
        max_deliveries=max_deliveries,
        tags=[*(tags or ())],
        tags_all=[*(tags_all or ())],
        tags_none=[*(tags_none or ())],
    )


class AsyncJob:
    """A record that this worker has until its lease ends. ``deliveries`` is 1 at the first delivery.

    Acknowledge it when its work is done. A job that is neither acknowledged nor extended is delivered again.
    ``lease_until_ms`` is the end of the lease, in milliseconds of the brokers' wall clock.
    """

    def __init__(
        self, queue: AsyncQueue, message: Message, receipt: str, deliveries: int, lease_until_ms: int
    ) -> None:
        self._queue = queue
        self.message = message
        self.receipt = receipt
        self.deliveries = deliveries
        self.lease_until_ms = lease_until_ms

    @property
    def key(self) -> bytes | None:
        """The key of the record."""
        key: bytes | None = self.message.key
        return key

    @property
    def value(self) -> bytes | None:
        """The value of the record."""
        value: bytes | None = self.message.value
        return value

    async def ack(self) -> None:
        """Mark the job as done. Raises ``LeaseLost`` if another worker has received the job since."""
        await self._queue.ack(self.receipt)

    async def nack(self, *, delay: Duration = 0, reason: str = "") -> None:
        """Give the job back: it is delivered again after ``delay``. Raises ``LeaseLost``."""
        await self._queue.nack(self.receipt, delay=delay, reason=reason)

    async def extend(self, lease: Duration = "30s") -> None:
        """Let the lease of the job end ``lease`` from now.

        Raises ``LeaseLost``, also if the lease has ended.
        """
        self.lease_until_ms = await self._queue.extend(self.receipt, lease=lease)

    async def dead_letter(self, *, reason: str = "") -> None:
        """Move the job to the dead-letter topic of the group. Raises ``LeaseLost``."""
        await self._queue.dead_letter(self.receipt, reason=reason)


class AsyncQueue:
    """A topic whose records a group processes as jobs. The first receive creates the queue."""

    def __init__(self, session: Session, topic: str, group: str) -> None:
        for what, name in (("topic", topic), ("group", group)):
            if not isinstance(name, str):
                raise TypeError(f"{what} is {name!r}; give its name as text")
        self._session = session
        self.topic = topic
        self.group = group

    @settings_of(JobSettings, wanted_jobs)
    async def jobs(
        self, *, idle: Duration | None = None, **settings: Unpack[JobSettings]
    ) -> AsyncGenerator[AsyncJob, None]:
        """Yield jobs without end, or until no job came for ``idle``, which is 50 seconds at most.

        Up to ``limit`` jobs are leased at a time, and all their leases begin at once. When the loop over the
        jobs ends, jobs that were not handed out are given back, and count as not delivered. While no broker
        can answer, the call is retried. See ``receive``.
        """
        wanted = wanted_jobs(WAIT_MS if idle is None else milliseconds("idle", idle), **settings)
        ahead: deque[AsyncJob] = deque()
        with self._session.before_close(lambda: self._give_back(ahead)):
            try:
                while True:
                    ahead += await self._next_jobs(wanted)
                    if not ahead and idle is not None:
                        return
                    while ahead:
                        yield ahead.popleft()
            finally:
                await self._give_back(ahead)

    async def _next_jobs(self, wanted: wire.ReceiveJobs) -> list[AsyncJob]:
        """Receive jobs; retry after errors until the session gives up."""
        attempts = 0
        while True:
            try:
                return await self._received(wanted)
            except RaftlogError as error:
                if self._session.gives_up(error):
                    raise
                attempts += 1
                await asyncio.sleep(pause_s(error, attempts, self._session.rng))

    async def _give_back(self, ahead: deque[AsyncJob]) -> None:
        """Give jobs back: other workers get them at once, as if this worker had not received them."""
        receipts = [job.receipt for job in ahead]
        ahead.clear()
        if receipts and self._session.is_open:
            with contextlib.suppress(RaftlogError, TimeoutError):
                async with asyncio.timeout(GIVE_BACK_S):
                    await self._settle(wire.NACK, wire.NackJobs(receipts, undelivered=True))

    @settings_of(JobSettings, wanted_jobs)
    async def receive(self, *, wait: Duration = 0, **settings: Unpack[JobSettings]) -> list[AsyncJob]:
        """Receive at most ``limit`` jobs; return an empty list after ``wait``.

        A job whose lease ends after ``max_deliveries`` goes to the dead-letter topic. With ``ordered_by_key``
        one job of a key is delivered at a time, in order. The jobs are the records with any of ``tags``, all
        of ``tags_all`` and none of ``tags_none``; an empty list sets no condition. All workers of a queue
        have the same order and tags. Raises ``TopicNotFound``, and ``Conflict`` for a group with members,
        another order, or other tags.
        """
        return await self._received(wanted_jobs(milliseconds("wait", wait), **settings))

    async def _received(self, wanted: wire.ReceiveJobs) -> list[AsyncJob]:
        assert isinstance(wanted.wait, int)
        wait_s = wanted.wait / 1_000
        received = await self._session.call(
            wire.RECEIVE,
            wanted,
            query={"format": "base64"},
            attempt_timeout_s=wait_s + MARGIN_S,
            retry_timeout_s=wait_s + self._session.retry_timeout_s,
            topic=self.topic,
            group=self.group,
        )
        return [self._job(found) for found in received.items]

    async def ack(self, *receipts: str) -> None:
        """Mark jobs as done.

        Raises ``LeaseLost`` if other workers have some of the jobs; all other jobs are done.
        """
        await self._settle(wire.ACK, wire.AckJobs([*receipts]))

    async def nack(self, *receipts: str, delay: Duration = 0, reason: str = "") -> None:
        """Give jobs back; see ``Job.nack``."""
        body = wire.NackJobs([*receipts], milliseconds("delay", delay), reason)
        await self._settle(wire.NACK, body)

    async def extend(self, *receipts: str, lease: Duration = "30s") -> int:
        """Extend the leases of jobs; see ``Job.extend``.

        Returns the end of the leases, in milliseconds of the brokers' wall clock.
        """
        body = wire.ExtendJobs([*receipts], milliseconds("lease", lease))
        return (await self._settle(wire.EXTEND, body)).lease_until

    async def dead_letter(self, *receipts: str, reason: str = "") -> None:
        """Move jobs to the dead-letter topic of the group; see ``Job.dead_letter``."""
        await self._settle(wire.DEAD_LETTER, wire.DeadLetterJobs([*receipts], reason))

    async def describe(self) -> wire.QueueDescription:
        """Describe the queue and its progress. Raises ``QueueNotFound``."""
        return await self._session.call(wire.DESCRIBE, topic=self.topic, group=self.group)

    async def delete(self) -> None:
        """Delete the state of open jobs; the group's committed offsets stay. Raises ``QueueNotFound``."""
        await self._session.call(wire.DELETE, topic=self.topic, group=self.group)

    async def _settle(self, operation: Operation[wire.SettledJobs], body: wire.Settling) -> wire.SettledJobs:
        path = operation.at(topic=self.topic, group=self.group)
        reply = await self._session.ask_any(operation.method, path, body=body)
        found = reply.read(wire.SettledJobs)
        if found.failed:
            lost = LeaseLost(
                f"{len(found.failed)} of {len(body.receipts)} jobs: {found.failed[0].detail}",
                receipts=[each.receipt for each in found.failed],
            )
            raise lost if reply.doubt is None else in_doubt(reply.doubt, lost)
        return found

    def _job(self, found: wire.LeasedJob) -> AsyncJob:
        try:
            message = _message(found)
        except ValueError as error:
            raise ConnectionLost(f"the response cannot be read: {error}") from error
        return AsyncJob(self, message, found.receipt, found.deliveries, found.lease_until)


def _message(found: wire.LeasedJob) -> Message:
    key = None if found.key is None else found.key.encode()
    if key is not None and found.key_encoding == "base64":
        key = base64.b64decode(key)
    return Message(
        topic=found.topic,
        partition=found.partition,
        offset=found.offset,
        timestamp_ms=found.timestamp,
        key=key,
        value=_value(found.value),
        headers=(*_headers(found), *((TAG_RECORD_HEADER, tag.encode()) for tag in found.tags)),
        crc=found.crc,
        timestamp_type=found.timestamp_type,
    )


def _headers(found: wire.LeasedJob) -> Sequence[tuple[str, bytes | None]]:
    plain = [(name, None if text is None else text.encode()) for name, text in found.headers.items()]
    if found.headers_raw is UNSET:
        return plain
    return plain + [
        (name, None if text is None else base64.b64decode(text)) for name, text in found.headers_raw
    ]


def _value(shown: Raw) -> bytes | None:
    raw = bytes(shown)
    return None if raw == b"null" else base64.b64decode(raw[1:-1])
