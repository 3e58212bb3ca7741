"""The state of groups has a bound, and each group and each client a share of it."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from groups.coordination import PARTITION_BYTES, STATE_BYTES_MAX, SWEEP_MS
from groups.membership import GENERATION_BYTES_PER_S
from groups.outputs import Outputs, Row
from groups.records import Group, GroupKey
from groups.requests import Commit, DeleteGroup, DeleteOffsets, Done, Join, Joined, Leave, OffsetCommit
from groups.state import ROW_BYTES, GroupsState
from queues.records import JobKey
from queues.requests import Receive
from queues.rows import QueueRows
from raftlog.errors import Overloaded, QuotaExceeded, RaftlogError
from raftlog.hosting.budget import RECHECK_MS
from raftlog.wire.limits import PARTITIONS_MAX
from tests.helpers.group_coordination import REBALANCE_MS, SESSION_MS, CoordinatedGroups

MAX_BYTES = 400 * ROW_BYTES
TEXT = "x" * (10 * ROW_BYTES)  # counts for about 21 rows


def groups_of(partitions: int = 40) -> CoordinatedGroups:
    return CoordinatedGroups({"orders": partitions}, state_bytes_max=MAX_BYTES)


def fill(groups: CoordinatedGroups, client: str, *, name: str = "") -> tuple[int, RaftlogError]:
    """Commit metadata until it is refused: how often it was not, and the refusal."""
    for number in range(100):
        group = name or f"{client}-{number}"
        done = groups.commit(object, 1, partition=number, group=group, metadata=TEXT, client=client)
        if isinstance(done, RaftlogError):
            return number, done
    raise AssertionError("nothing was refused")


# requirement: N2
def test_a_group_has_a_quarter_of_the_state() -> None:
    groups = groups_of()
    count, refusal = fill(groups, "10.0.0.1", name="g")
    assert isinstance(refusal, QuotaExceeded)
    assert "group g" in str(refusal)
    assert groups.committed.used.of("g") <= MAX_BYTES // 4
    assert count == 4
    groups.commit(Done, 1, group="other", client="10.0.0.2")  # others are not refused


# requirement: N2
def test_a_client_has_a_quarter_of_the_state_with_all_its_groups() -> None:
    groups = groups_of()
    count, refusal = fill(groups, "10.0.0.1")
    assert isinstance(refusal, QuotaExceeded)
    assert "client 10.0.0.1" in str(refusal)
    assert count == 4
    groups.commit(Done, 1, group="other", client="10.0.0.2")
    join = Join(group="more", member_id="m", topics=("orders",), client="10.0.0.1", metadata=b"x" * 4_000)
    groups.ask(join, QuotaExceeded)
    assert GroupKey("more").group not in groups.committed.groups


# requirement: N2
def test_addresses_of_an_ipv6_network_have_one_share_and_members_show_their_own() -> None:
    groups = groups_of()
    addresses = [f"2001:db8::{number}" for number in range(1, 9)]
    join = Join(group="g", member_id="m", topics=("orders",), metadata=b"x" * (MAX_BYTES // 4 // 5))
    for number, address in enumerate(addresses):
        ask = replace(join, group=f"g-{number}", client=address)
        if isinstance(groups.answers[groups.send(ask)], QuotaExceeded):
            break
    assert 0 < number < 5
    assert groups.committed.used_by_client.of("2001:db8::/64") == groups.committed.used.total
    assert groups.committed.groups["g-1"].members["m"].client == addresses[1]
    groups.ask(replace(join, client="2001:db8:0:1::1"), Joined)


# requirement: N2
def test_groups_of_whole_addresses_that_an_older_version_wrote_count_for_their_network() -> None:
    state = GroupsState()
    for number in range(2):
        state.put(GroupKey(f"old-{number}"), Group(client=f"2001:db8::{number}"))
    assert state.used_by_client.of("2001:db8::/64") == state.used.total > 0
    for number in range(2):
        state.put(GroupKey(f"old-{number}"), None)
    assert state.used_by_client.total == 0


# requirement: N2
def test_a_member_that_joins_again_counts_with_what_it_has_more() -> None:
    groups = groups_of()
    join = Join(group="g", member_id="m", topics=("orders",), client="10.0.0.1")
    rejoin = replace(join, generation=groups.ask(join, Joined).generation)
    groups.ask(replace(rejoin, metadata=b"x" * MAX_BYTES), QuotaExceeded)
    groups.ask(replace(rejoin, owned={"orders": (10_000,) * MAX_BYTES}), QuotaExceeded)
    assert groups.committed.groups["g"].members["m"].metadata == b""
    assert groups.ask(rejoin, Joined).generation == 2


# requirement: N2
def test_members_that_wait_for_others_count_before_they_are_written() -> None:
    """Otherwise each group of a client may have one more than there is room for."""
    groups = groups_of()
    join = Join(group="g", member_id="m", topics=("orders",), client="10.0.0.1")
    names = [f"g-{number}" for number in range(8)]
    for name in names:
        groups.ask(replace(join, group=name), Joined)
    big = replace(join, member_id="n", metadata=b"x" * (MAX_BYTES // 4 // 5))
    waiting = [groups.send(replace(big, group=name)) for name in names]
    refused = [groups.answers[each] for each in waiting if each in groups.answers]
    assert len(refused) > 4
    assert all(isinstance(each, QuotaExceeded) for each in refused)
    assert groups.send(replace(big, group=names[0])) not in groups.answers, "a repetition is no other member"
    groups.after(REBALANCE_MS)
    assert 0 < groups.committed.used_by_client.of("10.0.0.1") <= MAX_BYTES // 4
    groups.answered(waiting[0], Joined)
    other = groups.send(replace(big, group="other", client="10.0.0.2"))
    groups.answered(other, Joined)


# requirement: N2
def test_what_waited_counts_once_it_is_written_and_no_longer_if_it_is_gone() -> None:
    groups = groups_of()
    join = Join(
        group="g", member_id="m", topics=("orders",), client="10.0.0.1", session_timeout_ms=SESSION_MS
    )
    groups.ask(join, Joined)
    big = replace(join, member_id="n", metadata=b"x" * (MAX_BYTES // 4 // 3))
    for _ in range(3):
        waiting = groups.send(big)
        assert waiting not in groups.answers
        groups.ask(Leave(group="g", member_id="m"), Done)
        groups.answered(waiting, Joined)
        groups.ask(Leave(group="g", member_id="n"), Done)
        groups.ask(join, Joined)


# requirement: N2
def test_a_member_with_partitions_joins_again_without_room() -> None:
    groups = groups_of()
    generation = groups.stable("a")
    state = groups.coordination.state
    state.used.add("g", MAX_BYTES // 4 - state.used.of("g"))
    owned = groups.committed.groups["g"].members["a"].assignment
    assert len(owned["orders"]) == 40
    join = Join(group="g", member_id="a", topics=("orders",), generation=generation, owned=owned)
    rejoined = groups.send(replace(join, strategies=("range",), rebalance_timeout_ms=60_000))
    assert groups.answered(rejoined, Joined).generation == generation + 1


# requirement: N2
def test_a_group_that_receives_jobs_counts_for_its_client_with_all_partitions() -> None:
    groups = groups_of(partitions=60)  # a queue has two rows for each
    ask = Receive(
        group="more", topic="orders", topic_id="", lease=b"1", count_max=1, lease_ms=5, deliveries_max=1
    )
    groups.commit(Done, 1, group="first", client="10.0.0.1")
    refused = groups.send(replace(ask, client="10.0.0.1"))
    groups.answered(refused, QuotaExceeded)
    few = groups_of(partitions=2)
    assert not isinstance(few.answers.get(few.send(replace(ask, client="10.0.0.1"))), RaftlogError)
    outputs = Outputs(few.coordination.state)
    QueueRows("more", "orders", outputs).write([(JobKey("more", "orders", 0), None)], 5, "10.0.0.1")
    assert outputs.state.used_by_client.of("10.0.0.1") >= ROW_BYTES


# requirement: N2
def test_all_clients_together_have_a_bound() -> None:
    groups = groups_of()
    for number in range(6):
        _, refusal = fill(groups, f"10.0.0.{number}")
    assert isinstance(refusal, Overloaded)
    assert groups.committed.used.total <= MAX_BYTES
    assert "groups.state_bytes_max" in str(refusal)


# requirement: N2
def test_offsets_of_all_partitions_are_in_the_share_of_a_group() -> None:
    """What a topic may have, a group may commit, in one request."""
    groups = CoordinatedGroups({"orders": PARTITIONS_MAX})
    offsets = tuple(
        OffsetCommit(topic="orders", topic_id="t1", partition=number, offset=1)
        for number in range(PARTITIONS_MAX)
    )
    groups.ask(Commit(offsets=offsets, group="g" * 50, client="10.0.0.1"), Done)
    assert len(groups.committed.offsets["g" * 50]) == PARTITIONS_MAX
    assert groups.committed.used.of("g" * 50) > STATE_BYTES_MAX // 4
    refused = Commit(offsets=offsets, group="more", client="10.0.0.1")
    assert groups.ask(refused, QuotaExceeded).details["limit"] == PARTITION_BYTES * (PARTITIONS_MAX + 1)


# requirement: N2
def test_a_queue_of_all_partitions_is_in_the_share_of_a_group() -> None:
    groups = CoordinatedGroups({"orders": PARTITIONS_MAX})
    ask = Receive(
        group="q", topic="orders", topic_id="t1", lease=b"1", count_max=1, lease_ms=5, deliveries_max=1
    )
    assert not isinstance(groups.answers.get(groups.send(replace(ask, wait_ms=9))), RaftlogError)


# requirement: N2
def test_the_share_grows_with_the_partitions_that_there_are_up_to_three_quarters() -> None:
    groups = groups_of(partitions=10)
    count, _ = fill(groups, "10.0.0.1", name="g")
    groups.set_partitions("orders", 1_000)  # their rows take more than the whole state
    more, refusal = fill(groups, "10.0.0.1", name="g")
    assert isinstance(refusal, QuotaExceeded)
    assert more > count
    assert groups.committed.used.of("g") <= MAX_BYTES * 3 // 4
    fill(groups, "10.0.0.2")  # others have the rest
    assert groups.committed.used.total > MAX_BYTES * 3 // 4


# requirement: N2
def test_a_refusal_says_when_to_look_again() -> None:
    """Members leave, transactions end and groups are deleted at any time; groups expire at known times."""
    groups = groups_of()
    groups.after(SWEEP_MS // 3)
    _, refusal = fill(groups, "10.0.0.1", name="g")
    assert refusal.details["retry_after_ms"] == RECHECK_MS
    join = Join(group="g", member_id="m", topics=("orders",), client="10.0.0.1", metadata=b"x" * 4_000)
    assert groups.ask(join, QuotaExceeded).details["retry_after_ms"] == RECHECK_MS
    groups.after(SWEEP_MS - SWEEP_MS // 3 - RECHECK_MS + 1)
    assert groups.ask(join, QuotaExceeded).details["retry_after_ms"] == RECHECK_MS - 1


@pytest.mark.parametrize("is_static", [False, True])
def test_members_that_went_before_the_others_have_joined_take_no_room(is_static: bool) -> None:
    """They leave, or a process with the instance of the last one takes its place."""
    groups = groups_of()
    groups.stable("slow")
    for number in range(100):
        large = Join(
            group="g",
            member_id=f"m{number}",
            topics=(TEXT,),
            strategies=("range",),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            client="10.0.0.1",
            instance_id="i" if is_static else "",
        )
        assert groups.answers.get(groups.send(large)) is None
        if not is_static:
            groups.leave(f"m{number}")


# requirement: N2
def test_what_is_freed_may_be_used_again() -> None:
    groups = groups_of()
    count, _ = fill(groups, "10.0.0.1", name="g")
    groups.ask(DeleteOffsets(group="g", targets=(("orders", 0),)), Done)
    groups.commit(Done, 1, partition=count, group="g", metadata=TEXT, client="10.0.0.1")
    groups.commit(Done, 2, partition=count, group="g", client="10.0.0.1")  # smaller than before
    groups.ask(DeleteGroup(group="g"), Done)
    state = groups.committed
    assert (state.used.total, state.used_by_client.total, [*state.names]) == (0, 0, [])


# requirement: N2
def test_the_next_leader_counts_the_same() -> None:
    groups = groups_of()
    fill(groups, "10.0.0.1", name="g")
    fill(groups, "10.0.0.2")
    groups.stable("a", group="joined")
    before = groups.coordination.state
    groups.fail_over()
    after = groups.coordination.state
    names = [*before.groups]
    assert after.used.total == before.used.total
    assert [after.used.of(name) for name in names] == [before.used.of(name) for name in names]
    assert after.used_by_client.of("10.0.0.2") == before.used_by_client.of("10.0.0.2") > 0
    _, refusal = fill(groups, "10.0.0.1", name="g")
    assert isinstance(refusal, QuotaExceeded)


# requirement: N2
@pytest.mark.parametrize("how", ["leaves", "takes the place"])
def test_small_requests_make_a_large_group_write_at_a_bounded_rate(how: str) -> None:
    """The record of a group has all members, and a request to leave, or to take a place, is small."""
    groups = CoordinatedGroups({"orders": 1})
    topics, small = tuple(f"{number:04d}" + "x" * 200 for number in range(1_000)), [*map(str, range(30))]
    groups.join("large", *topics)
    for member in small:
        groups.join(member, generation=1, instance=member)
    groups.join("large", *topics, generation=1)
    groups.after(2_000)
    assert {"large", *small} == groups.committed.groups["g"].members.keys()
    groups.sync("large", groups.committed.groups["g"].generation, is_auto=True)
    began_ms, before = groups.now_ms, sum(map(written_bytes, groups.written))
    asked = []
    for member in small:
        asked.append(groups.leave(member) if how == "leaves" else groups.join(f"{member}.2", instance=member))
        groups.after(10)
    groups.after(2_000)
    rate = (sum(map(written_bytes, groups.written)) - before) * 1_000 / (groups.now_ms - began_ms)
    assert rate < 2 * GENERATION_BYTES_PER_S
    if how == "leaves":
        assert all(isinstance(groups.answers[request], Done) for request in asked)
        assert not groups.committed.groups["g"].members.keys() & {*small}


# requirement: N2
def test_a_large_group_begins_generations_at_a_bounded_rate() -> None:
    groups = CoordinatedGroups({"orders": 1})
    topics = tuple(f"{number:04d}" + "x" * 200 for number in range(1_000))
    waiting = groups.join("large", *topics)
    groups.answered(waiting, Joined)
    began_ms, before = groups.now_ms, sum(map(written_bytes, groups.written))
    for _ in range(20):  # a small request for a rebalance, one after another
        groups.join("small", generation=groups.committed.groups["g"].generation)
        groups.join("large", *topics)
        groups.after(100)
    rate = (sum(map(written_bytes, groups.written)) - before) * 1_000 / (groups.now_ms - began_ms)
    assert rate < 2 * GENERATION_BYTES_PER_S
    groups.after(2_000)
    assert groups.committed.groups["g"].members.keys() == {"large", "small"}
    assert groups.committed.groups["g"].generation > 2, "they go on"


def written_bytes(rows: tuple[Row, ...]) -> int:
    """The bytes of the groups among these rows."""
    return sum(len(msgspec.msgpack.encode(value)) for _, value in rows if isinstance(value, Group))


def test_a_small_group_does_not_rest() -> None:
    groups = CoordinatedGroups({"orders": 1})
    groups.answered(groups.join("a"), Joined)
    groups.join("b")
    again = groups.join("a")
    groups.answered(again, Joined)


def test_names_come_in_pages() -> None:
    groups = groups_of()
    for name in ("c", "a", "d", "b"):
        groups.commit(Done, 1, group=name)
    groups.ask(DeleteGroup(group="c"), Done)
    names = groups.coordination.state.names
    assert (names.after("", 2), names.after("b", 2), names.after("ba", 9)) == (["a", "b"], ["d"], ["d"])


def test_an_offset_counts_its_metadata_in_bytes() -> None:
    groups = groups_of()
    commit = OffsetCommit(topic="orders", topic_id="t1", partition=0, offset=1)
    assert commit.metadata == ""
    groups.commit(Done, 1, group="plain", metadata="x" * 100)
    groups.commit(Done, 1, group="wide", metadata="\N{GRINNING FACE}" * 100)
    assert groups.committed.used.of("wide") >= groups.committed.used.of("plain") + 2 * 300 - 10
