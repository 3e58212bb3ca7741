"""When a peer that says nothing counts as silent."""

from __future__ import annotations

from raftlog.node.peer_watch import PACE_TICKS, PeerWatch
from raftlog.types import NodeId

PEER = NodeId(2)
SILENCE_TICKS, TICK_MS = 9, 50
USUAL_TICKS = 2


class Watched:
    """A watch whose peer speaks when the test says so."""

    def __init__(self) -> None:
        self._quiet_ticks = 0
        self.watch = PeerWatch(SILENCE_TICKS, TICK_MS, lambda peer: self._quiet_ticks * TICK_MS / 1000)
        self.watch.connected(PEER)
        self.speak()

    def speak(self) -> None:
        self._quiet_ticks = 0
        self.watch.heard(PEER)

    def pass_ticks(self, count: int) -> None:
        for _ in range(count):
            self._quiet_ticks += 1
            self.watch.tick()

    def speak_every(self, ticks: int, *, for_ticks: int) -> None:
        """It is never silent on the way."""
        for _ in range(for_ticks // ticks):
            for _ in range(ticks):
                self.pass_ticks(1)
                assert not self.watch.is_silent(PEER)
            self.speak()

    def silent_after(self) -> int:
        """The ticks until it counts as silent."""
        for ticks in range(1, 1000):
            self.pass_ticks(1)
            if self.watch.is_silent(PEER):
                return ticks
        raise AssertionError("never")


def test_a_peer_is_silent_after_the_shortest_election_timeout() -> None:
    watched = Watched()
    watched.speak_every(USUAL_TICKS, for_ticks=2 * PACE_TICKS)
    assert watched.silent_after() == SILENCE_TICKS + 1


def test_a_peer_whose_frames_come_late_is_given_three_times_as_long_as_the_latest_took() -> None:
    watched = Watched()
    watched.speak_every(8, for_ticks=8)
    assert watched.silent_after() == 3 * 8 + 1


def test_a_peer_that_becomes_slower_and_slower_is_never_silent_up_to_a_bound() -> None:
    watched = Watched()
    gap = USUAL_TICKS
    while gap < 5 * SILENCE_TICKS:
        watched.speak_every(gap, for_ticks=3 * gap)
        gap = gap * 3 // 2 + 1
    assert watched.silent_after() == 6 * SILENCE_TICKS + 1


def test_a_peer_that_was_late_long_ago_has_no_more_time_than_others() -> None:
    watched = Watched()
    watched.speak_every(8, for_ticks=8)
    watched.speak_every(USUAL_TICKS, for_ticks=2 * PACE_TICKS)
    assert watched.silent_after() == SILENCE_TICKS + 1


def test_a_peer_that_was_late_lately_has_more_time_whenever_it_was() -> None:
    for later in range(0, PACE_TICKS, USUAL_TICKS):
        watched = Watched()
        watched.speak_every(8, for_ticks=8)
        watched.speak_every(USUAL_TICKS, for_ticks=later)
        assert watched.silent_after() in (3 * 8 + 1, 3 * 8 + 2)


def test_the_time_without_a_link_says_nothing_about_the_pace() -> None:
    watched = Watched()
    watched.watch.lost(PEER)
    watched.pass_ticks(20)
    watched.watch.connected(PEER)
    watched.speak()
    assert watched.silent_after() == SILENCE_TICKS + 1
