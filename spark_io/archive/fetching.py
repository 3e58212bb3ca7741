"""Reads records of an archive as batches, for brokers that answer reads below the log start.

Decides: which files are kept in memory between two reads, and when manifests are read again. Leaves to
others: which files count (``catalogue``), their records (``files``), the batches
(``raftlog.records.restored``), and the number of concurrent reads (``broker.archived_reads``).

A reader that continues where its previous read ended finds the file still open: if a reader reads a whole
file, the file is fetched and checked only once. The bytes of an open file are in memory once for all readers,
and its records are decoded in portions. Files without the id of a topic are not read: they may belong to an
earlier topic with the same name.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.parquet as pq

from raftlog import errors
from raftlog.records.restored import PlacedRecord, RestoredBatches
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.catalogue import Seen
from spark_io.archive.entries import Catalogue, Entry, reach
from spark_io.archive.files import SCHEMA, checked_data, first_offset_since, opened, read_batches
from spark_io.archive.storage import Storage
from spark_io.errors import ArchiveDamaged, InvalidOption
from spark_io.planning import Range

REFRESH_S: Final = 30.0  # age at which manifests are read again
AGAIN_S: Final = 1.0  # pause after manifests could not be read
IDLE_S: Final = 60.0  # an open file is closed after this time without a read
OPEN_BYTES_MAX: Final = 256 << 20  # of open files between two reads
OPEN_MAX: Final = 32  # open files between two reads
FILE_BYTES_MAX: Final = 512 << 20
FILES_MAX: Final = 100_000
_APPEND_TIME: Final = 1


class Found(NamedTuple):
    """The result of a read: ``records`` records in batches that cover all offsets up to ``next_offset``."""

    data: bytes
    next_offset: int
    records: int


@dataclass(slots=True)
class _Open:
    """A file that stays open between two reads of one reader. ``rows`` begin at the reader's next offset."""

    entry: Entry
    rows: Iterator[PlacedRecord]
    used_s: float = 0.0


@dataclass(slots=True)
class _Known:
    """The files that counted at the time ``at_s``, by topic id."""

    by_id: dict[str, Catalogue] = field(default_factory=dict)
    at_s: float = float("-inf")


