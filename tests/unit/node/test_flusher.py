"""Rounds of syncs, and writes into the log: what waits, for what, and what a sync releases."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass, field

from raftlog.core.entries import EntrySpan
from raftlog.core.messages import AppendReply, Envelope, VoteReply
from raftlog.core.ready import HardState, Write
from raftlog.node.flusher import Flusher, SyncThreads
from raftlog.node.group.log_writer import LogWriter, Synced
from raftlog.node.group.recent_entries import RecentEntries
from raftlog.records.batch import Batch
from raftlog.records.compaction import gap_batch
from raftlog.storage.log_storage import DiskWork, LogChange, carry_out
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.syncs import in_a_task
from raftlog.types import Index, NodeId, Term, WriteId
from tests.helpers.async_tests import in_real_time
from tests.helpers.compacting import stored
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

NOTHING = Index(-1)


@dataclass(eq=False)
class OneSync:
    """A sync that works, or fails with this."""

    error: OSError | MemoryError | None = None
    covers: Index = NOTHING

    def run(self) -> None:
        if self.error is not None:
            raise self.error


@dataclass(eq=False)
class Owner:
    """Who wants to be durable: one sync for each round, None where nothing waits for the disk."""

    syncs: list[OneSync | LogChange | None]
    heard: list[tuple[DiskWork | None, OSError | None]] = field(default_factory=list)

    def begin_sync(self) -> DiskWork | None:
        return self.syncs.pop(0)

    def end_sync(self, sync: DiskWork | None, error: OSError | None) -> None:
        self.heard.append((sync, error))


async def run_at_once(syncs: Sequence[DiskWork]) -> list[OSError | None]:
    errors = [sync.error if isinstance(sync, OneSync) else None for sync in syncs]
    return [error for error in errors if not isinstance(error, MemoryError)]


def fail(error: BaseException) -> None:
    raise AssertionError from error


@in_real_time
async def test_each_sync_of_a_round_on_threads_has_its_own_error() -> None:
    broken = OSError(5, "broken")
    for place in range(3):
        syncs = [OneSync(broken if number == place else None) for number in range(3)]
        ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        SyncThreads(count=2)(syncs, ended.set_result)
        assert await ended == [broken if number == place else None for number in range(3)]


@in_real_time
async def test_a_sync_that_there_is_no_memory_for_fails_alone() -> None:
    ended: asyncio.Future[Sequence[OSError | None]] = asyncio.get_running_loop().create_future()
    SyncThreads(count=1)([OneSync(MemoryError()), OneSync()], ended.set_result)
    lack, none = await ended
    assert lack is not None
    assert lack.errno == errno.ENOMEM
    assert none is None


async def test_an_owner_hears_of_its_own_sync_and_of_no_other() -> None:
    broken, sound = OneSync(OSError(5, "broken")), OneSync()
    owners = [Owner([None]), Owner([broken]), Owner([None]), Owner([sound])]
    flusher = Flusher(in_a_task(run_at_once), fail)
    for owner in owners:
        flusher.request(owner)
    await flusher.idle()
    assert [owner.heard for owner in owners] == [
        [(None, None)],
        [(broken, broken.error)],
        [(None, None)],
        [(sound, None)],
    ]
    assert (flusher.rounds, flusher.syncs) == (1, 2)


async def test_what_is_requested_during_a_round_belongs_to_the_next() -> None:
    first, second = OneSync(), OneSync()
    owner = Owner([first, second])

    async def run(syncs: Sequence[DiskWork]) -> list[OSError | None]:
        if owner.syncs:
            flusher.request(owner)
        return [None for _ in syncs]

    flusher = Flusher(in_a_task(run), fail)
    flusher.request(owner)
    await flusher.idle()
    assert owner.heard == [(first, None), (second, None)]
    assert flusher.rounds == 2


async def test_what_takes_long_keeps_no_other_sync_waiting_and_its_owner_waits_for_it() -> None:
    change, late, other = LogChange(lambda: None), OneSync(), OneSync()
    long, quick = Owner([change, late]), Owner([other])
    may_end = asyncio.Event()

    async def run(works: Sequence[DiskWork]) -> list[OSError | None]:
        if change in works:
            await may_end.wait()
        return [None for _ in works]

    flusher = Flusher(in_a_task(run), fail)
    flusher.request(long)
    flusher.request(quick)
    flusher.request(long)
    for _ in range(5):
        await asyncio.sleep(0)
    assert quick.heard == [(other, None)]
    flusher.request(long)
    await asyncio.sleep(0)
    assert long.heard == []
    assert long.syncs == [late]
    may_end.set()
    await flusher.idle()
    assert long.heard == [(change, None), (late, None)]


async def test_an_owner_that_asks_as_its_work_begins_waits_for_that_work() -> None:
    change, late = LogChange(lambda: None), OneSync()

    class Eager(Owner):
        def begin_sync(self) -> DiskWork | None:
            work = super().begin_sync()
            if work is change:
                flusher.request(self)
            return work

    owner, running = Eager([change, late]), list[DiskWork]()

    async def run(works: Sequence[DiskWork]) -> list[OSError | None]:
        running.extend(works)
        assert len(running) == 1
        await asyncio.sleep(0.01)
        running.clear()
        return [None for _ in works]

    flusher = Flusher(in_a_task(run), fail)
    flusher.request(owner)
    await flusher.idle()
    assert owner.heard == [(change, None), (late, None)]


PEER = NodeId(2)


class Log:
    """A writer, its log and its disk."""

    def __init__(self) -> None:
        self.disk = FakeFilesystem()
        self.log = SegmentedLog.open(self.disk, "/log", LogSettings(), ManualWallClock())
        self.writer: LogWriter[None] = LogWriter(self.log, RecentEntries(self.log), NodeId(1), lambda: 0)

    def write(self, number: int, term: int, *entries: int, has_hard_state: bool = True) -> None:
        """Hand out a write; its promise is named by its number."""
        spans = (EntrySpan(Term(term), Index(entries[0]), Index(entries[-1])),) if entries else ()
        hard_state = HardState(Term(term), PEER) if has_hard_state else None
        write = Write(
            write_id=WriteId(number), hard_state=hard_state, spans=spans, send_after=(promise(number),)
        )
        self.hand(write, [storage_batch(index, epoch=term) for index in entries])

    def hand(self, write: Write, received: Sequence[Batch] = ()) -> None:
        """Hand over any write."""
        self.writer.write(write, received)
        self.writer.try_append()

    def sync(self) -> Synced:
        """One round."""
        sync = self.writer.begin_sync()
        if sync is not None:
            sync.run()
        return self.writer.end_sync()


def promise(number: int) -> Envelope:
    message = AppendReply(term=Term(number), accepted=True, match_index=Index(number))
    return Envelope(
        PEER, VoteReply(term=Term(number), asked=Term(number), granted=True) if number % 2 else message
    )


def numbers(synced: Synced) -> list[int]:
    return [waiting.write_id for waiting in synced.writes]


def test_a_full_disk_keeps_promises_of_entries_and_lets_votes_leave() -> None:
    log = Log()
    log.write(1, 1)
    assert numbers(log.sync()) == [1]
    log.disk.capacity_bytes = log.disk.used_bytes
    log.write(2, 2, 0, 1)
    log.write(3, 3)
    synced = log.sync()
    assert (synced.writes, synced.hard_state, synced.messages) == ([], 3, [promise(3)])
    assert log.writer.is_full
    assert log.sync() == Synced([])
    log.disk.capacity_bytes = None
    log.writer.try_append()
    synced = log.sync()
    assert numbers(synced) == [2, 3]
    assert [waiting.messages for waiting in synced.writes] == [(promise(2),), ()]
    assert not log.writer.is_full


# requirement: N4
def test_a_vote_that_is_given_while_another_is_saved_is_saved_next() -> None:
    log = Log()
    log.disk.capacity_bytes = log.disk.used_bytes
    log.write(1, 1, 0)
    log.write(3, 3)
    sync = log.writer.begin_sync()
    assert sync is not None
    log.write(5, 5)
    sync.run()
    assert log.writer.end_sync() == Synced([], WriteId(3), [promise(3)])
    assert log.sync() == Synced([], WriteId(5), [promise(5)])


def test_what_came_before_the_disk_was_full_is_durable_with_the_next_sync() -> None:
    log = Log()
    log.write(1, 1, 0)
    log.disk.capacity_bytes = log.disk.used_bytes
    log.write(2, 1, 1, has_hard_state=False)
    log.write(3, 1, 2, has_hard_state=False)
    synced = log.sync()
    assert (numbers(synced), synced.hard_state) == ([1], None)
    assert log.log.durable_index == 0


def test_what_takes_the_place_of_entries_without_room_says_whether_there_is_room() -> None:
    log = Log()
    log.disk.capacity_bytes = log.disk.used_bytes
    log.write(1, 1, 0, 1)
    assert log.writer.is_full
    log.disk.capacity_bytes = None
    received = [storage_batch(0, epoch=2)]
    spans = (EntrySpan(Term(2), Index(0), Index(0)),)
    hard_state = HardState(Term(2), None)
    log.hand(Write(write_id=WriteId(2), hard_state=hard_state, truncate_from=Index(0), spans=spans), received)
    assert (log.log.last_index, log.writer.is_full) == (0, False)


def test_entries_wait_while_the_log_is_cut() -> None:
    log = Log()
    log.write(1, 1, 0, 1, 2)
    log.sync()
    received = [storage_batch(1, epoch=2)]
    spans = (EntrySpan(Term(2), Index(1), Index(1)),)
    hard_state = HardState(Term(2), None)
    log.hand(Write(write_id=WriteId(2), hard_state=hard_state, truncate_from=Index(1), spans=spans), received)
    assert (log.log.last_index, log.log.is_changing, log.writer.is_full) == (0, True, False)
    carry_out(log.log.cut_change())
    log.writer.try_append()
    assert log.log.last_index == 1
    assert numbers(log.sync()) == [2]


def test_a_cut_log_keeps_no_earlier_write_from_being_durable() -> None:
    log = Log()
    log.write(1, 1, 0, 1, 2)
    write = Write(write_id=WriteId(2), hard_state=HardState(Term(2), None), truncate_from=Index(1))
    log.hand(write)
    carry_out(log.log.cut_change())
    assert numbers(log.sync()) == [1, 2]


def test_of_a_gap_batch_that_comes_again_only_the_news_is_written() -> None:
    log = Log()
    log.write(1, 1, 0, 1, 2)
    spans = (EntrySpan(Term(1), Index(3), Index(9)),)
    log.hand(Write(write_id=WriteId(2), spans=spans), [gap_batch(1, 9, 1, None)])
    log.sync()
    assert [(batch.base_offset, batch.last_offset) for batch in stored(log.log)][-2:] == [(2, 2), (3, 9)]
