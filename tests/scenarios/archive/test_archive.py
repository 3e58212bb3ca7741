"""What an archive keeps, and what counts after crashes, repeated batches and damage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.compacting import compact
from spark_io.archive.data_source import ArchiveDataSource
from spark_io.archive.entries import GENERATIONS, Gap, manifest_path, reach
from spark_io.archive.files import FileWriter, read_batches
from spark_io.archive.options import archive_read_options
from spark_io.archive.source import selected
from spark_io.archive.storage import DirectoryStorage, Storage, open_storage
from spark_io.archive.verifying import verify
from spark_io.errors import ArchiveDamaged, ArchiveOverlap, ArchiveUnreachable, InvalidOption, InvalidRows
from spark_io.planning import Range
from tests.helpers.archives import ORDERS, archived, file_of, offsets, rows


@pytest.fixture(params=["directory", "object store"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """An empty archive."""
    if request.param == "directory":
        return open_storage(str(tmp_path))
    return open_storage(f"memory://{uuid4().hex}")


@pytest.fixture
def directory(tmp_path: Path) -> DirectoryStorage:
    """An empty archive in a directory, ``tmp_path``."""
    return DirectoryStorage(tmp_path)


def problems(storage: Storage) -> list[str]:
    return [f"{one.where} {one.what}" for one in verify(storage, catalogue.load(storage))]


# requirement: A8
def test_spark_is_refused_an_archive_or_a_topic_that_does_not_exist(tmp_path: Path) -> None:
    def planned(**options: str) -> int:
        source = ArchiveDataSource({"path": str(tmp_path), **options})
        return len(source.reader(source.schema()).partitions())

    with pytest.raises(InvalidOption, match=f"there is no archive at '{tmp_path}'; correct the address"):
        planned()
    archived(DirectoryStorage(tmp_path), 0, (0, 5))
    with pytest.raises(
        InvalidOption, match=r"no topic 'order' \(did you mean 'orders'\?\); correct its name"
    ):
        planned(topics="orders,order")
    assert planned(topics="orders") == 1


# requirement: A8
def test_each_record_comes_back_bit_for_bit(storage: Storage) -> None:
    writer = FileWriter(storage)
    writer.add(rows(range(10)))
    writer.add(rows(range(3), TopicPartition("a/b=c", 1)))
    writer.add(rows(range(10, 20)))
    entries = writer.close()
    assert [(one.target, one.start, one.end, one.rows) for one in entries] == [
        (TopicPartition("a/b=c", 1), 0, 3, 3),
        (ORDERS, 0, 20, 20),
    ]
    found = pa.Table.from_batches(read_batches(storage, [(entries[1], Range("orders", 0, 0, 20))]))
    assert found.to_pylist() == rows(range(20)).to_pylist()
    assert (entries[1].min_timestamp, entries[1].max_timestamp, entries[1].term) == (1_000, 1_019, 7)


# requirement: A8
def test_files_have_the_documented_name_compression_and_row_groups(
    directory: DirectoryStorage, tmp_path: Path
) -> None:
    writer = FileWriter(directory)
    writer.add(rows(range(70_000)))
    [entry] = writer.close()
    name = "topic=orders/partition=0/00000000000000000000-00000000000000070000-"
    assert entry.path.startswith(name)
    metadata = pq.ParquetFile(tmp_path / entry.path).metadata
    assert [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)] == [65_536, 4_464]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    found = read_batches(directory, [(entry, Range("orders", 0, 65_530, 65_540))])
    assert [at for one in found for at in one.column("offset").to_pylist()] == [*range(65_530, 65_540)]


def test_a_full_buffer_becomes_a_file_without_waiting_for_the_end(storage: Storage) -> None:
    writer = FileWriter(storage, buffered_bytes=1_000)
    for start in range(0, 100, 10):
        writer.add(rows(range(start, start + 10)))
    entries = writer.close()
    assert len(entries) > 1
    assert catalogue.commit(storage, "q", 1, entries, lambda _: False)
    assert offsets(storage) == [*range(100)]
    assert problems(storage) == []


# requirement: A8
def test_files_of_a_batch_without_manifest_do_not_count(storage: Storage) -> None:
    archived(storage, 1, (0, 10))
    file_of(storage, range(10, 20))  # the writer was killed before the manifest
    assert offsets(storage) == [*range(10)]
    assert archived(storage, 2, (10, 20))
    assert offsets(storage) == [*range(20)]
    assert problems(storage) == []


# requirement: A8
def test_a_repeated_batch_is_skipped_and_touches_no_file(storage: Storage) -> None:
    assert archived(storage, 1, (0, 5), (5, 10))
    before = [storage.read(one.path) for one in catalogue.load(storage).files]
    assert not archived(storage, 1, (0, 10))
    assert not archived(storage, 1, (0, 5), (5, 10))
    assert [storage.read(one.path) for one in catalogue.load(storage).files] == before
    assert offsets(storage) == [*range(10)]


# requirement: A8
def test_of_two_drivers_in_one_batch_the_first_manifest_counts(storage: Storage) -> None:
    first, second = ([file_of(storage, range(10))] for _ in range(2))

    def the_other_is_faster(_: Range) -> bool:
        return catalogue.commit(storage, "q", 2, first, lambda _: True)

    archived(storage, 1, (-4, -2))
    assert not catalogue.commit(storage, "q", 2, second, the_other_is_faster)
    assert [one.path for one in catalogue.load(storage).files if one.end == 10] == [first[0].path]


def test_a_manifest_is_whole_and_created_once(storage: Storage) -> None:
    storage.create("_manifest/q/1", b"first")
    with pytest.raises(FileExistsError):
        storage.create("_manifest/q/1", b"second")
    assert storage.read("_manifest/q/1") == b"first"
    assert storage.names("_manifest/q") == ["1"]


def test_a_crash_while_a_manifest_is_written_leaves_none(
    directory: DirectoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def power_fails(_: int) -> None:
        raise OSError("no power")

    with monkeypatch.context() as context:
        context.setattr(os, "fsync", power_fails)
        with pytest.raises(OSError, match="no power"):
            archived(directory, 1, (0, 10))
    assert archived(directory, 1, (0, 10))
    assert offsets(directory) == [*range(10)]


# requirement: A8
@pytest.mark.parametrize(("start", "end"), [(0, 10), (5, 15), (9, 11), (3, 4)])
def test_offsets_that_are_archived_are_refused(storage: Storage, start: int, end: int) -> None:
    archived(storage, 1, (0, 10))
    with pytest.raises(ArchiveOverlap, match="another query writes to this archive"):
        archived(storage, 1, (start, end), query="other")
    with pytest.raises(ArchiveOverlap, match="leave out repartition"):
        archived(storage, 2, (20, 30), (25, 40))
    assert offsets(storage) == [*range(10)]


def test_the_driver_of_an_old_checkpoint_is_told(storage: Storage) -> None:
    archived(storage, 7, (0, 10))
    with pytest.raises(ArchiveOverlap, match="batch 6 of query q is too old"):
        archived(storage, 6, (10, 20))


# requirement: A8
def test_gaps_are_closed_only_where_the_log_has_no_records(storage: Storage) -> None:
    archived(storage, 1, (0, 10))
    archived(storage, 2, (11, 20), gaps_are_empty=True)  # a transaction ended at offset 10
    assert problems(storage) == []
    archived(storage, 3, (25, 30))
    assert catalogue.load(storage).gaps() == [Gap(ORDERS, 20, 25)]
    assert problems(storage) == ["orders/0 offsets 20 to 24 are in no file"]
    assert catalogue.load(storage).missing(Range("orders", 0, 5, 40)) == [
        Range("orders", 0, 20, 25),
        Range("orders", 0, 30, 40),
    ]


# requirement: A8
def test_damage_is_found_and_never_read(directory: DirectoryStorage, tmp_path: Path) -> None:
    archived(directory, 1, (0, 10), (10, 20), (20, 30))
    missing, flipped, cut = (tmp_path / one.path for one in catalogue.load(directory).files)
    missing.unlink()
    data = flipped.read_bytes()
    flipped.write_bytes(data[:99] + bytes([data[99] ^ 1]) + data[100:])
    cut.write_bytes(cut.read_bytes()[:-1])
    found = problems(directory)
    assert [one.split("/")[2][:42] for one in found] == [
        path.name[:42] for path in (missing, flipped, cut)
    ], "each is named"
    assert [found[0].endswith("is missing"), "CRC-32C" in found[1], "bytes" in found[2]] == [True] * 3
    for start in (0, 10, 20):
        with pytest.raises(ArchiveDamaged):
            offsets(directory, start, start + 1)


READER = """
import os, sys
from pathlib import Path
from spark_io.archive import catalogue
from spark_io.archive.files import read_batches
from spark_io.archive.storage import DirectoryStorage
from spark_io.archive.verifying import verify
from spark_io.planning import Range

