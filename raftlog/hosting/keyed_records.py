"""The records of an internal compacted topic, and the state that results from them.

Keys and values are msgpack: a key is an array that begins with its kind, a value is a map. A record has the
new value of its key, not the change. So the newest record of each key is the whole state, and the topic can
be compacted. A record without a value deletes its key. Fields are added with defaults, and never renamed.

Decides: the encoding, which records are skipped, and the snapshot. Leaves to others: the kinds of records and
their meaning (the packages to which the topics belong).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from raftlog.hosting.snapshot_rows import SnapshotRows, joined, rows_in
from raftlog.records.batch import Batch
from raftlog.records.builder import Record
from raftlog.records.reader import read_records

Key = TypeVar("Key")
Value = TypeVar("Value")

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
SNAPSHOT_VERSION: Final = 1
_HEAD: Final = bytes([0x92, SNAPSHOT_VERSION])  # of the msgpack array of version and rows


class KeyedRecords(Generic[Key, Value]):
    """The kinds of records of one topic."""

    def __init__(self, values: Mapping[type[Any], type[Any]]) -> None:
        """Start with ``values``: for each class of keys, the class of its values.

        Both are msgspec structs.
        """
        union: Any = None
        for key in values:
            union = key if union is None else union | key
        self._keys: msgspec.msgpack.Decoder[Key] = msgspec.msgpack.Decoder(union)
        self._values = {key: msgspec.msgpack.Decoder(value) for key, value in values.items()}

    def record_of(self, key: Key, value: Value | None) -> Record:
        """The record that gives a key its value, or deletes it."""
        return Record(key=_ENCODER.encode(key), value=None if value is None else _ENCODER.encode(value))

    def decoded(self, key: bytes | None, value: bytes | None) -> tuple[Key, Value | None] | None:
        """Decode key and value of a record; None for a kind of record that this version does not know.

        Raises ``ValueError`` for a value that does not fit its key.
        """
        try:
            known = self._keys.decode(key or b"")
        except ValueError:
            return None
        return known, None if value is None else self._values[type(known)].decode(value)


class KeyedState(Generic[Key, Value]):
    """The newest value of each key. Pure and deterministic.

    Every replica applies the committed records; only the coordinator, the leader, decides which records are
    written.
    """

    def __init__(self, kinds: KeyedRecords[Key, Value]) -> None:
        self._kinds = kinds
        self._rows: SnapshotRows | None = SnapshotRows()  # None: the state takes no snapshots

    @abstractmethod
    def clear(self) -> None:
        """Reset to the initial state."""

    @abstractmethod
    def take(self, key: Key, value: Value | None) -> None:
        """Apply one record: the new value of its key, or None for a deleted key."""

    def put(self, key: Key, value: Value | None) -> None:
        """Apply one record before it is written, and keep the bytes of its row for snapshots."""
        self.take(key, value)
        rows = self.rows_of(key)
        if rows is not None:
            row = self._kinds.record_of(key, value)
            rows.keep(row.key or b"", row.value)

    def rows_of(self, key: Key) -> SnapshotRows | None:
        """The part of a snapshot that keeps the row of this key; None in a state that keeps no rows."""
        return self._rows

    def kept_apart(self) -> tuple[SnapshotRows, ...]:
        """Further parts of a snapshot, each with rows of its own, in a fixed order."""
        return ()

    def without_snapshots(self) -> Self:
        """Stop keeping rows for snapshots, so that changes become cheaper; return this state."""
        self._rows = None
        return self

    def apply(self, entry: Batch) -> None:
        """Apply one committed batch. Kinds of records that this version does not know are skipped."""
        if entry.header.is_control:
            return
        for record in read_records(entry):
            self._take_encoded(record.key or b"", record.value)

    def snapshot(self) -> bytes:
        """The state as bytes that are equal on every replica. No row is encoded again (``snapshot_rows``)."""
        assert self._rows is not None, "this state takes no snapshots"
        return _HEAD + joined(self._rows, *self.kept_apart())

    def snapshot_pieces(self) -> tuple[bytes]:
        """The bytes of ``snapshot``, in one piece."""
        return (self.snapshot(),)

    def restore(self, snapshot: bytes) -> None:
        """Replace the state with the state of a snapshot; empty bytes are the initial state.

        Raises ``ValueError``.
        """
        self.clear()
        self._rows = SnapshotRows()
        if not snapshot:
            return
        if snapshot[:2] != _HEAD:
            raise ValueError(f"a snapshot of keyed records does not begin with version {SNAPSHOT_VERSION}")
        for key, value in rows_in(snapshot, len(_HEAD)):
            self._take_encoded(key, value)

    def _take_encoded(self, key: bytes, value: bytes | None) -> None:
        """Apply a record and keep its bytes for snapshots, if this version knows its kind."""
        known = self._kinds.decoded(key, value)
        if known is not None:
            self.take(*known)
            rows = self.rows_of(known[0])
            if rows is not None:
                rows.keep(key, value)
