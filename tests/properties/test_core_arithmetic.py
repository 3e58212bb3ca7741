"""The core's arithmetic beside slow and obvious twins."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from raftlog.core.membership import Membership, MembershipEntry, Memberships
from raftlog.core.quorum import Election, count_votes, election_outcome, quorum_size, reached_by_quorum
from raftlog.core.term_map import TermMap
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term

LOGS = st.lists(st.integers(1, 6), max_size=30).map(sorted)


def built(log: list[int]) -> TermMap:
    found = TermMap(BEFORE_LOG, (), BEFORE_LOG)
    for index, term in enumerate(log):
        found.append(Term(term), Index(index), Index(index))
    return found


def opened(log: list[int]) -> TermMap:
    terms = [EntryId(Term(term), Index(log.index(term))) for term in sorted(set(log))]
    last = EntryId(Term(log[-1]), Index(len(log) - 1)) if log else BEFORE_LOG
    return TermMap(BEFORE_LOG, terms, last)


def term_in(log: list[int], index: int) -> int:
    return 0 if index < 0 else log[index]


@given(st.lists(st.integers(-1, 9), min_size=1, max_size=9))
def test_a_quorum_has_reached_the_greatest_number_that_enough_voters_have(values: list[int]) -> None:
    needed = quorum_size(len(values))
    twin = max(number for number in values if sum(value >= number for value in values) >= needed)
    assert reached_by_quorum(values) == twin


@given(st.integers(1, 9))
def test_any_two_quorums_share_a_voter_and_no_smaller_sets_need_to(voter_count: int) -> None:
    size = quorum_size(voter_count)
    voters = range(voter_count)
    if voter_count <= 6:
        assert all(
            set(one) & set(other)
            for one in combinations(voters, size)
            for other in combinations(voters, size)
        )
    assert 2 * (size - 1) <= voter_count


@given(st.integers(1, 9), st.dictionaries(st.integers(1, 9), st.booleans()))
def test_an_election_is_open_while_both_outcomes_are_possible(
    voter_count: int, drawn: dict[int, bool]
) -> None:
    votes = {NodeId(voter): granted for voter, granted in drawn.items() if voter <= voter_count}
    missing = voter_count - len(votes)
    granted = sum(votes.values())
    may_win = granted + missing > voter_count / 2
    has_won = granted > voter_count / 2
    expected = Election.WON if has_won else Election.OPEN if may_win else Election.LOST
    assert count_votes(voter_count, votes) is expected


NODES = st.frozensets(st.integers(1, 7).map(NodeId), min_size=1)


@given(NODES, NODES, st.dictionaries(st.integers(1, 9).map(NodeId), st.booleans()))
def test_a_joint_election_is_won_and_lost_as_a_vote_of_both_halves(
    voters: frozenset[NodeId], outgoing: frozenset[NodeId], votes: dict[NodeId, bool]
) -> None:
    def majority(half: frozenset[NodeId], *, of_the_missing: bool) -> bool:
        return sum(votes.get(voter, of_the_missing) for voter in half) > len(half) / 2

    has_won = majority(voters, of_the_missing=False) and majority(outgoing, of_the_missing=False)
    may_win = majority(voters, of_the_missing=True) and majority(outgoing, of_the_missing=True)
    expected = Election.WON if has_won else Election.OPEN if may_win else Election.LOST
    assert election_outcome(Membership(voters, outgoing=outgoing).halves, votes) is expected


@given(st.lists(st.booleans(), max_size=20), st.integers(-1, 20), st.integers(0, 21))
def test_memberships_that_were_cut_equal_those_that_are_read_again(
    changes: list[bool], cut: int, kept: int
) -> None:
    entries = [
        MembershipEntry(Index(index), Membership(frozenset({NodeId(index + 2)})))
        for index, changed in enumerate(changes)
        if changed
    ]
    birth = Membership(frozenset({NodeId(1)}))
    found = Memberships(Index(-1), birth, entries)

    def twin(index: int) -> Membership:
        return next((entry.membership for entry in reversed(entries) if entry.index <= index), birth)

    cut = min(cut, kept - 1)
    found.truncate(Index(kept))
    found.truncate_prefix(Index(cut))
    assert found.base == twin(cut)
    assert [found.at(Index(index)) for index in range(cut, kept)] == [
        twin(index) for index in range(cut, kept)
    ]
    assert found.newest.membership == twin(kept - 1)
    assert found.newest.index == max([cut, *[entry.index for entry in entries if entry.index < kept]])


@given(LOGS, st.integers(0, 29), st.integers(1, 7), st.integers(-1, 35))
def test_a_term_map_that_is_cut_in_front_knows_the_rest_as_before(
    log: list[int], cut: int, term: int, index: int
) -> None:
    whole, found = built(log), built(log)
    cut = min(cut, len(log) - 1)
    found.truncate_prefix(EntryId(Term(term_in(log, cut)), Index(cut)))
    assert found.last == whole.last
    assert [found.term_at(Index(i)) for i in range(cut, len(log))] == [
        term_in(log, i) for i in range(cut, len(log))
    ]
    limit = EntryId(Term(max(term, term_in(log, cut))), Index(max(index, cut)))
    assert found.newest_at_most(limit) == whole.newest_at_most(limit)
    assert found.compare_next(limit) == whole.compare_next(limit)
    for longer in (whole, found):
        longer.append(Term(9), Index(len(log)), Index(len(log)))
    assert found.held_from(Term(9), Index(len(log))) == len(log)
    assert found.newest_at_most(EntryId(Term(8), Index(99))).index == len(log) - 1


@given(LOGS)
def test_a_term_map_knows_the_term_of_every_entry(log: list[int]) -> None:
    for found in (built(log), opened(log)):
        assert [found.term_at(Index(index)) for index in range(-1, len(log))] == [0, *log]
        assert found.last == EntryId(Term(term_in(log, len(log) - 1)), Index(len(log) - 1))


@given(LOGS, st.integers(0, 30))
def test_a_truncated_term_map_equals_one_that_never_was_longer(log: list[int], kept: int) -> None:
    found = built(log)
    kept = min(kept, len(log))
    found.truncate(Index(kept))
    twin = built(log[:kept])
    assert found.last == twin.last
    assert [found.term_at(Index(i)) for i in range(-1, kept)] == [
        twin.term_at(Index(i)) for i in range(-1, kept)
    ]
    found.append(Term(9), Index(kept), Index(kept + 4))
    assert found.last == EntryId(Term(9), Index(kept + 4))


@given(LOGS, st.integers(0, 7), st.integers(-1, 35))
def test_the_newest_entry_below_a_limit_is_found(log: list[int], term: int, index: int) -> None:
    limit = EntryId(Term(term), Index(index))
    twin = max(i for i in range(-1, len(log)) if i <= index and term_in(log, i) <= term)
    assert built(log).newest_at_most(limit) == EntryId(Term(term_in(log, twin)), Index(twin))


@given(LOGS, st.integers(1, 7), st.integers(0, 29))
def test_what_is_held_of_a_span_ends_with_the_run(log: list[int], term: int, first: int) -> None:
    twin = first - 1
    while twin + 1 < len(log) and log[twin + 1] == term:
        twin += 1
    assert built(log).held_from(Term(term), Index(first)) == twin


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs as Raft can make them: each term's entries come from one leader that went on from some log."""
    logs: list[list[int]] = [[], [], []]
    for term in range(1, draw(st.integers(2, 7))):
        leader = draw(st.integers(0, 2))
        logs[leader] = logs[leader] + [term] * draw(st.integers(0, 5))
        for follower in range(3):
            start = logs[leader].index(term) if term in logs[leader] else len(logs[leader])
            if follower != leader and draw(st.booleans()):
                upto = draw(st.integers(start, len(logs[leader])))
                same = logs[leader][:upto]
                if logs[follower][: len(same)] != same:
                    logs[follower] = same
    return logs[0], logs[1]


@given(histories())
def test_a_leader_finds_where_two_logs_meet_in_as_many_questions_as_there_are_terms(
    pair: tuple[list[int], list[int]],
) -> None:
    leader_log, follower_log = pair
    leader, follower = built(leader_log), built(follower_log)
    compared = leader.last.index
    questions = 0
    while not follower.holds(EntryId(leader.term_at(compared), compared)):
        hint = follower.newest_at_most(EntryId(leader.term_at(compared), compared))
        following = leader.compare_next(hint)
        assert following < compared, "no progress"
        compared = following
        questions += 1
    meet = compared + 1
    assert leader_log[:meet] == follower_log[:meet]
    assert meet == len(leader_log) or meet >= len(follower_log) or leader_log[meet] != follower_log[meet]
    assert questions <= 2 * len(set(leader_log) | set(follower_log)) + 1
    ends_run = meet == len(leader_log) or meet == 0 or leader_log[meet] != leader_log[meet - 1]
    assert ends_run or meet == len(follower_log) or follower_log[meet] != follower_log[meet - 1]
