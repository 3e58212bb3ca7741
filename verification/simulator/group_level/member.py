"""Simulates a member of a group: it sends one request at a time, and repeats it until it is answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from groups.requests import (
    Beat,
    Commit,
    Done,
    Heartbeat,
    Join,
    Joined,
    Leave,
    OffsetCommit,
    Plan,
    Reply,
    Request,
    Sync,
    Synced,
)
from raftlog.errors import GroupNotFound, MemberNotFound, RaftlogError, RebalanceInProgress, StaleGeneration
from verification.simulator.group_level.checker import GroupChecker
from verification.simulator.group_level.odds import GroupOdds

GROUP: Final = "g"
TOPIC: Final = "orders"
OTHER: Final = "payments"  # to which some subscribe for a while; nothing is committed there
COOPERATIVE: Final = "cooperative-sticky"
ANSWER_MS: Final = 2_000  # then the request is repeated

Send = Callable[["Member", Request], None]


def identity(
    last: Member | None, names: Iterator[int], odds: GroupOdds, rng: random.Random
) -> tuple[str, str]:
    """Return the member id and the instance id of a new process, which may replace a process that crashed."""
    name = f"m{next(names)}"
    if last is not None and last.instance:
        return name, last.instance
    if last is not None and rng.random() < odds.keeps_id:
        return last.name, ""
    return name, f"i{name}" if rng.random() < odds.are_static else ""


class Member:
    """One member. ``send`` sends a request to the coordinator; ``answered`` is called at most once for each
    request.
    """

    def __init__(
        self, name: str, instance: str, odds: GroupOdds, rng: random.Random, send: Send, checker: GroupChecker
    ) -> None:
        self.name = name
        self.instance = instance
        self.is_alive = True
        self.paused_until_ms = 0
        self.topics: tuple[str, ...] = (TOPIC,)
        self.may_change = odds.changes > 0
        self.generation = -1
        self.assignment: dict[str, tuple[int, ...]] = {}
        self._odds = odds
        self._beat_ms = odds.session_ms // 4
        self._rng = rng
        self._send = send
        self._checker = checker
        self._offsets: dict[int, int] = {}
        self._waits_for: Request | None = None
        self._repeat_ms = 0
        self._next_ms = 0
        self._is_member = False
        self._is_leaving = False

    @property
    def next_ms(self) -> int:
        """The time of the next call of ``act``, in milliseconds."""
        due_ms = self._next_ms if self._waits_for is None else self._repeat_ms
        return max(due_ms, self.paused_until_ms)

    def act(self, now_ms: int) -> None:
        """Send the next request, or repeat the request that is not answered yet."""
        if self._waits_for is None:
            self._waits_for = self._next_request()
        self._repeat_ms = now_ms + ANSWER_MS
        self._send(self, self._waits_for)

    def leave(self) -> None:
        """Abandon the pending request, and leave the group with the next request."""
        self._is_leaving = True
        self._waits_for = None
        self._next_ms = 0

    def answered(self, request: Request, reply: Reply | RaftlogError, now_ms: int) -> None:
        """Handle an answer; answers to earlier requests are ignored."""
        self.check(request, reply)
        if request is not self._waits_for:
            return
        self._waits_for = None
        self._next_ms = now_ms + 1
        match reply:
            case Joined():
                self.generation, self._is_member = reply.generation, True
                if reply.strategy != COOPERATIVE:
                    self.assignment = {}
                self._plan(reply)
            case Synced():
                revoked = _targets(self.assignment) - _targets(reply.assignment)
                self._take(reply.assignment)
                self._is_member = not revoked  # others get those in the next generation
                self._next_ms = now_ms + self._rng.randint(1, self._beat_ms)
            case Beat(must_rejoin=True):
                self._is_member = False
            case Beat() | Done():
                self._next_ms = now_ms + self._rng.randint(1, self._beat_ms)
                self.is_alive = not isinstance(request, Leave)
            case MemberNotFound() | GroupNotFound() | StaleGeneration() | RebalanceInProgress():
                self._is_member = False
                self._next_ms = now_ms + self._rng.randint(1, 200)
                if isinstance(request, Leave) and isinstance(reply, GroupNotFound):
                    self.is_alive = False  # it never joined
            case RaftlogError():
                self._next_ms = now_ms + self._rng.randint(1, 200)
            case _:
                raise AssertionError(reply)

    def _plan(self, joined: Joined) -> None:
        self._waits_for = Sync(
            group=GROUP,
            member_id=self.name,
            generation=joined.generation,
            plan=_plan(joined) if joined.members and joined.strategy == "range" else None,
            is_auto=bool(joined.members) and joined.strategy != "range",
        )
        self._repeat_ms = self._next_ms

    def _take(self, assignment: dict[str, tuple[int, ...]]) -> None:
        """Own the partitions that the coordinator assigned in this generation."""
        self.assignment = assignment
        known = self._checker.state.offsets.get(GROUP, {})
        for number in assignment.get(TOPIC, ()):
            found = known.get((TOPIC, number))
            self._offsets[number] = 0 if found is None else found.offset

    def _next_request(self) -> Request:
        if self._is_leaving:
            return Leave(group=GROUP, member_id=self.name)
        if self.may_change and self._rng.random() < self._odds.changes:
            self.topics = (TOPIC,) if OTHER in self.topics else (TOPIC, OTHER)
            self._is_member = False
        if not self._is_member:
            return Join(
                group=GROUP,
                member_id=self.name,
                topics=self.topics,
                strategies=self._odds.strategies,
                session_timeout_ms=self._odds.session_ms,
                rebalance_timeout_ms=self._odds.rebalance_ms,
                instance_id=self.instance,
                generation=self.generation,
                owned=self.assignment if COOPERATIVE in self._odds.strategies else None,
            )
        numbers = self.assignment.get(TOPIC, ())
        if numbers and self._rng.random() < 0.5:
            number = self._rng.choice(numbers)
            self._offsets[number] += self._rng.randint(1, 5)
            commit = OffsetCommit(topic=TOPIC, topic_id="t", partition=number, offset=self._offsets[number])
            return Commit(group=GROUP, offsets=(commit,), member_id=self.name, generation=self.generation)
        wait_ms = self._rng.choice((0, 0, 500))
        return Heartbeat(group=GROUP, member_id=self.name, generation=self.generation, wait_ms=wait_ms)

    def check(self, request: Request, reply: Reply | RaftlogError) -> None:
        """Let the checker compare an answer with the committed state."""
        if isinstance(reply, Joined):
            self._checker.joined(self.name, reply)
            if self._odds.changes and isinstance(request, Join):
                self._checker.subscribed(self.name, reply.generation, request.topics)
        elif isinstance(reply, Synced):
            self._checker.synced(self.name, reply)
        elif isinstance(request, Commit) and isinstance(reply, Done):
            (commit,) = request.offsets
            target = commit.topic, commit.partition
            self._checker.acknowledged(self.name, request.generation, target, commit.offset)


def _plan(joined: Joined) -> Plan:
    """Compute the assignment of a generation, as a member does that leads a group with its own assignor."""
    plan: dict[str, dict[str, tuple[int, ...]]] = {info.member_id: {} for info in joined.members}
    for topic, count in joined.partition_counts.items():
        names = sorted(info.member_id for info in joined.members if topic in info.topics)
        for place, name in enumerate(names[:count]):
            plan[name][topic] = tuple(range(place, count, len(names)))
    return plan


def _targets(assignment: Mapping[str, tuple[int, ...]]) -> set[tuple[str, int]]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}
