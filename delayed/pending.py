"""The pending messages of one partition of ``__delayed``, stored in columns.

A message uses a row in a few arrays, and an entry for its id in a dict. So a snapshot of a million messages
is a copy of some arrays, without an object for each message.

The messages are in 256 shards, by the first byte of their ids, which are random. A copy shares the shards,
and copies a shard before it first changes that shard, so a new leader begins without copying. Meanwhile the
original may only change messages that the copy has changed before, as it does by applying records that the
copy writes.

Rows are in the order in which the messages arrived, and a target is stored by its digest. So snapshots have
equal bytes on every replica, even if compaction has removed messages that arrived and left.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from delayed.records import ID_BYTES

SHARDS: Final = 256
Target = tuple[str, int]  # topic and partition


class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A pending message, whose record is at ``offset`` of the partition of ``__delayed``."""

    due_ms: int
    offset: int
    size_bytes: int
    topic: str
    partition: int


class _Shard:
    """Columns of the messages of one shard, in the order in which the messages arrived."""

    __slots__ = ("changed", "due", "ids", "number", "numbers", "offset", "size", "target", "topics")

    def __init__(self) -> None:
        self.number: dict[bytes, int] = {}  # number of each message
        self.numbers = array("Q")  # number of each row, rising
        self.ids = bytearray()
        self.due = array("q")
        self.offset = array("q")
        self.size = array("I")
        self.target = array("Q")
        self.changed = bytearray()  # whether the message has a record of a change
        self.topics = Counter[str]()  # messages by topic

    def copy(self) -> _Shard:
        copied = _Shard()
        copied.number = dict(self.number)
        copied.numbers = self.numbers[:]
        copied.ids, copied.changed = self.ids[:], self.changed[:]
        copied.due, copied.offset = self.due[:], self.offset[:]
        copied.size, copied.target = self.size[:], self.target[:]
        copied.topics = self.topics.copy()
        return copied

    def row_of(self, id_: bytes) -> int:
        return bisect_left(self.numbers, self.number[id_])

    def add(self, id_: bytes, one: Waiting, target: int) -> None:
        self.number[id_] = self.numbers[-1] + 1 if self.numbers else 0
        self.numbers.append(self.number[id_])
        self.ids += id_
        self.due.append(one.due_ms)
        self.offset.append(one.offset)
        self.size.append(one.size_bytes)
        self.target.append(target)
        self.changed.append(False)
        self.topics[one.topic] += 1

    def left(self, topic: str) -> None:
        """Stop counting a removed message of the topic."""
        self.topics[topic] -= 1
        if not self.topics[topic]:
            del self.topics[topic]

    def remove(self, id_: bytes) -> int:
        """Remove a message, and return the digest of its target."""
        row = self.row_of(id_)
        del self.number[id_]
        del self.ids[row * ID_BYTES : (row + 1) * ID_BYTES]
        for column in (self.numbers, self.due, self.offset, self.size, self.changed):
            del column[row]
        return int(self.target.pop(row))

    @property
    def columns(self) -> tuple[bytearray | array[int], ...]:
        return self.ids, self.due, self.offset, self.size, self.target, self.changed


_EMPTY: Final = _Shard()


