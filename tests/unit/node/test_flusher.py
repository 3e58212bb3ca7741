"""One round of syncs at a time, and everybody hears of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from raftlog.node.flusher import Flusher, SyncThreads
from raftlog.storage.log_storage import DiskWork, LogChange
from raftlog.testing.syncs import in_a_task
from raftlog.types import Index
from tests.helpers.async_tests import in_real_time, in_virtual_time

NOTHING = Index(-1)


@dataclass(eq=False)
class OneSync:
    """A sync that works, or fails with this."""

    error: OSError | None = None
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
    return [sync.error if isinstance(sync, OneSync) else None for sync in syncs]


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


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
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
