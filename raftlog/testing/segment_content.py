"""The content of the file of a segment, for code that compares or damages such files."""

from __future__ import annotations

from raftlog.records.batch import BATCH_OVERHEAD


def content_of(data: bytes) -> bytes:
    """The file's batches, by their lengths, without the zeros with which it may be filled ahead.

    All of ``data`` where something else follows the batches.
    """
    end = 0
    while length := int.from_bytes(data[end + 8 : end + BATCH_OVERHEAD]):
        end += BATCH_OVERHEAD + length
    return data if any(data[end:]) else data[:end]
