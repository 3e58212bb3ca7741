"""Joins and syncs that wait, and snapshots of the groups of a partition."""

from __future__ import annotations

import msgspec
import pytest

from groups.records import (
    KINDS,
    CommittedOffset,
    Group,
    GroupKey,
    Key,
    OffsetKey,
    TransactionKey,
    TransactionOffsets,
    Value,
)
from groups.requests import Beat, Joined, Sync, Synced
from groups.state import GroupsState
from raftlog.errors import InvalidRequest, MemberNotFound, RebalanceInProgress
from raftlog.hosting import snapshot_rows
from raftlog.hosting.decisions import RequestId
from raftlog.hosting.snapshot_rows import UNSORTED_MIN, SnapshotRows, joined
from raftlog.records.batch import Codec, split_batches
from raftlog.records.builder import build_batch
from tests.helpers.group_coordination import REBALANCE_MS, SESSION_MS, CoordinatedGroups


@pytest.fixture
def groups() -> CoordinatedGroups:
    return CoordinatedGroups({"orders": 4, "payments": 2})


def given(groups: CoordinatedGroups, topic: str) -> list[int]:
    """The partitions of a topic that the plan gives to somebody."""
    members = groups.committed.groups["g"].members.values()
    return sorted(number for member in members for number in member.assignment.get(topic, ()))


# requirement: G8 G13
@pytest.mark.parametrize("late", [-1, 1])
def test_a_late_copy_of_an_earlier_join_does_not_take_a_subscription_back(
    groups: CoordinatedGroups, late: int
) -> None:
    generation = groups.stable("a", "b")
    real = groups.join("a", "orders", "payments", generation=generation)
    groups.join("a", "orders", generation=late)  # sent before, and delayed
    groups.join("b", generation=generation)
    groups.answered(real, RebalanceInProgress)
    real = groups.join("a", "orders", "payments", generation=generation)  # repeated as it was
    groups.join("b", generation=generation + 1)
    assert groups.answered(real, Joined).generation == generation + 2
    leader = groups.committed.groups["g"].leader
    groups.answered(groups.sync(leader, generation + 2, is_auto=True), Synced)
    assert given(groups, "payments") == [0, 1]


# requirement: G8
def test_the_newest_of_two_joins_that_wait_counts(groups: CoordinatedGroups) -> None:
    generation = groups.stable("a", "b")
    late = groups.join("a", "orders", generation=generation)
    real = groups.join("a", "orders", "payments", generation=generation)
    groups.join("b", generation=generation)
    groups.answered(late, RebalanceInProgress)
    assert groups.answered(real, Joined).generation == generation + 1


def test_a_static_member_is_not_refused_for_its_own_join_that_waits(groups: CoordinatedGroups) -> None:
    """It has restarted with another strategy, and under another member id, before b joins again."""
    offered = ("range", "sticky")
    groups.join("b", strategies=offered)
    first = groups.join("a-1", instance="a", strategies=("range",))
    refused = groups.join("c", instance="c", strategies=("sticky",))
    assert "support range" in str(groups.answered(refused, InvalidRequest))
    again = groups.join("a-2", instance="a", strategies=("sticky",))
    groups.answered(first, MemberNotFound)
    groups.join("b", strategies=offered, generation=1)
    assert groups.answered(again, Joined).strategy == "sticky"


def parked(groups: CoordinatedGroups) -> RequestId:
    """The sync of b, which waits for the plan of a; a has a long session, and time for its plan."""
    groups.answered(groups.join("a", session_ms=2 * REBALANCE_MS), Joined)
    groups.join("b")
    joined = groups.join("a", session_ms=2 * REBALANCE_MS, generation=1)
    assert groups.answered(joined, Joined).leader == "a"
    return groups.sync("b", 2)


# requirement: G10 G13
def test_a_member_that_waits_for_the_plan_is_alive(groups: CoordinatedGroups) -> None:
    waiting = parked(groups)
    groups.after(3 * SESSION_MS - 1)
    groups.answered(groups.sync("a", 2, is_auto=True), Synced)
    groups.answered(waiting, Synced)
    groups.after(SESSION_MS - 1)
    assert not groups.must_rejoin("b", 2), "its session begins with the plan"
    groups.after(SESSION_MS)
    groups.beat("b", 2, MemberNotFound)


# requirement: G10
def test_a_member_that_waited_in_vain_has_a_whole_session_to_join_again(groups: CoordinatedGroups) -> None:
    waiting = parked(groups)
    groups.after(2 * SESSION_MS - 1)
    groups.join("c")
    groups.answered(waiting, RebalanceInProgress)
    groups.after(SESSION_MS - 1)
    assert groups.beat("b", 2, Beat).must_rejoin


# requirement: G10
def test_a_member_that_went_away_while_it_waited_for_the_plan_is_dead(groups: CoordinatedGroups) -> None:
    waiting = parked(groups)
    groups.after(2 * SESSION_MS - 1)
    groups.forget(waiting, Sync(group="g", member_id="b", generation=2))
    groups.after(SESSION_MS)
    assert set(groups.committed.groups["g"].members) == {"a"}
    assert groups.must_rejoin("a", 2)


