"""What a broker knows of an archive, and when it looks again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raftlog.errors import OffsetOutOfRange
from raftlog.records.batch import split_batches
from raftlog.records.reader import read_records
from spark_io.archive import fetching
from spark_io.archive.fetching import REFRESH_S, ArchiveReader
from spark_io.archive.storage import DirectoryStorage
from tests.helpers.archives import ORDERS, archived, rows

# requirement: A8

END = 1 << 40


class Watched(DirectoryStorage):
    """A directory that counts the files that are read, and is down at will."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read_paths: list[str] = []
        self.is_down = False

    def read(self, path: str) -> bytes:
        self.read_paths.append(path)
        return super().read(path)

    def names(self, folder: str) -> list[str]:
        if self.is_down:
            raise OSError("the storage is down")
        return super().names(folder)


class Clock:
    """A clock that stands."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def offsets(reader: ArchiveReader, offset: int, end: int = END, *, bytes_max: int = 1 << 20) -> list[int]:
    """The offsets of the records of one read."""
    data = reader.read(ORDERS, "t", offset, end, bytes_max).data
    return [one.offset for batch in split_batches(data) for one in read_records(batch)]


def test_a_file_of_a_moment_ago_is_read(tmp_path: Path) -> None:
    storage = Watched(tmp_path)
    reader = ArchiveReader(storage, Clock())
    archived(storage, 0, (0, 10), topic_id="t")
    assert offsets(reader, 0) == [*range(10)]
    archived(storage, 1, (10, 20), topic_id="t")
    assert offsets(reader, 10) == [*range(10, 20)]
    archived(storage, 2, (20, 30), topic_id="t")
    assert reader.find(ORDERS, "t", 30, None) == 0


def test_records_are_those_of_the_files(tmp_path: Path) -> None:
    storage = Watched(tmp_path)
    archived(storage, 0, (3, 300), topic_id="t")
    expected = [
        (row["offset"], row["key"], row["value"], len(row["headers"] or ()))
        for row in rows(range(3, 300)).to_pylist()
    ]
    reader, at, found = ArchiveReader(storage), 3, []
    while at < 300:
        part = reader.read(ORDERS, "t", at, END, 700)
        for batch in split_batches(part.data):
            kind = batch.header.is_append_time
            for one in read_records(batch):
                assert (one.timestamp_ms, kind) == (1_000 + one.offset, one.offset % 2 == 1)
                found.append((one.offset, one.key, one.value, len(one.headers)))
        at = part.next_offset
    assert found == expected
    assert sum(path.endswith(".parquet") for path in storage.read_paths) == 1, "the file stays open"


def test_a_read_ends_where_the_log_begins_and_gaps_are_passed(tmp_path: Path) -> None:
    storage = Watched(tmp_path)
    archived(storage, 0, (0, 10), topic_id="t")
    archived(storage, 1, (15, 20), topic_id="t", gaps_are_empty=True)
    archived(storage, 2, (25, 30), topic_id="t")
    reader = ArchiveReader(storage)
    assert offsets(reader, 4, 8) == [4, 5, 6, 7]
    assert offsets(reader, 8) == [8, 9, *range(15, 20)]
    assert offsets(reader, 12) == [*range(15, 20)]
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.read(ORDERS, "t", 20, END, 1)
    assert caught.value.details == {"archived_from": 25}
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.read(ORDERS, "t", 30, END, 1)
    assert caught.value.details == {}
    assert [reader.find(ORDERS, "t", end, None) for end in (20, 24, 30, 31)] == [0, None, 25, None]
    assert reader.find(ORDERS, "t", 30, 1_027) == 27
    with pytest.raises(OffsetOutOfRange):
        reader.read(ORDERS, "another", 0, END, 1)


def test_manifests_are_read_once_and_what_is_known_serves_while_they_cannot_be_read(tmp_path: Path) -> None:
    storage, clock = Watched(tmp_path), Clock()
    reader = ArchiveReader(storage, clock)
    for batch in range(3):
        archived(storage, batch, (10 * batch, 10 * batch + 10), topic_id="t")
    storage.read_paths.clear()
    for _ in range(3):
        assert offsets(reader, 0, 10) == [*range(10)]
        clock.now_s += REFRESH_S + 1
    assert len([path for path in storage.read_paths if path.endswith(".json")]) == 3
    storage.is_down = True
    assert offsets(reader, 0, 10) == [*range(10)]
    with pytest.raises(OSError, match="down"):
        reader.read(ORDERS, "t", 30, END, 1)


def test_an_archive_that_had_files_and_has_none_is_not_mounted(tmp_path: Path) -> None:
    storage = Watched(tmp_path / "archive")
    archived(storage, 0, (0, 10), topic_id="t")
    reader = ArchiveReader(storage)
    assert offsets(reader, 0, 10) == [*range(10)]
    (tmp_path / "archive").rename(tmp_path / "unmounted")
    with pytest.raises(FileNotFoundError, match="mounted"):
        reader.read(ORDERS, "t", 10, END, 1)


def test_open_files_have_a_bound_and_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, clock = Watched(tmp_path), Clock()
    monkeypatch.setattr(fetching, "OPEN_MAX", 2)
    archived(storage, 0, (0, 100), topic_id="t")
    reader = ArchiveReader(storage, clock)
    for at in (0, 20, 40):
        assert offsets(reader, at, bytes_max=1) == [at]
    assert storage.read_paths.count(storage.read_paths[-1]) == 1, "readers share the bytes of a file"
    assert reader.close_idle()
    clock.now_s += fetching.IDLE_S + 1
    assert not reader.close_idle()
    assert offsets(reader, 21, bytes_max=1) == [21]
    assert storage.read_paths.count(storage.read_paths[-1]) == 2


def test_many_readers_at_once_get_the_same(tmp_path: Path) -> None:
    storage = Watched(tmp_path)
    archived(storage, 0, (0, 200), topic_id="t")
    reader, found = ArchiveReader(storage), list[list[int]]()

    def read() -> None:
        at, mine = 0, list[int]()
        while at < 200:
            part = reader.read(ORDERS, "t", at, 200, 300)
            mine += [one.offset for batch in split_batches(part.data) for one in read_records(batch)]
            at = part.next_offset
        found.append(mine)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert found == [[*range(200)]] * 4
