"""How far one follower has got, as its leader knows it.

Three states. *Probing*: it is not known where the logs meet; one empty request at a time asks
whether they meet just before ``next_index``. *Replicating*: entries flow, sent before earlier
ones are acknowledged, up to a number of appends in flight. A rejection, or a broken connection,
leads back to probing; nothing is ever sent twice without one. *Awaiting a snapshot*: a probe whose
question is an offer, since the logs meet nowhere in the leader's log; only its acceptance ends it.
"""

from __future__ import annotations

from collections import deque

from raftlog.types import Index


class Progress:
    """One follower. Indexes are the leader's own log's."""

    __slots__ = (
        "_in_flight",
        "announced_index",
        "answered_tick",
        "awaits_snapshot",
        "heard_tick",
        "is_heard",
        "is_out_of_contact",
        "is_probing",
        "match_index",
        "moved_tick",
        "next_index",
        "probe_is_due",
        "rejoin_last",
        "rejoin_round",
        "rejoining",
        "round",
    )

    def __init__(self, next_index: Index, now: int) -> None:
        """Begin by probing just before ``next_index``."""
        self.match_index = Index(-1)  # known equal and durable there; falls only where that log was lost
        self.next_index = next_index  # the first index not sent yet; where a probe asks, plus one
        self.is_probing = True
        self.probe_is_due = True
        self.awaits_snapshot = False  # it is probing then, at the entry just before the leader's log
        self.heard_tick = now  # when its last reply came; what check-quorum goes by
        self.is_heard = False  # it has replied to this leader: whether it rejoins is known
        self.is_out_of_contact = False  # its connection broke, and it has not replied since
        self.moved_tick = now  # when anything was last acknowledged, or asked for anew
        self.round = 0  # the newest heartbeat round it has echoed
        self.rejoining = 0  # the incarnation that must not be counted, or 0
        self.rejoin_round = 0  # the first heartbeat round that began after we had heard of it
        self.answered_tick = -1  # when it was last told what its log must hold
        self.announced_index = Index(-1)  # what it was told is committed, where commits are announced
        self.rejoin_last: Index | None = None  # what its log must hold, once we are confirmed
        self._in_flight: deque[Index] = deque()  # the last index of each unacknowledged append, oldest first

    def may_send(self, last: Index, appends_in_flight_max: int) -> bool:
        """Whether entries up to ``last`` can leave now."""
        return (
            not self.is_probing and self.next_index <= last and len(self._in_flight) < appends_in_flight_max
        )

    def sent(self, last: Index, now: int) -> None:
        """Entries from ``next_index`` up to ``last`` are on their way."""
        if not self._in_flight:
            self.moved_tick = now
        self._in_flight.append(last)
        self.next_index = Index(last + 1)

    def probe_sent(self, now: int) -> None:
        """A question is on its way; the next one waits for the answer, or for a heartbeat's."""
        self.probe_is_due = False
        self.moved_tick = now

    def cut(self, last: Index) -> bool:
        """Of what is in flight only entries up to ``last`` were sent; whether that made a difference."""
        in_flight = self._in_flight
        if not in_flight or not self.match_index <= last < in_flight[-1]:
            return False
        while in_flight and in_flight[-1] > last:
            in_flight.pop()
        if last > (in_flight[-1] if in_flight else self.match_index):
            in_flight.append(last)
        self.next_index = Index(last + 1)
        return True

    def accepted(self, match_index: Index, now: int) -> bool:
        """The follower has everything up to ``match_index``; whether that is news."""
        in_flight = self._in_flight
        while in_flight and in_flight[0] <= match_index:
            in_flight.popleft()
        if self.is_probing and match_index >= self.next_index - 1:
            self.is_probing = False
            self.probe_is_due = False
            self.awaits_snapshot = False
            self.next_index = Index(match_index + 1)
        if match_index <= self.match_index:
            return False
        self.match_index = match_index
        self.moved_tick = now
        if self.next_index <= match_index:
            self.next_index = Index(match_index + 1)
        return True

    def rejects(self, previous_index: Index) -> bool:
        """Whether a rejection of ``previous_index`` answers what is asked now; others come too late."""
        if self.awaits_snapshot:
            return False
        if self.is_probing:
            return previous_index == self.next_index - 1
        return previous_index > self.match_index and previous_index in self._in_flight

    def probe_at(self, compare_index: Index, rejected: Index) -> None:
        """Ask next whether the logs meet at ``compare_index``; where that is no news, not at once.

        A log that does not hold what it once acknowledged was repaired or began again. What is committed
        stays so: it cannot elect a leader before it holds that once more.
        """
        if rejected <= self.match_index:
            self.match_index = Index(-1)
        next_index = Index(max(self.match_index, compare_index) + 1)
        self.probe_is_due = not self.is_probing or next_index < self.next_index
        self.is_probing = True
        self.next_index = next_index
        self._in_flight.clear()

    def need_snapshot(self) -> None:
        """What it lacks is no longer in the log: offer the snapshot next."""
        self.is_probing = self.awaits_snapshot = self.probe_is_due = True
        self._in_flight.clear()

    def snapshot_offered(self, snapshot: Index, now: int) -> None:
        """The snapshot was offered: entries follow once it is accepted."""
        self.need_snapshot()
        self.next_index = Index(snapshot + 1)
        self.probe_sent(now)

    def rejoin(self, next_round: int, next_index: Index) -> None:
        """Another incarnation is there: nothing that is known of the former one's log counts."""
        self.rejoin_round = next_round
        self.rejoin_last = None
        if self.match_index >= 0 or not self.is_probing:
            self.match_index = Index(-1)
            self.awaits_snapshot = False
            self.is_probing = self.probe_is_due = True
            self.next_index = next_index
            self._in_flight.clear()

    def lose_contact(self, now: int, heartbeat_ticks: int) -> None:
        """What was in flight is lost, as far as we know: ask again as soon as it is heard."""
        self.is_probing = self.is_out_of_contact = True
        self.probe_is_due = False
        self.moved_tick = now - heartbeat_ticks
        self._in_flight.clear()
