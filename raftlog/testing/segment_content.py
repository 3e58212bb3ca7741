"""Finds the content of a segment file, for code that compares or damages such files."""

from __future__ import annotations

from raftlog.records.batch import BATCH_OVERHEAD


def content_of(data: bytes) -> bytes:
    """The batches of a segment file, without the zeros with which it may be filled ahead.

    Returns all of ``data`` if other bytes than zeros follow the batches.
    """
    end = 0
    while length := int.from_bytes(data[end + 8 : end + BATCH_OVERHEAD]):
        end += BATCH_OVERHEAD + length
    return data if any(data[end:]) else data[:end]
