"""Reads that go to a thread, and what may happen to the log meanwhile; reads of what is damaged."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from partitions.replica.replica import PartitionReplica
from partitions.values import QUORUM, AtTime, FetchResult, LastRecords, Position, Start
from partitions.values import FetchRequest as Fetch
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt, NotLeader, OffsetOutOfRange, Overloaded, TopicNotFound
from raftlog.node.reading import READ_THREADS, LogChanged, read_part
from raftlog.records.batch import split_batches
from raftlog.storage.log_storage import FileRange
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import GroupId, Index, Offset, Term
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.orders import batch_of, values_of
from tests.helpers.storage_batches import storage_batch
from tests.helpers.virtual_time import VirtualClock, VirtualLoop

GROUP = GroupId(1)
SMALL = LogSettings(segment_bytes=400, index_interval_bytes=200)
VALUES = [b"value %02d" % number for number in range(20)]


@asynccontextmanager
async def leader_with_log(
    settings: LogSettings = SMALL,
) -> AsyncIterator[tuple[NodeCluster, ClusterNode, PartitionReplica]]:
    """A leader whose log has a few closed segments, all of it committed and applied."""
    cluster = NodeCluster(3, log_settings=settings)
    await cluster.start()
    leader = cluster.leading()
    for number, value in enumerate(VALUES):
        body = batch_of(value, timestamp_ms=1000 + number)
        await leader.replicas[GROUP].append(body, acks=QUORUM, timeout_ms=5000)
    await cluster.settled()
    yield cluster, leader, leader.replicas[GROUP]
    await cluster.stop()


async def begun(replica: PartitionReplica, position: Position = Start.EARLIEST) -> asyncio.Task[FetchResult]:
    """A read whose work has been handed to a thread, which begins when the log has had time to change."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.thread_after_s = 0.1
    task = asyncio.ensure_future(replica.fetch(Fetch(position=position, bytes_max=1 << 20)))
    await asyncio.sleep(0)
    loop.thread_after_s = 0.0
    assert not task.done()
    return task


def segments_of(replica: PartitionReplica) -> list[str]:
    """The paths of its log's files, oldest first."""
    log = replica.group.log
    assert isinstance(log, SegmentedLog)
    bases = [*[each.base for each in log.closed_segments], log.durable_part_of_active.base]
    return [f"{log.directory}/{base:020d}.log" for base in bases]


async def test_a_cold_read_gives_what_a_hot_one_gives() -> None:
    async with leader_with_log() as (_, _, replica):
        task = await begun(replica)
        result = await task
        assert [value for value in values_of(result.data) if value in VALUES] == VALUES
        newest = await replica.fetch(Fetch(position=LastRecords(1), bytes_max=1 << 20))
        assert values_of(newest.data) == VALUES[-1:]


async def test_reads_of_the_disk_wait_for_those_that_nobody_has_taken_and_the_newest_do_not() -> None:
    # requirement: C4
    async with leader_with_log() as (_, leader, replica):
        async with AsyncExitStack() as others:
            for _ in range(READ_THREADS):
                await others.enter_async_context(leader.host.read_places)
            cold = [asyncio.create_task(replica.fetch(Fetch(position=Offset(at)))) for at in (0, 19)]
            await asyncio.sleep(1)
            assert [task.done() for task in cold] == [False, True]
            start = await leader.groups[GROUP].truncate_prefix(Index(8))
            assert start > 0
            late = asyncio.create_task(replica.fetch(Fetch(position=Offset(start))))
            await asyncio.sleep(1)
            assert not late.done()
        with pytest.raises(OffsetOutOfRange):
            await cold[0]
        assert (await late).data


async def test_the_end_that_is_told_is_the_one_that_was_read_up_to() -> None:
    """Else a reader that is at this end would lack records below it."""
    async with leader_with_log() as (_, _, replica):
        end = replica.status().high_watermark
        task = await begun(replica)
        await replica.append(batch_of(b"one more"), acks=QUORUM, timeout_ms=5000)
        assert not task.done()
        result = await task
        assert (result.next_offset, result.high_watermark) == (end, end)


# requirement: M2
async def test_a_time_that_no_record_fits_is_the_end_although_older_records_come_meanwhile() -> None:
    """The timestamp of the record that comes to stand there is no answer."""
    async with leader_with_log() as (cluster, _, replica):
        end, loop = replica.status().high_watermark, asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for broker in cluster.up:
            broker.disk.clear()
        appends = []
        for value in (b"older", b"younger"):
            body = batch_of(value)
            appends.append(asyncio.ensure_future(replica.append(body, acks=QUORUM, timeout_ms=5000)))
            await asyncio.sleep(0.05)
        log = replica.group.log
        younger = split_batches(log.read(Index(end + 1), Index(end + 1), bytes_max=1).read())[0].header
        wanted = AtTime(younger.max_timestamp)
        loop.thread_after_s = 1.0
        asked = asyncio.ensure_future(replica.offset_at(wanted))
        await asyncio.sleep(0.5)
        for broker in cluster.up:
            broker.disk.set()
        await asyncio.gather(*appends)
        assert not asked.done()
        loop.thread_after_s = 0.0
        assert await asked == (end, None)
        assert await replica.offset_at(wanted) == (end + 1, younger.max_timestamp)


async def test_retention_may_remove_what_is_being_read() -> None:
    async with leader_with_log() as (_, leader, replica):
        task = await begun(replica, Offset(0))
        start = await leader.groups[GROUP].truncate_prefix(Index(12))
        assert start > 0
        with pytest.raises(OffsetOutOfRange) as error:
            await task
        assert error.value.details["start"] == start
        assert leader.groups[GROUP].stopped is None
        assert (await replica.fetch(Fetch(position=Offset(start), bytes_max=1 << 20))).data


