"""Which time counts as the silence of a broker."""

from __future__ import annotations

from partitions.metadata.silence import WatchedSilence
from raftlog.types import NodeId

ONE, TWO = NodeId(1), NodeId(2)
STEP = 1000


def watched(*looks: tuple[float, bool]) -> float:
    """The silence of broker 2 after looks at these times, at which it was heard or not."""
    silence = WatchedSilence(STEP)
    for now_ms, is_heard in looks:
        silence.look(now_ms, {ONE: True, TWO: is_heard})
    assert silence.silent_ms[ONE] == 0
    return silence.silent_ms[TWO]


# requirement: F1
def test_silence_is_the_time_between_looks_at_which_nothing_was_heard() -> None:
    assert watched((100, True), (350, False), (600, False)) == 500


def test_a_controller_that_has_just_begun_has_heard_no_silence() -> None:
    assert watched((10_000_000, False)) == 0
    assert watched((10_000_000, False), (10_000_250, False)) == 250


def test_one_message_ends_a_silence() -> None:
    assert watched((0, False), (900, False), (1000, True)) == 0
    assert watched((0, False), (900, False), (1000, True), (1100, False)) == 100


def test_a_pause_of_the_controller_or_a_jump_of_its_clock_is_nobodys_silence() -> None:
    assert watched((0, False), (10_000_000, False)) == STEP
    assert watched((0, False), (500, False), (-10_000_000, False)) == 500


def test_a_controller_that_leads_again_begins_again() -> None:
    silence = WatchedSilence(STEP)
    silence.look(0, {TWO: False})
    silence.look(900, {TWO: False})
    silence.begin_again()
    assert silence.silent_ms == {}
    silence.look(1800, {TWO: False})
    assert silence.silent_ms == {TWO: 0}


def test_a_broker_that_registers_later_begins_at_nothing() -> None:
    silence = WatchedSilence(STEP)
    silence.look(0, {ONE: True})
    silence.look(900, {ONE: True, TWO: True})
    assert silence.silent_ms == {ONE: 0, TWO: 0}