before = len(os.listdir("/proc/self/task"))
storage = DirectoryStorage(Path(sys.argv[1]))
found = catalogue.load(storage)
assert list(verify(storage, found)) == []
pieces = [(one, Range("orders", 0, one.start, one.end)) for one in found.files]
assert sum(batch.num_rows for batch in read_batches(storage, pieces)) == 20
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the threads of a process are counted in /proc")
def test_reading_starts_no_threads(directory: DirectoryStorage, tmp_path: Path) -> None:
    """Arrow's own may abort a process that ends: apache/arrow issue 34314."""
    archived(directory, 1, (0, 10), (10, 20))
    command = [sys.executable, "-c", READER, str(tmp_path)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


@pytest.mark.parametrize(
    ("stated", "problem"), [('"rows": 9', "has 10 rows, its manifest says 9"), ('"rows": 10', "has offsets")]
)
def test_a_manifest_that_says_something_else_than_its_file(
    directory: DirectoryStorage, tmp_path: Path, stated: str, problem: str
) -> None:
    archived(directory, 1, (0, 10))
    path = tmp_path / manifest_path("q", 1)
    text = path.read_text().replace('"rows": 10', stated)
    path.write_text(text if "9" in stated else text.replace('"start": 0', '"start": 1'))
    [found] = problems(directory)
    assert problem in found


def test_overlapping_files_are_a_problem(directory: DirectoryStorage, tmp_path: Path) -> None:
    archived(directory, 1, (0, 10))
    archived(directory, 1, (20, 30), query="other")
    path = tmp_path / manifest_path("other", 1)
    path.write_text(path.read_text().replace('"start": 20', '"start": 5'))
    assert any("has offsets of" in one for one in problems(directory))


# requirement: A8
def test_offsets_that_two_files_have_are_read_once(storage: Storage) -> None:
    inner, outer, last = (file_of(storage, range(*one)) for one in ((2, 5), (0, 10), (8, 12)))

    def the_other_query_is_as_fast(_: Range) -> bool:
        return catalogue.commit(storage, "other", 1, [inner, last], lambda _: False)

    archived(storage, 0, (-4, -2))
    assert catalogue.commit(storage, "q", 1, [outer], the_other_query_is_as_fast)
    assert offsets(storage) == [*range(12)]
    assert len([one for one in problems(storage) if "has offsets of" in one]) == 2


# requirement: A8
@pytest.mark.parametrize("inner", [((6, 9),), ((4, 8), (8, 12)), ((4, 8), (8, 14)), ((4, 14),)])
def test_files_within_another_file_hide_nothing(storage: Storage, inner: tuple[tuple[int, int], ...]) -> None:
    def the_other_query_is_as_fast(_: Range) -> bool:
        files = [file_of(storage, range(*one)) for one in inner]
        return catalogue.commit(storage, "other", 1, files, lambda _: False)

    archived(storage, 0, (0, 2))
    assert catalogue.commit(storage, "q", 1, [file_of(storage, range(4, 14))], the_other_query_is_as_fast)
    found = catalogue.load(storage)
    assert [reach(found, ORDERS, log_start) for log_start in (0, 12, 14, 15)] == [0, 0, 0, 15]
    pieces = selected(found, archive_read_options({"path": "unused"}))
    assert sum(batch.num_rows for batch in read_batches(storage, pieces)) == 12


def test_an_archive_reaches_back_to_the_newest_gap(storage: Storage) -> None:
    archived(storage, 1, (2, 5), (7, 9))
    archived(storage, 2, (9, 12))
    found = catalogue.load(storage)
    assert [reach(found, ORDERS, log_start) for log_start in (1, 2, 4, 5, 6, 10, 12, 13)] == [
        *(1, 2, 2, 2),
        *(6, 7, 7, 13),
    ]


def test_a_damaged_manifest_is_an_error_that_names_it(directory: DirectoryStorage, tmp_path: Path) -> None:
    archived(directory, 1, (0, 10))
    (tmp_path / manifest_path("q", 1)).write_text("{")
    with pytest.raises(ArchiveDamaged, match=r"_manifest/q/0{19}1\.json is not a manifest"):
        catalogue.load(directory)


def test_rows_that_are_no_whole_records_are_refused(storage: Storage) -> None:
    writer = FileWriter(storage)
    with pytest.raises(InvalidRows, match="no column headers"):
        writer.add(rows(range(3)).drop_columns(["headers"]))
    writer.add(rows([1, 2, 2]))
    with pytest.raises(InvalidRows, match="same offset"):
        writer.close()
    writer = FileWriter(storage)
    writer.add(rows(range(3)).drop_columns(["term"]))
    assert writer.close()[0].term is None


def test_an_address_that_cannot_be_reached_says_what_to_install() -> None:
    with pytest.raises(ArchiveUnreachable, match="pip install fsspec"):
        open_storage("gs://there")


# requirement: A8
def test_compaction_joins_files_and_readers_see_the_same(storage: Storage) -> None:
    archived(storage, 1, (0, 10), (10, 20))
    archived(storage, 2, (20, 30))
    archived(storage, 3, (35, 40))
    before = catalogue.load(storage)
    assert compact(storage) == (4, 2)
    after = catalogue.load(storage)
    assert [(one.start, one.end, one.rows) for one in after.files] == [(0, 30, 30), (35, 40, 5)]
    assert offsets(storage) == [*range(30), *range(35, 40)]
    pieces = before.pieces(Range("orders", 0, 0, 40))
    assert sum(one.num_rows for one in read_batches(storage, pieces)) == 35, "a reader that began before"
    assert archived(storage, 4, (40, 50))
    assert not archived(storage, 3, (35, 40)), "a repeated batch whose manifest is replaced"
    assert compact(storage, target_bytes=1) == (3, 3)
    assert offsets(storage) == [*range(30), *range(35, 50)]
    assert [one.start for one in catalogue.load(storage).files] == [0, 35, 40]


# requirement: A8
def test_a_batch_that_is_committed_while_files_are_joined_counts(storage: Storage) -> None:
    archived(storage, 1, (0, 10))
    before = catalogue.load(storage)
    archived(storage, 2, (10, 20))
    assert catalogue.commit_generation(storage, before, before.files)
    assert offsets(storage) == [*range(20)]
    assert not catalogue.commit_generation(storage, before, [file_of(storage, range(10))]), (
        "another one was faster"
    )


class Repeating(DirectoryStorage):
    """A store whose client repeats each request once: the answer of the first one was lost."""

    def create(self, path: str, data: bytes) -> None:
        for _ in range(2):
            super().create(path, data)


# requirement: A8
def test_a_store_that_repeats_requests_is_no_other_writer(tmp_path: Path) -> None:
    storage = Repeating(tmp_path)
    assert archived(storage, 1, (0, 10))
    assert archived(storage, 2, (10, 20))
    assert compact(storage) == (2, 1)
    assert catalogue.load(storage).generation == 1
    assert storage.names(GENERATIONS) == [f"{1:020}.json"]
    assert offsets(storage) == [*range(20)]
