"""The event loop waits for no disk: what does, happens on threads, and the groups go on meanwhile.

``NodeCluster`` refuses every operation that waits for a disk on the loop; these tests are about what
others see of a slow one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, cast

import pytest

from chaos.kit.disk import UnreliableDisk
from partitions.replica.machine import PartitionMachine
from raftlog.clock import SystemClock
from raftlog.core.membership import Membership
from raftlog.core.messages import AppendReply, AppendRequest, Heartbeat, HeartbeatReply, Message
from raftlog.core.ready import HardState
from raftlog.node.cluster_time import UNKNOWN_MS, ClockReading
from raftlog.node.codec import (
    FrameKind,
    decode_heartbeat_replies,
    decode_message,
    encode_heartbeats,
    encode_message,
    split_frame,
)
from raftlog.node.flusher import Errors, RoundEnded, SyncThreads
from raftlog.node.group_host import GroupHost, HostSettings
from raftlog.node.kernel_syncs import KernelSyncs
from raftlog.node.network.transport import FrameReceiver, Transport
from raftlog.storage.filesystem import Buffer, File, Filesystem
from raftlog.storage.linux_aio import LinuxAio
from raftlog.storage.log_storage import DiskWork, LogChange
from raftlog.storage.log_sync import LogSync
from raftlog.storage.os_filesystem import OsFile, OsFilesystem
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.waits import LIMIT_S
from raftlog.types import BEFORE_LOG, GroupId, Index, NodeId, Term
from tests.helpers.async_tests import in_real_time, in_virtual_time_with, on_both_loops
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.node_cluster import ClusterNode, NodeCluster
from tests.helpers.quiet_listener import QuietListener
from tests.helpers.storage_batches import storage_batch
from tests.helpers.waiting import limited

GROUP = GroupId(1)


async def left_behind() -> tuple[NodeCluster, ClusterNode, ClusterNode]:
    """A cluster of two with small segments, its leader, and a follower that needs a snapshot."""
    cluster = NodeCluster(2, log_settings=LogSettings(segment_bytes=300, index_interval_bytes=512))
    await cluster.start()
    leader, behind = cluster.leading(), cluster.followers()[0]
    await cluster.leave_behind(behind)
    return cluster, leader, behind


@in_virtual_time_with(lambda: NodeCluster(3, groups=2))
async def test_a_log_is_cut_while_its_broker_serves_other_groups(cluster: NodeCluster) -> None:
    """A deposed leader cuts its tail on a disk that does nothing; its other group, which follows, answers."""
    old = await cluster.depose()
    group = old.groups[GROUP]
    old.sync_s = 0.5
    cluster.network.heal_all()
    await cluster.until(lambda: group.log.is_changing)
    durable = group.durable_index
    await asyncio.sleep(0.3)
    assert group.log.is_changing
    assert group.durable_index == durable
    assert group.leader == cluster.leading().node_id != old.node_id
    assert group.last_index > group.log.last_index
    await cluster.settled()


async def test_a_vote_that_is_asked_for_while_the_log_is_replaced_is_given_later() -> None:
    cluster, leader, behind = await left_behind()
    behind.sync_s = 3.0
    await behind.start()
    group = behind.groups[GROUP]
    await cluster.until(lambda: group._is_installing and group.log.is_changing)
    leader.crash()
    await cluster.until(lambda: cluster.leader() is not None, within_s=20)
    assert group.log.first_index > 0
    behind.sync_s = 0.002
    await leader.start()
    await cluster.settled()
    await cluster.stop()


class SlowFile(OsFile):
    """Syncs and cuts take a while."""

    __slots__ = ()
    slow: ClassVar[SlowFilesystem]

    def sync(self) -> None:
        """With a permit. No power is lost here."""
        self.slow.wait("sync", self.path)

    def truncate(self, size: int) -> None:
        """Slowly."""
        self.slow.wait("cut", self.path)
        super().truncate(size)


class SlowFilesystem(OsFilesystem):
    """Files on a disk that completes what must be waited for only when ``permits`` allow it."""

    def __init__(self) -> None:
        super().__init__()
        self.permits: threading.Semaphore | None = None
        self.loops_thread = threading.get_ident()
        self.waits_of_the_loop: list[str] = []

    def wait(self, operation: str, path: str) -> None:
        """Wait for a permit, and note who must not wait."""
        if self.permits is None:
            return
        if threading.get_ident() == self.loops_thread:
            self.waits_of_the_loop.append(f"{operation} {path}")
        else:
            assert self.permits.acquire(timeout=LIMIT_S)

    def open(self, path: str, *, create: bool = False) -> File:
        """A slow file."""
        file = super().open(path, create=create)
        SlowFile.slow = self
        cast("OsFile", file).__class__ = SlowFile
        return file

    def replace_file(self, path: str, data: bytes) -> None:
        """Slowly."""
        self.wait("replace", path)
        super().replace_file(path, data)

    def remove(self, path: str) -> None:
        """Slowly, where there is something to remove."""
        if self.exists(path):
            self.wait("remove", path)
            super().remove(path)

    def sync_directory(self, path: str) -> None:
        """Slowly."""
        self.wait("sync", path)


class Wire:
    """A transport that notes what is sent and delivers nothing."""

    def __init__(self) -> None:
        self.node_id = ME
        self.replies: list[tuple[GroupId, HeartbeatReply]] = []
        self.accepted: dict[GroupId, AppendReply] = {}
        self.heard = asyncio.Event()

    async def start(self, receiver: FrameReceiver) -> None:
        """No connection is accepted."""

    async def stop(self) -> None:
        """Nothing to do."""

    def set_peer(self, peer: NodeId, host: str, port: int) -> None:
        """Nobody is dialled."""

    def refuse_peer(self, peer: NodeId) -> None:
        """There is no connection to refuse."""

    def refuse_unreached(self, peer: NodeId, why: str) -> None:
        """Nothing: no peer dials."""

    def queued_bytes(self, peer: NodeId) -> int:
        """None."""
        return 0

    def seconds_since_heard(self, peer: NodeId) -> float:
        """None."""
        return 0.0

    def send(self, peer: NodeId, buffers: Sequence[Buffer]) -> bool:
        """Note replies."""
        kind, head, payload = split_frame(memoryview(b"".join(buffers)))
        if kind is FrameKind.HEARTBEAT_REPLIES:
            self.replies += decode_heartbeat_replies(payload)
            self.heard.set()
        elif kind is FrameKind.RAFT:
            group_id, message, _ = decode_message(head, payload)
            if isinstance(message, AppendReply) and message.accepted:
                self.accepted[group_id] = message
        return True


ME, FIRST, SECOND = NodeId(1), NodeId(2), NodeId(3)
GROUPS = [GroupId(number) for number in range(1, 251)]
CLOCK = ClockReading(wall_ms=0, time_ms=UNKNOWN_MS)
PERMITS = 25  # of the disk, for each heartbeat


def frame_of(group_id: GroupId, message: Message, payload: Sequence[Buffer] = ()) -> memoryview:
    """What the transport hands over."""
    return memoryview(b"".join(bytes(part) for part in encode_message(group_id, message, payload)))


def entries_of(term: int, count: int) -> list[bytes]:
    """Batches of one leader, from the first index on."""
    return [bytes(storage_batch(base, epoch=term).data) for base in range(count)]


# requirement: N1
@in_real_time
async def test_a_broker_answers_while_hundreds_of_its_groups_cut_their_logs(tmp_path: Path) -> None:
    """The tails of 250 groups conflict with their next leaders', and the disk completes only a few syncs."""
    files, wire, broken = SlowFilesystem(), Wire(), list[BaseException]()
    clock = SystemClock()
    settings = HostSettings(tick_ms=50, election_ticks=1000, quiesce_ticks=1000)
    host = GroupHost(
        ME,
        cast("Transport", wire),
        clock,
        random.Random(1),
        SyncThreads(),
        on_fatal=broken.append,
        settings=settings,
    )
    await host.start()
    voters = Membership(frozenset({ME, FIRST, SECOND}))
    for group_id in GROUPS:
        log = SegmentedLog.open(files, f"{tmp_path}/{group_id}", LogSettings(), clock)
        host.open_group(group_id, log, PartitionMachine(), voters, QuietListener())

    def bring(leader: NodeId, term: int, count: int) -> None:
        for group_id in GROUPS:
            request = AppendRequest(term=Term(term), previous=BEFORE_LOG, spans=(), commit_index=Index(-1))
            host.frame_received(leader, frame_of(group_id, request, entries_of(term, count)))

    async def accepted(term: int, match: int) -> None:
        reply = AppendReply(term=Term(term), accepted=True, match_index=Index(match))
        while any(wire.accepted.get(group_id) != reply for group_id in GROUPS):
            await asyncio.sleep(0.01)

    bring(FIRST, 1, 5)
    async with limited("the first entries"):
        await accepted(1, 4)
    files.permits = threading.Semaphore(0)
    bring(SECOND, 2, 2)
    cutting = asyncio.create_task(accepted(2, 1))
    answered = 0
    while not cutting.done():
        files.permits.release(PERMITS)
        wire.heard.clear()
        beat = Heartbeat(term=Term(2), commit_index=Index(-1), round=answered + 1)
        host.frame_received(SECOND, memoryview(encode_heartbeats(CLOCK, [(GROUPS[0], beat)])))
        async with limited("the answer to a heartbeat"):
            await wire.heard.wait()
        answered += 1
        await asyncio.sleep(0.01)
    assert answered > 10
    files.permits = None
    await host.stop()
    assert files.waits_of_the_loop == []
    assert broken == []


