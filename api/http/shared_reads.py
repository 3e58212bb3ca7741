"""State that event streams share: recent pages, and one read for all readers with an equal request.

Decides: which readers share a read: all whose equal requests arrive while the read runs. All of them get an
equal result or error. Leaves to others: reading, and writing events (``api.resources.events``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from api.http.recent_events import RecentEvents
from partitions.values import FetchRequest, FetchResult
from raftlog.types import TopicPartition

Asked = tuple[TopicPartition, FetchRequest]
Read = Callable[[], Coroutine[None, None, FetchResult]]

RECENT_BYTES_MAX: Final = 4 << 20  # of events, for all streams together


class EventStreams:
    """The state that the event streams of one broker share."""

    def __init__(self) -> None:
        self.recent = RecentEvents(RECENT_BYTES_MAX)
        self.reads = SharedReads()


class SharedReads:
    """The running reads for event streams of one broker."""

    def __init__(self) -> None:
        self._under_way: dict[Asked, _SharedRead] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def join(self, asked: Asked, read: Read) -> asyncio.Future[FetchResult]:
        """Return a future for the result of the running read for ``asked``; starts ``read`` if no such read
        runs.

        The future belongs to the caller. A read ends early when all its futures are cancelled.
        """
        shared = self._under_way.get(asked)
        if shared is None:
            shared = self._under_way[asked] = _SharedRead(read, lambda: self._under_way.pop(asked))
        return shared.joined()


class _SharedRead:
    """One running read, and the futures of the readers that share it.

    ``on_end`` is called once, before the readers have a result.
    """

    __slots__ = ("_on_end", "_readers", "_task")

    def __init__(self, read: Read, on_end: Callable[[], object]) -> None:
        self._on_end = on_end
        self._readers: dict[asyncio.Future[FetchResult], None] = {}
        self._task = asyncio.get_running_loop().create_task(read())
        self._task.add_done_callback(self._ended)

    def joined(self) -> asyncio.Future[FetchResult]:
        reader: asyncio.Future[FetchResult] = asyncio.get_running_loop().create_future()
        self._readers[reader] = None
        reader.add_done_callback(self._left)
        return reader

    def _left(self, reader: asyncio.Future[FetchResult]) -> None:
        if reader not in self._readers:
            return  # the read has ended
        del self._readers[reader]
        if not self._readers:
            self._on_end()
            self._task.cancel()

    def _ended(self, task: asyncio.Task[FetchResult]) -> None:
        readers, self._readers = self._readers, {}
        if not readers:
            return  # all readers have left, so the result or error has no receiver
        self._on_end()
        error = None if task.cancelled() else task.exception()
        for reader in readers:
            if reader.done():
                continue
            if task.cancelled():
                reader.cancel()
            elif error is not None:
                reader.set_exception(error)
            else:
                reader.set_result(task.result())
