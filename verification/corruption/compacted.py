"""Judges disks with a compacted topic: which values may be missing, and what every replica must have.

Decides: which records count as superseded. Replicas compact at different times, so their logs differ in
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.records.batch import split_batches
from raftlog.records.reader import read_records

KEYS: Final = 15
CONFIG: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}


def without_superseded(missing: list[int], keys: Mapping[int, bytes]) -> list[int]:
    """Return the missing offsets that no newer acknowledged record of their key supersedes."""
    newest = {key: offset for offset, key in sorted(keys.items())}
    return [offset for offset in missing if offset not in keys or newest[keys[offset]] == offset]


def newest_of(log: bytes) -> bytes:
    """Return the newest record of each key and all control batches, as bytes that are equal on all
    replicas.
    """
    newest: dict[bytes | None, tuple[int, bytes | None]] = {}
    fixed: list[bytes] = []
    for batch in split_batches(log):
        if batch.header.is_control:
            fixed.append(bytes(batch.data))
            continue
        for record in read_records(batch):
            newest[record.key] = (record.offset, record.value)
    return repr((sorted(newest.items(), key=repr), fixed)).encode()
