"""What ``archive write`` archives beside a broker: each committed record once, as the sink of Spark does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from raftlog import Client
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.compacting import compact
from spark_io.archive.entries import MANIFESTS, Entry
from spark_io.archive.files import SCHEMA, FileWriter
from spark_io.archive.options import archive_write_options
from spark_io.archive.reporting import report
from spark_io.archive.sink import Archived, ArchiveWriter, check_columns
from spark_io.archive.storage import DirectoryStorage
from spark_io.archive.verifying import verify
from spark_io.archive.writing import TopicWriter, Written, starts, write_options
from spark_io.errors import ArchiveOverlap, DataLoss
from spark_io.options import read_options
from spark_io.partition_ends import Bounds, Removed
from spark_io.planning import Range
from spark_io.reading import read_ranges
from spark_io.schemas import arrow_schema, schema_of
from tests.helpers.archives import ORDERS, offsets
from tests.helpers.async_tests import beside
from tests.helpers.command_line import invoke
from tests.helpers.whole_broker import whole_broker

# requirement: A8

OTHER = TopicPartition("orders", 1)


class Interrupted(Exception):
    """A process was killed."""


class Meddled(DirectoryStorage):
    """A directory where something happens before or after a file with a part in its path is created."""

    def __init__(
        self,
        root: Path,
        part: str,
        *,
        before: Callable[[], object] = bool,
        after: Callable[[], object] = bool,
    ) -> None:
        super().__init__(root)
        self._meddling = {part: (before, after)}

    def create(self, path: str, data: bytes) -> None:
        """Meddle once."""
        part = next((one for one in self._meddling if one in path), "")
        before, after = self._meddling.pop(part, (bool, bool))
        before()
        super().create(path, data)
        after()


@dataclass
class Archiving:
    """A broker with two partitions of ``orders``, and an archive in a directory."""

    client: Client
    url: str
    folder: Path

    @property
    def storage(self) -> DirectoryStorage:
        return DirectoryStorage(self.folder)

    def send(self, count: int, target: TopicPartition = ORDERS) -> None:
        with self.client.producer("orders") as producer:
            for number in range(count):
                headers = [("h", b"1"), ("h", None)] if number % 2 else None
                producer.send(f"{number}", key=f"k{number}", partition=target.partition, headers=headers)

    def writer(
        self, storage: DirectoryStorage | None = None, *, records: int = 1_000, fails: bool = True
    ) -> TopicWriter:
        options = write_options(
            self.url, "orders", batch_records=records, batch_bytes=1 << 20, fails_on_loss=fails
        )
        found = replace(options, fetch_timeout_s=0.5)
        return TopicWriter(self.client, storage or self.storage, "orders", found)

    def write(
        self, storage: DirectoryStorage | None = None, *, records: int = 1_000, fails: bool = True
    ) -> list[list[Entry]]:
        return [*self.writer(storage, records=records, fails=fails).write()]

    def log(self, target: TopicPartition = ORDERS) -> list[int]:
        """The offsets of committed records."""
        partition, at, found = self.client.partition("orders", target.partition), 0, []
        while chunk := partition.read(at):
            found += [one.offset for one in chunk.messages]
            at = chunk.next_offset
        return found

    @property
    def known(self) -> list[int]:
        """What the broker knows to be archived."""
        return [one.archived_up_to for one in self.client.topics.partitions("orders")]

    def check(self) -> None:
        """The archive is whole, and has what the log has."""
        for target in (ORDERS, OTHER):
            assert offsets(self.storage, target=target) == self.log(target)
        assert [*verify(self.storage, catalogue.load(self.storage))] == []


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Archiving]:
    with beside(whole_broker(2)) as broker, Client(broker.url) as client:
        yield Archiving(client, broker.url, tmp_path)


def test_batches_have_committed_records_up_to_their_limit(it: Archiving) -> None:
    it.send(25)
    it.send(5, OTHER)
    for commits in (True, False, True):
        with it.client.producer("orders", transactional_id="t") as producer:
            transaction = producer.transaction()
            with transaction:
                sent = [transaction.send(str(number), partition=0) for number in range(10)]
                [one.result() for one in sent]
                if not commits:
                    transaction.abort()
    writer = it.writer(records=10)
    batches = [*writer.write()]
    assert len(batches) > 3
    assert all(sum(one.rows for one in entries) <= 10 for entries in batches)
    assert len(it.storage.names(f"{MANIFESTS}/write-orders")) == len(batches)
    it.check()
    assert len(it.log()) == 45
    found = writer.written[ORDERS], writer.written[OTHER]
    last = it.log()[-1]
    assert [(one.start, one.end, one.records) for one in found] == [(0, last + 2, 45), (0, 5, 5)]
    assert it.known == [one.end for one in found]
    assert it.write() == [], "the entries of the reports are no records"
    it.send(3)
    it.write()
    it.check()


def test_an_open_transaction_is_archived_once_it_is_committed(it: Archiving) -> None:
    it.send(2)
    with (
        it.client.producer("orders", transactional_id="t") as producer,
        producer.transaction() as transaction,
    ):
        transaction.send("open", partition=0).result()
        it.send(2)
        it.write()
        assert offsets(it.storage) == [0, 1]
    it.write()
    it.check()
    assert len(it.log()) == 5


@pytest.mark.parametrize("part", [".parquet", "_manifest"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_goes_on_where_a_killed_run_ended(it: Archiving, part: str, when: str) -> None:
    def die() -> None:
        raise Interrupted

    it.send(20)
    it.send(10, OTHER)
    storage = Meddled(it.folder, part, **{when: die})
    with pytest.raises(Interrupted):
        it.write(storage)
    assert it.known == [0, 0]
    it.write()
    it.check()
    assert it.known == [20, 10]
    compact(it.storage)
    it.send(5)
    it.write()
    it.check()


def test_of_two_runs_at_once_one_fails_and_disturbs_nothing(it: Archiving) -> None:
    it.send(20)
    for part in (".parquet", "_manifest"):
        other = Meddled(it.folder, part, before=lambda: it.write(records=5))
        with pytest.raises(ArchiveOverlap, match="another process archives topic orders"):
            it.write(other, records=7)
        it.check()
        it.send(20)


def test_records_that_another_run_has_archived_and_retention_has_deleted_are_not_lost(it: Archiving) -> None:
    it.send(20)
    slow = it.writer(records=5).write()
    next(slow)
    it.write()
    it.client.partitions.delete_before("orders", 0, 15)
    with pytest.raises(ArchiveOverlap, match="another process archives topic orders"):
        next(slow)
    assert offsets(it.storage) == [*range(20)]


@pytest.mark.parametrize("part", ["_manifest", ".parquet"])
def test_a_store_that_repeats_a_request_is_not_another_run(it: Archiving, part: str) -> None:
    def again() -> None:
        raise FileExistsError

    it.send(20)
    assert len(it.write(Meddled(it.folder, part, after=again), records=10)) == 2
    it.check()


def test_records_that_were_deleted_before_they_were_archived_are_an_error(it: Archiving) -> None:
    it.send(10)
    it.write()
    it.send(20)
    start = it.log()[-5]
    it.client.partitions.delete_before("orders", 0, start)
    with pytest.raises(DataLoss, match=f"offsets 10 to {start - 1} of orders/0 are deleted"):
        it.write()
    told = invoke(it.url, "archive", "write", "orders", str(it.folder), code=1).stderr
    assert f"retention was faster than the reader; give --skip-lost to continue at {start}" in told
    assert offsets(it.storage) == [*range(10)]
    writer = it.writer(fails=False)
    assert len([*writer.write()]) == 1
    assert writer.written[ORDERS].start == start
    assert offsets(it.storage)[10:] == [*range(start, start + 5)]
    assert [one.target for one in catalogue.load(it.storage).gaps()] == [ORDERS]
    assert it.known[0] == start + 5


@pytest.mark.parametrize(
    ("bounds", "removed", "expected"),
    [
        (Bounds(0, 30, 1.0), None, 10),
        (Bounds(15, 30, 1.0, records_end=10), None, 15),  # only entries without records are deleted
        (None, Removed(records_end=10, next_offset=12), None),
        (Bounds(12, 30, 1.0), Removed(records_end=10, next_offset=12), 12),  # it was added again
    ],
)
def test_a_run_begins_behind_what_is_archived(
    bounds: Bounds | None, removed: Removed | None, expected: int | None
) -> None:
    present = {} if bounds is None else {ORDERS: bounds}
    gone = {} if removed is None else {ORDERS: removed}
    assert starts({ORDERS: 10}, present, gone, fails=True).get(ORDERS) == expected


def test_an_archive_begins_where_the_log_begins(it: Archiving) -> None:
    it.send(10)
    it.client.partitions.delete_before("orders", 0, 4)
    it.write()
    assert offsets(it.storage) == [*range(4, 10)]
    assert it.known[0] == 11, "and the entry of the deletion"


@pytest.mark.parametrize("count", [3, 30])
def test_a_topic_that_was_created_again_needs_another_archive(it: Archiving, count: int) -> None:
    it.send(10)
    it.write()
    it.client.topics.delete("orders")
    it.client.topics.create("orders", partitions=2, replication_factor=1)
    it.send(count)
    with pytest.raises(ArchiveOverlap, match="deleted and created again"):
        it.write()
    with pytest.raises(ArchiveOverlap, match="deleted and created again"):
        report(it.client, catalogue.load(it.storage), ["orders"])
    assert offsets(it.storage) == [*range(10)]
    assert it.known == [0, 0]


def of_spark(it: Archiving, start: int, end: int, folder: Path) -> tuple[Entry, ...]:
    """The files that a task of Spark's sink writes for these offsets."""
    given = {"bootstrap.servers": it.url, "subscribe": "orders", "includeHeaders": "true"}
    schema = schema_of(includes_headers=True)
    check_columns(schema)
    writer = FileWriter(DirectoryStorage(folder))
    ranges = [Range("orders", 0, start, end)]
    for rows in read_ranges(it.client, read_options(given, is_stream=True), ranges, arrow_schema(schema)):
        writer.add(rows)
    return tuple(writer.close())