# requirement: G10 ST2
def test_a_member_that_waited_for_the_plan_repeats_its_sync_at_the_next_coordinator(
    groups: CoordinatedGroups,
) -> None:
    parked(groups)
    groups.after(2 * SESSION_MS)
    groups.fail_over()
    groups.after(SESSION_MS - 1)
    waiting = groups.sync("b", 2)
    groups.after(2 * SESSION_MS)
    groups.answered(groups.sync("a", 2, is_auto=True), Synced)
    groups.answered(waiting, Synced)


def offset(value: int) -> CommittedOffset:
    return CommittedOffset(offset=value, topic_id="t1")


def waiting(value: int) -> TransactionOffsets:
    return TransactionOffsets(epoch=3, transaction="copy@7.3", offsets=(("orders", 1, offset(value)),))


def apply(target: GroupsState, *rows: tuple[Key, Value | None]) -> None:
    data = build_batch([KINDS.record_of(*row) for row in rows], codec=Codec.NONE, timestamp_ms=0)
    for batch in split_batches(data):
        target.apply(batch)


def rows(count: int) -> list[tuple[Key, Value | None]]:
    return [(OffsetKey(f"g{number % 7}", "orders", number), offset(number)) for number in range(count)]


def test_a_snapshot_encodes_and_decodes_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = GroupsState()
    apply(groups, (GroupKey("g0"), Group(generation=1)), *rows(3_000))
    work: list[object] = []
    monkeypatch.setattr(KINDS, "record_of", lambda *row: work.append(row))
    monkeypatch.setattr(KINDS, "decoded", lambda *row: work.append(row))
    snapshot = groups.snapshot()
    assert len(snapshot) > 3_000
    assert work == []


def test_the_way_to_a_state_does_not_show_in_its_snapshot() -> None:
    direct, detour, put = GroupsState(), GroupsState(), GroupsState()
    wanted = rows(2_500)
    apply(direct, *wanted)
    for key, value in reversed(wanted):
        put.put(key, value)
    apply(detour, *((key, offset(7)) for key, _ in reversed(wanted)))
    detour.snapshot()
    apply(detour, *((key, None) for key, _ in wanted[::3]), (OffsetKey("gone", "orders", 1), offset(1)))
    apply(detour, (OffsetKey("gone", "orders", 1), None), *wanted)
    added: tuple[Key, Value] = (TransactionKey("g1", 7), waiting(8))
    apply(detour, (TransactionKey("g1", 7), waiting(9)), (TransactionKey("g1", 8), waiting(9)), added)
    apply(detour, (TransactionKey("g1", 8), None))
    apply(direct, added)
    put.put(*added)
    assert direct.snapshot() == detour.snapshot() == put.snapshot()
    restored = GroupsState()
    restored.restore(direct.snapshot())
    assert restored.snapshot() == direct.snapshot()
    assert restored.offsets == direct.offsets
    assert restored.transactions == direct.transactions == {"g1": {7: waiting(8)}}
    assert restored.pending == direct.pending == detour.pending == {"g1": {("orders", 1): 7}}
    assert list(restored.items()) == list(direct.items())


class CountedKey(bytes):
    """Counts comparisons."""

    compared = 0

    def __lt__(self, other: bytes) -> bool:
        CountedKey.compared += 1
        return bytes(self) < bytes(other)


class EncoderOfCountedKeys:
    """Encodes keys that count comparisons: the encoder of msgspec takes no subclass of bytes."""

    def encode(self, part: bytes) -> bytes:
        return msgspec.msgpack.encode(bytes(part))


def test_a_snapshot_compares_each_key_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_rows, "_ENCODER", EncoderOfCountedKeys())
    kept, count = SnapshotRows(), 20 * UNSORTED_MIN
    for number in range(count):
        kept.keep(CountedKey(b"%06d" % (number * 7_919 % count)), b"v")
    joined(kept)
    kept.keep(CountedKey(b"one more"), b"v")
    CountedKey.compared = 0
    keys = [key for key, _ in msgspec.msgpack.decode(joined(kept), type=list[tuple[bytes, bytes]])]
    assert keys == sorted(keys)
    assert len(keys) == count + 1
    assert CountedKey.compared <= 1.1 * count


# requirement: A7
def test_keys_that_come_and_go_take_no_memory() -> None:
    """Keys of jobs do so thousands of times between two snapshots."""
    kept = SnapshotRows()
    kept.keep(b"z", b"stays")
    for _ in range(20 * UNSORTED_MIN):
        kept.keep(b"a", b"comes")
        kept.keep(b"a", None)
    assert len(kept._order or ()) <= 2 * UNSORTED_MIN
    kept.keep(b"a", b"stays")
    once = SnapshotRows()
    once.keep(b"a", b"stays")
    once.keep(b"z", b"stays")
    assert joined(kept) == joined(once)
