"""For how long a broker is avoided that could not open a new replica."""

from __future__ import annotations

from partitions.metadata.refusals import AVOIDED_MS, MoveStuck, Refusals
from partitions.metadata.requests import decode_question, encode_question
from raftlog.types import NodeId, TopicId


def report(broker: int, partition: int = 0, reason: str = "no room") -> MoveStuck:
    return MoveStuck("orders", TopicId("t"), partition, 7, NodeId(broker), reason)


# requirement: F1
def test_a_report_counts_for_a_time_after_the_last_one() -> None:
    refusals = Refusals()
    assert refusals.note(report(4), 1000.0)
    assert refusals.note(report(4, partition=1), 1000.0)
    assert not refusals.note(report(4, reason="not writable"), 6000.0), "it is known"
    assert refusals.now(999.0 + AVOIDED_MS) == (report(4, reason="not writable"), report(4, partition=1))
    assert refusals.now(1000.0 + AVOIDED_MS) == (report(4, reason="not writable"),)
    assert refusals.now(6000.0 + AVOIDED_MS) == ()
    assert refusals.note(report(4), 6000.0 + AVOIDED_MS), "it is news again"


def test_a_controller_that_does_not_lead_forgets() -> None:
    refusals = Refusals()
    refusals.note(report(4), 1000.0)
    refusals.begin_again()
    assert refusals.now(1000.0) == ()


def test_a_report_travels_whole() -> None:
    assert decode_question(encode_question(report(4), 500)) == (report(4), 500)
