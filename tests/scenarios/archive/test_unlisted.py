"""Files that killed tasks have left are removed, and no file that any reader may open."""

from __future__ import annotations

import os
import time
from pathlib import Path
from uuid import uuid4

import pytest

from spark_io.archive import catalogue
from spark_io.archive.compacting import compact
from spark_io.archive.files import read_batches
from spark_io.archive.storage import DirectoryStorage, Storage, open_storage
from spark_io.archive.unlisted import find_unlisted, removable, remove
from spark_io.archive.verifying import verify
from spark_io.errors import ArchiveDamaged
from spark_io.planning import Range
from tests.helpers.archives import archived, file_of, offsets

# requirement: A8

DAY_S = 24 * 3600.0


@pytest.fixture(params=["directory", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty archive."""
    if request.param == "directory":
        return open_storage(str(tmp_path))
    return open_storage(f"memory://{uuid4().hex}")


def unlisted(storage: Storage) -> list[str]:
    return sorted(one.path for one in find_unlisted(storage, now_s=time.time()))


def clean(storage: Storage, *, later_s: float = 2 * DAY_S, grace_s: float = DAY_S) -> list[str]:
    """Remove what may go when ``later_s`` have passed."""
    found = find_unlisted(storage, now_s=time.time() + later_s)
    chosen = removable(found, catalogue.load(storage), grace_s)
    remove(storage, chosen)
    return sorted(one.path for one in chosen)


def test_what_a_killed_task_has_left_is_removed_once_it_is_old(storage: Storage) -> None:
    left = file_of(storage, range(3, 8))
    archived(storage, 1, (0, 5), (5, 10))
    assert unlisted(storage) == [left.path]
    assert clean(storage, later_s=DAY_S - 60) == []
    assert clean(storage) == [left.path]
    assert (unlisted(storage), offsets(storage)) == ([], [*range(10)])
    assert [*verify(storage, catalogue.load(storage))] == []


def test_the_files_of_a_batch_that_is_being_archived_stay(storage: Storage) -> None:
    archived(storage, 1, (0, 10))
    files = [file_of(storage, range(10, 20)), file_of(storage, range(20, 25))]
    assert clean(storage, later_s=100 * DAY_S) == []
    assert catalogue.commit(storage, "q", 2, files, lambda _: False)
    assert offsets(storage) == [*range(25)]


def test_files_with_any_offset_that_no_other_has_stay(storage: Storage) -> None:
    archived(storage, 1, (0, 10))
    partly = file_of(storage, range(5, 11))
    assert clean(storage) == []
    archived(storage, 2, (10, 12))
    assert clean(storage) == [partly.path]


def test_files_of_replaced_manifests_and_generations_stay_for_their_readers(storage: Storage) -> None:
    archived(storage, 1, (0, 5), (5, 10))
    readers = [catalogue.load(storage)]
    compact(storage)
    readers.append(catalogue.load(storage))
    archived(storage, 2, (10, 15))
    readers.append(catalogue.load(storage))
    compact(storage)
    left = file_of(storage, range(7))
    assert clean(storage) == [left.path]
    for found, end in zip(readers, (10, 10, 15), strict=True):
        pieces = found.pieces(Range("orders", 0, 0, 100))
        read = [at for batch in read_batches(storage, pieces) for at in batch.column("offset").to_pylist()]
        assert read == [*range(end)]


def test_a_generation_whose_files_were_removed_meanwhile_does_not_count(storage: Storage) -> None:
    archived(storage, 1, (0, 5), (5, 10))
    before = catalogue.load(storage)
    joined = file_of(storage, range(10))  # by a compaction that takes days
    assert clean(storage) == [joined.path]
    with pytest.raises(ArchiveDamaged, match="was removed while files were joined"):
        catalogue.commit_generation(storage, before, [joined])
    assert offsets(storage) == [*range(10)]


def test_nothing_is_removed_where_a_manifest_cannot_be_read(storage: Storage) -> None:
    archived(storage, 1, (0, 10))
    file_of(storage, range(10))
    storage.create("_manifest/q/00000000000000000002.json", b"garbage")
    with pytest.raises(ArchiveDamaged, match=r"0002\.json is not a manifest"):
        unlisted(storage)


def test_files_of_others_are_not_touched(storage: Storage) -> None:
    archived(storage, 1, (0, 10))
    others = ["README", "topic=orders/notes.txt", "topic=orders/partition=0/part-0.parquet", "a/b"]
    for path in others:
        storage.create(path, b"theirs")
    assert unlisted(storage) == clean(storage) == []
    assert [storage.read(path) for path in others] == [b"theirs"] * 4


def test_what_a_killed_writer_has_not_finished_is_removed(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    archived(storage, 1, (0, 10))
    folders = "topic=orders/partition=0", "_manifest/q", "_manifest"
    files = sorted(f"{folder}/.tmp-{uuid4().hex}" for folder in folders)
    for path in files:
        (tmp_path / path).write_bytes(b"half")
    assert unlisted(storage) == files
    assert clean(storage, later_s=0) == []
    old = time.time() - 2 * DAY_S
    os.utime(tmp_path / files[0], (old, old))
    assert clean(storage, later_s=0) == [files[0]]
    assert clean(storage) == files[1:]