@in_virtual_time_with(lambda: NodeCluster(3))
async def test_a_replica_whose_cut_fails_ends_and_can_be_closed(cluster: NodeCluster) -> None:
    # requirement: M3
    old = await cluster.depose()
    group = old.groups[GROUP]
    old.filesystem.fails_sync = lambda path: path.endswith(".log")
    cluster.network.heal_all()
    await cluster.until(lambda: group.stopped is not None)
    old.filesystem.fails_sync = lambda path: False
    rounds = old.host.flusher.rounds
    closing = group.close()
    await asyncio.sleep(5)
    is_closed, rounds = closing.done(), old.host.flusher.rounds - rounds
    old.crash()
    assert is_closed
    assert rounds < 10
    await old.start()
    await cluster.settled()


async def test_a_snapshot_is_installed_alone_also_behind_a_change_that_found_no_room() -> None:
    cluster, leader, behind = await left_behind()
    behind.sync_s = 2.0
    await behind.start()
    group = behind.groups[GROUP]

    def without_room() -> None:
        raise OSError(errno.ENOSPC, "no room for a moment")

    failing = asyncio.create_task(group.change_log(lambda: LogChange(without_room)))
    await cluster.until(lambda: group._is_installing)
    assert not failing.done()
    await failing
    assert group._is_installing
    leader.crash()  # and is elected again, in a new term
    await leader.start()
    await cluster.until(lambda: group.log.first_index > 0)
    assert behind.fatal == []
    assert group.stopped is None
    behind.sync_s = 0.002
    await cluster.settled()
    await cluster.stop()


