"""The state of all groups of one partition of ``__offsets``: what its records add up to.

Every replica applies the committed records; only the coordinator, the leader, decides which are written
(``coordination``). Pure and deterministic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from groups.records import CommittedOffset, Group, GroupKey, Key, OffsetKey, Value, decoded, record_of
from raftlog.records.batch import Batch
from raftlog.records.reader import read_records

SNAPSHOT_VERSION: Final = 1
Target = tuple[str, int]  # topic and partition

_SNAPSHOT: Final = msgspec.msgpack.Decoder(tuple[int, list[tuple[bytes, bytes]]])


class GroupsState:
    """Groups and committed offsets by name. A group is here as long as it has a record of its own."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[Target, CommittedOffset]] = {}

    def copy(self) -> GroupsState:
        """The same values, to be changed apart."""
        copied = GroupsState()
        copied.groups = dict(self.groups)
        copied.offsets = {group: dict(offsets) for group, offsets in self.offsets.items()}
        return copied

    def put(self, key: Key, value: Value | None) -> None:
        """What one record says."""
        if isinstance(key, GroupKey):
            if isinstance(value, Group):
                self.groups[key.group] = value
            else:
                self.groups.pop(key.group, None)
            return
        offsets = self.offsets.setdefault(key.group, {})
        if isinstance(value, CommittedOffset):
            offsets[key.topic, key.partition] = value
        else:
            offsets.pop((key.topic, key.partition), None)
        if not offsets:
            del self.offsets[key.group]

    def apply(self, entry: Batch) -> None:
        """Take in one committed batch. Kinds of records that this version does not know are skipped."""
        if entry.header.is_control:
            return
        for record in read_records(entry):
            known = decoded(record.key, record.value)
            if known is not None:
                self.put(*known)

    def items(self) -> Iterator[tuple[Key, Value]]:
        """All keys and values, in order."""
        for name in sorted(self.groups):
            yield GroupKey(name), self.groups[name]
        for name in sorted(self.offsets):
            for (topic, partition), committed in sorted(self.offsets[name].items()):
                yield OffsetKey(name, topic, partition), committed

    def snapshot(self) -> bytes:
        """The whole state, in the same bytes on every replica."""
        rows = [record_of(key, value) for key, value in self.items()]
        return msgspec.msgpack.encode((SNAPSHOT_VERSION, [(row.key, row.value) for row in rows]))

    def restore(self, snapshot: bytes) -> None:
        """Become this state; an empty snapshot is the initial state. Raises ``ValueError``."""
        self.groups, self.offsets = {}, {}
        if not snapshot:
            return
        version, rows = _SNAPSHOT.decode(snapshot)
        if version != SNAPSHOT_VERSION:
            raise ValueError(f"a snapshot of groups has version {version}, not {SNAPSHOT_VERSION}")
        for key, value in rows:
            known = decoded(key, value)
            if known is not None:
                self.put(*known)
