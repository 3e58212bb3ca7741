"""Who survives a lost majority, and what is said of it."""

from __future__ import annotations

import pytest

from partitions.reassignment.unsafe_recovery import Survey, survey
from partitions.routing import rpc
from partitions.routing.rpc import LogEnd
from raftlog.errors import InvalidRequest
from raftlog.node.rpc import decode_body, encode_body
from raftlog.types import EntryId, GroupId, Index, NodeId, Term, TopicPartition

ORDERS = TopicPartition("orders", 3)


def group(*numbers: int) -> frozenset[NodeId]:
    return frozenset(NodeId(number) for number in numbers)


def end(term: int, index: int, *halves: frozenset[NodeId], commit: int = 5) -> LogEnd:
    return LogEnd(
        last=EntryId(Term(term), Index(index)),
        commit_index=Index(commit),
        halves=halves or (group(1, 2, 3),),
    )


def judged(**answers: LogEnd) -> Survey:
    replicas = (NodeId(1), NodeId(2), NodeId(3))
    return survey(ORDERS, replicas, {NodeId(int(name[1:])): found for name, found in answers.items()})


# requirement: F6
def test_the_last_term_decides_and_in_it_the_last_index() -> None:
    five = group(1, 2, 3, 4, 5)
    assert judged(n1=end(2, 90, five), n2=end(3, 10, five)).survivor == 2
    assert judged(n1=end(3, 11, five), n2=end(3, 10, five)).survivor == 1
    assert judged(n1=end(3, 11, five), n2=end(3, 10, five)).lost == (3, 4, 5)


def test_it_is_needed_only_where_no_majority_answers() -> None:
    assert not judged(n1=end(2, 9), n3=end(2, 9)).is_needed
    assert judged(n1=end(2, 9)).is_needed
    # Two of the four that answer might agree, but not in both halves of the change under way.
    assert judged(n1=end(2, 9, group(1), group(1, 2, 3))).is_needed
    assert not judged(n1=end(2, 9, group(1), group(1, 2, 3)), n2=end(2, 8)).is_needed


def test_a_log_that_names_nobody_counts_for_nothing() -> None:
    found = judged(n1=end(2, 9), n2=end(0, -1, group()))
    assert found.is_needed
    assert (found.survivor, found.lost) == (1, (2, 3))


def test_without_any_log_there_is_nothing_to_recover_from() -> None:
    found = judged(n2=end(0, -1, group()))
    assert (found.survivor, found.is_needed, found.lost) == (None, True, (1, 2, 3))
    assert "nothing to recover from" in found.estimate


def test_the_phrase_names_what_is_given_up_and_changes_with_it() -> None:
    found = judged(n1=end(2, 9))
    assert found.phrase == "recover orders/3 from broker 1 without brokers 2, 3"
    assert judged(n2=end(2, 9)).phrase != found.phrase
    assert "offset 9 in term 2" in found.estimate
    assert "6 offsets to be committed" in found.estimate
    assert found.lines == ["broker 1: log ends at offset 9 in term 2, committed up to 5"]


def test_calls_about_replicas_are_read_as_they_were_written_and_nothing_else_is() -> None:
    place = (ORDERS, GroupId(7))
    bodies = (
        rpc.Append(place, "quorum", 1000),
        rpc.Transfer(place, None, 1000),
        rpc.Prepared(place, 3),
        rpc.PreparedAnswer(is_open=True, is_rejoining=False),
        rpc.DeleteAnswer(True),
        end(2, 9, group(1, 2), group(3)),
    )
    for body in bodies:
        assert decode_body(encode_body(body), type(body)) == body
        for wrong in (b"", b"\xc1", b"\x90", b"\xa1\xff", b"\x91" * 5000, encode_body([place])):
            with pytest.raises(InvalidRequest, match=type(body).__name__):
                decode_body(wrong, type(body))
