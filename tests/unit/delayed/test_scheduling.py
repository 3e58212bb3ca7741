"""When schedules fire, which instants are missed, and what requests about them are told."""

from __future__ import annotations

from collections import Counter
from random import Random
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from delayed import cron
from delayed.recent import RECENT_MS
from delayed.records import Missed, Schedule
from delayed.requests import (
    CreateSchedule,
    DeleteSchedule,
    DescribedSchedule,
    Done,
    FoundSchedules,
    NeedsProducerId,
    PauseSchedule,
    ReadSchedule,
    ReadSchedules,
)
from delayed.scheduling import FIRED_BYTES_MAX, MISSED_MAX, PAUSE_MS, SCHEDULES_MAX
from delayed.state import DelayedState
from delayed.tally import Tally
from raftlog.errors import Conflict, InvalidRequest, Overloaded, ScheduleNotFound, StorageFull
from raftlog.hosting.budget import SHARE
from raftlog.hosting.deadlines import STALE_MIN
from tests.helpers.decided_delays import MINUTE_MS, Coordinator, LaneKey, add, create, new, schedule
from tests.helpers.few_descriptors import few_descriptors

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
BEGIN_MS = 20_000 * DAY_MS  # a midnight
EACH_HOUR = "0 * * * *"


def begun(name: str = "s", wanted: Schedule | None = None, *, pending_max: int = 1_000) -> Coordinator:
    """A coordinator with one schedule, a second after midnight."""
    coordinator = Coordinator(wall_ms=BEGIN_MS + 1_000, pending_max=pending_max)
    assert isinstance(coordinator.ask(create(name, wanted)), FoundSchedules)
    return coordinator


def described(coordinator: Coordinator, name: str = "s") -> DescribedSchedule:
    """The schedule."""
    reply = coordinator.ask(ReadSchedule(id=name))
    assert isinstance(reply, FoundSchedules), reply
    return reply.schedules[0]


def fired(coordinator: Coordinator) -> list[int]:
    """The instants of the messages that have arrived, in milliseconds after the midnight."""
    coordinator.deliver()
    found = coordinator.targets[LaneKey("orders", 0)].delivered
    return [int.from_bytes(id_[6:], "big") - BEGIN_MS for _, id_ in found]


# requirement: A5
def test_no_schedule_begins_while_brokers_agree_on_no_time() -> None:
    """Instants are counted from when it begins: by a wrong clock some would be missed, or fire afterwards."""
    coordinator = begun()
    coordinator.decisions.is_time_known = False
    assert isinstance(coordinator.ask(create("another")), Overloaded)
    assert isinstance(coordinator.ask(create()), FoundSchedules), "a repetition"
    paused = coordinator.ask(PauseSchedule(id="s", is_paused=True))
    assert isinstance(paused, FoundSchedules)
    assert isinstance(coordinator.ask(PauseSchedule(id="s", is_paused=False)), Overloaded)
    assert described(coordinator).state == "paused"
    coordinator.decisions.is_time_known = True
    assert isinstance(coordinator.ask(PauseSchedule(id="s", is_paused=False)), FoundSchedules)


# requirement: A5
def test_a_schedule_fires_at_each_instant_and_not_earlier() -> None:
    coordinator = begun()
    assert described(coordinator).next_ms == BEGIN_MS + MINUTE_MS
    coordinator.advance(MINUTE_MS - 1_001)
    assert fired(coordinator) == []
    coordinator.advance(1)
    assert fired(coordinator) == [MINUTE_MS]
    coordinator.advance(1)
    assert fired(coordinator) == [MINUTE_MS]
    coordinator.advance(MINUTE_MS)
    assert fired(coordinator) == [MINUTE_MS, 2 * MINUTE_MS]
    assert described(coordinator).schedule.fired_ms == BEGIN_MS + 2 * MINUTE_MS
    assert described(coordinator).next_ms == BEGIN_MS + 3 * MINUTE_MS


