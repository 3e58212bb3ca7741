"""Records with tags, and batches of them by producers that list tags and by those that do not."""

from __future__ import annotations

from raftlog.records.batch import Codec
from raftlog.records.builder import Record, build_batch
from raftlog.records.tags import TAG_RECORD_HEADER


def tagged(value: bytes, *tags: str, key: bytes | None = None) -> Record:
    """One record."""
    return Record(value, key=key, headers=tuple((TAG_RECORD_HEADER, tag.encode()) for tag in tags))


def tagged_batch(*records: Record, codec: Codec = Codec.NONE, lists_tags: bool = True) -> bytes:
    """One batch."""
    return build_batch(records, codec=codec, timestamp_ms=1_000, lists_tags=lists_tags)
