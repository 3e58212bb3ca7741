"""The rows of a snapshot, as bytes that are kept from one snapshot to the next.

A snapshot of 100,000 offsets is taken on the event loop. So the bytes of a row are kept as they were in its
record, and new keys are put in order while records are applied. A snapshot encodes no row again, it only
joins bytes. A copy shares the bytes; for a row that the copy keeps first, the original uses the copy's
object.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import Final

import msgspec

RUN: Final = 4_096  # rows that are sorted at a time
UNSORTED_MIN: Final = 1_000
UNSORTED_SHARE: Final = 8  # new keys are sorted in once they are 1/8 of all, so that the work stays linear

_ENCODER: Final = msgspec.msgpack.Encoder()
_LENGTH: Final = struct.Struct(">BI")  # msgpack's head of an array
_ARRAY: Final = 0xDD
_SHORT_ARRAY: Final = 0x90  # with its size in the lower half of the byte
_BYTE, _SHORT, _LONG = struct.Struct(">B"), struct.Struct(">H"), struct.Struct(">I")
_SIZES: Final = {0xC4: _BYTE, 0xC5: _SHORT, 0xC6: _LONG, 0xDC: _SHORT, _ARRAY: _LONG}  # of bytes, and arrays
_PAIR: Final = b"\x92"  # an array of two; joined to it, because ``encode`` reserves a third of a row more


class SnapshotRows:
    """Keys and values in the order of their keys, so that snapshots are equal on every replica."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}  # by key, the msgpack array of key and value
        self._order: list[bytes] | None = []  # deleted keys stay until the next snapshot; None: no snapshots
        self._unsorted = 0
        self._ahead: dict[bytes, tuple[bytes, bytes]] = {}  # rows of the newest copy that the original lacks

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[bytes]:
        """All rows, in the order in which their keys were first kept."""
        return iter(self._rows.values())

    def get(self, key: bytes) -> bytes | None:
        """The msgpack array of key and value; None for an unknown key."""
        return self._rows.get(key)

    def arrange(self, place: Callable[[bytes], int]) -> None:
        """Change the order of iteration to the order of ``place``; snapshots stay in the order of keys."""
        rows = ((place(row), key) for key, row in self._rows.items())
        runs = list(iter(lambda: sorted(islice(rows, RUN)), []))  # one sort of all rows would take too long
        self._rows = {key: self._rows[key] for _, key in merge(*runs)}

    def copy(self) -> SnapshotRows:
        """An independent copy of the rows, which must take no snapshots."""
        copied = SnapshotRows()
        copied._rows, copied._order = dict(self._rows), None
        self._ahead = copied._ahead
        return copied

    def keep(self, key: bytes, value: bytes | None) -> None:
        """Keep the row of one record; without a value, delete the row of its key."""
        if value is None:
            self._rows.pop(key, None)
            self._ahead.pop(key, None)
            return
        is_new = key not in self._rows
        key, row = self._shared(key, b"".join((_PAIR, _ENCODER.encode(key), _ENCODER.encode(value))))
        self._rows[key] = row
        if is_new and self._order is not None:
            self._order.append(key)
            self._unsorted += 1
            if self._unsorted >= max(UNSORTED_MIN, len(self._order) // UNSORTED_SHARE):
                self._sort()

    def _shared(self, key: bytes, row: bytes) -> tuple[bytes, bytes]:
        """The key and row as the objects that the copy has, if the copy kept them first."""
        if self._order is None:
            self._ahead[key] = key, row
            return key, row
        ahead = self._ahead.pop(key, None)
        return ahead if ahead is not None and ahead[1] == row else (key, row)

    def in_order(self) -> Iterator[bytes]:
        """All rows, in the order of their keys."""
        self._sort()
        assert self._order is not None, "a copy takes no snapshots"
        if len(self._order) != len(self._rows):  # some keys were deleted, and perhaps added again
            self._order = [key for key in dict.fromkeys(self._order) if key in self._rows]
        return map(self._rows.__getitem__, self._order)

    def _sort(self) -> None:
        """Sort the keys; most are in order already, which takes one comparison for each.

        Repeated keys are removed first: keys that are added and deleted often, such as those of jobs, repeat.
        """
        assert self._order is not None, "a copy takes no snapshots"
        if len(self._order) > 2 * len(self._rows) + UNSORTED_MIN:
            self._order = [key for key in dict.fromkeys(self._order) if key in self._rows]
        if self._unsorted:
            self._order.sort()
            self._unsorted = 0


def rows_in(data: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of the msgpack array that is the rest of ``data``. Raises ``ValueError``.

    Rows are decoded one after another: a decoder for a whole snapshot would hold the interpreter for 100 ms.
    """
    try:
        count, at = _size_at(data, at)
        for _ in range(count):
            if data[at : at + 1] != _PAIR:
                raise ValueError(f"a snapshot has no row at byte {at}")
            key, at = _bytes_at(data, at + 1)
            value, at = _bytes_at(data, at)
            yield key, value
    except (KeyError, IndexError, struct.error) as error:
        raise ValueError(f"a snapshot has no row at byte {at}") from error
    if at != len(data):
        raise ValueError(f"a snapshot ends at byte {at}, but has {len(data)} bytes")


def _bytes_at(data: bytes, at: int) -> tuple[bytes, int]:
    size, begin = _size_at(data, at)
    return data[begin : begin + size], begin + size


def _size_at(data: bytes, at: int) -> tuple[int, int]:
    """The size that the head of an array or of bytes names, and the position after that head."""
    if data[at] & 0xF0 == _SHORT_ARRAY:
        return data[at] & 0x0F, at + 1
    size_of = _SIZES[data[at]]
    return size_of.unpack_from(data, at + 1)[0], at + 1 + size_of.size


def joined(*several: SnapshotRows) -> bytes:
    """The msgpack array of all rows of several ``SnapshotRows``, in this order."""
    count = sum(map(len, several))
    return _LENGTH.pack(_ARRAY, count) + b"".join(chain.from_iterable(each.in_order() for each in several))