# requirement: A5
def test_the_message_names_its_schedule_and_its_instant() -> None:
    coordinator = begun(wanted=replace(schedule(), key=b"clock"))
    coordinator.advance(MINUTE_MS)
    (message,) = coordinator.messages()
    instant = str(BEGIN_MS + MINUTE_MS).encode()
    assert message.headers == (("raftlog.schedule", b"s"), ("raftlog.scheduled_at", instant))
    assert (message.key, message.value, message.due_ms) == (b"clock", b"tick", BEGIN_MS + MINUTE_MS)


# requirement: A5
@pytest.mark.parametrize("seed", range(40))
def test_each_instant_has_one_message_whatever_leaders_do(seed: int) -> None:
    """Leaders die between any two of their steps; clocks go back a little; nobody is away for a minute."""
    rng = Random(seed)
    coordinator = begun(wanted=schedule(missed=Missed.ALL))
    coordinator.ask(create("other", schedule("*/2 * * * *", missed=Missed.ALL)))
    latest_ms = coordinator.wall_ms
    for _ in range(60):
        coordinator.wall_ms += rng.randrange(-5_000, 25_000)
        latest_ms = max(latest_ms, coordinator.wall_ms)
        coordinator.decisions.tick(coordinator.wall_ms, coordinator.wall_ms)
        coordinator.commit(rng.choice([None, None, 0, 1, 2, 3]))
        if coordinator.moves and rng.random() < 0.5:
            move = rng.choice(coordinator.moves)
            coordinator.targets[move.lane].append(move, coordinator.wall_ms)
    coordinator.wall_ms = latest_ms
    coordinator.lead()
    coordinator.advance(0)
    minutes = (latest_ms - BEGIN_MS) // MINUTE_MS
    expected = [*range(1, minutes + 1), *range(2, minutes + 1, 2)]
    assert sorted(fired(coordinator)) == sorted(minute * MINUTE_MS for minute in expected)


# requirement: A5
@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        (Missed.SKIP, [5]),
        (Missed.ONCE, [4, 5]),
        (Missed.ALL, [1, 2, 3, 4, 5]),
    ],
)
def test_missed_instants_fire_as_the_schedule_says(missed: Missed, expected: list[int]) -> None:
    coordinator = begun(wanted=schedule(EACH_HOUR, missed=missed))
    coordinator.wall_ms = BEGIN_MS + 5 * HOUR_MS + 10_000  # the last one is late, not missed
    coordinator.lead()
    coordinator.commit()
    assert fired(coordinator) == [hour * HOUR_MS for hour in expected]
    coordinator.advance(HOUR_MS)
    assert fired(coordinator) == [*(hour * HOUR_MS for hour in expected), 6 * HOUR_MS]


# requirement: A5
def test_so_many_missed_instants_fire_at_most() -> None:
    coordinator = begun(wanted=schedule(missed=Missed.ALL))
    coordinator.wall_ms = BEGIN_MS + 365 * DAY_MS - 30_000  # years of minutes, found at once
    coordinator.lead()
    coordinator.commit()
    instants = fired(coordinator)
    assert len(instants) == MISSED_MAX + 1
    assert instants[-1] == 365 * DAY_MS - MINUTE_MS
    assert instants == sorted(set(instants))