class ArchiveReader:
    """Reads an archive, in any thread. Every call may wait for the storage."""

    def __init__(self, storage: Storage, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._monotonic = monotonic
        self._seen = Seen()
        self._known = _UNKNOWN
        self._refreshing = threading.Lock()
        self._changing = threading.Lock()  # guards ``_open``; never held during a wait
        self._open: dict[tuple[str, int], _Open] = {}  # by path and next offset, the last used last
        self._data: WeakValueDictionary[str, pa.Buffer] = WeakValueDictionary()  # of open files

    def find(self, target: TopicPartition, topic_id: str, log_start: int, since_ms: int | None) -> int | None:
        """Return the first archived offset below ``log_start``.

        With ``since_ms`` returns the offset of the first record since then instead. Only files are considered
        from which files reach the log start without a gap. None if the archive has no such offset. Raises the
        errors of ``read``.
        """
        files = self._files(topic_id, Range(target.topic, target.partition, log_start - 1, log_start))
        start = reach(files, target, log_start)
        if start == log_start or since_ms is None:
            return None if start == log_start else start
        pieces = files.pieces(Range(target.topic, target.partition, start, log_start))
        try:
            return first_offset_since(self._storage, pieces, since_ms)
        except DAMAGE as error:
            raise _damaged(start, error) from error

    def read(self, target: TopicPartition, topic_id: str, offset: int, end: int, bytes_max: int) -> Found:
        """Read records from ``offset`` on and below ``end``: about ``bytes_max``, but at least one record.

        Raises ``OffsetOutOfRange``, with the next archived offset, if the archive does not have ``offset``;
        ``errors.ArchiveDamaged`` for a file that differs from its manifest, and the errors of the storage.
        """
        wanted = Range(target.topic, target.partition, offset, end)
        files = self._files(topic_id, wanted)
        pieces = files.pieces(wanted)
        if not pieces or pieces[0][1].start > offset:
            following = {"archived_from": pieces[0][1].start} if pieces else {}
            raise errors.OffsetOutOfRange(
                f"the archive does not have offset {offset} of {target}", **following
            )
        return self._found(pieces, offset, bytes_max)

    def close_idle(self) -> bool:
        """Close files that were not read for ``IDLE_S`` seconds. True if other files are still open."""
        now = self._monotonic()
        with self._changing:
            self._open = {place: one for place, one in self._open.items() if one.used_s + IDLE_S > now}
            return bool(self._open)

    def _found(self, pieces: list[tuple[Entry, Range]], offset: int, bytes_max: int) -> Found:
        """Read records from consecutive files.

        If a file is damaged, the records before this file are returned.
        """
        batches, records, at = RestoredBatches(offset, bytes_max), 0, offset
        try:
            for entry, piece in pieces:
                if piece.start > at:
                    break  # no file has these offsets
                found = self._taken(entry, at)
                for row in found.rows:
                    if row.offset >= piece.end:
                        break
                    batches.add(row)
                    records, at = records + 1, row.offset + 1
                    if batches.is_full:
                        self._keep(found, at)
                        return Found(batches.taken(at), at, records)
                at = piece.end
        except DAMAGE as error:
            if at == offset:
                raise _damaged(offset, error) from error
        return Found(batches.taken(at), at, records)

    def _taken(self, entry: Entry, at: int) -> _Open:
        """The open file in which a previous read ended at ``at``; without such a file, open it."""
        with self._changing:
            found = self._open.pop((entry.path, at), None)
        if found is not None:
            return found
        if entry.bytes > FILE_BYTES_MAX:
            raise ArchiveDamaged(
                f"{entry.path} has {entry.bytes} bytes, and brokers read files of up to {FILE_BYTES_MAX}"
            )
        wanted = Range(entry.topic, entry.partition, at, entry.end)
        batches = read_batches(self._storage, [(entry, wanted)], rows_max=1_000, read=self._file)
        return _Open(entry, _records(batches))

    def _file(self, storage: Storage, entry: Entry) -> pq.ParquetFile:
        """Open a file. Its bytes are shared with readers at other offsets."""
        data = self._data.get(entry.path)
        if data is None:
            data = self._data[entry.path] = checked_data(storage, entry)
        return opened(data)

    def _keep(self, one: _Open, at: int) -> None:
        one.used_s = self._monotonic()
        with self._changing:
            self._open[one.entry.path, at] = one
            while len(self._open) > OPEN_MAX or self._open_bytes > OPEN_BYTES_MAX:
                del self._open[next(iter(self._open))]

    @property
    def _open_bytes(self) -> int:
        return sum({one.entry.path: one.entry.bytes for one in self._open.values()}.values())

    def _files(self, topic_id: str, wanted: Range | None = None) -> Catalogue:
        """The files of a topic. Reads manifests again if the known files are old.

        If no known file has the first offset of ``wanted``, manifests are read again unless they were read
        after the beginning of this call: a moment ago an archiver may have archived the offset, and retention
        may have deleted its record.
        """
        asked_s, known = self._monotonic(), self._known
        files = known.by_id.get(topic_id, _EMPTY)
        is_missed = wanted is not None and not files.pieces(wanted._replace(end=wanted.start + 1))
        newer_s = asked_s if is_missed else asked_s - REFRESH_S  # a file may be new
        if known.at_s > newer_s:
            return files
        is_needed = is_missed or known is _UNKNOWN
        if self._refreshing.acquire(blocking=is_needed):
            try:
                if self._known.at_s <= newer_s:
                    self._known = self._refreshed(self._known)
            except Exception:
                if is_needed:
                    raise
                known.at_s = asked_s - REFRESH_S + AGAIN_S  # the known files serve meanwhile
            finally:
                self._refreshing.release()
        return self._known.by_id.get(topic_id, _EMPTY)

    def _refreshed(self, known: _Known) -> _Known:
        begun_s = self._monotonic()
        found = catalogue.load(self._storage, self._seen)
        if len(found.files) > FILES_MAX:
            raise InvalidOption(
                f"the archive has {len(found.files)} files, and brokers know up to {FILES_MAX}; join them "
                "with `raftlog archive compact`"
            )
        if known.by_id and not found.files:
            raise FileNotFoundError("the archive had files and has none now; check whether it is mounted")
        by_id = defaultdict(list)
        for one in found.files:
            if one.topic_id is not None:
                by_id[one.topic_id].append(one)
        return _Known({one: Catalogue(files, {}, 0) for one, files in by_id.items()}, begun_s)


DAMAGE: Final = (ArchiveDamaged, pa.ArrowException)
_EMPTY: Final = Catalogue((), {}, 0)
_UNKNOWN: Final = _Known()


def _damaged(offset: int, error: Exception) -> errors.ArchiveDamaged:
    return errors.ArchiveDamaged(f"the archive is damaged at offset {offset}: {error}", offset=offset)


def _records(batches: Iterator[pa.RecordBatch]) -> Iterator[PlacedRecord]:
    for batch in batches:
        columns = [_values(batch, name) for name in ("offset", "timestamp", "timestampType", "key", "value")]
        column = batch.column(SCHEMA.get_field_index("headers"))
        if column.null_count == len(column):
            rows = zip(*columns, strict=True)
            yield from (
                PlacedRecord(offset, time_ms, kind == _APPEND_TIME, key, value)
                for offset, time_ms, kind, key, value in rows
            )
            continue
        for offset, time_ms, kind, key, value, pairs in zip(*columns, column.to_pylist(), strict=True):
            headers = tuple((pair["key"], pair["value"]) for pair in pairs or ())
            yield PlacedRecord(offset, time_ms, kind == _APPEND_TIME, key, value, headers)


def _values(batch: pa.RecordBatch, name: str) -> list[object]:
    column = batch.column(SCHEMA.get_field_index(name))
    found: list[object] = (column.cast(pa.int64()) if name == "timestamp" else column).to_pylist()
    return found
