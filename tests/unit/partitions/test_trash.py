"""What is given up can be taken back for a while, whatever happens to the power or the clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

import pytest

from partitions.hosting.trash import Trash
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from tests.helpers.async_tests import in_virtual_time

FOLDER = "/data/orders-0123/Partition-1"
HOUR_MS = 3_600_000
Result = TypeVar("Result")


class Clocks:
    """Both stand still unless they are told to go on."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.wall = 1_700_000_000_000

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return self.wall

    def pass_ms(self, ms: int) -> None:
        self.now_s += ms / 1000
        self.wall += ms


async def at_once(work: Callable[[], Result]) -> Result:
    return work()


def trash_on(
    filesystem: FakeFilesystem, clocks: Clocks, *, has_room: Callable[[], bool] = lambda: True
) -> Trash:
    return Trash(filesystem, "/data", clocks, at_once, delay_ms=HOUR_MS, has_room=has_room)


def with_folder() -> FakeFilesystem:
    filesystem = FakeFilesystem()
    filesystem.make_directories(FOLDER)
    filesystem.replace_file(f"{FOLDER}/0.log", b"records")
    return filesystem


def entries(filesystem: FakeFilesystem) -> list[str]:
    return filesystem.list_directory("/data/trash")


# requirement: T7
@in_virtual_time
async def test_a_folder_in_the_trash_is_whole_and_goes_after_the_delay() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks)
    trash.put(FOLDER, "moved-away")
    assert not filesystem.exists(FOLDER)
    kept = "/data/trash/1700000000000-moved-away/orders-0123/Partition-1/0.log"
    assert filesystem.read_file(kept) == b"records"
    await trash.look()
    assert trash.size_bytes == len(b"records")
    clocks.pass_ms(HOUR_MS - 1)
    await trash.look()
    assert filesystem.exists(kept)
    clocks.pass_ms(1)
    await trash.look()
    assert entries(filesystem) == []
    assert trash.size_bytes == 0


def test_what_comes_twice_at_one_time_is_kept_twice_and_what_is_not_there_makes_no_entry() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks)
    trash.put(FOLDER, "deleted")
    trash.put(FOLDER, "deleted")
    assert len(entries(filesystem)) == 1
    filesystem.make_directories(FOLDER)
    filesystem.replace_file(f"{FOLDER}/0.log", b"others")
    trash.put(FOLDER, "deleted")
    assert entries(filesystem) == ["1700000000000-deleted", "1700000000001-deleted"]


@in_virtual_time
async def test_a_clock_that_is_set_removes_nothing_early_while_the_broker_runs() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks)
    trash.put(FOLDER, "deleted")
    await trash.look()
    clocks.wall += 10 * HOUR_MS
    await trash.look()
    assert len(entries(filesystem)) == 1
    clocks.pass_ms(HOUR_MS)
    await trash.look()
    assert entries(filesystem) == []


@pytest.mark.parametrize(("wall_passed_ms", "left_ms"), [(HOUR_MS - 60_000, 60_000), (-HOUR_MS, HOUR_MS)])
@in_virtual_time
async def test_the_delay_goes_on_after_a_restart_and_is_never_longer_than_the_setting(
    wall_passed_ms: int, left_ms: int
) -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash_on(filesystem, clocks).put(FOLDER, "deleted")
    clocks.wall += wall_passed_ms
    again = trash_on(filesystem, clocks)
    await again.look()
    clocks.pass_ms(left_ms - 1)
    await again.look()
    assert len(entries(filesystem)) == 1
    clocks.pass_ms(1)
    await again.look()
    assert entries(filesystem) == []


@in_virtual_time
async def test_without_room_the_oldest_goes_at_once_one_at_a_look_and_only_until_there_is_room() -> None:
    filesystem, clocks = with_folder(), Clocks()
    room = [False, True]
    trash = trash_on(filesystem, clocks, has_room=lambda: room.pop(0) if room else True)
    for _ in range(3):
        filesystem.make_directories(FOLDER)
        filesystem.replace_file(f"{FOLDER}/0.log", b"records")
        trash.put(FOLDER, "deleted")
        clocks.pass_ms(1000)
    await trash.look()
    assert entries(filesystem) == ["1700000001000-deleted", "1700000002000-deleted"]
    await trash.look()
    assert len(entries(filesystem)) == 2


@in_virtual_time
async def test_what_an_operator_puts_there_stays() -> None:
    filesystem, clocks = with_folder(), Clocks()
    trash = trash_on(filesystem, clocks, has_room=lambda: False)
    filesystem.make_directories("/data/trash/notes")
    await trash.look()
    assert entries(filesystem) == ["notes"]


@in_virtual_time
async def test_wherever_the_power_goes_the_folder_is_whole_at_one_place() -> None:
    crashes = 0
    for after in range(12):
        for seed in range(10):
            filesystem, clocks = with_folder(), Clocks()
            filesystem.crash_after_changes = after
            try:
                trash_on(filesystem, clocks).put(FOLDER, "deleted")
            except PowerLost:
                crashes += 1
            filesystem.lose_power(random.Random(seed))
            assert [filesystem.read_file(path) for path in filesystem.paths()] == [b"records"]
            if filesystem.exists(FOLDER):
                trash_on(filesystem, clocks).put(FOLDER, "deleted")
            again = trash_on(filesystem, clocks)
            await again.look()
            clocks.pass_ms(2 * HOUR_MS)
            await again.look()
            assert filesystem.paths() == []
            assert entries(filesystem) == []
    assert crashes > 20
