"""An archive as the owner of a table reads it: its view, its records by value, its files in HDFS."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from pyspark import cloudpickle

import spark_io
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.entries import Generation, Manifest, encoded, generation_in, manifest_in
from spark_io.archive.files import FileWriter
from spark_io.archive.sink import Archived
from spark_io.archive.storage import DirectoryStorage, open_storage
from spark_io.archive.verifying import verify
from spark_io.archive.view import divided, extended, offset_in_both
from spark_io.discovery import batch_ranges
from spark_io.errors import ArchiveOverlap, ArchiveUnreachable, DataLoss
from spark_io.options import read_options
from spark_io.partition_ends import Bounds
from spark_io.planning import Range
from spark_io.positions import AtTime
from tests.helpers.archives import ORDERS, archived, file_of, offsets, rows
from tests.helpers.webhdfs import webhdfs

Found = tuple[list[tuple[int, int]], list[Range]]


def planned(folder: Path, log: tuple[int, int], **options: str) -> Found:
    """The offsets that a read takes from files, and from the log."""
    storage = DirectoryStorage(folder)
    found = catalogue.load(storage)
    bounds = {ORDERS: Bounds(*log, 1.0)}

    def in_log(_: TopicPartition, position: AtTime | Literal["earliest"]) -> int:
        return log[0] if position == "earliest" else max(log[0], position.ms - 1_000)

    given = {"bootstrap.servers": "h:1", "subscribe": "orders", "archive": str(folder), **options}
    both = offset_in_both(in_log, bounds, found, storage)
    ranges = batch_ranges(read_options(given, is_stream=False), extended(bounds, found), both)
    pieces, live = divided(ranges, bounds, found)
    return [(one.start, one.end) for _, one in pieces], live


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive of the offsets 0 to 29, without 5 to 9, in three files."""
    archived(DirectoryStorage(tmp_path), 1, (0, 5), (10, 20), (20, 30))
    return tmp_path


# requirement: A8
@pytest.mark.parametrize(
    ("log", "pieces", "live"),
    [
        ((30, 40), [(10, 20), (20, 30)], [(30, 40)]),
        ((25, 40), [(10, 20), (20, 25)], [(25, 40)]),
        ((20, 40), [(10, 20)], [(20, 40)]),
        ((0, 40), [], [(0, 40)]),
        ((30, 30), [(10, 20), (20, 30)], []),
        ((31, 40), [], [(31, 40)]),
    ],
)
def test_files_end_where_the_log_starts(
    folder: Path, log: tuple[int, int], pieces: list[tuple[int, int]], live: list[tuple[int, int]]
) -> None:
    found, ranges = planned(folder, log)
    assert found == pieces
    assert ranges == [Range("orders", 0, start, end) for start, end in live]


# requirement: A8
def test_offsets_that_neither_has_are_lost(folder: Path) -> None:
    with pytest.raises(DataLoss, match="offsets 3 to 9"):
        planned(folder, (25, 40), startingOffsets='{"orders":{"0":3}}')
    start = '{"orders":{"0":3}}'
    assert planned(folder, (25, 40), startingOffsets=start, failOnDataLoss="false")[0] == [(10, 20), (20, 25)]
    with pytest.raises(DataLoss):
        planned(folder, (31, 40), startingOffsets='{"orders":{"0":12}}')


# requirement: A8
def test_a_time_is_looked_for_in_files_and_in_the_log(folder: Path) -> None:
    assert planned(folder, (25, 40), startingTimestamp="1022") == ([(22, 25)], [Range("orders", 0, 25, 40)])
    assert planned(folder, (25, 40), startingTimestamp="1030") == ([], [Range("orders", 0, 30, 40)])
    assert planned(folder, (25, 40), endingTimestamp="1015") == ([(10, 15)], [])


WORKER = """
import pickle, sys
sys.modules["spark_io"] = None
sys.stdout.buffer.write(pickle.dumps(pickle.load(sys.stdin.buffer)()))
"""


def in_a_worker(function: Callable[[], bool]) -> bool:
    """The result of the function in a process that cannot import the package."""
    cloudpickle.register_pickle_by_value(spark_io)  # type: ignore[no-untyped-call]
    try:
        sent = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
    finally:
        cloudpickle.unregister_pickle_by_value(spark_io)  # type: ignore[no-untyped-call]
    done = subprocess.run([sys.executable, "-c", WORKER], input=sent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2_000:]
    return bool(cloudpickle.loads(done.stdout))


# requirement: A8
def test_a_worker_writes_files_and_reads_manifests(tmp_path: Path) -> None:
    storage, records = DirectoryStorage(tmp_path), rows(range(5))
    archived(storage, 1, (0, 5), (5, 10))
    assert len(catalogue.load(storage).files) == 2, "the driver has read it before"

    def work() -> bool:
        writer = FileWriter(storage)
        writer.add(records)
        message = Archived("q", tuple(writer.close()))
        found = catalogue.load(storage)
        return [one.end for one in found.files] == [5, 10] and message.entries[0].end == 5

    assert in_a_worker(work)


# requirement: A8
def test_a_manifest_is_the_same_in_a_worker(tmp_path: Path) -> None:
    one = file_of(DirectoryStorage(tmp_path), range(3))

    def work() -> bool:
        manifest, generation = Manifest(files=(one,)), Generation(files=(one,), through={"q": 3})
        return (
            manifest_in("m", encoded(manifest)) == manifest
            and generation_in("g", encoded(generation)) == generation
        )

    assert in_a_worker(work)


# requirement: A8
def test_a_batch_counts_once_in_hdfs() -> None:
    with webhdfs() as (address, files):
        storage = open_storage(address)
        assert catalogue.load(storage).files == []
        assert archived(storage, 1, (0, 10), (10, 20))
        assert not archived(storage, 1, (0, 20))
        with pytest.raises(ArchiveOverlap):
            archived(storage, 2, (15, 30))
        assert offsets(storage) == [*range(20)]
        assert [*verify(storage, catalogue.load(storage))] == []
        assert not [path for path in files if "/.tmp-" in path]
        files["/archive/topic=orders/partition=0/.tmp-killed"] = b"half"
        assert storage.unfinished("topic=orders/partition=0") == [".tmp-killed"]
        assert all(".tmp-" not in name for name in storage.names("topic=orders/partition=0"))


# requirement: A8 D3
def test_one_of_many_drivers_creates_a_file_in_hdfs() -> None:
    with webhdfs() as (address, files):
        won: list[int] = []
        barrier = threading.Barrier(8)

        def create(number: int) -> None:
            storage = open_storage(address)
            barrier.wait()
            try:
                storage.create("_manifest/q/0.json", b"%d" % number)
            except FileExistsError:
                return
            won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert len(won) == 1
        assert files == {"/archive/_manifest/q/0.json": b"%d" % won[0]}


def test_a_store_that_cannot_create_a_file_once_is_refused() -> None:
    with pytest.raises(ArchiveUnreachable, match=r"sftp:// cannot be written: two drivers .* webhdfs://"):
        open_storage("sftp://host/archive")
