"""An archive as a Delta table: each offset once while drivers die, race and repeat their batches."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

from raftlog import Client
from raftlog.extras import install_command
from raftlog.types import TopicPartition
from spark_io.archive import catalogue
from spark_io.archive.delta import DeltaArchive, following
from spark_io.archive.entries import Entry
from spark_io.archive.options import ArchiveWriteOptions, archive_write_options
from spark_io.archive.reporting import is_gone, report
from spark_io.archive.sink import Archived, ArchiveWriter
from spark_io.archive.storage import DirectoryStorage
from spark_io.errors import ArchiveGap, ArchiveOverlap, ArchiveUnreachable, InvalidOption
from spark_io.planning import Range
from tests.helpers.archives import ORDERS, archived, file_of, rows
from tests.helpers.async_tests import in_real_time
from tests.helpers.whole_broker import whole_broker

deltalake = pytest.importorskip("deltalake")
PAID = TopicPartition("paid", 3)


def files(folder: Path, *ranges: tuple[int, int], target: TopicPartition = ORDERS) -> list[Entry]:
    """Files of a task that nothing lists yet."""
    storage = DirectoryStorage(folder)
    return [file_of(storage, range(start, end), target) for start, end in ranges]


def offsets(folder: Path, target: TopicPartition = ORDERS) -> list[int]:
    """What a reader of the table finds, in any order."""
    table = deltalake.DeltaTable(folder).to_pyarrow_table()
    found = table.filter((pc.field("topic") == target.topic) & (pc.field("partition") == target.partition))
    return sorted(found.column("offset").to_pylist())


def never(gap: Range) -> bool:
    """Every gap has records."""
    return False


# requirement: A8
def test_records_come_back_from_the_table_as_they_were(tmp_path: Path) -> None:
    table = DeltaArchive(str(tmp_path))
    assert table.add("q", 0, files(tmp_path, (0, 10)), never)
    assert table.add("q", 1, files(tmp_path, (10, 15)), never)
    found = deltalake.DeltaTable(tmp_path).to_pyarrow_table().sort_by("offset").to_pylist()
    assert found == rows(range(15)).to_pylist()


# requirement: A8 D3
def test_a_batch_and_an_offset_are_in_the_table_once(tmp_path: Path) -> None:
    table = DeltaArchive(str(tmp_path))
    assert table.of(ORDERS) == []
    assert table.add("q", 1, [*files(tmp_path, (5, 10)), *files(tmp_path, (0, 4), target=PAID)], never)
    assert not DeltaArchive(str(tmp_path)).add("q", 1, files(tmp_path, (5, 10)), never), "after a crash"
    assert table.add("q", 2, files(tmp_path, (10, 20)), never)
    with pytest.raises(ArchiveOverlap, match="batch 1 of query q is too old, the table has batch 2"):
        table.add("q", 1, files(tmp_path, (5, 10)), never)
    with pytest.raises(ArchiveOverlap, match="offsets 15 to 24 of orders/0 begin below offset 20, the end"):
        table.add("another", 0, files(tmp_path, (15, 25)), never)
    with pytest.raises(ArchiveOverlap, match="rows of a partition must reach the archive in order"):
        table.add("q", 3, files(tmp_path, (20, 30), (25, 35)), never)
    assert offsets(tmp_path) == [*range(5, 20)]
    assert offsets(tmp_path, PAID) == [*range(4)]
    assert (table.of(ORDERS), table.of(PAID)) == ([Range("orders", 0, 5, 20)], [Range("paid", 3, 0, 4)])


# requirement: A8
def test_a_gap_is_joined_only_if_it_has_no_records(tmp_path: Path) -> None:
    table = DeltaArchive(str(tmp_path))
    table.add("q", 0, files(tmp_path, (0, 10)), never)
    with pytest.raises(
        ArchiveGap, match="offsets 10 to 11 of orders/0 have records and are not in the table"
    ):
        table.add("q", 1, files(tmp_path, (12, 20)), never)
    asked: list[Range] = []
    assert table.add("q", 1, files(tmp_path, (12, 15), (17, 20)), lambda gap: not asked.append(gap))
    assert asked == [Range("orders", 0, 10, 12), Range("orders", 0, 15, 17)]
    assert table.of(ORDERS) == [Range("orders", 0, 0, 20)]


class Raced(DeltaArchive):
    """Between its first look at the table and its commit another driver commits."""

    def __init__(self, address: str, query: str, batch: int, added: list[Entry]) -> None:
        super().__init__(address)
        self._others = [(query, batch, added)]

    def _table(self) -> deltalake.DeltaTable | None:
        found = super()._table()
        while self._others:
            assert DeltaArchive(self._address).add(*self._others.pop(), never)
        return found


# requirement: A8 D3
@pytest.mark.parametrize("start", [0, 10])
def test_of_two_drivers_with_the_same_batch_one_counts(tmp_path: Path, start: int) -> None:
    for at in range(0, start, 10):
        DeltaArchive(str(tmp_path)).add("q", at // 10, files(tmp_path, (at, at + 10)), never)
    batch, mine, others = start // 10, *(files(tmp_path, (start, start + 10)) for _ in range(2))
    assert not Raced(str(tmp_path), "q", batch, others).add("q", batch, mine, never)
    assert offsets(tmp_path) == [*range(start + 10)]


# requirement: A8 D3
def test_a_commit_of_another_query_stops_nobody(tmp_path: Path) -> None:
    DeltaArchive(str(tmp_path)).add("q", 0, files(tmp_path, (0, 10)), never)
    raced = Raced(str(tmp_path), "other", 0, files(tmp_path, (0, 10), target=PAID))
    assert raced.add("q", 1, files(tmp_path, (10, 20)), never)
    assert (offsets(tmp_path), offsets(tmp_path, PAID)) == ([*range(20)], [*range(10)])
    raced = Raced(str(tmp_path), "other", 1, files(tmp_path, (20, 30)))
    with pytest.raises(ArchiveOverlap, match="begin below offset 30, the end of the table"):
        raced.add("q", 2, files(tmp_path, (20, 30)), never)
    assert offsets(tmp_path) == [*range(30)]


# requirement: A8
def test_the_table_may_be_optimized_and_vacuumed(tmp_path: Path) -> None:
    table = DeltaArchive(str(tmp_path))
    for batch in range(5):
        table.add("q", batch, files(tmp_path, (10 * batch, 10 * batch + 10)), never)
    garbage = files(tmp_path, (40, 60))  # of a task that was killed
    opened = deltalake.DeltaTable(tmp_path)
    opened.optimize.compact()
    opened.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    opened.create_checkpoint()
    assert not (tmp_path / garbage[0].path).exists()
    assert not table.add("q", 4, files(tmp_path, (40, 50)), never)
    with pytest.raises(ArchiveOverlap):
        table.add("new checkpoint", 0, files(tmp_path, (0, 50)), never)
    assert table.add("q", 5, files(tmp_path, (50, 60)), never)
    assert offsets(tmp_path) == [*range(60)]


# requirement: A8
def test_a_directory_has_manifests_or_a_delta_table_but_not_both(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path / "manifests")
    archived(storage, 0, (0, 10))
    with pytest.raises(InvalidOption, match="has an archive with manifests; use another path"):
        DeltaArchive(str(tmp_path / "manifests")).add("q", 0, files(tmp_path / "manifests", (10, 20)), never)
    DeltaArchive(str(tmp_path / "delta")).add("q", 0, files(tmp_path / "delta", (0, 10)), never)
    with pytest.raises(InvalidOption, match="path is a Delta table; write it with layout=delta"):
        archived(DirectoryStorage(tmp_path / "delta"), 0, (10, 20))
    with pytest.raises(InvalidOption, match="read it with an engine for Delta Lake"):
        catalogue.load(DirectoryStorage(tmp_path / "delta"))


# requirement: A8
def test_the_package_and_brokers_are_needed_and_missing_ones_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"path": "/a", "bootstrap.servers": "b1:7070", "layout": "delta"}
    assert archive_write_options(given) == ArchiveWriteOptions("/a", ("http://b1:7070",), is_delta=True)
    with pytest.raises(InvalidOption, match=r"bootstrap\.servers is missing"):
        archive_write_options({"path": "/a", "layout": "delta"})
    with pytest.raises(InvalidOption, match="layout is 'iceberg'; choose manifest or delta"):
        archive_write_options({**given, "layout": "iceberg"})
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ArchiveUnreachable, match=re.escape(f"{install_command('delta')}, or leave out")):
        archive_write_options(given)
    assert not archive_write_options({"path": "/a"}).is_delta


# requirement: A8 D3
def test_brokers_learn_what_the_table_has_also_when_a_batch_is_repeated(tmp_path: Path) -> None:
    async def run() -> None:
        async with whole_broker(partitions=1) as broker:

            def use() -> None:
                with Client(broker.url) as client:
                    for number in range(40):
                        client.send("orders", str(number))
                    given = {"path": str(tmp_path), "bootstrap.servers": broker.url, "layout": "delta"}
                    writer = ArchiveWriter(archive_write_options(given))

                    def known() -> int:
                        return client.topics.partitions("orders")[0].archived_up_to

                    writer.commit([Archived("q", tuple(files(tmp_path, (0, 10))))], 0)
                    assert known() == 10
                    killed = tuple(files(tmp_path, (10, 20)))
                    DeltaArchive(str(tmp_path)).add("q", 1, killed, never)  # its driver told nobody
                    assert known() == 10
                    writer.commit([Archived("q", tuple(files(tmp_path, (10, 20)))), None], 1)
                    assert known() == 20
                    assert offsets(tmp_path) == [*range(20)]
                    client.partitions.delete_before("orders", 0, 20)
                    assert is_gone(client, Range("orders", 0, 5, 20))
                    assert not is_gone(client, Range("orders", 0, 5, 21))
                    assert [
                        one.archived_up_to for one in report(client, DeltaArchive(str(tmp_path)), ["orders"])
                    ] == [20]

            await asyncio.to_thread(use)

    in_real_time(run)()


def test_extents_follow_from_files_in_any_order(tmp_path: Path) -> None:
    some = files(tmp_path, (5, 7), (0, 5))
    assert following(some, {}, never) == {ORDERS: Range("orders", 0, 0, 7)}
    assert following(some, {ORDERS: Range("orders", 0, -1, 0)}, never)[ORDERS].start == -1
