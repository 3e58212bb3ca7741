"""An archive in HDFS, over HTTP: a file is there once, and whole."""

from __future__ import annotations

import threading

import pytest

from spark_io.archive import catalogue
from spark_io.archive.storage import open_storage
from spark_io.archive.verifying import verify
from spark_io.errors import ArchiveOverlap, ArchiveUnreachable
from tests.helpers.archives import archived, offsets
from tests.helpers.webhdfs import webhdfs


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
