"""Messages for a partition that takes no records any more get another one, once."""

from __future__ import annotations

from delayed.records import LaneKey
from delayed.requests import Added, Found, Reschedule, When
from delayed.values import Move
from tests.helpers.decided_delays import Coordinator, add, id_of, new

DECOMMISSIONED = LaneKey("orders", 1)


def redirected(coordinator: Coordinator, *partitions: int) -> Move:
    """The batch for partition 1 is refused for good, and its messages get these partitions."""
    coordinator.commit()
    (move,) = coordinator.moves
    coordinator.moves.clear()
    assert move.lane == DECOMMISSIONED
    coordinator.decisions.redirected(move, partitions, coordinator.wall_ms, coordinator.wall_ms)
    coordinator.commit()
    return move


# requirement: F5 A3
def test_each_message_is_delivered_once_to_its_new_partition() -> None:
    coordinator = Coordinator()
    messages = [new(number, partition=1, delay_ms=10) for number in range(3)]
    assert isinstance(coordinator.ask(add(*messages)), Added)
    coordinator.advance(10)
    redirected(coordinator, 0, 2, 0)
    coordinator.deliver()
    assert coordinator.values(partition=0) == [0, 2]
    assert coordinator.values(partition=1) == []
    assert coordinator.values(partition=2) == [1]


# requirement: F5 A3
def test_a_new_leader_delivers_to_the_new_partition_only() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(5, partition=1, delay_ms=10)))
    coordinator.advance(10)
    redirected(coordinator, 0)
    coordinator.lead()
    coordinator.advance(1)
    coordinator.deliver()
    assert (coordinator.values(partition=0), coordinator.values(partition=1)) == ([5], [])


# requirement: F5 A3
def test_a_redirected_message_keeps_its_target_when_its_newest_change_is_another() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(5, partition=1, delay_ms=10)))
    coordinator.advance(10)
    redirected(coordinator, 0)
    (move,) = coordinator.moves
    coordinator.moves.clear()
    now_ms = coordinator.wall_ms
    coordinator.decisions.refused(move, "too large", is_gone=False, now_ms=now_ms, wall_ms=now_ms)
    coordinator.commit()
    assert isinstance(coordinator.ask(Reschedule(id=id_of(5), when=When(50, -1), delay_ms_max=-1)), Found)
    state = coordinator.replayed(compacted_to=coordinator.end_offset)
    assert state.waiting[id_of(5)].partition == 0


# requirement: F5
def test_the_next_batch_of_the_lane_has_another_epoch() -> None:
    coordinator = Coordinator()
    coordinator.ask(add(new(1, partition=1, delay_ms=10), new(2, partition=1, delay_ms=20)))
    coordinator.advance(10)
    before = redirected(coordinator, 0)
    coordinator.deliver()
    coordinator.advance(10)
    (move,) = coordinator.moves
    assert move.lane == DECOMMISSIONED
    assert move.batch.epoch > before.batch.epoch
