"""Joins small files of an archive, and replaces all manifests by a new generation.

Decides: which files are joined into one. Leaves to others: the commit of a generation (``catalogue``). Files
and manifests that a generation replaces are not deleted: readers that began earlier still need them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from spark_io.archive import catalogue
from spark_io.archive.entries import Catalogue, Entry
from spark_io.archive.files import read_batches, write_file
from spark_io.archive.storage import Storage
from spark_io.planning import Range

TARGET_BYTES: Final = 128 << 20


def compact(storage: Storage, *, target_bytes: int = TARGET_BYTES) -> tuple[int, int] | None:
    """Compact an archive.

    Returns the numbers of files before and after, or None if another compaction was faster. Raises
    ``ArchiveDamaged``. After None and after an error the archive is unchanged.
    """
    before = catalogue.load(storage)
    files = [_joined(storage, run) for run in runs(before, target_bytes)]
    if len(files) == len(before.files) and not before.through:
        return len(files), len(files)
    is_done = catalogue.commit_generation(storage, before, files)
    return (len(before.files), len(files)) if is_done else None


def runs(before: Catalogue, target_bytes: int) -> Iterator[list[Entry]]:
    """All files in groups, each to be joined into one file: consecutive offsets, up to ``target_bytes``."""
    for target in before.partitions:
        run: list[Entry] = []
        for one in before.of(target):
            fits = sum(each.bytes for each in run) + one.bytes <= target_bytes
            is_next = bool(run) and one.start == run[-1].end and one.topic_id == run[-1].topic_id
            if run and not (fits and is_next):
                yield run
                run = []
            run.append(one)
        yield run


def _joined(storage: Storage, run: Sequence[Entry]) -> Entry:
    if len(run) == 1:
        return run[0]
    first, last = run[0], run[-1]
    pieces = [(one, Range(one.topic, one.partition, one.start, one.end)) for one in run]
    made = write_file(storage, first.target, pa.Table.from_batches(read_batches(storage, pieces)))
    return replace(made, start=first.start, end=last.end, topic_id=first.topic_id)
