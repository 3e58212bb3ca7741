"""What waits for a deleted topic fails at once and leaves; no topic takes the room of all others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from delayed.gone_topics import DROPPED_MAX, PAUSE_MS, SWEEP_MS
from delayed.requests import Added, Cancel, FoundSchedules, Read
from delayed.scheduling import SCHEDULES_MAX
from delayed.state import RECORD_BYTES, DelayedState
from delayed.values import TopicKey
from raftlog.errors import DelayedNotFound, QuotaExceeded
from raftlog.hosting.budget import SHARE
from tests.helpers.decided_delays import Coordinator, add, create, id_of, new, schedule

FAR_MS = 253_402_300_000_000
MINUTE_MS = 60_000


def coordinator_with(count: int, topic: str = "gone") -> Coordinator:
    """One with so many messages for the end of the year 9999, and one of another topic."""
    coordinator = Coordinator(pending_max=8_000)
    for first in range(0, count, 100):
        some = [new(number, at_ms=FAR_MS) for number in range(first, min(first + 100, count))]
        assert isinstance(coordinator.ask(add(*some, topic=topic)), Added)
    assert isinstance(coordinator.ask(add(new(1_000_000, at_ms=FAR_MS), topic="live")), Added)
    return coordinator


def heard(coordinator: Coordinator, *gone: str) -> None:
    """A topic was deleted: the coordinator asks, and the controller answers."""
    coordinator.decisions.look_for_topics(coordinator.wall_ms, coordinator.wall_ms)
    coordinator.commit()
    answer(coordinator, *gone)


def answer(coordinator: Coordinator, *gone: str) -> None:
    """The controller's answer to the newest question."""
    topics = [topic for topic in coordinator.topic_sweeps[-1].topics if topic.name in gone]
    coordinator.decisions.topics_gone(topics, coordinator.wall_ms, coordinator.wall_ms)
    coordinator.commit()


def settle(coordinator: Coordinator) -> None:
    """All slices are committed."""
    while coordinator.decisions.next_deadline_ms() <= coordinator.wall_ms + PAUSE_MS:
        coordinator.advance(PAUSE_MS)


# requirement: N2
@pytest.mark.parametrize("has_room", [True, False])
def test_messages_of_a_deleted_topic_fail_at_once_and_leave_within_a_minute(has_room: bool) -> None:
    """Also while the disk is full: the topic may have been deleted to free space."""
    coordinator = coordinator_with(3 * DROPPED_MAX + 1)
    coordinator.has_room = has_room
    began_ms = coordinator.wall_ms
    heard(coordinator, "gone")
    settle(coordinator)
    assert coordinator.wall_ms - began_ms < 1_000
    assert coordinator.committed.failed == {
        id_of(number): "the topic gone was deleted" for number in range(3 * DROPPED_MAX + 1)
    }
    coordinator.advance(SWEEP_MS)
    answer(coordinator, "gone")
    settle(coordinator)
    assert coordinator.wall_ms - began_ms < MINUTE_MS
    assert [*coordinator.committed.waiting] == [id_of(1_000_000)]
    assert isinstance(coordinator.ask(Read(id=id_of(1))), DelayedNotFound)


# requirement: N2
def test_another_deletion_does_not_take_the_reasons_away() -> None:
    coordinator = coordinator_with(2)
    for _ in range(3):
        heard(coordinator, "gone")
        settle(coordinator)
    assert len(coordinator.committed.failed) == 2


def test_topics_that_exist_keep_their_messages() -> None:
    coordinator = coordinator_with(2)
    heard(coordinator)
    coordinator.advance(SWEEP_MS)
    answer(coordinator)
    assert (len(coordinator.committed.waiting), coordinator.committed.failed) == (3, {})


# requirement: A3
@pytest.mark.parametrize("is_failed", [False, True])
def test_a_topic_that_is_created_again_meanwhile_keeps_its_messages(is_failed: bool) -> None:
    coordinator = coordinator_with(2 * DROPPED_MAX)
    if is_failed:
        heard(coordinator, "gone")
    coordinator.advance(SWEEP_MS)
    coordinator.ask(add(new(2_000_000, at_ms=FAR_MS), topic="gone"))
    answer(coordinator, "gone")
    for _ in range(5):
        coordinator.advance(PAUSE_MS)
    assert id_of(2_000_000) in coordinator.committed.waiting
    assert id_of(2_000_000) not in coordinator.committed.failed