BATCH = len(storage_batch(0).data)
SETTINGS = LogSettings(segment_bytes=4 * BATCH, index_interval_bytes=2 * BATCH)


class CountedThreads:
    """Threads; ``works`` has what they were given."""

    def __init__(self) -> None:
        self.works: list[DiskWork] = []
        self._threads = SyncThreads(count=2)

    def __call__(self, works: Sequence[DiskWork], ended: RoundEnded) -> None:
        self.works += works
        self._threads(works, ended)


@pytest.fixture
def aio() -> LinuxAio:
    return kernel()


def kernel(at_once: int = 8) -> LinuxAio:
    try:
        return LinuxAio(at_once)
    except OSError as error:
        pytest.skip(f"the kernel syncs no files here: {error}")


def settled_log(within: Path, disk: Filesystem | None = None) -> SegmentedLog:
    """A new log with an entry, of which everything is durable."""
    directory = f"{tempfile.mkdtemp(dir=within)}/log"
    log = SegmentedLog.open(disk or OsFilesystem(), directory, SETTINGS, ManualWallClock())
    log.save_hard_state(HardState(Term(1), None))
    log.append([storage_batch(0)])
    log.tick()
    settle(log, taken(log))
    return log


def settle(log: SegmentedLog, sync: LogSync) -> None:
    sync.run()
    log.sync_finished(sync)


