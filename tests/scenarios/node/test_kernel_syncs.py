"""Syncs by the kernel: real files, the real calls. What a failed sync means is tested with the storage."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from chaos.kit.disk import UnreliableDisk
from raftlog.core.ready import HardState
from raftlog.node.flusher import Errors, RoundEnded, SyncThreads
from raftlog.node.kernel_syncs import KernelSyncs
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.linux_aio import LinuxAio
from raftlog.storage.log_storage import DiskWork
from raftlog.storage.log_sync import LogSync
from raftlog.storage.os_filesystem import OsFile, OsFilesystem
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import NodeId, Term
from tests.helpers.async_tests import on_both_loops
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch
from tests.helpers.waiting import limited

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
    taken(log).run()
    return log


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
