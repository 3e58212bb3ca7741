"""The blocking queue and its jobs: calls run asynchronous counterparts on the client's thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Unpack

from raftlog.client.messages import Message
from raftlog.client.options import Duration
from raftlog.client.portal import SyncProxy, blocking
from raftlog.client.queue import AsyncJob, AsyncQueue, JobSettings, wanted_jobs
from raftlog.client.settings import settings_of


class Job(SyncProxy[AsyncJob]):
    """A record that this worker has until its lease ends. ``deliveries`` is 1 at the first delivery.

    Acknowledge it when its work is done. A job that is neither acknowledged nor extended is delivered again.
    """

    @property
    def message(self) -> Message:
        """The record to process."""
        return self._core.message

    @property
    def key(self) -> bytes | None:
        """The key of the record."""
        return self._core.key

    @property
    def value(self) -> bytes | None:
        """The value of the record."""
        return self._core.value

    @property
    def receipt(self) -> str:
        """The job receipt, which ``Queue.ack`` accepts in any process."""
        return self._core.receipt

    @property
    def deliveries(self) -> int:
        """The number of deliveries of the job, the present one included."""
        return self._core.deliveries

    @property
    def lease_until_ms(self) -> int:
        """End of the lease, in milliseconds of the brokers' wall clock."""
        return self._core.lease_until_ms

    ack = blocking(AsyncJob.ack)
    nack = blocking(AsyncJob.nack)
    extend = blocking(AsyncJob.extend)
    dead_letter = blocking(AsyncJob.dead_letter)


class Queue(SyncProxy[AsyncQueue]):
    """A topic whose records a group processes as jobs. The first receive creates the queue."""

    ack = blocking(AsyncQueue.ack)
    nack = blocking(AsyncQueue.nack)
    extend = blocking(AsyncQueue.extend)
    dead_letter = blocking(AsyncQueue.dead_letter)
    describe = blocking(AsyncQueue.describe)
    delete = blocking(AsyncQueue.delete)

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._core.topic

    @property
    def group(self) -> str:
        """The name of the group."""
        return self._core.group

    @settings_of(JobSettings, wanted_jobs)
    def receive(self, *, wait: Duration = 0, **settings: Unpack[JobSettings]) -> list[Job]:
        """Receive at most ``limit`` jobs; return an empty list after ``wait``.

        See ``raftlog.aio.Queue.receive``.
        """
        found = self._portal.call(lambda: self._core.receive(wait=wait, **settings))
        return [Job(each, self._portal) for each in found]

    @settings_of(JobSettings, wanted_jobs)
    def jobs(self, *, idle: Duration | None = None, **settings: Unpack[JobSettings]) -> Iterator[Job]:
        """Yield jobs without end, or until no job came for ``idle``. See ``raftlog.aio.Queue.jobs``."""
        with closing(self._portal.iterated(self._core.jobs(idle=idle, **settings))) as received:
            for job in received:
                yield Job(job, self._portal)