def taken(log: SegmentedLog) -> LogSync:
    sync = log.take_sync()
    assert isinstance(sync, LogSync)
    return sync


def appended(log: SegmentedLog) -> LogSync:
    """The sync of one more entry."""
    log.append([storage_batch(log.last_index + 1)])
    return taken(log)


def descriptor_of(sync: LogSync) -> int:
    file = sync.files[0]
    assert isinstance(file, OsFile)
    return file.descriptor()


async def run(syncs: KernelSyncs, *works: DiskWork) -> Errors | BaseException:
    ended: asyncio.Future[Errors | BaseException] = asyncio.get_running_loop().create_future()
    syncs(works, ended.set_result)
    async with limited("a round of syncs"):
        return await ended


# requirement: L9
@on_both_loops
async def test_the_kernel_syncs_what_is_only_appended(tmp_path: Path, aio: LinuxAio) -> None:
    threads = CountedThreads()
    logs = [settled_log(tmp_path) for _ in range(3)]
    syncs = KernelSyncs(aio, threads)
    for _ in range(3):
        assert await run(syncs, *map(appended, logs)) == [None, None, None]
    assert threads.works == []


# requirement: L9
@on_both_loops
async def test_what_is_more_than_one_file_is_left_to_threads(tmp_path: Path, aio: LinuxAio) -> None:
    threads = CountedThreads()
    plain, votes, rolls, notes = (settled_log(tmp_path) for _ in range(4))
    votes.save_hard_state(HardState(Term(2), NodeId(3)))
    for _ in range(4):
        rolls.append([storage_batch(rolls.last_index + 1)])
    notes.tick()
    works = [appended(plain), appended(votes), taken(rolls), appended(notes)]
    assert await run(KernelSyncs(aio, threads), *works) == [None] * 4
    assert threads.works == works[1:]


# requirement: L9
@on_both_loops
async def test_a_file_whose_name_is_not_durable_yet_is_left_to_threads(tmp_path: Path, aio: LinuxAio) -> None:
    """The sync that makes it durable has been taken, and has not run: after a power loss there is no file."""
    threads = CountedThreads()
    log = settled_log(tmp_path)
    while not (before := appended(log)).names_changed:
        settle(log, before)
    work = appended(log)
    assert await run(KernelSyncs(aio, threads), work) == [None]
    assert threads.works == [work]
    before.run()


# requirement: L9
@on_both_loops
async def test_a_file_that_syncs_in_a_way_of_its_own_is_left_to_threads(
    tmp_path: Path, aio: LinuxAio
) -> None:
    threads = CountedThreads()
    disk = UnreliableDisk(str(tmp_path), held_files_max=8)
    work = appended(settled_log(tmp_path, disk))
    assert await run(KernelSyncs(aio, threads), work) == [None]
    assert threads.works == [work]


@on_both_loops
async def test_a_disk_that_is_in_use_is_waited_for_by_a_thread(tmp_path: Path, aio: LinuxAio) -> None:
    """By the loop never: who uses it may wait for the loop."""
    threads = CountedThreads()
    log = settled_log(tmp_path)
    first, second = appended(log), appended(log)
    assert first.begin_alone() is not None
    running = asyncio.create_task(run(KernelSyncs(aio, threads), second))
    await asyncio.sleep(0.05)
    assert not running.done()
    first.end_alone(None)
    assert await running == [None]
    assert threads.works == [second]


