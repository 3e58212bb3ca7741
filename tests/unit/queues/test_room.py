"""How many jobs, and bytes of them, one queue, one group and all of them may have open."""

from __future__ import annotations

import pytest

from groups.state import GroupsState
from queues.records import Job, JobKey
from queues.room import CUT_CHARACTERS, JOB_BYTES, Room


def room_of(
    state: GroupsState | None = None, *, queue_max: int = 20, total_max: int = 100, jobs: int = 1_000
) -> Room:
    """Memory for so many jobs, less that of the reasons in a state."""
    return Room(queue_max, total_max, jobs * JOB_BYTES, (state or GroupsState()).reasons)


# requirement: N2
@pytest.mark.parametrize("room", [room_of(), room_of(total_max=1_000, jobs=100)], ids=["count", "bytes"])
def test_a_group_with_many_queues_leaves_room_to_others(room: Room) -> None:
    for _ in range(25):
        assert room.has("greedy", queue_open=0)  # one job in each queue
        room.open.add("greedy", 1)
    assert not room.has("greedy", queue_open=0)
    assert room.has("modest", queue_open=0, count=20)


@pytest.mark.parametrize("room", [room_of(total_max=30), room_of(jobs=30)], ids=["count", "bytes"])
def test_a_group_may_have_one_full_queue(room: Room) -> None:
    assert room.has("one", queue_open=0, count=20)
    assert not room.has("one", queue_open=0, count=21)


@pytest.mark.parametrize("room", [room_of(total_max=30), room_of(jobs=30)], ids=["count", "bytes"])
def test_all_groups_together_have_a_bound(room: Room) -> None:
    room.open.add("one", 20)
    assert room.has("other", queue_open=0, count=10)
    assert not room.has("other", queue_open=0, count=11)


# requirement: N2
def test_reasons_of_failures_take_room_and_are_cut_without_it() -> None:
    state = GroupsState()
    room, kept = room_of(state, queue_max=4, jobs=24), []
    room.open.add("one", 4)
    for slot in range(4):
        kept.append(room.kept_reason("one", "x" * 1_000))
        state.put(JobKey("one", "jobs", slot), Job(partition=0, offset=slot, reason=kept[-1]))
    assert [*map(len, kept)] == [1_000, *[CUT_CHARACTERS] * 3]
    assert room.used_bytes() <= 6 * JOB_BYTES
    for slot in range(4):
        state.put(JobKey("one", "jobs", slot), None)
    assert not state.reasons.total
