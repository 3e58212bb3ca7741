"""The fourth rule: a log that no other can repair begins anew as its leader's, and forgets no promise."""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest

from raftlog.core.membership import NOBODY, Membership
from raftlog.core.ready import HardState
from raftlog.errors import LogCorrupt
from raftlog.node.frame_limits import FrameLimits
from raftlog.repair import new_log
from raftlog.repair.repairer import FORGOTTEN_TERMS
from raftlog.repair.target import CannotRepair, NeedsOperator, RepairTarget
from raftlog.repair.verify import examine
from raftlog.storage.members import MEMBERS_NAME
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.log_changes import truncate_prefix
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.log_files import BATCH, DIRECTORY, open_log, segment, sync
from tests.helpers.repair_cluster import GROUP, TERMS, Cluster, Leader, log_of, members
from tests.helpers.storage_batches import storage_batch

MEMBERS = members(1, 2, 3)
LONG = [*TERMS, *[3] * 12]  # 24 entries, three segments
SLOTS = tuple(f"{DIRECTORY}/hard_state.{name}" for name in ("a", "b"))


def begins_at(start: int, *terms: int, membership: Membership = MEMBERS) -> FakeFilesystem:
    """A closed log whose beginning is gone, with the state that it led to."""
    filesystem = log_of(*terms)
    log = open_log(filesystem)
    log.store_initial_membership(membership)
    before = Index(start - 1)
    log.states.save(EntryId(log.term_at(before), before), f"state at {start}".encode())
    assert truncate_prefix(log, Index(start)) == start
    log.close()
    filesystem.restart()
    return filesystem


def leader(filesystem: FakeFilesystem, term: int, membership: Membership = MEMBERS) -> Leader:
    log = open_log(filesystem)
    return Leader(log, Term(term), commit_index=log.last_index, membership=membership)


def terms_in(log: SegmentedLog) -> list[int]:
    return [log.term_at(Index(at)) for at in range(log.first_index, log.last_index + 1)]


def test_what_the_leader_has_no_more_is_not_missed() -> None:
    """The damage lies below 8, where the leader's log begins; broker 3 is another's follower and as short."""
    one = log_of(*TERMS)
    one.flip_bit(segment(0), 3 * BATCH + 62)
    others = leader(begins_at(8, *TERMS), 3), begins_at(8, *TERMS)
    log = Cluster(one, broker_2=others[0], broker_3=others[1]).repair()
    assert (log.first_index, log.last_index) == (8, 11)
    assert terms_in(log) == TERMS[8:]
    assert log.load_checkpoint() == (7, b"state at 8")
    found = log.restored(NOBODY)
    assert found.hard_state == HardState(Term(3), None), "its vote of this term is still its own"
    assert found.membership == MEMBERS
    assert found.snapshot.term == 2


def test_a_log_that_ended_before_the_leader_s_begins_is_left_empty_there() -> None:
    one = log_of(*TERMS[:6])
    one.flip_bit(segment(0), 2 * BATCH + 62)
    cluster = Cluster(one, broker_2=leader(begins_at(16, *LONG), 5), broker_3=begins_at(16, *LONG))
    log = cluster.repair()
    assert (log.first_index, log.last_index) == (16, 15)
    assert log.restored(NOBODY).hard_state == HardState(Term(5), NodeId(1))
    assert cluster.repairer.counts.bytes_fetched == 0, "the rest comes as ordinary appends"


@pytest.mark.parametrize("leader_terms", [LONG, [*TERMS, *[3] * 6]])
def test_all_that_may_have_been_acknowledged_is_there_before_it_votes_again(
    leader_terms: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_log, "SEGMENT_BYTES", 5 * BATCH)
    one = log_of(*LONG[:20])
    one.flip_bit(segment(0), 62)
    cluster = Cluster(one, broker_2=leader(begins_at(8, *leader_terms), 3))
    cluster.net.frame_limits = FrameLimits(repair_bytes_max=3 * BATCH)
    log = cluster.repair()
    assert terms_in(log) == leader_terms[8:20]
    assert [name for name in one.list_directory(DIRECTORY) if name.endswith(".repair")] == []


