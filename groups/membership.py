"""One group at its coordinator: its members, generations and rebalances.

Decides: when a rebalance begins and ends, and which members are fenced. Leaves to others: the content of a
generation (``generations``), committed offsets (``coordination``), records and time (both are arguments).

    stable --join, leave, expiry, other partition counts--> joining --all joined or deadline--> planning
    planning --plan--> stable        planning --join, leave, expiry, deadline--> joining

A plan may withhold partitions until their owners have revoked them and joined again. A restarted owner does
not know that, so the next rebalance begins after a deadline at the latest.

Members learn of a rebalance from the answer to their next or waiting heartbeat. A generation, and its plan,
is written before any member gets it. Sessions and waiting requests are known to this leader only: after a
fail-over every member has a whole session, and clients repeat their requests. If a leader restarts its
decisions, because an append was refused, sessions and phases keep their deadlines.

Source: Kafka's group protocol (KIP-62; KIP-345 for static members; KIP-429 for cooperative rebalances).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import msgspec

from groups import commits, generations
from groups.joining import JoiningBytes
from groups.outputs import Outputs, Row
from groups.plans import MakePlan, Planned
from groups.records import Group, GroupKey, Member, Rebalance
from groups.requests import Beat, Done, Heartbeat, Join, Leave, Reply, Sync
from raftlog.errors import (
    Conflict,
    InvalidRequest,
    MemberNotFound,
    RaftlogError,
    RebalanceInProgress,
    StaleGeneration,
)
from raftlog.hosting.agreement import check_same_tags
from raftlog.hosting.by_topic import ByTopic
from raftlog.hosting.decisions import RequestId
from raftlog.hosting.known_topics import KnownTopics
from raftlog.wire.groups import MEMBERS_MAX

GROUP_BYTES_MAX: Final = 1 << 20  # of one record, without the assignments
REBALANCES_KEPT: Final = 20
FREE_BYTES: Final = 64 << 10  # groups up to this size begin generations without pauses
GENERATION_BYTES_PER_S: Final = 256 << 10  # rate at which larger groups write their members
RETRY_AFTER_MS: Final = 100
JOIN_AGAIN_MS: Final = 5_000  # time for members to repeat joins that the coordinator has dropped

KnownUntil = dict[tuple[str, str], int]
"""Ends of sessions by group and member id; with an empty member id the end of the rebalance phase.

The ends survive decisions that a refused append has dropped, and do not decide who is a member.
"""


class _Kind(enum.Enum):
    JOIN = "join"
    SYNC = "sync"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request that is answered later. A heartbeat is answered at ``until_ms`` at the latest."""

    kind: _Kind
    member_id: str
    until_ms: int = 0
    ask: Join | None = None  # the join, if the request is one


@dataclass(frozen=True, slots=True)
class _Rebalance:
    """One rebalance, from its beginning to its plan."""

    reason: str
    began_ms: int
    members_before: int


@dataclass(slots=True)
class _Joining:
    """The phase in which members join again."""

    rebalance: _Rebalance
    deadline_ms: int
    joined: dict[str, Join] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Planning:
    """The phase in which the plan is made, by the group's leader or by the coordinator."""

    rebalance: _Rebalance
    deadline_ms: int


