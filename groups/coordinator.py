"""Coordinator of one partition of ``__offsets``: ``raftlog.hosting.coordinator`` for groups.

Decides: the error for a caller at its time limit, and that storing a dead letter is retried. Leaves to
others: the records and answers (``coordination``), appending (``raftlog.hosting``), which broker coordinates
a group (``service``).

After a failed append members keep their generation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from groups.coordination import STATE_BYTES_MAX, SWEEP_MS, Coordination
from groups.expiry import Survey
from groups.outputs import Row
from groups.plans import MakePlan, Planned, planned
from groups.ports import Topics
from groups.records import KINDS
from groups.requests import READS, AddOffsets, Commit, Join, Reply, Request, Sync, TopicGroup
from groups.state import GroupsState
from groups.tally import Tally
from groups.unconfirmed import CheckOpen, Confirm
from queues.all_queues import DEFAULTS, QueueLimits
from queues.effects import Bury, Look
from queues.ports import Jobs
from queues.requests import Receive, Reopen, Settle, Settled
from raftlog.clock import TrustedClock
from raftlog.errors import CommitUnknown, NotLeader, Overloaded, RaftlogError, RebalanceInProgress
from raftlog.hosting.coordinator import Coordinator, CoordinatorLog
from raftlog.hosting.decisions import Effect
from raftlog.node.blocking import RunBlocking
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits
from raftlog.node.leader_search import UNANSWERED
from raftlog.node.threads import in_thread

BURY_AGAIN_S: Final = (0.1, 5.0)  # the first pause after a failure, and the longest
FORGOTTEN_MAX: Final = 100  # unused groups deleted in one step, which takes some milliseconds
FORGET_PAUSE_S: Final = 0.01  # after such a step, to append its records
PLAN_AT_ONCE: Final = 200  # members and partitions; larger plans may take long, and are made in a thread
CONFIRM_AGAIN_MS: Final = 200  # after which the transaction may have another leader
LOOK_GROUPS: Final = 500  # groups of one step, which takes a few milliseconds
_log = logging.getLogger("raftlog.groups")


class GroupCoordinator(Coordinator[Coordination, Request, Reply, Row]):
    """Coordinator of the groups of one partition; the derived state of its replica."""

    reads = READS

    def __init__(
        self,
        name: str,
        clock: TrustedClock,
        topics: Topics,
        jobs: Jobs,
        check_open: CheckOpen,
        *,
        offsets_retention_ms: int,
        queue_limits: QueueLimits = DEFAULTS,
        state_bytes_max: int = STATE_BYTES_MAX,
        sweep_every_ms: int = SWEEP_MS,
        run_blocking: RunBlocking = in_thread,
        has_reserve: Callable[[], bool] = lambda: True,
        frame_limits: FrameLimits = FRAME_LIMITS,
    ) -> None:
        """``has_reserve`` says whether more than half of the disk's reserve for deletions is free."""
        self.state = GroupsState()
        super().__init__(name, clock, lambda row: KINDS.record_of(*row), self.state, frame_limits)
        self.tally = Tally()
        self._topics = topics
        self._jobs = jobs
        self._check_open = check_open
        self._offsets_retention_ms = offsets_retention_ms
        self._sweep_every_ms = sweep_every_ms
        self._queue_limits = queue_limits
        self._state_bytes_max = state_bytes_max
        self._run_blocking = run_blocking
        self._has_reserve = has_reserve
        self._planning = asyncio.Lock()  # one plan at a time, so that other work gets threads

    @property
    def is_coordinating(self) -> bool:
        """Whether this broker coordinates the groups of the partition."""
        return self.decisions is not None

    @property
    def coordinated(self) -> GroupsState | None:
        """The state of the groups once all written records are committed; None unless this broker coordinates
        them.
        """
        return None if self.decisions is None else self.decisions.state

    # Callbacks of the replica.

    def leads(self, log: CoordinatorLog | None) -> None:
        """Start or end the coordination of the groups, as ``Coordinator.leads`` describes."""
        self.tally.rebalances.clear()
        super().leads(log)

    def partitions_changed(self, topics: Collection[str]) -> None:
        """Note topics that were created, deleted or created again, or have other partitions than before."""
        if (decisions := self.decisions) is not None:
            self.step(lambda: decisions.partitions_changed(topics, self._now_ms()))

    async def summaries(self, after: str, count_max: int) -> list[tuple[str, str, int]]:
        """Name, state and number of members of the groups after the name ``after``, sorted.

        Raises ``NotLeader``.
        """
        decisions = await self.confirmed()
        names, groups = decisions.state.names.after(after, count_max), decisions.state.groups
        return [(name, decisions.state_of(name), len(groups[name].members)) for name in names]

    async def of_topic(self, topic: str, topic_id: str, count_max: int) -> tuple[int, list[TopicGroup]]:
        """The number of groups that depend on a topic, and the first of these groups by name.

        Raises ``NotLeader``.
        """
        state, found = (await self.confirmed()).state, list[TopicGroup]()
        for number, name in enumerate(sorted(state.groups)):
            if not number % LOOK_GROUPS:
                await asyncio.sleep(0)
            if (one := state.of_topic(name, topic, topic_id)) is not None:
                found.append(one)
        return len(found), found[:count_max]

    async def ask(self, request: Request, timeout_ms: int) -> Reply:
        """Answer a request, as ``Coordinator.ask`` describes.

        A deposed broker never reports leases as ended.
        """
        decisions = self.decisions
        reply = await super().ask(request, timeout_ms)
        if isinstance(reply, Settled) and reply.lost and await self.confirmed() is not decisions:
            raise NotLeader(f"the coordinator of {self._name} has restarted; retry", leader=None)
        return reply

    # Hooks of the coordinator.

    def begin(self, now_ms: int, before: Coordination | None) -> Coordination:
        """Make the decisions of a leader, beginning with the committed state of the groups."""
        return Coordination(
            self.state,
            self._topics.known,
            now_ms=now_ms,
            wall_ms=self._clock.wall_ms(),
            offsets_retention_ms=self._offsets_retention_ms,
            tally=self.tally,
            queue_limits=self._queue_limits,
            known_until=None if before is None else before.known_until,
            state_bytes_max=self._state_bytes_max,
            sweep_every_ms=self._sweep_every_ms,
            knows_time=self._knows_time,
        )

    def _knows_time(self) -> bool:
        return self._clock.is_known

    def needs_room(self, request: Request) -> bool:
        """Whether a request needs disk space: it is the first of a group, or has first or transactional
        offsets.

        If little of the reserve for deletions is free, also whether clients may repeat such requests without
        limit.
        """
        if not self._has_reserve() and _is_endless(request):
            return True
        match request:
            case Commit(group=group, offsets=offsets):
                known = self.state.offsets.get(group, {})
                for each in offsets:
                    if (each.topic, each.partition) not in known:
                        return True
                return group not in self.state.groups
            case Join(group=group) | Receive(group=group):
                return group not in self.state.groups
            case AddOffsets():
                return True
        return False

    def perform(self, effect: Effect) -> None:
        """Start the work of an effect in a background task."""
        assert self.decisions is not None
        match effect:
            case Look():
                self.do_beside(self._look(effect, self.decisions))
            case Bury():
                self.do_beside(self._bury(effect, self.decisions))
            case Survey():
                self.do_beside(self._survey(effect, self.decisions))
            case MakePlan():
                self.do_beside(self._make_plan(effect, self.decisions))
            case Confirm():
                self.do_beside(self._confirm(effect, self.decisions))

    async def _look(self, look: Look, decisions: Coordination) -> None:
        what = f"a look for jobs of {look.topic}/{look.partition}"
        outcome = await self.tried(self._jobs.look(look), what)
        if isinstance(outcome, RaftlogError):
            _log.info("%s: %s failed: %s", self._name, what, outcome)
        if decisions is self.decisions:
            decisions.queues.looked(look, outcome, self._now_ms(), self._clock.wall_ms())
            self.carry_out()

    async def _bury(self, bury: Bury, decisions: Coordination) -> None:
        """Store a dead letter, with retries while brokers are down.

        A retry may store the dead letter twice.
        """
        pause_s, longest_s = BURY_AGAIN_S
        what = f"a dead letter of {bury.topic}"
        while (error := await self.tried(self._jobs.bury(bury), what)) is not None:
            _log.warning("%s: cannot store %s, will retry: %s", self._name, what, error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        if decisions is self.decisions:
            decisions.queues.buried(bury, self._now_ms(), self._clock.wall_ms())
            self.carry_out()

    async def _survey(self, survey: Survey, decisions: Coordination) -> None:
        """Read the ends of partitions, and delete expired groups.

        After an error, the next sweep tries again.
        """
        extents = await self.tried(self._topics.extents(survey.places), "a survey of unused groups")
        if isinstance(extents, RaftlogError):
            _log.info("%s: cannot check unused groups now, will retry: %s", self._name, extents)
            return
        for first in range(0, len(survey.groups), FORGOTTEN_MAX):
            some, trusted_ms = survey.groups[first : first + FORGOTTEN_MAX], self._clock.trusted_ms()
            if decisions is not self.decisions or trusted_ms is None:
                return
            for name in decisions.surveyed(some, extents, self._now_ms(), trusted_ms):
                _log.info(
                    "%s: group %s expired: it is unused, and its records were deleted", self._name, name
                )
            self.carry_out()
            await asyncio.sleep(FORGET_PAUSE_S)

    async def _make_plan(self, asked: MakePlan, decisions: Coordination) -> None:
        async with self._planning:
            if decisions.state.groups.get(asked.name) is not asked.group:
                return  # the group has a later generation
            work = partial(planned, asked)
            made = _at_once(work) if asked.size <= PLAN_AT_ONCE else self._run_blocking(work)
            outcome = await self.tried(made, f"the plan of group {asked.name}")
        if decisions is self.decisions:
            decisions.planned(asked, outcome, self._now_ms(), self._clock.wall_ms())
            self.carry_out()

    async def _confirm(self, confirm: Confirm, decisions: Coordination) -> None:
        what = f"the question whether transaction {confirm.ask.transaction} is open"
        refusal = await self.tried(self._check_open(confirm.ask), what)
        if isinstance(refusal, UNANSWERED):  # the caller must not search another coordinator of the group
            told = f"{what} has no answer yet, so no offset was added; retry: {refusal}"
            refusal = Overloaded(told, retry_after_ms=CONFIRM_AGAIN_MS)
        if decisions is self.decisions:
            decisions.confirmed(confirm, refusal, self._now_ms(), self._clock.wall_ms())
            self.carry_out()

    def too_late(self, request: Request, timeout_ms: int) -> RaftlogError:
        """The error for a request that has reached its time limit; a rebalance may last longer than a
        request.
        """
        if isinstance(request, Join | Sync):
            return RebalanceInProgress(
                f"the rebalance of group {request.group} has not ended yet; repeat the request",
                retry_after_ms=0,
            )
        return CommitUnknown(f"group {request.group}: no answer within {timeout_ms} ms")


async def _at_once(work: Callable[[], Planned]) -> Planned:
    return work()


def _is_endless(request: Request) -> bool:
    """Whether clients may repeat requests of this kind without limit, and each request stores a record.

    Requests that end leases are limited by the number of leases, and no lease begins meanwhile.
    """
    if isinstance(request, Settle):
        return request.how == "extend"
    return isinstance(request, Join | Commit | Receive | Reopen)