def test_where_the_end_is_not_known_all_that_the_leader_has_is_taken() -> None:
    one = begins_at(8, *LONG[:20])
    for path in SLOTS:
        one.overwrite(path, None)
    others = leader(begins_at(16, *LONG), 6), begins_at(16, *LONG)
    with pytest.raises(CannotRepair, match=r"brokers \[3\] must say which terms they know"):
        Cluster(one, broker_2=others[0]).repair()
    assert examine(one, DIRECTORY).runs, "nothing of it has gone"
    log = Cluster(one, broker_2=others[0], broker_3=others[1]).repair()
    assert (log.first_index, log.last_index) == (16, 23)
    assert log.restored(NOBODY).hard_state == HardState(Term(6), NodeId(1))


def test_a_leader_of_an_earlier_term_is_not_begun_with() -> None:
    one = log_of(*TERMS, hard_term=7)
    one.flip_bit(segment(0), 62)
    with pytest.raises(CannotRepair, match="no replica leads yet"):
        Cluster(one, broker_2=leader(begins_at(8, *TERMS), 6), broker_3=begins_at(8, *TERMS)).repair()


def test_nothing_goes_before_all_has_come() -> None:
    """The leader's own log is damaged where this one is sound."""
    one, other = log_of(*LONG), begins_at(8, *LONG)
    one.flip_bit(segment(0), 62)
    led = leader(other, 3)
    other.flip_bit(segment(16), 62)
    before = {path: data for path, data in one.image().items() if not path.endswith(".index")}
    with pytest.raises(CannotRepair):
        Cluster(one, broker_2=led, broker_3=begins_at(8, *LONG)).repair()
    assert {path: data for path, data in one.image().items() if not path.endswith(".index")} == before
    assert led.stopped is not None, "and is repaired in turn"


# requirement: L9
def test_a_crash_at_any_moment_leaves_the_old_log_or_one_that_is_begun_again() -> None:
    """It never opens in between, whatever of the old files and of the new ones has reached the disk."""
    crash_after = 0
    is_over = False
    given_up = 0
    while not is_over:
        crash_after += 1
        for seed in range(4):
            one = log_of(*LONG[:20])
            one.flip_bit(segment(0), 62)
            cluster = Cluster(one, broker_2=leader(begins_at(8, *LONG), 3), broker_3=begins_at(8, *LONG))
            one.crash_after_changes = crash_after
            with contextlib.suppress(PowerLost):
                asyncio.run(cluster.repairer.repair(cluster.repair_target))
                is_over = True
            one.lose_power(random.Random(seed))
            seen = examine(one, DIRECTORY)
            given_up += seen.state.is_given_up
            if seen.state.is_given_up:
                with pytest.raises(LogCorrupt):
                    open_log(one)
            log = cluster.repair()
            assert log.first_index == 8
            assert terms_in(log) in (LONG[8:20], LONG[8:])
            assert log.load_checkpoint() == (7, b"state at 8")
            assert log.restored(NOBODY).hard_state == HardState(Term(3), None)
    assert given_up > 20


def test_a_log_that_was_given_up_goes_on_with_a_leader_below_the_term_that_it_stays_away_from() -> None:
    """All have lost their slots once: it begins a thousand terms away, and dies before it is whole."""
    logs = [begins_at(8, *LONG) for _ in range(2)]
    one = begins_at(8, *LONG[:20])
    for path in SLOTS:
        one.overwrite(path, None)
        logs[1].overwrite(path, None)
    cluster = Cluster(one, broker_2=leader(logs[0], 6), broker_3=logs[1])
    crash_after = 0
    while not examine(one, DIRECTORY).state.is_given_up:
        crash_after += 1
        one.crash_after_changes = crash_after
        with contextlib.suppress(PowerLost):
            asyncio.run(cluster.repairer.repair(cluster.repair_target))
        one.restart()
    log = cluster.repair()
    assert log.restored(NOBODY).hard_state == HardState(Term(6 + FORGOTTEN_TERMS), NodeId(1))
    assert terms_in(log) == LONG[8:]


