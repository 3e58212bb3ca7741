"""How many jobs one queue, one group and all of them may have open."""

from __future__ import annotations

from groups.room import Room


# requirement: N2
def test_a_group_with_many_queues_leaves_room_to_others() -> None:
    room = Room(queue_max=20, total_max=100)
    for _ in range(25):
        assert room.has("greedy", queue_open=0)  # one job in each queue
        room.open.add("greedy", 1)
    assert not room.has("greedy", queue_open=0)
    assert room.has("modest", queue_open=0, count=20)


def test_a_group_may_have_one_full_queue() -> None:
    room = Room(queue_max=20, total_max=30)
    assert room.has("one", queue_open=0, count=20)
    assert not room.has("one", queue_open=0, count=21)


def test_all_groups_together_have_a_bound() -> None:
    room = Room(queue_max=20, total_max=30)
    room.open.add("one", 20)
    assert room.has("other", queue_open=0, count=10)
    assert not room.has("other", queue_open=0, count=11)