# requirement: A5
def test_missed_instants_of_many_schedules_fire_little_by_little() -> None:
    """Each step writes what one append takes, and the next one leaves time for it."""
    large = replace(schedule(missed=Missed.ALL), value=bytes(16 << 10))
    coordinator = Coordinator(wall_ms=BEGIN_MS + 1_000, pending_max=10_000)
    for number in range(6):
        coordinator.ask(create(f"s{number}", large))
    coordinator.wall_ms = BEGIN_MS + DAY_MS
    coordinator.lead()
    coordinator.commit()
    most = (MISSED_MAX + 1) * (16 << 10)
    sizes, began_ms = list[int](), coordinator.wall_ms
    while len(coordinator.messages()) < 6 * (MISSED_MAX + 1) and len(sizes) < 20:
        before = len(coordinator.messages())
        coordinator.advance(coordinator.decisions.next_deadline_ms() - coordinator.wall_ms)
        sizes.append((len(coordinator.messages()) - before) * (16 << 10))
    assert max(sizes) <= FIRED_BYTES_MAX + most
    assert coordinator.wall_ms - began_ms >= PAUSE_MS * (6 * most // (FIRED_BYTES_MAX + most) - 1)
    coordinator.advance(0)
    instants = [int.from_bytes(id_[6:], "big") for id_ in coordinator.committed.waiting]
    assert Counter(Counter(instants).values()) == {6: MISSED_MAX + 1}, "each instant, once for each schedule"


# requirement: A5
def test_times_of_the_past_are_not_kept() -> None:
    coordinator = begun(wanted=schedule(EACH_HOUR))
    for is_paused in (True, False) * (2 * STALE_MIN):
        coordinator.ask(PauseSchedule(id="s", is_paused=is_paused))
    assert len(coordinator.decisions._schedules._due._heap) <= STALE_MIN + 2
    coordinator.advance(HOUR_MS)
    assert fired(coordinator) == [HOUR_MS]


# requirement: A5
def test_instants_that_pass_in_a_pause_never_fire() -> None:
    coordinator = begun(wanted=schedule(missed=Missed.ALL))
    coordinator.ask(PauseSchedule(id="s", is_paused=True))
    assert (described(coordinator).state, described(coordinator).next_ms) == ("paused", None)
    coordinator.advance(10 * MINUTE_MS)
    coordinator.lead()
    assert fired(coordinator) == []
    coordinator.ask(PauseSchedule(id="s", is_paused=False))
    coordinator.advance(MINUTE_MS)
    assert fired(coordinator) == [11 * MINUTE_MS]


# requirement: A5
def test_a_pause_that_a_clock_goes_back_in_repeats_no_instant() -> None:
    coordinator = begun()
    coordinator.advance(MINUTE_MS)
    assert fired(coordinator) == [MINUTE_MS]
    coordinator.wall_ms -= 30_000
    for is_paused in (True, False):
        coordinator.ask(PauseSchedule(id="s", is_paused=is_paused))
    coordinator.advance(29_500)
    assert fired(coordinator) == [MINUTE_MS]
    coordinator.advance(MINUTE_MS)
    assert fired(coordinator) == [MINUTE_MS, 2 * MINUTE_MS]


# requirement: A5
def test_an_instant_whose_message_is_forgotten_does_not_fire_again() -> None:
    coordinator = begun(wanted=schedule(missed=Missed.ALL))
    minutes = RECENT_MS // MINUTE_MS + 5
    for _ in range(minutes):
        coordinator.advance(MINUTE_MS)
        coordinator.deliver()
    assert fired(coordinator) == [minute * MINUTE_MS for minute in range(1, minutes + 1)]


# requirement: A5
def test_a_deleted_schedule_fires_no_more_and_the_deletion_may_be_repeated() -> None:
    coordinator = begun()
    assert coordinator.ask(DeleteSchedule(id="s")) == Done()
    coordinator.lead()
    assert coordinator.ask(DeleteSchedule(id="s")) == Done()
    assert isinstance(coordinator.ask(DeleteSchedule(id="other")), ScheduleNotFound)
    assert isinstance(coordinator.ask(ReadSchedule(id="s")), ScheduleNotFound)
    coordinator.advance(DAY_MS)
    assert fired(coordinator) == []
    assert coordinator.committed.schedules == {}


# requirement: A5
def test_a_schedule_on_a_full_disk_fires_later_and_can_be_deleted() -> None:
    coordinator = begun()
    coordinator.ask(create("gone"))
    coordinator.has_room = False
    coordinator.advance(MINUTE_MS)
    assert fired(coordinator) == []
    assert coordinator.ask(DeleteSchedule(id="gone")) == Done()
    assert isinstance(coordinator.ask(PauseSchedule(id="s", is_paused=True)), StorageFull)
    coordinator.has_room = True
    coordinator.advance(1_000)
    assert fired(coordinator) == [MINUTE_MS]


# requirement: A5
def test_the_same_schedule_again_is_the_same_and_another_one_is_refused() -> None:
    coordinator = begun()
    coordinator.advance(5 * MINUTE_MS)
    assert isinstance(coordinator.ask(create("s", replace(schedule(), partition=3))), FoundSchedules)
    assert described(coordinator).schedule.created_ms == BEGIN_MS + 1_000
    assert isinstance(coordinator.ask(create("s", schedule(EACH_HOUR))), Conflict)
    assert isinstance(coordinator.ask(create("s", replace(schedule(), value=b"other"))), Conflict)
    for partition, reply in ((0, FoundSchedules), (3, Conflict)):
        named = replace(create("s", replace(schedule(), partition=partition)), names_partition=True)
        assert isinstance(coordinator.ask(named), reply)


# requirement: A5
def test_the_first_schedule_needs_a_producer_id() -> None:
    coordinator = Coordinator(wall_ms=BEGIN_MS)
    bare = CreateSchedule(id="s", schedule=schedule())
    assert coordinator.ask(bare) == NeedsProducerId()
    assert coordinator.committed.schedules == {}
    coordinator.ask(create())
    coordinator.advance(MINUTE_MS)
    assert fired(coordinator) == [MINUTE_MS]


# requirement: A5
def test_a_schedule_that_never_fires_is_refused() -> None:
    coordinator = Coordinator(wall_ms=BEGIN_MS)
    for wrong, field in ((schedule("0 0 30 2 *"), "cron"), (schedule(zone="Mars"), "time_zone")):
        refused = coordinator.ask(create("s", wrong))
        assert isinstance(refused, InvalidRequest)
        assert refused.details["field"] == field
    assert coordinator.committed.schedules == {}


# requirement: A5
def test_a_schedule_ends_when_its_topic_is_gone_and_may_be_resumed() -> None:
    coordinator = begun()
    coordinator.advance(MINUTE_MS)
    now_ms = coordinator.wall_ms
    coordinator.decisions.refused(
        coordinator.moves.pop(), "deleted", is_gone=True, now_ms=now_ms, wall_ms=now_ms
    )
    coordinator.commit()
    coordinator.lead()
    coordinator.advance(DAY_MS)
    assert fired(coordinator) == []
    shown = described(coordinator)
    assert (shown.state, shown.schedule.failed, shown.next_ms) == ("failed", "deleted", None)
    coordinator.ask(PauseSchedule(id="s", is_paused=False))
    assert described(coordinator).state == "active"
    coordinator.advance(MINUTE_MS)
    assert fired(coordinator) == [DAY_MS + 2 * MINUTE_MS]


# requirement: A5
def test_a_failed_message_ends_no_other_schedule() -> None:
    coordinator = begun()
    coordinator.ask(create("other", schedule(EACH_HOUR)))
    coordinator.advance(MINUTE_MS)
    now_ms = coordinator.wall_ms
    coordinator.decisions.refused(coordinator.moves.pop(), "no", is_gone=False, now_ms=now_ms, wall_ms=now_ms)
    coordinator.commit()
    assert (described(coordinator, "s").state, described(coordinator, "other").state) == ("failed", "active")


# requirement: A5
def test_a_schedule_waits_for_room_as_every_message_does() -> None:
    coordinator = begun(wanted=schedule(missed=Missed.ALL), pending_max=1)
    coordinator.ask(add(new(1, delay_ms=2 * HOUR_MS)))
    coordinator.advance(3 * MINUTE_MS)
    assert len(coordinator.committed.waiting) == 1
    coordinator.advance(2 * HOUR_MS)
    coordinator.advance(0)
    coordinator.deliver()
    coordinator.advance(1_000)
    coordinator.deliver()
    assert len(coordinator.targets[LaneKey("orders", 0)].delivered) == 1 + MISSED_MAX + 1


# requirement: A5
@pytest.mark.parametrize("leads_anew", [False, True])
def test_a_schedule_whose_zone_cannot_be_read_for_now_fires_later(leads_anew: bool) -> None:
    coordinator = begun(wanted=schedule(zone="Europe/Berlin"))
    ZoneInfo.clear_cache()
    other = create("new", schedule(zone="America/New_York"))
    with few_descriptors(0):
        if leads_anew:
            cron.next_ms.cache_clear()
            coordinator.lead()
        coordinator.advance(MINUTE_MS)
        assert isinstance(coordinator.ask(other), Overloaded)
    assert fired(coordinator) == []
    coordinator.advance(1_000)
    assert fired(coordinator) == [MINUTE_MS]
    assert isinstance(coordinator.ask(other), FoundSchedules)


# requirement: A5
def test_a_schedule_whose_zone_cannot_be_read_for_now_stays_paused() -> None:
    coordinator = begun(wanted=schedule(zone="Europe/Berlin"))
    coordinator.ask(PauseSchedule(id="s", is_paused=True))
    ZoneInfo.clear_cache()
    cron.next_ms.cache_clear()
    coordinator.wall_ms += MINUTE_MS
    with few_descriptors(0):
        assert isinstance(coordinator.ask(PauseSchedule(id="s", is_paused=False)), Overloaded)
    assert described(coordinator).state == "paused"


# requirement: A5
def test_so_many_schedules_and_no_more() -> None:
    coordinator = Coordinator(wall_ms=BEGIN_MS)
    for number in range(SCHEDULES_MAX):
        one = replace(schedule(EACH_HOUR), topic=f"topic-{number * SHARE // SCHEDULES_MAX}")
        assert isinstance(coordinator.ask(create(f"s{number}", one)), FoundSchedules)
    assert isinstance(coordinator.ask(create("another")), Conflict)
    coordinator.wall_ms += HOUR_MS
    coordinator.lead()
    looks = 0
    while coordinator.decisions.next_deadline_ms() == coordinator.wall_ms:
        coordinator.advance(0)
        looks += 1
    assert looks > 5, "it does not look at all of them at once"
    coordinator.deliver()
    assert sum(len(target.delivered) for target in coordinator.targets.values()) == SCHEDULES_MAX


# requirement: N2
def test_one_topic_has_a_quarter_of_the_schedules() -> None:
    coordinator = Coordinator(wall_ms=BEGIN_MS)
    for number in range(SCHEDULES_MAX // SHARE):
        assert isinstance(coordinator.ask(create(f"s{number}", schedule(EACH_HOUR))), FoundSchedules)
    assert isinstance(coordinator.ask(create("one-more", schedule(EACH_HOUR))), Conflict)
    other = replace(schedule(EACH_HOUR), topic="other")
    assert isinstance(coordinator.ask(create("other", other)), FoundSchedules)


# requirement: A5
def test_schedules_are_listed_by_id_and_topic() -> None:
    coordinator = begun()
    coordinator.ask(create("t", replace(schedule(), topic="other")))
    coordinator.ask(create("r"))
    reply = coordinator.ask(ReadSchedules(topic="orders", after="", count_max=9))
    assert isinstance(reply, FoundSchedules)
    assert [one.id for one in reply.schedules] == ["r", "s"]
    reply = coordinator.ask(ReadSchedules(topic=None, after="r", count_max=1))
    assert isinstance(reply, FoundSchedules)
    assert [one.id for one in reply.schedules] == ["s"]


# requirement: A5
def test_schedules_are_in_snapshots_and_survive_compaction() -> None:
    coordinator = begun()
    coordinator.ask(create("gone"))
    coordinator.ask(DeleteSchedule(id="gone"))
    for _ in range(5):
        coordinator.advance(MINUTE_MS)
        coordinator.deliver()
    restored = DelayedState()
    restored.restore(coordinator.committed.snapshot())
    assert restored.snapshot() == coordinator.committed.snapshot()
    assert restored.schedules == coordinator.committed.schedules
    replayed = coordinator.replayed(compacted_to=coordinator.end_offset - 3)
    assert replayed.schedules == coordinator.committed.schedules
    assert replayed.recent.keys() == coordinator.committed.recent.keys()


# requirement: A5
def test_lateness_is_counted_by_class() -> None:
    tally = Tally()
    for late_ms in (-5, 0, 10, 11, 700_000):
        tally.note_delivered(late_ms)
    assert (tally.delivered, tally.lateness_sum_ms) == (5, 700_021)
    assert (tally.lateness[0], tally.lateness[1], tally.lateness[-1]) == (3, 1, 1)