@pytest.mark.parametrize("position", [Start.EARLIEST, LastRecords(19), AtTime(1001)])
async def test_a_position_that_is_no_offset_is_read_from_the_log_start_that_retention_left(
    position: Position,
) -> None:
    """Its reader named no offset that could be out of range."""
    async with leader_with_log() as (_, leader, replica):
        task = await begun(replica, position)
        start = await leader.groups[GROUP].truncate_prefix(Index(12))
        assert start > 2
        result = await task
        assert (result.offset, result.log_start_offset) == (start, start)
        assert values_of(result.data)[-1] == VALUES[-1]


async def test_retention_may_remove_what_lies_before() -> None:
    async with leader_with_log() as (_, leader, replica):
        task = await begun(replica, Offset(13))
        assert 0 < await leader.groups[GROUP].truncate_prefix(Index(9)) <= 9
        assert values_of((await task).data)[-1] == VALUES[-1]


async def test_a_replica_may_be_closed_and_its_files_removed_while_it_is_read() -> None:
    async with leader_with_log() as (_, leader, replica):
        task = await begun(replica)
        paths = segments_of(replica)
        await leader.host.close_group(GROUP)
        with leader.on_a_thread():
            for path in paths:
                leader.filesystem.remove(path)
        with pytest.raises(NotLeader):
            await task
        assert leader.host.damaged_logs == 0
        await leader.host.stop()
        leader.is_up = False


async def test_what_is_being_cut_passes_for_no_damage() -> None:
    log = SegmentedLog.open(FakeFilesystem(), "/log", SMALL, VirtualClock())
    log.save_hard_state(HardState(Term(1), None))
    log.append([storage_batch(base, timestamp_ms=10 * base) for base in range(8)])
    log.cut(Index(5))
    part, change = log.part_at_time(70), log.cut_change()
    assert part is not None
    assert change is not None
    change.run()
    with pytest.raises(LogChanged):
        await read_part(log, part, lambda part: part.index_at_time(70))
    change.finish()
    assert log.part_at_time(70) is None


async def test_a_read_that_outlives_its_office_is_not_answered() -> None:
    async with leader_with_log() as (_, leader, replica):
        task = await begun(replica)
        replica.group.leave()
        with pytest.raises(NotLeader):
            await task
        assert leader.host.damaged_logs == 0


async def test_a_topic_may_be_deleted_while_it_is_read() -> None:
    async with leader_with_log() as (_, _, replica):
        task = await begun(replica)
        replica.topic_deleted()
        with pytest.raises(TopicNotFound):
            await task


# requirement: M3
@pytest.mark.parametrize("position", [Offset(0), Offset(18), LastRecords(3), AtTime(1001), AtTime(1018)])
@pytest.mark.parametrize("segments", ["small", "one"])
async def test_damage_is_never_served_and_ends_the_replica(position: Position, segments: str) -> None:
    async with leader_with_log(SMALL if segments == "small" else LogSettings()) as (_, leader, replica):
        value = VALUES[18] if position not in (Offset(0), AtTime(1001)) else VALUES[1]
        damaged = 0
        for path in segments_of(replica):
            at = leader.filesystem.read_file(path).find(value)
            if at >= 0:
                leader.filesystem.flip_bit(path, at)
                damaged += 1
        assert damaged == 1
        with pytest.raises(NotLeader):
            await replica.fetch(Fetch(position=position, bytes_max=1 << 20))
        assert isinstance(leader.groups[GROUP].stopped, LogCorrupt)
        assert leader.host.damaged_logs == 1
        with pytest.raises(NotLeader):
            await replica.fetch(Fetch(position=position, bytes_max=1 << 20))


async def test_a_disk_that_does_not_give_what_is_asked_ends_the_replica() -> None:
    async with leader_with_log() as (_, leader, replica):
        leader.filesystem.fails_read = lambda path: path.endswith("0.log")
        with pytest.raises(NotLeader):
            await replica.fetch(Fetch(position=Offset(0), bytes_max=1 << 20))
        stopped = leader.groups[GROUP].stopped
        assert isinstance(stopped, OSError)
        assert stopped.errno == errno.EIO
        assert leader.host.damaged_logs == 0


@pytest.mark.parametrize("position", [Offset(0), Offset(18), LastRecords(3), AtTime(1001)])
@pytest.mark.parametrize("segments", ["small", "one"])
async def test_a_broker_without_descriptors_reads_later(position: Position, segments: str) -> None:
    async with leader_with_log(SMALL if segments == "small" else LogSettings()) as (_, leader, replica):
        fetch = Fetch(position=position, bytes_max=1 << 20)
        expected = await replica.fetch(fetch)
        leader.filesystem.fails_open = lambda path: path.endswith(".log")
        leader.filesystem.held.make_room()
        with pytest.raises(Overloaded, match="descriptor"):
            await replica.fetch(fetch)
        assert leader.groups[GROUP].stopped is None
        leader.filesystem.fails_open = lambda path: False
        assert (await replica.fetch(fetch)).data == expected.data


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't start new thread")], ids=repr)
async def test_a_broker_without_memory_reads_later(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async with leader_with_log() as (_, leader, replica):
        fetch = Fetch(position=Offset(0), bytes_max=1 << 20)
        expected = await replica.fetch(fetch)

        def breaks(*_: object, **__: object) -> bytes:
            raise error

        with monkeypatch.context() as short:
            short.setattr(FileRange, "read", breaks)
            with pytest.raises(Overloaded, match=r"cannot be read for now: no .*retry"):
                await replica.fetch(fetch)
        assert leader.groups[GROUP].stopped is None
        assert (await replica.fetch(fetch)).data == expected.data
