"""Keeps the batches of a compacted log as they were appended, and checks which of their records a replica
still has.

Compaction changes the files of each replica at another time. The checkers compare entries as they were
appended: a rewritten batch counts as the batches that it replaces. Decides: which batches it replaces, and
which records a log must still have (I33). Leaves to others: the files (``log_view``), and which entries are
committed (``records``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from raftlog.records.batch import Batch, BatchHeader, parse_header
from raftlog.records.control import Marker, marker_in
from raftlog.records.failures import dead_letter_topic
from raftlog.records.reader import StoredRecord, read_records
from verification.simulator.log_view import Entry

KNOWN_TOPICS: Final = (
    *("__offsets", "__transactions", "__delayed"),
    *("latest", "ledger", "journal", "reminders", "fleeting", "shrinking", "passing", "mail"),
    dead_letter_topic("mail", "crew"),
)  # compacted or not
INVARIANT: Final = "I33 a compacted log has the newest record of each key"


class Original(NamedTuple):
    """A batch as it was appended; ``records`` has its records of users, without control records."""

    entry: Entry
    stamp_ms: int | None
    header: BatchHeader
    records: tuple[StoredRecord, ...]
    marker: Marker | None = None  # of a transaction


class Originals:
    """The appended batches of one group. Every batch is noted before compaction can rewrite it.

    ``on_new`` is called with each batch when it is first seen in a file.
    """

    def __init__(self) -> None:
        self.on_new: Callable[[Original], None] = lambda original: None
        self._batches: dict[tuple[int, int], Original] = {}  # by base offset and term
        self._rewritten: dict[Entry, tuple[StoredRecord, ...]] = {}
        self._has_news = False
        self.superseded_end = -1  # all that replaces a removed record is at this index or before it
        self._newest: dict[bytes | None, StoredRecord] = {}  # of each key, of the committed records
        self._committed = 0  # how many entries ``_newest`` has taken in

    def note(self, entry: Entry, stamp_ms: int | None, data: bytes) -> Sequence[tuple[Entry, int | None]]:
        """Note a batch of a log. Return the appended batches for which it stands, each with its stamp:
        itself, or the batches that it replaces.
        """
        known = self._batches.get((entry.base, entry.term))
        if known is not None and known.entry == entry:
            return ((entry, stamp_ms),)
        header = parse_header(data)
        if known is None and not header.is_gap:
            batch = Batch(data, header)
            marker = marker_in(batch) if header.is_transactional else None
            original = Original(entry, stamp_ms, header, stored_records(batch), marker)
            self._batches[entry.base, entry.term] = original
            self.on_new(original)
            return ((entry, stamp_ms),)
        if entry not in self._rewritten:
            self._rewritten[entry] = stored_records(Batch(data, header))
            self._has_news = True
        return self._replaced(entry) or ((entry, stamp_ms),)

    def looked(self, committed: Sequence[Entry]) -> None:
        """Note that files were parsed: for each record that compaction has removed, a newer one is committed
        by now.
        """
        if self._has_news and committed:
            self.superseded_end = committed[-1].last
        self._has_news = False

    def of(self, entry: Entry) -> Original:
        """Return the batch as it was appended that has the entry's base offset and term."""
        return self._batches[entry.base, entry.term]

    def is_known(self, entry: Entry) -> bool:
        """Return whether the entry's bytes equal the bytes of the batch as it was appended."""
        known = self._batches.get((entry.base, entry.term))
        return known is not None and known.entry == entry

    def _replaced(self, entry: Entry) -> list[tuple[Entry, int | None]]:
        """Return the appended batches from the base offset to the end of an entry; empty if any is
        unknown.
        """
        found: list[tuple[Entry, int | None]] = []
        base = entry.base
        while base <= entry.last and (one := self._batches.get((base, entry.term))) is not None:
            found.append((one.entry, one.stamp_ms))
            base = one.entry.last + 1
        return found if base == entry.last + 1 else []

    def newest(self, committed: Sequence[Entry]) -> dict[bytes | None, StoredRecord]:
        """Return the newest committed record of each key, including tombstones."""
        for entry in committed[self._committed :]:
            self._newest.update((record.key, record) for record in self.of(entry).records)
        self._committed = len(committed)
        return self._newest

    def appended(self, committed: Sequence[Entry], offset: int) -> StoredRecord | None:
        """Return the committed record at an offset, or None."""
        place = bisect_left(committed, offset, key=lambda entry: entry.last)
        records = self.of(committed[place]).records if place < len(committed) else ()
        return next((one for one in records if one.offset == offset), None)

    def problem(self, entries: Sequence[Entry], stored: Iterable[Entry]) -> str | None:
        """Describe a record that a log lacks, has changed or must not have (I33); None if there is none.

        ``entries`` are the appended entries for which the log's files stand, and ``stored`` are the entries
        that are in the files.
        """
        appended = {one.offset: one for entry in entries if self.has(entry) for one in self.of(entry).records}
        newest = {record.key: record for record in appended.values()}
        kept = {record.offset: record for entry in stored for record in self._records_in(entry)}
        for offset, record in kept.items():
            if appended.get(offset) != record:
                return f"{record} is stored, {appended.get(offset)} was appended"
        for record in newest.values():
            if record.offset in kept:
                continue
            if record.value is not None:
                return f"{record} is the newest of its key, but is not in the log"
            older = [one for one in kept.values() if one.key == record.key]
            if older:
                return f"{record} has deleted its key and is not in the log, but {older[0]} is"
        return None

    def has(self, entry: Entry) -> bool:
        """Whether the batch was seen before any compaction rewrote it."""
        return (entry.base, entry.term) in self._batches

    def _records_in(self, entry: Entry) -> tuple[StoredRecord, ...]:
        return self.of(entry).records if self.is_known(entry) else self._rewritten.get(entry, ())


def originals_of(directory: str) -> Originals | None:
    """Create the appended batches for a replica's folder; None if no check reads the records of its topic."""
    return Originals() if any(f"/{topic}-" in directory for topic in KNOWN_TOPICS) else None


def stored_records(batch: Batch) -> tuple[StoredRecord, ...]:
    """Return the records of a batch that users sent; empty for a control batch."""
    if batch.header.is_control or not batch.header.record_count:
        return ()
    return tuple(read_records(batch))
