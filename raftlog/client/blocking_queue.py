"""The blocking side of queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

from raftlog.client.messages import Message
from raftlog.client.options import Duration
from raftlog.client.portal import SyncProxy, blocking
from raftlog.client.queue import AsyncJob, AsyncQueue


class Job(SyncProxy[AsyncJob]):
    """A record that this worker has until its lease ends. ``deliveries`` is 1 at the first time.

    Acknowledge it when its work is done. A job that is neither acknowledged nor extended is delivered again.
    """

    @property
    def message(self) -> Message:
        """The record."""
        return self._core.message

    @property
    def key(self) -> bytes | None:
        """Of the record."""
        return self._core.key

    @property
    def value(self) -> bytes | None:
        """Of the record."""
        return self._core.value

    @property
    def receipt(self) -> str:
        """What ``Queue.ack`` takes, in any process."""
        return self._core.receipt

    @property
    def deliveries(self) -> int:
        """How often the job was delivered, this time included."""
        return self._core.deliveries

    @property
    def lease_until_ms(self) -> int:
        """By the wall clock of the brokers."""
        return self._core.lease_until_ms

    ack = blocking(AsyncJob.ack)
    nack = blocking(AsyncJob.nack)
    extend = blocking(AsyncJob.extend)
    dead_letter = blocking(AsyncJob.dead_letter)


class Queue(SyncProxy[AsyncQueue]):
    """A topic that a group works off. The first receive makes the queue."""

    ack = blocking(AsyncQueue.ack)
    nack = blocking(AsyncQueue.nack)
    extend = blocking(AsyncQueue.extend)
    dead_letter = blocking(AsyncQueue.dead_letter)
    describe = blocking(AsyncQueue.describe)
    delete = blocking(AsyncQueue.delete)

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._core.topic

    @property
    def group(self) -> str:
        """Its group."""
        return self._core.group

    def poll(
        self,
        *,
        max: int = 1,
        wait: Duration = 0,
        visibility: Duration = "30s",
        ordered_by_key: bool = False,
        max_deliveries: int = 10,
        tags: Sequence[str] | None = None,
        tags_all: Sequence[str] | None = None,
        tags_none: Sequence[str] | None = None,
    ) -> list[Job]:
        """Up to ``max`` jobs; none after ``wait``. See ``raftlog.aio.Queue.poll``."""
        found = self._portal.call(
            lambda: self._core.poll(
                max=max,
                wait=wait,
                visibility=visibility,
                ordered_by_key=ordered_by_key,
                max_deliveries=max_deliveries,
                tags=tags,
                tags_all=tags_all,
                tags_none=tags_none,
            )
        )
        return [Job(each, self._portal) for each in found]

    def receive(
        self,
        *,
        max: int = 1,
        visibility: Duration = "30s",
        ordered_by_key: bool = False,
        max_deliveries: int = 10,
        idle: Duration | None = None,
        tags: Sequence[str] | None = None,
        tags_all: Sequence[str] | None = None,
        tags_none: Sequence[str] | None = None,
    ) -> Iterator[Job]:
        """Jobs without end, or until there was none for ``idle``. See ``raftlog.aio.Queue.receive``."""
        source = self._core.receive(
            max=max,
            visibility=visibility,
            ordered_by_key=ordered_by_key,
            max_deliveries=max_deliveries,
            idle=idle,
            tags=tags,
            tags_all=tags_all,
            tags_none=tags_none,
        )
        with closing(self._portal.iterated(source)) as jobs:
            for job in jobs:
                yield Job(job, self._portal)