# requirement: A3
def test_a_message_on_its_way_is_not_ended() -> None:
    coordinator = coordinator_with(1)
    coordinator.ask(add(new(5, delay_ms=0), topic="gone"))
    assert len(coordinator.moves) == 1
    heard(coordinator, "gone")
    coordinator.advance(SWEEP_MS)
    answer(coordinator, "gone")
    assert id_of(5) in coordinator.committed.waiting
    coordinator.deliver()
    assert coordinator.values("gone") == [5]


# requirement: N2
def test_schedules_of_a_deleted_topic_fail_at_once_and_leave_within_a_minute() -> None:
    """Also paused ones, and while no time is known; not those of a topic that was created again."""
    coordinator = coordinator_with(1)
    for number in range(SCHEDULES_MAX // SHARE - 1):
        paused = replace(schedule(), topic="gone", topic_id="old", is_paused=bool(number % 2))
        assert isinstance(coordinator.ask(create(f"s{number}", paused)), FoundSchedules)
    again = replace(schedule(), topic="gone", topic_id="new")
    assert isinstance(coordinator.ask(create("kept", again)), FoundSchedules)
    coordinator.decisions.is_time_known = False
    for is_over in (False, True):
        coordinator.advance(SWEEP_MS)
        old = TopicKey("gone", "old")
        assert old in coordinator.topic_sweeps[-1].topics
        coordinator.decisions.topics_gone([old], coordinator.wall_ms, coordinator.wall_ms)
        coordinator.commit()
        left = coordinator.committed.schedules
        assert {name for name, each in left.items() if not each.failed} == {"kept"}
        assert len(left) == (1 if is_over else SCHEDULES_MAX // SHARE)


# requirement: N2
def test_one_topic_has_a_quarter_of_the_bytes_of_messages() -> None:
    coordinator, record = Coordinator(pending_bytes_max=4 * 10 * (RECORD_BYTES + 100)), b"x" * 100
    for number in range(10):
        message = replace(new(number, at_ms=FAR_MS), value=record)
        assert isinstance(coordinator.ask(add(message, topic="greedy")), Added)
    refusal = coordinator.ask(add(new(10, at_ms=FAR_MS), topic="greedy"))
    assert isinstance(refusal, QuotaExceeded)
    assert "delayed.pending_bytes_max" in str(refusal)
    assert isinstance(coordinator.ask(add(new(11, at_ms=FAR_MS), topic="modest")), Added)
    coordinator.lead()
    assert coordinator.decisions.state.sizes.of("greedy") == 10 * (RECORD_BYTES + 100)
    coordinator.ask(Cancel(id=id_of(0)))
    assert isinstance(coordinator.ask(add(new(10, at_ms=FAR_MS), topic="greedy")), Added)


# requirement: N2
def test_one_topic_has_a_quarter_of_the_pending_messages() -> None:
    coordinator = coordinator_with(2_000)
    refusal = coordinator.ask(add(new(3_000, delay_ms=5), topic="gone"))
    assert isinstance(refusal, QuotaExceeded)
    assert "topic gone" in str(refusal)
    assert refusal.details["retry_after_ms"] == 3_600_000  # an hour: none is due before the year 9999
    assert isinstance(coordinator.ask(add(new(3_000, delay_ms=5), topic="other")), Added)


# requirement: N2
def test_the_next_leader_counts_the_same() -> None:
    coordinator = coordinator_with(20)
    coordinator.ask(add(new(5_000, delay_ms=5), topic="dead"))
    coordinator.advance(5)
    move, now_ms = coordinator.moves.pop(), coordinator.wall_ms
    coordinator.decisions.refused(move, "no", is_gone=True, now_ms=now_ms, wall_ms=now_ms)
    coordinator.commit()
    restored = DelayedState()
    restored.restore(coordinator.committed.snapshot())
    for state in (coordinator.committed, coordinator.decisions.state, restored):
        counts = [(state.open.of(topic), state.failures.of(topic)) for topic in ("gone", "live", "dead")]
        assert counts == [(20, 0), (1, 0), (0, 1)]
        assert state.open.total + state.failures.total == len(state.waiting)
        assert state.sizes.total == sum(state.waiting[id_].size_bytes for id_ in state.waiting)