class Pending(Mapping[bytes, Waiting]):
    """Pending messages by id."""

    def __init__(self) -> None:
        self._shards = [_EMPTY] * SHARDS
        self._is_own = bytearray(SHARDS)  # whether a shard is not shared; others are copied before a change
        self._targets: dict[int, Target] = {}  # by digest
        self._digests: dict[Target, int] = {}
        self._counts: dict[int, int] = {}  # number of messages by target
        self._count = 0

    def copy(self) -> Pending:
        """Copy all messages, for independent changes."""
        copied = Pending.__new__(Pending)
        copied._shards = list(self._shards)
        copied._is_own = bytearray(SHARDS)
        copied._targets, copied._digests = dict(self._targets), dict(self._digests)
        copied._counts = dict(self._counts)
        copied._count = self._count
        return copied

    # Reading.

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for shard in self._shards:
            yield from shard.number

    def __contains__(self, id_: object) -> bool:
        return isinstance(id_, bytes) and id_ in self._shards[id_[0]].number

    def __getitem__(self, id_: bytes) -> Waiting:
        shard = self._shards[id_[0]]
        row = shard.row_of(id_)
        topic, partition = self._targets[shard.target[row]]
        return Waiting(shard.due[row], shard.offset[row], shard.size[row], topic, partition)

    def find(self, id_: bytes) -> Waiting | None:
        """The pending message with this id, or None."""
        return self[id_] if id_ in self._shards[id_[0]].number else None

    def due_of(self, id_: bytes) -> int | None:
        """The due time of a pending message in milliseconds; None if the message is not pending."""
        shard = self._shards[id_[0]]
        return shard.due[shard.row_of(id_)] if id_ in shard.number else None

    def is_changed(self, id_: bytes) -> bool:
        """Whether the message has a change record."""
        shard = self._shards[id_[0]]
        return bool(shard.changed[shard.row_of(id_)])

    def times_of(self, shard: int) -> list[tuple[int, bytes]]:
        """Time and id of each message of a shard."""
        found = self._shards[shard]
        return list(zip(found.due, found.number, strict=True))

    def behind(self, after: bytes, topic: str | None, count_max: int) -> list[bytes]:
        """The first ``count_max`` ids after ``after``, sorted, of messages of a topic (None: of any topic).

        Reads only as many shards with messages of the topic as necessary.
        """
        wanted = {digest for digest, target in self._targets.items() if topic in (None, target[0])}
        found: list[bytes] = []
        for shard in self._shards[after[0] if after else 0 :]:
            if not wanted or len(found) >= count_max:
                break
            if topic is None or topic in shard.topics:
                rows = zip(shard.number, shard.target, strict=True)
                found += sorted(id_ for id_, target in rows if id_ > after and target in wanted)
        return found[:count_max]

    # Changes.

    def put(self, id_: bytes, one: Waiting) -> None:
        """Add a pending message without a change record."""
        self.remove(id_)
        self._own(id_[0]).add(id_, one, self._count_in((one.topic, one.partition)))
        self._count += 1

    def change(self, id_: bytes, due_ms: int, partition: int = -1) -> None:
        """Apply a change record: another due time, and another partition unless ``partition`` is -1."""
        shard = self._own(id_[0])
        row = shard.row_of(id_)
        shard.due[row], shard.changed[row] = due_ms, True
        before = shard.target[row]
        topic, _ = self._targets[before]
        if partition >= 0:
            shard.target[row] = self._count_in((topic, partition))
            self._count_out(before)

    def remove(self, id_: bytes) -> None:
        """Remove a message, if it is pending."""
        if id_ not in self._shards[id_[0]].number:
            return
        shard = self._own(id_[0])
        target = shard.remove(id_)
        shard.left(self._targets[target][0])
        self._count_out(target)
        self._count -= 1

    def _count_in(self, target: Target) -> int:
        """Add 1 to the number of messages of a target, and return the target's digest."""
        digest = self._digest_of(target)
        self._counts[digest] = self._counts.get(digest, 0) + 1
        return digest

    def _count_out(self, digest: int) -> None:
        """Subtract 1 from the number of messages of a target."""
        self._counts[digest] -= 1
        if not self._counts[digest]:
            del self._counts[digest]
            del self._digests[self._targets.pop(digest)]

    def _digest_of(self, target: Target) -> int:
        known = self._digests.get(target)
        if known is None:
            topic, partition = target
            name = f"{topic}/{partition}".encode()
            known = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
            while known in self._targets:  # two targets have one digest
                known = (known + 1) % (1 << 64)
            self._targets[known], self._digests[target] = target, known
        return known

    def _own(self, shard: int) -> _Shard:
        if not self._is_own[shard]:
            self._shards[shard] = self._shards[shard].copy()
            self._is_own[shard] = True
        return self._shards[shard]

    # Snapshots.

    @property
    def targets(self) -> list[tuple[int, Target]]:
        """The targets with their digests, sorted by digest."""
        return sorted(self._targets.items())

    def counted(self) -> Iterator[tuple[Target, int]]:
        """Each target with its number of messages."""
        return ((target, self._counts[digest]) for digest, target in self._targets.items())

    def sizes(self) -> Counter[str]:
        """The bytes of the pending messages of each topic."""
        found = Counter[str]()
        for shard in self._shards:
            for target, size_bytes in zip(shard.target, shard.size, strict=True):
                found[self._targets[target][0]] += size_bytes
        return found

    @property
    def counts(self) -> list[int]:
        """The number of messages of each shard."""
        return [len(shard.number) for shard in self._shards]

    def columns(self) -> list[bytearray | array[int]]:
        """All columns of all shards, little-endian."""
        return [_little(column) for shard in self._shards if shard.number for column in shard.columns]

    @classmethod
    def restored(
        cls, targets: Sequence[tuple[int, Target]], counts: Sequence[int], data: memoryview
    ) -> Pending:
        """Restore the messages from the parts of a snapshot. Raises ``ValueError`` for inconsistent parts."""
        found, at = cls(), 0
        found._targets = dict(targets)
        found._digests = {target: digest for digest, target in targets}
        per_target = Counter[int]()
        if len(counts) != SHARDS:
            raise ValueError(f"a snapshot of delayed messages has {len(counts)} shards")
        for number, count in enumerate(counts):
            if not count:
                continue
            shard = found._own(number)
            shard.numbers.extend(range(count))
            shard.ids += data[at : at + ID_BYTES * count]
            at += ID_BYTES * count
            for column in (shard.due, shard.offset, shard.size, shard.target):
                size = column.itemsize * count
                column.extend(_little(array(column.typecode, bytes(data[at : at + size]))))
                at += size
            shard.changed += data[at : at + count]
            at += count
            ids = bytes(shard.ids)
            shard.number = {ids[ID_BYTES * row : ID_BYTES * (row + 1)]: row for row in range(count)}
            per_target.update(shard.target)
        if at != len(data) or set(per_target) != set(found._targets):
            raise ValueError("a snapshot of delayed messages has inconsistent columns")
        for shard in found._shards:
            if shard.number:
                shard.topics.update(found._targets[target][0] for target in shard.target)
        found._counts = dict(per_target)
        found._count = sum(counts)
        return found


def _little(column: bytearray | array[int]) -> bytearray | array[int]:
    """Convert a column from native to little-endian bytes, or back."""
    if sys.byteorder == "little" or not isinstance(column, array):
        return column
    swapped = column[:]
    swapped.byteswap()
    return swapped
