"""What is refused as not done is never visible: the rule by which the simulator's checkers judge requests."""

from __future__ import annotations

import pytest

from raftlog.errors import CommitUnknown, ConnectionLost, Overloaded
from verification.simulator.refusals import Attempts
from verification.simulator.result import Broken

INVARIANT = "X1 what is refused is not done"


def attempts(*sent: str) -> Attempts[str]:
    """Requests that were sent."""
    made = Attempts[str](INVARIANT)
    for effect in sent:
        made.sends(effect)
    return made


def test_an_effect_that_is_visible_after_its_refusal_is_a_violation() -> None:
    made = attempts("ack")
    made.refused("ack", Overloaded())
    with pytest.raises(Broken, match="overloaded"):
        made.seen("ack")


def test_a_refusal_of_what_is_visible_is_a_violation() -> None:
    made = attempts("ack")
    made.seen("ack")
    with pytest.raises(Broken):
        made.refused("ack", Overloaded())


def test_an_effect_that_nobody_has_asked_for_is_a_violation() -> None:
    with pytest.raises(Broken):
        attempts("nack").seen("ack")


@pytest.mark.parametrize("error", [CommitUnknown(), ConnectionLost("lost", sent=True)])
def test_a_request_in_doubt_may_be_done(error: CommitUnknown | ConnectionLost) -> None:
    made = attempts("ack")
    made.refused("ack", error)
    made.seen("ack")


def test_a_request_that_was_not_sent_is_not_done() -> None:
    made = attempts("ack")
    made.refused("ack", ConnectionLost("no broker", sent=False))
    with pytest.raises(Broken):
        made.seen("ack")


def test_another_copy_of_a_refused_request_may_be_done() -> None:
    made = attempts("ack", "ack")
    made.refused("ack", Overloaded())
    made.seen("ack")
    with pytest.raises(Broken):
        made.refused("ack", Overloaded())


def test_what_two_requests_do_alike_is_done_by_one_of_them() -> None:
    made = attempts("nack", "dead")
    made.refused("nack", Overloaded())
    made.seen("nack", "dead")
    with pytest.raises(Broken):
        made.refused("dead", Overloaded())
