"""Selects the records with the wanted tags for one read.

Decides: which batches, or parts of batches, belong to the response, where the reader continues, and how many
bytes of the log one read examines. Leaves to others: the tags of a batch (``raftlog.records.tag_directory``),
and reading and waiting (``reads``). No record is decoded.
"""

from __future__ import annotations

from typing import Final

from raftlog.records.batch import Buffer, split_batches
from raftlog.records.tag_directory import select
from raftlog.records.tags import TagSelection
from raftlog.types import Index, Offset

LOOKED_AT_BYTES_MAX: Final = 16 << 20  # bytes of the log that one read examines
STEP_BYTES: Final = 256 << 10  # bytes of one step, after which other tasks run


class Selection:
    """The batches with wanted tags that a read has found so far."""

    def __init__(self, offset: Offset, wanted: TagSelection, bytes_max: int) -> None:
        self.next_offset = offset
        self.size_bytes = 0
        self._wanted = wanted
        self._bytes_max = bytes_max
        self._looked_at_bytes = 0
        self._is_full = False
        self._parts: list[Buffer] = []

    @property
    def is_complete(self) -> bool:
        """Whether the response is full, or this read has examined its maximum of bytes of the log."""
        return self._is_full or self._looked_at_bytes >= LOOKED_AT_BYTES_MAX

    @property
    def data(self) -> bytes:
        """The batches of the response."""
        return b"".join(self._parts)

    def add(self, data: bytes | memoryview, last: Index) -> None:
        """Examine the batches from ``next_offset`` to ``last``, and add the parts with wanted tags to the
        response.
        """
        self._looked_at_bytes += len(data)
        for batch in split_batches(data):
            part = select(batch, self._wanted)
            if part is not None:
                size_bytes = self.size_bytes + len(part.data)
                if size_bytes > self._bytes_max and self._parts:
                    self._is_full = True
                    return
                self._parts.append(part.data)
                self.size_bytes = size_bytes
            self.next_offset = Offset(batch.last_offset + 1)
        self.next_offset = Offset(last + 1)
        self._is_full = self.size_bytes >= self._bytes_max
