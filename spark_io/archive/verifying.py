"""Verifies an archive: the content of each file that counts, and the offsets of all files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from spark_io.archive.entries import Catalogue, Entry
from spark_io.archive.files import read_file
from spark_io.archive.storage import Storage
from spark_io.errors import ArchiveDamaged


@dataclass(frozen=True, slots=True)
class Problem:
    """A defect of a file, or a gap or overlap between files of a partition."""

    where: str
    what: str


def verify(storage: Storage, catalogue: Catalogue) -> Iterator[Problem]:
    """Find all problems: first gaps and overlaps of offsets, then damaged files. Reads every file."""
    for gap in catalogue.gaps():
        yield Problem(str(gap.target), f"offsets {gap.start} to {gap.end - 1} are in no file")
    for before, after in catalogue.overlaps():
        yield Problem(after.path, f"has offsets of {before.path}, {after.start} to {before.end - 1}")
    for one in catalogue.files:
        found = _problem_of(storage, one)
        if found is not None:
            yield Problem(one.path, found)


def _problem_of(storage: Storage, entry: Entry) -> str | None:
    try:
        table = read_file(storage, entry).read(columns=["offset"], use_threads=False)
    except ArchiveDamaged as error:
        return str(error).partition("; ")[0].removeprefix(f"{entry.path} ")
    except pa.ArrowException as error:
        return f"cannot be read as Parquet: {error}"
    if table.num_rows != entry.rows:
        return f"has {table.num_rows} rows, its manifest says {entry.rows}"
    bounds = pc.min_max(table.column("offset"))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low < entry.start or high >= entry.end:
        return f"has offsets {low} to {high}, its manifest says {entry.start} to {entry.end - 1}"
    return None
