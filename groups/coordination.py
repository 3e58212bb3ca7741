"""Decisions of the coordinator of all groups of one partition of ``__offsets``, without IO.

The inputs are requests, time and partition counts; the outputs are records to append, answers and effects, in
order. An answer is sent once all earlier records are committed, so the next coordinator knows the effect of
all answered requests. Decides: who may commit, which groups are deleted or expire. Leaves to others: members
(``membership``), the rows of a commit (``commits``), queues (``queues``), appending records and answering
requests (``coordinator``).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final, Literal, assert_never

from groups import commits, generations
from groups.expiry import Survey, is_over, places_of
from groups.joining import JoiningBytes
from groups.membership import RETRY_AFTER_MS, KnownUntil, Membership
from groups.outputs import Output, Outputs, Row
from groups.plans import MakePlan, Planned
from groups.ports import Extents, Place
from groups.records import Group, GroupKey, OffsetKey
from groups.requests import (
    AddOffsets,
    Commit,
    DeleteGroup,
    DeleteOffsets,
    Done,
    EndOffsets,
    GroupView,
    Heartbeat,
    Join,
    Leave,
    ReadGroup,
    Request,
    Sync,
)
from groups.state import ROW_BYTES, GroupsState, tags_bytes
from groups.tally import Tally
from groups.unconfirmed import Confirm, Unconfirmed
from queues.all_queues import DEFAULTS, QueueLimits, Queues
from queues.requests import Abandon, DeleteQueue, QueueRequest, ReadQueue, Receive, Reopen, Settle
from raftlog.errors import Conflict, GroupNotFound, InvalidRequest, RaftlogError, RebalanceInProgress
from raftlog.hosting.budget import RECHECK_MS, Budget, share_owner
from raftlog.hosting.by_topic import ByTopic
from raftlog.hosting.decisions import RequestId
from raftlog.hosting.known_topics import KnownTopics

KNOWN_SPARE: Final = 1_000  # times of former members and groups that may be kept
DROPPED_MAX: Final = 1_000  # offsets of removed partitions, or fences, in one batch
DROP_PAUSE_MS: Final = 100  # after a batch of fences, to append it
STATE_BYTES_MAX: Final = 16 << 20  # of one partition
STEP_MAX: Final = 150  # groups, answers and writes of one step, which blocks the event loop for some ms
SWEPT_MAX: Final = 200  # groups that one step of a sweep examines
PAUSE_MS: Final = 1  # after such a step, to serve other tasks
PARTITION_BYTES: Final = 2 * ROW_BYTES  # of a queue in a partition, or of an offset with its names
SWEEP_MS: Final = 600_000  # interval of the search for expired offsets


class Coordination:
    """Decisions of one leader about all groups of a partition.

    ``state`` is the state when its decisions begin.
    """

    def __init__(
        self,
        state: GroupsState,
        topics: KnownTopics,
        *,
        now_ms: int,
        wall_ms: int,
        offsets_retention_ms: int,
        tally: Tally | None = None,
        queue_limits: QueueLimits = DEFAULTS,
        known_until: KnownUntil | None = None,
        state_bytes_max: int = STATE_BYTES_MAX,
        sweep_every_ms: int = SWEEP_MS,
        knows_time: Callable[[], bool] = lambda: True,
    ) -> None:
        """``known_until`` has the ends of sessions from earlier, dropped decisions of this leader.

        ``knows_time`` says whether the brokers agree on a time. Leases that begin while the brokers do not
        agree are marked.
        """
        self._outputs = Outputs(state.copy(), tally or Tally(), knows_time)
        self._topics = topics
        self._beginnings_seen: Mapping[tuple[str, int], int] = {}
        self._by_topic: ByTopic[str] = ByTopic()  # groups with members
        self._changed: dict[str, list[str]] = {}  # by changed topic, its groups that are not examined yet
        self._with_removed: list[str] = []  # groups that may have offsets of removed partitions
        self._offsets_retention_ms = offsets_retention_ms
        self._budget = Budget(
            "bytes of consumer groups",
            state_bytes_max,
            "delete groups or offsets, send less metadata, or raise groups.state_bytes_max",
        )
        self._fit_share()
        self._memberships: dict[str, Membership] = {}
        self._unconfirmed = Unconfirmed()
        self._joining = JoiningBytes()
        self.known_until: KnownUntil = known_until or {}
        self._known_max = KNOWN_SPARE  # entries, above which those of former members are forgotten
        self._deadlines: list[tuple[int, str]] = []
        self._next: dict[str, int] = {}  # valid deadline of each group; other heap entries are stale
        self._rests_until_ms = 0  # earliest time to continue the work that a step has left
        self._sweep_every_ms = sweep_every_ms
        self._sweep_ms = now_ms + sweep_every_ms
        self._unswept: list[str] = []  # groups that this sweep has not examined yet
        self._survey: tuple[list[str], set[Place]] = [], set()  # groups and partitions of this sweep
        self.queues = Queues(self._outputs, topics, queue_limits)
        # Groups that have not been taken over yet.
        self._left_behind = dict.fromkeys(name for name, group in self.state.groups.items() if group.members)
        self.partitions_changed((), now_ms)
        self._step(self.queues.catch_up(now_ms, wall_ms), now_ms)

    @property
    def state_bytes_max(self) -> int:
        """The limit of the memory of this partition's state, in bytes."""
        return self._budget.total_max

    @property
    def state(self) -> GroupsState:
        """The state that is reached once all written records are committed."""
        return self._outputs.state

    def take(self) -> list[Output]:
        """Take the answers, records and effects that were added since the last call, in order."""
        return self._outputs.take()

    def next_deadline_ms(self) -> int:
        """The time in milliseconds at which ``tick`` must be called at the latest."""
        of_groups = self._deadlines[0][0] if self._deadlines else self._sweep_ms
        of_queues = self.queues.next_deadline_ms()
        due_ms = of_groups if of_queues is None else min(of_groups, of_queues)
        if self._left_behind or self._changed or self._with_removed or self.queues.is_behind:
            due_ms = self._rests_until_ms
        return min(self._sweep_ms, max(due_ms, self._rests_until_ms))

    def receive(self, request_id: RequestId, request: Request, now_ms: int, wall_ms: int) -> None:
        """Handle a request. The answer, which may be a refusal, is among the outputs now or later."""
        if request.group in self._left_behind:
            self._take_over(request.group, now_ms)
        try:
            self._receive(request_id, request, now_ms, wall_ms)
        except RaftlogError as refusal:
            self._outputs.answer(request_id, refusal)
        self._after(request.group)

    def forget(self, request_id: RequestId, request: Request) -> None:
        """Drop a waiting request, because its caller has gone."""
        if isinstance(request, QueueRequest):
            self.queues.forget(request_id, request)
        elif isinstance(request, AddOffsets):
            self._unconfirmed.take(request_id, request)
        elif request.group in self._memberships:
            self._memberships[request.group].forget(request_id)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Continue the work after changes of topics or leaders, then end the sessions and phases that are
        due.
        """
        self._step(chain(self._catch_up(now_ms), self._ends(now_ms, wall_ms)), now_ms)
        of_queues = chain(self.queues.catch_up(now_ms, wall_ms), self.queues.ends(now_ms, wall_ms))
        self._step(of_queues, now_ms)

    def _ends(self, now_ms: int, wall_ms: int) -> Iterator[None]:
        """End the sessions and phases that are due, one group per step."""
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            due_ms, name = heapq.heappop(self._deadlines)
            if self._next.get(name) == due_ms:
                del self._next[name]
                membership = self._memberships[name]
                before = membership.group
                membership.tick(now_ms, wall_ms)
                self._outputs.tally.expired(before, membership.group)
                self._after(name)
            yield

    def _step(self, work: Iterator[None], now_ms: int) -> None:
        """Do at most ``STEP_MAX`` steps of the work; later calls do the rest."""
        before = len(self._outputs.wanted)
        for done, _ in enumerate(work, 1):
            if done + len(self._outputs.wanted) - before >= STEP_MAX:
                self._rests_until_ms = now_ms + PAUSE_MS
                return

    def expire(self, now_ms: int, trusted_ms: int | None) -> None:
        """Look for groups that were unused for the whole retention, some groups per call (``surveyed``)."""
        if len(self.known_until) > self._known_max:
            self._forget_times()
        if now_ms >= self._sweep_ms:
            self._sweep_ms = now_ms + self._sweep(trusted_ms)

    def _forget_times(self) -> None:
        """Forget the ends of sessions of former members and groups."""
        groups = self.state.groups
        for name, member_id in list(self.known_until):
            if name not in groups or (member_id and member_id not in groups[name].members):
                del self.known_until[name, member_id]
        self._known_max = 2 * len(self.known_until) + KNOWN_SPARE

    def partitions_changed(self, topics: Collection[str], now_ms: int) -> None:
        """Note the topics that have changed. Their groups are examined in this call, or in the next ticks."""
        self._changed |= {topic: names for topic in sorted(topics) if (names := self._by_topic.of(topic))}
        if self._topics.beginnings != self._beginnings_seen:
            self._beginnings_seen = dict(self._topics.beginnings)
            self._with_removed = [*self.state.offsets]
        self.queues.partitions_changed(topics, now_ms)
        self._fit_share()
        self._step(self._catch_up(now_ms), now_ms)

    def _catch_up(self, now_ms: int) -> Iterator[None]:
        """Take over groups, and examine the groups of changed topics, one group per step.

        Offsets of removed partitions are deleted, so that a later partition with an equal number has no
        offset.
        """
        while self._left_behind:
            self._take_over(next(reversed(self._left_behind)), now_ms)
            yield
        for topic, names in list(self._changed.items()):
            while names:
                if (membership := self._memberships.get(name := names.pop())) is not None:
                    membership.look_at_partitions(now_ms)
                    self._after(name)
                yield
            del self._changed[topic]
        while self._with_removed:
            keys = commits.offsets_of_removed(self.state, self._with_removed.pop(), self._topics)
            for first in range(0, len(keys), DROPPED_MAX):
                self._outputs.write(*((key, None) for key in keys[first : first + DROPPED_MAX]))
            yield

    def planned(self, asked: MakePlan, outcome: Planned | RaftlogError, now_ms: int, wall_ms: int) -> None:
        """Pass the outcome of a plan to the group (``Membership.planned``)."""
        if (membership := self._memberships.get(asked.name)) is not None:
            membership.planned(asked, outcome, now_ms, wall_ms)
            self._after(asked.name)

    # Requests.

    def _receive(self, request_id: RequestId, request: Request, now_ms: int, wall_ms: int) -> None:
        name = request.group
        match request:
            case Join():
                self.queues.check_free(name, request.topics)
                growth = self._check_join(request, now_ms)
                self._membership(name).join(request_id, request, now_ms, wall_ms)
                self._joining.put(name, self._creator(request), request.member_id, max(growth, 0))
            case Sync():
                self._existing(name).sync(request_id, request, now_ms, wall_ms)
            case Heartbeat():
                self._existing(name).heartbeat(request_id, request, now_ms)
            case Leave():
                self._existing(name).leave(request_id, request, now_ms, wall_ms)
            case Commit():
                self._commit(request_id, request, now_ms, wall_ms)
            case AddOffsets():
                self._add_offsets(request_id, request, now_ms, wall_ms)
            case EndOffsets():
                self._end_offsets(request_id, request, wall_ms)
            case ReadGroup():
                self._outputs.answer(request_id, self._view(name))
            case DeleteOffsets():
                self._delete_offsets(request_id, request)
            case DeleteGroup():
                self._check_unused(name, "delete it")
                self._check_settled(name)
                self._delete(name, now_ms, wall_ms)
                self._outputs.answer(request_id, Done())
            case Receive():
                self._check_unused(name, "receive in another group", known=False)
                self._check_budget(name, request.client, self._growth_of_queue(request), now_ms)
                self.queues.receive(request_id, request, now_ms, wall_ms)
            case Settle() | Abandon() | Reopen() | ReadQueue() | DeleteQueue():
                self.queues.receive(request_id, request, now_ms, wall_ms)
            case _:
                assert_never(request)

    def _commit(self, request_id: RequestId, ask: Commit, now_ms: int, wall_ms: int) -> None:
        """Commit all offsets of the request, or none."""
        self.queues.check_free(ask.group, {commit.topic for commit in ask.offsets})
        if not ask.is_forced or ask.member_id or ask.generation >= 0:
            self._check_committer(ask, now_ms)
        self._write(ask, commits.committed_rows(self.state, ask, wall_ms), now_ms, wall_ms)
        self._outputs.answer(request_id, Done())

    def _add_offsets(
        self, request_id: RequestId, ask: AddOffsets, now_ms: int, wall_ms: int, *, is_open: bool = False
    ) -> None:
        """Store all offsets of the request, or none. The offsets count once the transaction is committed.

        The first offsets of a transaction wait until it is confirmed that the transaction ``is_open``.
        """
        self.queues.check_free(ask.group, {commit.topic for commit in ask.offsets})
        self._check_committer(ask, now_ms)
        row = commits.added_row(self.state, ask, wall_ms)
        if is_open or commits.has_kept(self.state, ask):
            self._write(ask, [row], now_ms, wall_ms)
            self._outputs.answer(request_id, Done())
        else:
            self._outputs.perform(self._unconfirmed.add(request_id, ask))

    def confirmed(self, confirm: Confirm, refusal: RaftlogError | None, now_ms: int, wall_ms: int) -> None:
        """Store offsets whose transaction is confirmed to be open, unless the transaction has ended since."""
        request_id, ask = confirm.request_id, confirm.ask
        if not self._unconfirmed.take(request_id, ask):
            return
        try:
            if refusal is not None:
                raise refusal
            self._add_offsets(request_id, ask, now_ms, wall_ms, is_open=True)
        except RaftlogError as error:
            self._outputs.answer(request_id, error)
        self._after(ask.group)

    def _end_offsets(self, request_id: RequestId, ask: EndOffsets, wall_ms: int) -> None:
        """Commit or drop the offsets that a transaction has added, also after a rebalance.

        An end is handled even if the group has no offsets of the transaction, because such offsets may still
        arrive.
        """
        for late_id, late in self._unconfirmed.ended(ask):
            self._outputs.answer(late_id, commits.why_ended(late, ask))
        rows = commits.ended_rows(self.state, ask, wall_ms)
        if rows:
            self._outputs.write(*rows, frees_room=True)
        self._outputs.answer(request_id, Done())

    def _check_committer(self, ask: Commit | AddOffsets, now_ms: int) -> None:
        """Raise an error if the sender of a commit may not commit offsets of these partitions."""
        if ask.generation < 0 and not ask.member_id:
            self._check_unused(ask.group, "commit as a member, with member_id and generation", known=False)
            return
        member = self._existing(ask.group).committer(ask.member_id, ask.generation, now_ms)
        group, topics = self._group(ask.group), {commit.topic for commit in ask.offsets}
        assigned = {topic: frozenset(member.assignment.get(topic, ())) for topic in topics}
        for commit in ask.offsets:
            if commit.partition not in assigned[commit.topic]:
                raise InvalidRequest(
                    f"offsets: {commit.topic}/{commit.partition} is not assigned to member "
                    f"{ask.member_id!r} in generation {ask.generation}",
                    field="offsets",
                )
            if generations.is_another(group, commit.topic, commit.topic_id):
                raise RebalanceInProgress(
                    f"offsets: topic {commit.topic} was created again after generation {ask.generation} "
                    "began; join again",
                    retry_after_ms=RETRY_AFTER_MS,
                )

    def _write(self, ask: Commit | AddOffsets, rows: Sequence[Row], now_ms: int, wall_ms: int) -> None:
        """Write rows of offsets, and the row of the group if the group is new."""
        group, created = ask.group, list[Row]()
        if group not in self.state.groups:
            created.append((GroupKey(group), Group(changed_ms=wall_ms, client=ask.client)))
        growth = sum(self.state.growth(key, value) for key, value in (*created, *rows))
        self._check_budget(group, ask.client, growth, now_ms)
        if created or rows:  # retention may wait for existing offsets to advance
            self._outputs.write(*created, *rows, frees_room=growth < ROW_BYTES)

    def _check_budget(self, group: str, client: str, growth: int, now_ms: int) -> None:
        """Raise ``QuotaExceeded`` or ``Overloaded`` if the state of the group, or of its creator, would be
        too large.
        """
        retry_after_ms = self._look_again_ms(now_ms)
        found = self.state.groups.get(group)
        self._budget.check(self.state.used, "group", group, growth, retry_after_ms)
        creator = share_owner(client if found is None else found.client)
        self._budget.check(self.state.used_by_client, "client", creator, growth, retry_after_ms)

    def _look_again_ms(self, now_ms: int) -> int:
        """The milliseconds after which a refused client may retry: a sweep may delete unused groups."""
        return max(1, min(self._sweep_ms - now_ms, RECHECK_MS))

    def _fit_share(self) -> None:
        """Set the minimum share of a group: offsets or queues of all partitions must fit into it."""
        needed = PARTITION_BYTES * (1 + sum(self._topics.counts.values()))
        self._budget = replace(self._budget, share_min=needed)

    def _check_join(self, ask: Join, now_ms: int) -> int:
        """The bytes that a joining member adds. Raises as ``_check_budget``; waiting members count, too."""
        growth = self._growth_of(ask)
        more = growth - self._joining.of_member(ask.group, ask.member_id)
        if more > 0:
            of_groups, of_clients = self._joining.of_groups, self._joining.of_clients
            retry_after_ms = self._look_again_ms(now_ms)
            for used, kind, owner, waiting in (
                (self.state.used, "group", ask.group, of_groups.of(ask.group)),
                (self.state.used_by_client, "client", self._creator(ask), of_clients.of(self._creator(ask))),
                (self.state.used, "", "", of_groups.total),
            ):
                self._budget.check(used, kind, owner, more + waiting, retry_after_ms)
        return growth

    def _creator(self, ask: Join) -> str:
        found = self.state.groups.get(ask.group)
        return share_owner(ask.client if found is None else found.client)

    def _growth_of(self, ask: Join) -> int:
        """The approximate bytes that a joining member adds to its group's row, beyond its current part of the
        row.
        """
        member = self.state.groups.get(ask.group, Group()).members.get(ask.member_id)
        if member is None:
            return ROW_BYTES + 2 * generations.size_of(ask)
        return 2 * (generations.size_of(ask) - generations.size_of(member, owned=member.assignment))

    def _growth_of_queue(self, ask: Receive) -> int:
        """The bytes that a receive adds if its queue is new: a queue row and a committed offset per
        partition.
        """
        if self.queues.has(ask.group, ask.topic):
            return 0
        return ROW_BYTES + (2 * ROW_BYTES + tags_bytes(ask)) * self._topics.counts.get(ask.topic, 0)

    def _delete_offsets(self, request_id: RequestId, ask: DeleteOffsets) -> None:
        group = self._group(ask.group)
        subscribed = {topic for member in group.members.values() for topic in member.topics}
        targets = dict.fromkeys(ask.targets)  # without repetitions
        for topic, _ in targets:
            if topic in subscribed:
                raise Conflict(
                    f"group {ask.group} has members that consume topic {topic}; first stop these members"
                )
        commits.check_free(self.state, ask.group, targets)
        self.queues.check_free(ask.group, {topic for topic, _ in targets})
        known = self.state.offsets.get(ask.group, {})
        rows = [(OffsetKey(ask.group, *target), None) for target in targets if target in known]
        if rows:
            self._outputs.write(*rows)
        self._outputs.answer(request_id, Done())

    def state_of(self, name: str) -> Literal["empty", "rebalancing", "stable"]:
        """The state of a group: ``empty``, ``rebalancing`` or ``stable``."""
        membership, group = self._memberships.get(name), self._group(name)
        if membership is None:  # without members, or not taken over yet
            is_rebalancing = bool(group.members) and bool(group.rebalance_due or not group.has_plan)
        else:
            is_rebalancing = membership.is_rebalancing
        if is_rebalancing:
            return "rebalancing"
        return "stable" if group.members else "empty"

    def _view(self, name: str) -> GroupView:
        return GroupView(
            group=self._group(name),
            state=self.state_of(name),
            offsets=tuple(
                (topic, partition, committed)
                for (topic, partition), committed in sorted(self.state.offsets.get(name, {}).items())
            ),
            pending=commits.pending_offsets(self.state.transactions.get(name, {})),
        )

    def surveyed(self, groups: Collection[str], extents: Extents, now_ms: int, trusted_ms: int) -> list[str]:
        """Delete the groups that are still unused and whose offsets point at no readable record.

        Returns the names of the deleted groups.
        """
        oldest_ms = trusted_ms - self._offsets_retention_ms
        over = [name for name in groups if self._is_unused(name, oldest_ms)]
        over = [name for name in over if is_over(self.state, name, extents)]
        self._outputs.tally.groups_expired += len(over)
        for name in over:
            self._delete(name, now_ms, trusted_ms)
        return over

    def _is_unused(self, name: str, oldest_ms: int) -> bool:
        """Whether a group has had neither members nor commits for the whole retention."""
        group = self.state.groups.get(name)
        if group is None or group.members or name in self._memberships or name in self.state.pending:
            return False
        return not self.queues.is_in_use(name) and self._used_ms(name, group) < oldest_ms

    def _used_ms(self, name: str, group: Group) -> int:
        offsets = self.state.offsets.get(name, {}).values()
        newest_ms = max((committed.committed_ms for committed in offsets), default=0)
        return max(newest_ms, group.changed_ms, self.queues.used_ms(name))

    def _sweep(self, trusted_ms: int | None) -> int:
        """Examine some groups. At the end of a sweep, request the survey of the unused groups (``surveyed``).

        Returns the milliseconds until the next step.
        """
        if not self._unswept:
            dropped = tuple((key, None) for key in islice(commits.fences(self.state), DROPPED_MAX))
            if dropped:
                self._outputs.write(*dropped, frees_room=True)
            if len(dropped) == DROPPED_MAX:
                return DROP_PAUSE_MS
            self._unswept, self._survey = [*self.state.groups], ([], set())
        if trusted_ms is None:
            self._unswept.clear()
            return self._sweep_every_ms
        names, places = self._survey
        for name in self._unswept[-SWEPT_MAX:]:
            if self._is_unused(name, trusted_ms - self._offsets_retention_ms):
                names.append(name)
                places.update(places_of(self.state, name))
        del self._unswept[-SWEPT_MAX:]
        if self._unswept:
            return PAUSE_MS
        if names:
            self._outputs.perform(Survey(tuple(names), tuple(sorted(places))))
        return self._sweep_every_ms

    def _delete(self, name: str, now_ms: int, wall_ms: int) -> None:
        self.queues.delete_of(name, now_ms, wall_ms)
        offsets = self.state.offsets.get(name, {})
        self._outputs.write(*((OffsetKey(name, *target), None) for target in offsets), (GroupKey(name), None))

    # Parts.

    def _take_over(self, name: str, now_ms: int) -> None:
        del self._left_behind[name]
        self._membership(name).take_over(now_ms)
        self._after(name)

    def _membership(self, name: str) -> Membership:
        found = self._memberships.get(name)
        if found is None:
            shared = self.known_until, self._by_topic, self._joining
            found = Membership(name, self._outputs, self._topics, *shared)
            self._memberships[name] = found
        return found

    def _existing(self, name: str) -> Membership:
        """The membership of an existing group. Raises ``GroupNotFound``."""
        self._group(name)
        return self._membership(name)

    def _group(self, name: str) -> Group:
        group = self.state.groups.get(name)
        if group is None:
            membership = self._memberships.get(name)
            if membership is None:
                raise GroupNotFound(f"there is no group {name!r}", group=name)
            group = membership.group
        return group

    def _check_unused(self, name: str, remedy: str, *, known: bool = True) -> None:
        """Raise ``Conflict`` if the group has members."""
        group = self._group(name) if known else self.state.groups.get(name, Group())
        membership = self._memberships.get(name)
        if group.members or (membership is not None and membership.is_rebalancing):
            raise Conflict(f"group {name} has members; first stop the members, or {remedy}")

    def _check_settled(self, name: str) -> None:
        """Raise ``Conflict`` if the group has offsets that wait for the end of a transaction."""
        for added in self.state.transactions.get(name, {}).values():
            if added.offsets:
                raise Conflict(
                    f"group {name} has offsets in the open transaction {added.transaction}; first commit or "
                    "abort the transaction"
                )

    def _after(self, name: str) -> None:
        """Schedule the group's next deadline. Drop the object of a group that has no members."""
        membership = self._memberships.get(name)
        if name in self._joining.members and (membership is None or not membership.is_joining):
            self._joining.remove(name)
        if membership is None:
            return
        wanted_ms = membership.next_deadline_ms()
        if wanted_ms is None:
            del self._memberships[name]
            self._next.pop(name, None)
            return
        known_ms = self._next.get(name)
        if known_ms is None or wanted_ms < known_ms:  # a later deadline, of a longer session, needs no entry
            self._next[name] = wanted_ms
            heapq.heappush(self._deadlines, (wanted_ms, name))