@pytest.mark.parametrize("left", [None, b"", b"another's"])
@pytest.mark.parametrize("start", [8, 16])
def test_of_a_log_that_lacks_only_its_state_only_that_is_fetched(left: bytes | None, start: int) -> None:
    one = begins_at(8, *LONG)
    one.overwrite(segment(8, "state"), left)
    assert not examine(one, DIRECTORY).is_clean
    cluster = Cluster(one, broker_2=leader(begins_at(start, *LONG), 3))
    log = cluster.repair()
    assert cluster.repairer.counts.bytes_fetched == 0
    assert terms_in(log) == LONG[8:]
    assert log.load_checkpoint() == (start - 1, f"state at {start}".encode())


def test_a_state_of_another_log_is_not_taken_alone() -> None:
    """The leader's log has other entries below 16 than this one, which nobody ever committed."""
    theirs = [*TERMS[:10], *[5] * 14]
    one = begins_at(8, *LONG[:18])
    one.remove(segment(8, "state"))
    log = Cluster(one, broker_2=leader(begins_at(16, *theirs), 6)).repair()
    assert (log.first_index, terms_in(log)) == (16, theirs[16:18])


def test_a_log_whose_members_stand_nowhere_else_begins_as_its_leader_s() -> None:
    one = begins_at(8, *LONG)
    one.flip_bit(f"{DIRECTORY}/{MEMBERS_NAME}", 9)
    log = Cluster(one, broker_2=leader(begins_at(16, *LONG), 3)).repair()
    assert (log.first_index, log.restored(NOBODY).membership) == (16, MEMBERS)
    assert terms_in(log) == LONG[16:]


def test_a_founder_whose_members_no_newcomer_knows_begins_as_they_did() -> None:
    """Their logs begin with nobody: who takes part stands in the log itself."""
    one = log_of(*TERMS)
    log = open_log(one)
    log.store_initial_membership(MEMBERS)
    log.close()
    one.restart()
    one.flip_bit(f"{DIRECTORY}/{MEMBERS_NAME}", 9)
    found = Cluster(one, broker_2=leader(log_of(*TERMS), 3, NOBODY)).repair().restored(MEMBERS)
    assert found.membership == NOBODY


def test_the_only_replica_begins_anew_from_nobody() -> None:
    one = begins_at(8, *LONG, membership=members(1))
    one.remove(segment(8, "state"))
    cluster = Cluster(one)
    cluster.repair_target = RepairTarget(GROUP, DIRECTORY, ())
    with pytest.raises(NeedsOperator, match="there is no other replica"):
        cluster.repair()
    assert examine(one, DIRECTORY).runs


def test_a_log_whose_end_lies_within_a_batch_of_the_leader_s_takes_all_of_that_batch() -> None:
    """Broker 1 ends with entries that nobody committed; the leader has one batch in their place."""
    two = begins_at(8, *TERMS)
    log = open_log(two)
    log.save_hard_state(HardState(Term(4), NodeId(2)))
    log.append([storage_batch(12, 4, epoch=4)])
    sync(log)
    log.close()
    two.restart()
    one = log_of(*LONG[:14])
    one.flip_bit(segment(0), 62)
    log = Cluster(one, broker_2=leader(two, 4), broker_3=begins_at(8, *TERMS)).repair()
    assert (log.first_index, log.last_index) == (8, 15)
    assert terms_in(log) == [*TERMS[8:], 4, 4, 4, 4]


# requirement: L9
def test_a_log_that_stays_away_from_forgotten_terms_finds_its_leader_again_after_any_crash() -> None:
    """Two replicas have lost their slots; the end of one is damaged, too, and the leader is of term 6."""
    crash_after = 0
    is_over = False
    while not is_over:
        crash_after += 1
        one, other = log_of(*LONG[:20]), log_of(*LONG)
        for path in SLOTS:
            one.overwrite(path, None)
            other.overwrite(path, None)
        one.flip_bit(segment(16), 2 * BATCH + 62)
        cluster = Cluster(one, broker_2=leader(log_of(*LONG), 6), broker_3=other)
        one.crash_after_changes = crash_after
        with contextlib.suppress(PowerLost):
            asyncio.run(cluster.repairer.repair(cluster.repair_target))
            is_over = True
        one.restart()
        log = cluster.repair()
        assert terms_in(log) == LONG
        assert log.restored(NOBODY).hard_state == HardState(Term(6 + FORGOTTEN_TERMS), NodeId(1))
