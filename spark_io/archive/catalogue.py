"""Reads and writes the manifests of an archive.

Decides: the order of steps that makes a batch count once. Leaves to others: the content of a manifest
(``entries``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from spark_io.archive.entries import (
    DELTA_LOG,
    GENERATIONS,
    MANIFESTS,
    Catalogue,
    Entry,
    Generation,
    Manifest,
    catalogue_of,
    encoded,
    gap_before,
    generation_in,
    generation_path,
    joined,
    manifest_folder,
    manifest_in,
    manifest_path,
    number_of,
)
from spark_io.archive.storage import Storage, has_created
from spark_io.errors import ArchiveDamaged, ArchiveOverlap, InvalidOption
from spark_io.planning import Range

IsEmpty = Callable[[Range], bool]


@dataclass(slots=True)
class Seen:
    """The manifests and the generation of an archive that were read before. Their contents never change."""

    generation: tuple[int, Generation] | None = None
    manifests: dict[tuple[str, int], Manifest] = field(default_factory=dict)


def load(storage: Storage, seen: Seen | None = None) -> Catalogue:
    """Return the files that count now. Reads only manifests that are not in ``seen``, and adds these to it.

    Raises ``ArchiveDamaged`` for a manifest that cannot be read, and ``InvalidOption`` for an archive that is
    a Delta table.
    """
    seen = seen or Seen()
    generation = _newest_generation(storage, seen.generation)
    through = {} if generation is None else generation[1].through
    manifests: dict[tuple[str, int], Manifest] = {}
    for query in _queries(storage):
        for batch in _numbers(storage, manifest_folder(query)):
            if batch > through.get(query, -1):
                path, known = manifest_path(query, batch), seen.manifests.get((query, batch))
                manifests[query, batch] = known or manifest_in(path, storage.read(path))
    seen.generation, seen.manifests = generation, manifests
    if generation is None and not manifests and storage.names(DELTA_LOG):
        raise InvalidOption(
            "path is a Delta table; write it with layout=delta, and read it with an engine for Delta Lake"
        )
    return catalogue_of(generation, manifests)


def manifest_of(storage: Storage, query: str, batch: int) -> Manifest | None:
    """The manifest of a batch; None if the batch is not committed. Raises ``ArchiveDamaged``."""
    path = manifest_path(query, batch)
    try:
        return manifest_in(path, storage.read(path))
    except FileNotFoundError:
        return None


def listed(storage: Storage) -> frozenset[str]:
    """The paths in all manifests and generations, including replaced ones. Raises ``ArchiveDamaged``."""
    paths: set[str] = set()
    for number in _numbers(storage, GENERATIONS):
        path = generation_path(number)
        paths.update(one.path for one in generation_in(path, storage.read(path)).files)
    for query in _queries(storage):
        for batch in _numbers(storage, manifest_folder(query)):
            path = manifest_path(query, batch)
            paths.update(one.path for one in manifest_in(path, storage.read(path)).files)
    return frozenset(paths)


def commit(storage: Storage, query: str, batch: int, added: Sequence[Entry], is_empty: IsEmpty) -> bool:
    """Commit the files of a batch. False if the batch was committed before: these files then never count.

    ``is_empty`` says whether a gap before a new file has no records. Only gaps without records are closed.
    Raises ``ArchiveOverlap``; then the batch does not count.
    """
    if manifest_of(storage, query, batch) is not None:
        return False
    archived = load(storage)
    newest = archived.through.get(query, -1)
    if batch < newest:
        raise ArchiveOverlap(
            f"batch {batch} of query {query} is too old, the archive has batch {newest}: another driver runs "
            "this query, or the checkpoint was restored from a copy; stop this query, or use a new "
            "checkpointLocation and startingOffsets where the archive ends"
        )
    archived.check_added(added)
    gaps = {gap for one in added if (gap := gap_before(one, added, archived)) is not None}
    files = joined(added, archived, {gap: is_empty(gap) for gap in gaps})
    return has_created(storage, manifest_path(query, batch), encoded(Manifest(files=tuple(files))))


def commit_generation(storage: Storage, before: Catalogue, files: Sequence[Entry]) -> bool:
    """Commit ``files`` in place of the files of ``before``. False if another compaction was faster.

    Raises ``ArchiveDamaged`` if a new file is missing; then nothing has changed.
    """
    made = Generation(files=tuple(files), through=before.through)
    known = {one.path for one in before.files}
    for one in files:
        if one.path not in known and not storage.exists(one.path):
            raise ArchiveDamaged(
                f"{one.path} was removed while files were joined; nothing has changed; compact again"
            )
    return has_created(storage, generation_path(before.generation + 1), encoded(made))


def _newest_generation(
    storage: Storage, seen: tuple[int, Generation] | None = None
) -> tuple[int, Generation] | None:
    numbers = _numbers(storage, GENERATIONS)
    if not numbers:
        return None
    if seen is not None and seen[0] == numbers[-1]:
        return seen
    path = generation_path(numbers[-1])
    return numbers[-1], generation_in(path, storage.read(path))


def _queries(storage: Storage) -> list[str]:
    """The queries that have manifests."""
    generations = GENERATIONS.rpartition("/")[2]
    return [unquote(folder) for folder in storage.names(MANIFESTS) if folder != generations]


def _numbers(storage: Storage, folder: str) -> list[int]:
    return [number for name in storage.names(folder) if (number := number_of(name)) is not None]