# requirement: L9
@on_both_loops
async def test_an_error_of_the_kernel_is_final_for_its_log_and_for_no_other(
    tmp_path: Path, aio: LinuxAio
) -> None:
    logs = [settled_log(tmp_path) for _ in range(3)]
    works, threads, really_begin = [*map(appended, logs)], CountedThreads(), aio.begin

    def begin(descriptor: int, ended: Callable[[int], None]) -> bool:
        is_broken = descriptor == descriptor_of(works[1])
        return really_begin(descriptor, (lambda code: ended(errno.EIO)) if is_broken else ended)

    syncs = KernelSyncs(aio, threads)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(aio, "begin", begin)
        errors = await run(syncs, *works)
    assert isinstance(errors, list)
    assert [error and (error.errno, error.filename) for error in errors] == [
        None,
        (errno.EIO, works[1].files[0].path),
        None,
    ]
    errors = await run(syncs, *map(appended, logs))
    assert isinstance(errors, list)
    assert [error and error.errno for error in errors] == [None, errno.EIO, None]
    assert len(threads.works) == 1


# requirement: L9
@on_both_loops
async def test_after_a_failed_sync_none_is_begun(tmp_path: Path, aio: LinuxAio) -> None:
    threads = CountedThreads()
    log = settled_log(tmp_path)
    first, second = appended(log), appended(log)
    assert first.begin_alone() is not None
    first.end_alone(OSError(errno.EIO, "broken"))
    errors = await run(KernelSyncs(aio, threads), second)
    assert isinstance(errors, list)
    assert [error.errno for error in errors if error is not None] == [errno.EIO]
    assert threads.works == [second]


@on_both_loops
async def test_what_the_kernel_does_not_take_is_left_to_threads(tmp_path: Path) -> None:
    threads = CountedThreads()
    logs = [settled_log(tmp_path) for _ in range(5)]
    works = [*map(appended, logs)]
    works[0].files[0].close()
    assert await run(KernelSyncs(kernel(at_once=2), threads), *works) == [None] * 5
    assert threads.works == [works[0], *works[3:]]


@on_both_loops
async def test_a_file_that_is_closed_while_it_is_synced_is_no_error(tmp_path: Path, aio: LinuxAio) -> None:
    threads = CountedThreads()
    work = appended(settled_log(tmp_path))
    running = asyncio.create_task(run(KernelSyncs(aio, threads), work))
    await asyncio.sleep(0)
    descriptor = descriptor_of(work)
    work.files[0].close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert await running == [None]
    assert threads.works == []


# requirement: L9
@on_both_loops
async def test_a_round_with_an_error_on_a_thread_tells_whose_it_is(tmp_path: Path, aio: LinuxAio) -> None:
    threads = CountedThreads()

    class Broken:
        def run(self) -> None:
            raise OSError(errno.EIO, "broken")

    sound, sound_too = (appended(settled_log(tmp_path)) for _ in range(2))
    errors = await run(KernelSyncs(aio, threads), Broken(), sound, Broken(), sound_too)
    assert isinstance(errors, list)
    assert [error and error.errno for error in errors] == [errno.EIO, None, errno.EIO, None]


def test_a_descriptor_that_cannot_be_synced_is_refused(aio: LinuxAio) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    assert not aio.begin(writing, print)
    os.close(writing)
    assert not aio.begin(writing, print)
    aio.deliver()


def test_as_many_as_there_are_places_run_at_once_and_each_place_is_used_again(tmp_path: Path) -> None:
    aio, told = kernel(at_once=2), list[int]()
    with (tmp_path / "a").open("wb") as file:
        for _ in range(3):
            assert [aio.begin(file.fileno(), told.append) for _ in range(3)] == [True, True, False]
            before = len(told)
            while len(told) < before + 2:
                aio.deliver()
    assert told == [0] * 6