class Membership:
    """The members and phases of one group. Times are milliseconds of the coordinator's monotonic clock.

    Wall-clock times (``wall_ms``) are stored, but decide nothing.
    """

    def __init__(
        self,
        name: str,
        outputs: Outputs,
        topics: KnownTopics,
        known_until: KnownUntil,
        by_topic: ByTopic[str],
        joining: JoiningBytes,
    ) -> None:
        """All groups of a partition share ``known_until``, ``by_topic`` and ``joining``."""
        self.name = name
        self._by_topic = by_topic
        self._joining_bytes = joining
        self._subscribed: set[str] = set()  # topics that members subscribe to
        self._known_until = known_until
        self._outputs = outputs
        self._topics = topics
        self._sessions: dict[str, int] = {}  # ends of sessions by member id
        self._waiting: dict[RequestId, _Waiting] = {}
        self._phase: _Joining | _Planning | None = None  # None: stable, or without members
        self._making: Group | None = None  # the generation whose plan is being made
        self._revoked_by_ms: int | None = None  # deadline to revoke partitions that a stable group withholds
        self._rests_until_ms = 0  # earliest time at which a large group writes its members again
        self._leaving: dict[str, list[RequestId]] = {}  # members to remove at that time

    @property
    def group(self) -> Group:
        """The written state of the group."""
        return self._outputs.state.groups.get(self.name) or Group()

    @property
    def is_rebalancing(self) -> bool:
        """Whether members are joining, or waiting for a plan."""
        return self._phase is not None

    @property
    def is_joining(self) -> bool:
        """Whether members wait for other members to join again."""
        return self._joining is not None

    @property
    def _joining(self) -> _Joining | None:
        return self._phase if isinstance(self._phase, _Joining) else None

    def take_over(self, now_ms: int) -> None:
        """Start to coordinate the group from its stored state."""
        group = self.group
        self._note_topics(group)
        phase_until_ms = self._known_until.get((self.name, ""))
        for member_id, member in group.members.items():
            known_ms = self._known_until.get((self.name, member_id))
            self._touch(member_id, member, now_ms)
            if known_ms is not None:
                until_ms = min(known_ms, self._sessions[member_id])
                self._known_until[self.name, member_id] = self._sessions[member_id] = until_ms
        if group.rebalance_due:
            self._begin(group.rebalance_due, now_ms, len(group.members))
        elif group.members and not group.has_plan:
            self._await_plan(_Rebalance("the coordinator changed", now_ms, len(group.members)), now_ms)
        else:
            if generations.withholds(group):
                self._await_revocation(group, now_ms)
            self.look_at_partitions(now_ms)
        if self._phase is not None and phase_until_ms is not None:
            again_ms = min(now_ms + JOIN_AGAIN_MS, phase_until_ms + 2 * JOIN_AGAIN_MS)
            until_ms = min(self._phase.deadline_ms, max(phase_until_ms, again_ms))
            self._set_phase(replace(self._phase, deadline_ms=until_ms))

    # Requests of members.

    def join(self, request_id: RequestId, ask: Join, now_ms: int, wall_ms: int) -> None:
        """Let a member join. The answer comes at the end of the phase in which all members join."""
        self._check_join(ask)
        for left in self._leaving.pop(ask.member_id, ()):
            self._outputs.answer(left, Done())  # the leaving member has joined again
        self._replace_instance(ask, now_ms, wall_ms)
        group = self.group
        member = group.members.get(ask.member_id)
        if self._joining is None:
            is_repeated = member is not None and ask.generation != group.generation
            if member is not None and is_repeated and generations.is_same(member, ask):
                self._touch(ask.member_id, member, now_ms)
                self._outputs.answer(request_id, generations.joined(group, ask.member_id))
                return
            self._begin(generations.why_joined(member, ask), now_ms, len(group.members))
        assert self._joining is not None
        self._joining.joined[ask.member_id] = ask
        self._waiting[request_id] = _Waiting(_Kind.JOIN, ask.member_id, ask=ask)
        self._sessions.pop(ask.member_id, None)  # a waiting member has no session
        self._known_until.pop((self.name, ask.member_id), None)
        self._end_joining_if_all_have(now_ms, wall_ms)

    def sync(self, request_id: RequestId, ask: Sync, now_ms: int, wall_ms: int) -> None:
        """Answer a member with its assignment once the generation has a plan."""
        group = self.group
        member = self._member(group, ask.member_id, ask.generation)
        if self._joining is not None:
            raise self._rebalancing()
        self._touch(ask.member_id, member, now_ms)
        if group.has_plan:
            self._outputs.answer(request_id, generations.synced(group, ask.member_id))
            return
        self._waiting[request_id] = _Waiting(_Kind.SYNC, ask.member_id)
        has_plan = ask.member_id == group.leader and (ask.plan is not None or ask.is_auto)
        if has_plan and self._making is not group:
            self._making = group
            self._outputs.perform(MakePlan(self.name, group, ask.plan))

    def heartbeat(self, request_id: RequestId, ask: Heartbeat, now_ms: int) -> None:
        """Extend the session of a member; answer at once, or within ``wait_ms``."""
        if self._joining is not None and ask.member_id in self._joining.joined:
            self._outputs.answer(request_id, Beat(must_rejoin=False))
            return
        member = self._member(self.group, ask.member_id, ask.generation)
        self._touch(ask.member_id, member, now_ms)
        if self._joining is not None or ask.wait_ms <= 0:
            self._outputs.answer(request_id, Beat(must_rejoin=self._joining is not None))
        else:
            until_ms = now_ms + min(ask.wait_ms, member.session_timeout_ms)
            self._waiting[request_id] = _Waiting(_Kind.HEARTBEAT, ask.member_id, until_ms)

    def leave(self, request_id: RequestId, ask: Leave, now_ms: int, wall_ms: int) -> None:
        """Remove a member, and answer once the removal is written. If it is no member, answer at once."""
        if ask.member_id in self.group.members and now_ms < self._rests_until_ms:
            self._leaving.setdefault(ask.member_id, []).append(request_id)
            return
        is_joining = self._joining is not None and ask.member_id in self._joining.joined
        if is_joining or ask.member_id in self.group.members:
            self._remove((ask.member_id,), f"member {ask.member_id} left", now_ms, wall_ms)
        self._outputs.answer(request_id, Done())

    def committer(self, member_id: str, generation: int, now_ms: int) -> Member:
        """The member, if it may commit in this generation. Raises the error that refuses the member."""
        member = self._member(self.group, member_id, generation)
        if isinstance(self._phase, _Planning):
            raise self._rebalancing()
        self._touch(member_id, member, now_ms)
        return member

    def forget(self, request_id: RequestId) -> None:
        """Drop a waiting request whose caller has gone. A member that has joined stays in the group."""
        self._waiting.pop(request_id, None)

    # Changes of time and metadata.

    def next_deadline_ms(self) -> int | None:
        """The time in milliseconds at which ``tick`` is due at the latest; None without a deadline."""
        times = [self._rests_until_ms] if self._leaving else []
        if self._sessions:
            times.append(max(min(self._sessions.values()), self._rests_until_ms))
        if self._waiting:
            times += [each.until_ms for each in self._waiting.values() if each.kind is _Kind.HEARTBEAT]
        if self._phase is not None:
            times.append(self._phase.deadline_ms)
        if self._revoked_by_ms is not None:
            times.append(self._revoked_by_ms)
        return min(times, default=None)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """End the waits of heartbeats, the sessions and the phases that are due."""
        for request_id, waiting in list(self._waiting.items()):
            if waiting.kind is _Kind.HEARTBEAT and waiting.until_ms <= now_ms:
                del self._waiting[request_id]
                self._touch(waiting.member_id, self.group.members[waiting.member_id], now_ms)
                self._outputs.answer(request_id, Beat(must_rejoin=False))
        self._touch_syncing(now_ms)
        if now_ms >= self._rests_until_ms:
            self._remove_gone(now_ms, wall_ms)
        phase = self._phase
        if isinstance(phase, _Joining) and phase.deadline_ms <= now_ms:
            self._end_joining(phase, now_ms, wall_ms)
        elif isinstance(phase, _Planning) and phase.deadline_ms <= now_ms and self._making is self.group:
            self._await_plan(phase.rebalance, now_ms)  # the leader has sent its plan
        elif isinstance(phase, _Planning) and phase.deadline_ms <= now_ms:
            leader = self.group.leader
            self._remove((leader,), f"leader {leader} sent no plan", now_ms, wall_ms)
        if self._revoked_by_ms is not None and self._revoked_by_ms <= now_ms:
            self._begin("withheld partitions were not revoked", now_ms, len(self.group.members))

    def _remove_gone(self, now_ms: int, wall_ms: int) -> None:
        """Remove members that left while the group rested, then members whose sessions have ended."""
        leaving, self._leaving = self._leaving, {}
        if leaving:
            self._remove([*leaving], f"member {next(iter(leaving))} left", now_ms, wall_ms)
        for request_id in chain.from_iterable(leaving.values()):
            self._outputs.answer(request_id, Done())
        dead = [member_id for member_id, end_ms in self._sessions.items() if end_ms <= now_ms]
        if dead:
            self._remove(dead, f"the session of member {dead[0]} expired", now_ms, wall_ms)

    def look_at_partitions(self, now_ms: int) -> None:
        """Begin a rebalance if a subscribed topic was created or deleted, or has other partitions than
        before.
        """
        group = self.group
        if self._phase is not None or not group.members:
            return
        counts = self._counts_of(self._subscribed)
        reason = generations.why_changed(group, counts, self._topics.topic_ids)
        if reason:
            self._begin(reason, now_ms, len(group.members))

    # Phase in which members join.

    def _begin(self, reason: str, now_ms: int, members_before: int) -> None:
        deadline_ms = now_ms + generations.rebalance_timeout_ms(self.group)
        self._set_phase(_Joining(_Rebalance(reason, now_ms, members_before), deadline_ms))
        self._revoked_by_ms = None
        self._answer_waiting(lambda each: Beat(must_rejoin=True), kind=_Kind.HEARTBEAT)
        self._touch_syncing(now_ms)
        self._answer_waiting(lambda each: self._rebalancing(), kind=_Kind.SYNC)

    def _end_joining_if_all_have(self, now_ms: int, wall_ms: int) -> None:
        """End the joining phase if all members have joined, but not before the end of the group's rest."""
        joining = self._joining
        if joining is None or not self.group.members.keys() <= joining.joined.keys():
            return
        if now_ms < self._rests_until_ms:
            joining.deadline_ms = min(joining.deadline_ms, self._rests_until_ms)
        else:
            self._end_joining(joining, now_ms, wall_ms)

    def _end_joining(self, joining: _Joining, now_ms: int, wall_ms: int) -> None:
        """End the joining phase, and write the next generation with the members that have joined."""
        self._end_phase()
        topics = (topic for ask in joining.joined.values() for topic in ask.topics)
        before, counts, ids = self.group, self._counts_of(topics), self._topics.topic_ids
        known = self._outputs.state.offsets.get(self.name, {})
        consumed = commits.consumed_topics(known, ids)
        former = generations.former_counts(before, counts, self._topics.counts, consumed)
        group = generations.next_generation(before, joining.joined, counts, former, ids, wall_ms)
        starts = commits.starts_of_added(
            self.name,
            generations.counts_of_all(before),
            counts,
            known,
            consumed,
            wall_ms,
            self._topics.beginnings,
        )
        self._write(group, *starts, now_ms=now_ms)
        self._sessions.clear()
        for member_id, member in group.members.items():
            self._touch(member_id, member, now_ms)
        self._answer_waiting(lambda each: self._answer_of_join(group, each), kind=_Kind.JOIN)
        if group.members:
            self._await_plan(joining.rebalance, now_ms)

    def _write(self, group: Group, *beside: Row, now_ms: int) -> None:
        """Write the group's row. A large group rests afterwards, since small requests cause large records.

        An existing group may write while the disk is full, because retention may wait for the group's
        offsets.
        """
        exists = self.name in self._outputs.state.groups
        self._outputs.write((GroupKey(self.name), group), *beside, frees_room=exists)
        self._note_topics(group)
        size_bytes = sum(map(generations.size_of, group.members.values()))
        if size_bytes > FREE_BYTES:
            self._rests_until_ms = now_ms + size_bytes * 1_000 // GENERATION_BYTES_PER_S

    def _note_topics(self, group: Group) -> None:
        topics = generations.topics_of(group)
        self._by_topic.change(self.name, self._subscribed, topics)
        self._subscribed = topics

    def _answer_of_join(self, group: Group, waiting: _Waiting) -> Reply | RaftlogError:
        """The answer to a join, or an error if a late copy of an earlier join has replaced it."""
        ask = waiting.ask
        if ask is not None and not generations.is_same(group.members[waiting.member_id], ask):
            return self._rebalancing()
        return generations.joined(group, waiting.member_id)

    def _remove(self, gone: Collection[str], reason: str, now_ms: int, wall_ms: int) -> None:
        """Remove members from the group; then the remaining members must join again."""
        group, gone = self.group, dict.fromkeys(gone)  # keys for fast lookup
        for member_id in gone:
            self._sessions.pop(member_id, None)
            if self._joining is not None:
                self._joining.joined.pop(member_id, None)
                self._joining_bytes.forget(self.name, member_id)
        self._answer_waiting(lambda each: self._unknown(each.member_id), members=gone)
        left = {each: member for each, member in group.members.items() if each not in gone}
        if len(left) != len(group.members):
            due = reason if left else ""
            smaller = msgspec.structs.replace(group, members=left, rebalance_due=due, changed_ms=wall_ms)
            self._write(smaller, now_ms=now_ms)
        if self._joining is None:
            self._begin(reason, now_ms, len(group.members))
        self._end_joining_if_all_have(now_ms, wall_ms)

    # Phase in which the leader makes the plan.

    def _await_plan(self, rebalance: _Rebalance, now_ms: int) -> None:
        self._set_phase(_Planning(rebalance, now_ms + generations.rebalance_timeout_ms(self.group)))

    def _set_phase(self, phase: _Joining | _Planning) -> None:
        self._phase = phase
        self._known_until[self.name, ""] = phase.deadline_ms

    def _end_phase(self) -> None:
        """End the current phase and forget its deadline, so that later phases have their whole time."""
        self._phase = None
        self._known_until.pop((self.name, ""), None)

    def _await_revocation(self, group: Group, now_ms: int) -> None:
        self._revoked_by_ms = now_ms + generations.rebalance_timeout_ms(group)

    def planned(self, asked: MakePlan, outcome: Planned | RaftlogError, now_ms: int, wall_ms: int) -> None:
        """Use a finished plan, or answer the group's leader with its error.

        Ignore plans of earlier generations.
        """
        if self._making is not asked.group:
            return
        self._making = None
        if self.group is not asked.group or not isinstance(self._phase, _Planning):
            return
        if isinstance(outcome, RaftlogError):
            self._answer_waiting(lambda each: outcome, kind=_Kind.SYNC, members=(asked.group.leader,))
        else:
            self._set_plan(self._phase.rebalance, outcome, now_ms, wall_ms)

    def _set_plan(self, rebalance: _Rebalance, outcome: Planned, now_ms: int, wall_ms: int) -> None:
        """Write the plan, and answer all waiting members."""
        self._end_phase()
        group = outcome.group
        took_ms = now_ms - rebalance.began_ms
        done = Rebalance(
            generation=group.generation,
            reason=rebalance.reason,
            began_ms=wall_ms - took_ms,
            duration_ms=took_ms,
            members_before=rebalance.members_before,
            members_after=len(group.members),
        )
        planned = msgspec.structs.replace(
            group,
            changed_ms=wall_ms,
            rebalances=(*group.rebalances, done)[-REBALANCES_KEPT:],
        )
        self._outputs.write((GroupKey(self.name), planned), frees_room=True)
        self._touch_syncing(now_ms)
        self._answer_waiting(lambda each: generations.synced(planned, each.member_id), kind=_Kind.SYNC)
        if outcome.withholds:
            self._await_revocation(planned, now_ms)
        self.look_at_partitions(now_ms)

    # Parts.

    def _check_join(self, ask: Join) -> None:
        """Raise ``Conflict`` if the group is full, or if its members have other tags.

        Raises ``InvalidRequest`` without a strategy that all members support.
        """
        joined = {} if self._joining is None else self._joining.joined
        known: dict[str, Member | Join] = {**self.group.members, **joined}
        others = {
            member_id: other
            for member_id, other in known.items()
            if member_id != ask.member_id and (not ask.instance_id or other.instance_id != ask.instance_id)
        }
        offered = {member_id: other.strategies for member_id, other in others.items()}
        for other in others.values():
            check_same_tags(
                ask,
                other,
                f"the other members of group {self.name} read",
                "join with the same tags, or use another group",
            )
        if len(offered) >= MEMBERS_MAX:
            raise Conflict(f"group {self.name} has {MEMBERS_MAX} members, the maximum; use another group")
        if sum(map(generations.size_of, (*others.values(), ask))) > GROUP_BYTES_MAX:
            raise Conflict(
                f"group {self.name} would exceed {GROUP_BYTES_MAX} bytes with member {ask.member_id!r}; "
                "subscribe to fewer topics, or send less metadata"
            )
        common = generations.strategies_in_common(list(offered.values()))
        if offered and not common.intersection(ask.strategies):
            raise InvalidRequest(
                f"strategies: all other members of group {self.name} support "
                f"{', '.join(sorted(common))}; send one of these",
                field="strategies",
            )

    def _replace_instance(self, ask: Join, now_ms: int, wall_ms: int) -> None:
        """Let a restarted static member take over from its former member id, which is fenced."""
        for old_id in self._same_instance(ask):
            group = self.group
            if old_id in group.members and now_ms < self._rests_until_ms:
                raise self._rebalancing(self._rests_until_ms - now_ms)
            is_simple = old_id in group.members and ask.member_id not in group.members
            if not (is_simple and group.has_plan):  # a plan under way may depend on its partitions
                reason = f"member {ask.member_id} took the place of {old_id}"
                self._remove((old_id,), reason, now_ms, wall_ms)
                continue
            member = group.members[old_id]
            members = {ask.member_id if each == old_id else each: m for each, m in group.members.items()}
            leader = ask.member_id if group.leader == old_id else group.leader
            renamed = msgspec.structs.replace(group, members=members, leader=leader)
            self._write(renamed, now_ms=now_ms)
            self._answer_waiting(lambda each: self._unknown(each.member_id), members=(old_id,))
            self._sessions.pop(old_id, None)
            if self._joining is not None:
                self._joining.joined.pop(old_id, None)
                self._joining_bytes.forget(self.name, old_id)
            self._touch(ask.member_id, member, now_ms)

    def _same_instance(self, ask: Join) -> list[str]:
        """Other member ids that have the instance id of ``ask``, including members that wait to join."""
        if not ask.instance_id:
            return []
        found = [each for each, member in self.group.members.items() if member.instance_id == ask.instance_id]
        if self._joining is not None:
            found += [
                each for each, other in self._joining.joined.items() if other.instance_id == ask.instance_id
            ]
        return [each for each in dict.fromkeys(found) if each != ask.member_id]

    def _answer_waiting(
        self,
        reply: Callable[[_Waiting], Reply | RaftlogError],
        *,
        kind: _Kind | None = None,
        members: Collection[str] | None = None,
    ) -> None:
        for request_id, waiting in list(self._waiting.items()):
            if (kind is None or waiting.kind is kind) and (members is None or waiting.member_id in members):
                del self._waiting[request_id]
                self._outputs.answer(request_id, reply(waiting))

    def _member(self, group: Group, member_id: str, generation: int) -> Member:
        member = group.members.get(member_id)
        if member is None:
            raise self._unknown(member_id)
        if generation != group.generation:
            raise StaleGeneration(
                f"group {self.name} has generation {group.generation}, not {generation}; join again",
                current=group.generation,
            )
        return member

    def _touch(self, member_id: str, member: Member, now_ms: int) -> None:
        """Restart the session of a member, unless its join is waiting."""
        if self._joining is None or member_id not in self._joining.joined:
            end_ms = now_ms + member.session_timeout_ms
            self._known_until[self.name, member_id] = self._sessions[member_id] = end_ms

    def _touch_syncing(self, now_ms: int) -> None:
        """Restart the sessions of members whose sync waits for the plan."""
        for waiting in self._waiting.values():
            if waiting.kind is _Kind.SYNC:
                self._touch(waiting.member_id, self.group.members[waiting.member_id], now_ms)

    def _counts_of(self, topics: Iterable[str]) -> dict[str, int]:
        counts = self._topics.counts
        return {topic: counts[topic] for topic in sorted(set(topics)) if topic in counts}

    def _rebalancing(self, retry_after_ms: int = RETRY_AFTER_MS) -> RaftlogError:
        return RebalanceInProgress(
            f"group {self.name} is rebalancing; join again", retry_after_ms=retry_after_ms
        )

    def _unknown(self, member_id: str) -> MemberNotFound:
        return MemberNotFound(
            f"group {self.name} has no member {member_id!r}; join again", member_id=member_id
        )
