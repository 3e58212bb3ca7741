"""What brokers are told to be archived: what files that count have, without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from raftlog import Client
from raftlog.errors import InvalidRequest
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.compacting import compact
from spark_io.archive.options import archive_write_options
from spark_io.archive.reporting import Reach, reached, report
from spark_io.archive.sink import Archived, ArchiveWriter
from spark_io.archive.storage import DirectoryStorage
from spark_io.planning import Range
from tests.helpers.archives import ORDERS, archived, file_of
from tests.helpers.async_tests import in_real_time
from tests.helpers.whole_broker import whole_broker

# requirement: A8

NOWHERE = TopicPartition("nowhere", 0)


class Reporting:
    """A broker whose topic ``orders`` has 40 records, and an empty archive."""

    def __init__(self, client: Client, url: str, folder: Path) -> None:
        self.client = client
        self.storage = DirectoryStorage(folder)
        self.options = {"path": str(folder), "bootstrap.servers": url}
        with client.producer("orders") as producer:
            sent = [producer.send(str(number)) for number in range(40)]
            assert sorted(receipt.result().offset for receipt in sent) == [*range(40)]

    def report(self, *topics: str, changes_nothing: bool = False) -> list[Reach]:
        """Tell the broker what the archive has of these topics, by default of ``orders``."""
        found = catalogue.load(self.storage)
        return report(self.client, found, topics or ("orders",), changes_nothing=changes_nothing)

    @property
    def known(self) -> int:
        """What the broker knows to be archived."""
        return self.client.topics.partitions("orders")[0].archived_up_to


def with_archive(test: Callable[[Reporting], None]) -> Callable[[Path], None]:
    """Run a test on a thread, beside a broker."""

    def in_folder(tmp_path: Path) -> None:
        async def run() -> None:
            async with whole_broker(partitions=1) as broker:

                def use() -> None:
                    with Client(broker.url) as client:
                        test(Reporting(client, broker.url, tmp_path))

                await asyncio.to_thread(use)

        in_real_time(run)()

    in_folder.__name__ = test.__name__
    return in_folder


@with_archive
def test_a_broker_learns_what_each_batch_has_archived(it: Reporting) -> None:
    for batch, (start, end) in enumerate([(0, 10), (10, 15), (15, 16)]):
        archived(it.storage, batch, (start, end))
        assert it.report() == [Reach(ORDERS, 0, end, end)]
        assert it.known == end
    file_of(it.storage, range(16, 30))  # its task was killed
    it.report()
    assert it.known == 16
    compact(it.storage)
    assert it.report() == [Reach(ORDERS, 0, 16, 16)]


@with_archive
def test_records_that_the_archive_lacks_are_not_reported(it: Reporting) -> None:
    archived(it.storage, 1, (0, 10), (12, 30))
    assert it.report() == [Reach(ORDERS, 0, 10, 30)]
    archived(it.storage, 2, (10, 12))
    assert it.report() == [Reach(ORDERS, 0, 30, 30)]
    assert it.known == 30


@with_archive
def test_an_archive_that_begins_above_the_log_reports_nothing(it: Reporting) -> None:
    archived(it.storage, 1, (5, 30))
    assert it.report() == [Reach(ORDERS, 0, 0, 30)]
    it.client.partitions.delete_before("orders", 0, 5)
    assert it.report() == [Reach(ORDERS, 5, 30, 30)]


@with_archive
def test_offsets_without_records_are_no_gap(it: Reporting) -> None:
    archived(it.storage, 1, (0, 40))
    it.report()  # its entry takes offset 40
    assert it.client.send("orders", "next").offset == 41
    archived(it.storage, 2, (41, 42))
    assert it.report() == [Reach(ORDERS, 0, 42, 42)]


@with_archive
def test_a_look_changes_nothing_and_missing_topics_are_left_out(it: Reporting) -> None:
    archived(it.storage, 1, (0, 10))
    catalogue.commit(it.storage, "q", 2, [file_of(it.storage, range(3), NOWHERE)], lambda _: False)
    assert it.report("nowhere", "orders", changes_nothing=True) == [Reach(ORDERS, 0, 0, 10)]
    assert it.known == 0
    assert it.report("nowhere", "orders") == [Reach(ORDERS, 0, 10, 10)]


@with_archive
def test_the_archive_of_another_topic_with_that_name_is_refused(it: Reporting) -> None:
    archived(it.storage, 1, (0, 100))
    with pytest.raises(InvalidRequest, match="send at most 40"):
        it.report()
    assert it.known == 0


@with_archive
def test_the_sink_reports_each_batch_and_again_when_spark_repeats_it(it: Reporting) -> None:
    sink = ArchiveWriter(archive_write_options(it.options))
    sink.commit([Archived("q", (file_of(it.storage, range(10)),)), Archived("q", ())], 1)
    assert it.known == 10
    archived(it.storage, 2, (10, 20))  # the driver was killed after its manifest
    sink.commit([Archived("q", ())], 2)
    assert it.known == 20
    sink.commit([Archived("q", ())], 3)  # without rows
    sink.commit([], 4)  # without tasks
    silent = ArchiveWriter(archive_write_options({"path": it.options["path"]}))
    silent.commit([Archived("q", (file_of(it.storage, range(20, 30)),))], 5)
    assert it.known == 20, "it knows no brokers"
    assert it.report() == [Reach(ORDERS, 0, 30, 30)]


@pytest.mark.parametrize(
    ("ranges", "start", "end"),
    [
        ([(0, 10), (10, 20)], 0, 20),
        ([(0, 10), (10, 20)], 5, 20),
        ([(0, 10), (11, 20)], 0, 10),
        ([(0, 10), (11, 20)], 10, 10),
        ([(0, 10), (11, 20)], 11, 20),
        ([(5, 10)], 0, 0),
        ([(0, 10)], 30, 30),
        ([(0, 10), (12, 20)], 10, 20),  # 10 and 11 have no records
    ],
)
def test_an_archive_reaches_to_its_first_gap(
    tmp_path: Path, ranges: list[tuple[int, int]], start: int, end: int
) -> None:
    storage = DirectoryStorage(tmp_path)
    archived(storage, 1, *ranges)
    empty = {Range("orders", 0, 10, 12)}
    assert reached(catalogue.load(storage), ORDERS, start, empty.__contains__) == end
