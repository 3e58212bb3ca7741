"""Reads records below the log start from an archive.

Decides: which reads use the archive, how many run at a time, and for how long. Leaves to others: the archive
(``spark_io.archive.fetching``, imported only by brokers with ``archive.location``), and the log.

The broker that receives a read below the log start answers the read itself. It asks the log for the log
start, and takes the records below the log start from the archive. Each read of the archive has its own
thread, which ends when the storage answers. While the storage hangs, the broker refuses reads of the archive
and continues to serve reads of the log.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter

from broker.ports import GatewayPort
from broker.process.freed_memory import give_back
from partitions.metadata.image import TopicInfo
from partitions.values import AtTime, FetchRequest, FetchResult, Position, Start
from raftlog.errors import ArchiveUnavailable, InvalidRequest, OffsetOutOfRange, RaftlogError
from raftlog.exhaustion import refuse_exhausted
from raftlog.extras import install_command
from raftlog.types import Offset, TopicPartition

_log = logging.getLogger("raftlog.archive")

Result = TypeVar("Result")
RETRY_AFTER_MS: Final = 1000
WAIT_S: Final = 1.0  # longest wait for another read of the archive to end
CLOSE_S: Final = 15.0  # interval at which idle files are closed
STOP_S: Final = 1.0  # longest wait for running reads when the broker stops


class Found(Protocol):
    """Batches that the archive has without gaps up to ``next_offset``; ``records`` is the number of their
    records.
    """

    @property
    def data(self) -> bytes: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def records(self) -> int: ...


class Archive(Protocol):
    """An archive: its calls block until the storage answers; see
    ``spark_io.archive.fetching.ArchiveReader``.
    """

    def find(self, target: TopicPartition, topic_id: str, log_start: int, since_ms: int | None) -> int | None:
        """Return the first offset from which the archive has all records up to the log start.

        With ``since_ms``, return the offset of the first archived record with this timestamp or a later one.
        Returns None if the archive has no such record.
        """

    def read(self, target: TopicPartition, topic_id: str, offset: int, end: int, bytes_max: int) -> Found:
        """Read archived records from ``offset`` on. Raises ``OffsetOutOfRange`` if the archive does not have
        that offset.
        """

    def close_idle(self) -> bool:
        """Close files that were not read for a while; return whether other files are still open. Does not
        block.
        """


class ArchivedReads:
    """Runs reads of an archive, at most ``readers_max`` at a time. Used on the event loop's thread only."""

    def __init__(
        self, archive: Archive, readers_max: int, deadline_s: float, registry: CollectorRegistry
    ) -> None:
        self._archive = archive
        self._places = asyncio.Semaphore(readers_max)
        self._deadline_s = deadline_s
        self._running: set[asyncio.Future[None]] = set()
        self._closing: asyncio.TimerHandle | None = None
        self._reads = Counter(
            "raftlog_archived_reads", "Reads below the log start, by outcome.", ["outcome"], registry=registry
        )
        self._bytes = Counter(
            "raftlog_archived_read_bytes", "Bytes of batches from the archive.", registry=registry
        )
        self._records = Counter(
            "raftlog_archived_read_records", "Records that were read from the archive.", registry=registry
        )

    async def find(
        self, target: TopicPartition, topic_id: str, log_start: int, since_ms: int | None
    ) -> int | None:
        """Find an offset in the archive; see ``Archive.find``. Raises ``ArchiveUnavailable``."""
        return await self._run(lambda: self._archive.find(target, topic_id, log_start, since_ms))

    async def read(
        self, target: TopicPartition, topic_id: str, offset: int, end: int, bytes_max: int
    ) -> Found:
        """Read from the archive (``Archive.read``). Raises ``ArchiveDamaged`` and ``ArchiveUnavailable``."""
        try:
            found = await self._run(lambda: self._archive.read(target, topic_id, offset, end, bytes_max))
        except RaftlogError as error:
            self._reads.labels(error.code).inc()
            raise
        self._reads.labels("ok").inc()
        self._bytes.inc(len(found.data))
        self._records.inc(found.records)
        if self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(CLOSE_S, self._close_idle)
        return found

    async def stop(self) -> None:
        """Wait up to ``STOP_S`` for running reads; threads that still run end with the process."""
        if self._closing is not None:
            self._closing.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_S)

    def _close_idle(self) -> None:
        loop, self._closing = asyncio.get_running_loop(), None
        if self._archive.close_idle():
            self._closing = loop.call_later(CLOSE_S, self._close_idle)
        else:
            loop.run_in_executor(None, give_back)

    async def _run(self, work: Callable[[], Result]) -> Result:
        await self._place()
        try:
            running = self._started(work)
        except BaseException:
            self._places.release()
            raise
        try:
            async with asyncio.timeout(self._deadline_s):
                return await asyncio.shield(running)
        except RaftlogError:
            raise
        except Exception as error:
            refuse_exhausted(error, "records cannot be read from the archive")
            _log.warning("the archive cannot be read: %s: %s", type(error).__name__, error)
            raise ArchiveUnavailable(
                f"the archive does not answer ({type(error).__name__}); retry", retry_after_ms=RETRY_AFTER_MS
            ) from error

    async def _place(self) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise ArchiveUnavailable(
                "the maximum number of archive reads is running; retry",
                retry_after_ms=RETRY_AFTER_MS,
            ) from None

    def _started(self, work: Callable[[], Result]) -> asyncio.Future[Result]:
        """Run ``work`` on a daemon thread of its own, so that the process can end while the storage hangs."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Result] = loop.create_future()
        ended: asyncio.Future[None] = loop.create_future()

        def end(result: Result | None, error: BaseException | None) -> None:
            self._running.discard(ended)
            self._places.release()
            ended.set_result(None)
            if error is not None:
                done.set_exception(error)
                done.exception()  # mark the error as retrieved: the caller may have stopped waiting
            else:
                done.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, error = None, None
            try:
                result = work()
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(end, result, error)

        try:
            threading.Thread(target=run, name="archive", daemon=True).start()
        except RuntimeError as error:
            refuse_exhausted(error, "records cannot be read from the archive")
            raise
        self._running.add(ended)
        return done


class ArchivedGateway:
    """Reads and writes partitions through one broker; adds the archived records below the log starts.

    Implements ``GatewayPort``.
    """

    def __init__(
        self, gateway: GatewayPort, topics: Callable[[], Mapping[str, TopicInfo]], reads: ArchivedReads
    ) -> None:
        self._gateway = gateway
        self._topics = topics
        self._reads = reads
        self.append = gateway.append
        self.delete_before = gateway.delete_before
        self.set_archived = gateway.set_archived
        self.describe = gateway.describe
        self.leader_of = gateway.leader_of

    async def fetch(self, target: TopicPartition, request: FetchRequest) -> FetchResult:
        """Read the log, or the archive for an offset below the log start."""
        position = request.position
        if position is Start.EARLIEST or isinstance(position, AtTime):
            first = await self._found(target, position)
            request = request if first is None else replace(request, position=first)
        topic_id = self._topic_id(target)
        try:
            return await self._gateway.fetch(target, request)
        except OffsetOutOfRange as error:
            if topic_id is None or not _is_below(request.position, error):
                raise
            return await self._archived(target, topic_id, request, error)

    async def offset_at(
        self, target: TopicPartition, position: Position, *, committed_only: bool = True
    ) -> tuple[Offset, int | None]:
        """Return the offset of a position and the timestamp of its record; the timestamp is None for an
        archived record.
        """
        if position is Start.EARLIEST or isinstance(position, AtTime):
            first = await self._found(target, position)
            if first is not None:
                return first, None
        return await self._gateway.offset_at(target, position, committed_only=committed_only)

    async def archived_from(self, target: TopicPartition) -> Offset | None:
        """Return the first offset from which the archive has all records up to the log start; None if the log
        begins at offset 0.
        """
        return await self._found(target, Start.EARLIEST)

    async def stop(self) -> None:
        """Wait for running reads of the archive; see ``ArchivedReads.stop``."""
        await self._reads.stop()

    async def _found(self, target: TopicPartition, position: Position) -> Offset | None:
        """Return the archived offset of a position; None if the position is not below the log start."""
        topic_id = self._topic_id(target)
        log_start, _ = await self._gateway.offset_at(target, Start.EARLIEST)
        if not log_start or topic_id is None:
            return None
        since_ms = position.timestamp_ms if isinstance(position, AtTime) else None
        found = await self._reads.find(target, topic_id, log_start, since_ms)
        return None if found is None else Offset(found)

    async def _archived(
        self, target: TopicPartition, topic_id: str, request: FetchRequest, error: OffsetOutOfRange
    ) -> FetchResult:
        """Read records from the archive; all other fields of the result describe the partition's log now."""
        offset = request.position
        assert isinstance(offset, int)
        of_log = replace(
            request,
            position=Start.EARLIEST,
            bytes_max=1,
            bytes_min=1,
            wait_ms=0,
            tags=(),
            tags_all=(),
            tags_none=(),
        )
        log = await self._gateway.fetch(target, of_log)
        try:
            found = await self._reads.read(target, topic_id, offset, log.offset, request.bytes_max)
        except OffsetOutOfRange as nothing:
            error.with_details(**nothing.details)
            raise error from nothing
        return replace(
            log, offset=offset, data=found.data, next_offset=Offset(found.next_offset), is_archived=True
        )

    def _topic_id(self, target: TopicPartition) -> str | None:
        topic = self._topics().get(target.topic)
        return None if topic is None else topic.topic_id


def _is_below(position: Position, error: OffsetOutOfRange) -> bool:
    start = error.details.get("start")
    return isinstance(position, int) and isinstance(start, int) and position < start


def open_archive(location: str) -> Archive:
    """Open the archive at a directory or an address.

    Reads no file yet, so that a broker starts while the storage is down. From this call on, Arrow allocates
    with the C library, which returns freed memory to the system (``freed_memory``). Raises
    ``InvalidRequest``, which names a missing package.
    """
    try:
        import pyarrow as pa

        from spark_io.archive.fetching import ArchiveReader
        from spark_io.archive.storage import open_storage
        from spark_io.errors import ArchiveUnreachable
    except ModuleNotFoundError as error:
        raise InvalidRequest(
            f"archive.location needs the package {error.name}: {install_command('archive')}",
            field="archive.location",
        ) from error
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        return ArchiveReader(open_storage(location))
    except ArchiveUnreachable as error:
        raise InvalidRequest(f"archive.location: {error}", field="archive.location") from error
