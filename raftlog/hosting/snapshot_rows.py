"""The rows of a snapshot, as bytes that are kept from one snapshot to the next.

A snapshot of 100,000 offsets is taken on the event loop. So the bytes of a row are kept as they were in its
record, and new keys are sorted in while records are applied: a snapshot encodes no row again, it joins the
bytes.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

UNSORTED_MIN: Final = 1_000
UNSORTED_SHARE: Final = (
    8  # new keys are sorted in when they are one of so many, so that the work stays linear
)

_ENCODER: Final = msgspec.msgpack.Encoder()
_LENGTH: Final = struct.Struct(">BI")  # msgpack's head of an array
_ARRAY: Final = 0xDD


class SnapshotRows:
    """Keys and values in the order of their keys, which is the same on every replica."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}  # each the msgpack array of key and value
        self._order: list[bytes] = []  # deleted keys stay until the next snapshot
        self._unsorted = 0

    def keep(self, key: bytes, value: bytes | None) -> None:
        """What one record says."""
        if value is None:
            self._rows.pop(key, None)
            return
        if key not in self._rows:
            self._order.append(key)
            self._unsorted += 1
            if self._unsorted >= max(UNSORTED_MIN, len(self._order) // UNSORTED_SHARE):
                self._sort()
        self._rows[key] = _ENCODER.encode((key, value))

    def joined(self) -> bytes:
        """The msgpack array of all rows."""
        self._sort()
        rows = self._rows
        if len(self._order) != len(rows):  # some were deleted, and perhaps came again
            self._order = [key for key in dict.fromkeys(self._order) if key in rows]
        return _LENGTH.pack(_ARRAY, len(rows)) + b"".join(map(rows.__getitem__, self._order))

    def _sort(self) -> None:
        """Most keys are in order already, which takes one comparison for each.

        Keys that come and go, such as those of jobs, would be here many times.
        """
        if len(self._order) > 2 * len(self._rows) + UNSORTED_MIN:
            self._order = [key for key in dict.fromkeys(self._order) if key in self._rows]
        if self._unsorted:
            self._order.sort()
            self._unsorted = 0