def test_files_are_byte_for_byte_those_of_the_sink_of_spark(it: Archiving, tmp_path: Path) -> None:
    it.send(30)
    [[found]] = it.write()
    [expected] = of_spark(it, 0, 30, tmp_path / "spark")
    assert replace(found, path="", topic_id=None) == replace(expected, path=""), "with the same checksum"
    assert pq.read_schema(it.folder / found.path).equals(SCHEMA)


def test_the_sink_of_spark_goes_on_and_so_does_the_command(it: Archiving) -> None:
    sink = ArchiveWriter(archive_write_options({"path": str(it.folder), "bootstrap.servers": it.url}))
    it.send(10)
    it.write()
    it.send(10)
    again, new = (of_spark(it, start, it.log()[-1] + 1, it.folder) for start in (0, 10))
    with pytest.raises(ArchiveOverlap):
        sink.commit([Archived("q", again)], 0)
    sink.commit([Archived("q", new)], 0)
    it.send(10)
    [[entry]] = it.write()
    assert entry.rows == 10
    it.check()
    assert it.known[0] == entry.end


def test_written_counts_what_this_run_has_archived(it: Archiving) -> None:
    it.send(10)
    it.write()
    it.send(4)
    writer = it.writer()
    [[entry]] = [*writer.write()]
    end = it.log()[-1] + 1
    assert writer.written[ORDERS] == Written(ORDERS, 10, end, 4, entry.bytes)
    assert writer.written[OTHER] == Written(OTHER, 0, 0)
