"""Coordinator of one partition of ``__delayed``: handles requests, and moves messages to their targets.

Decides: when a move is retried, and which errors of a target are permanent. Leaves to others: the records and
answers (``decisions``), reading and appending (the port ``Delivery``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence, Set
from typing import Final, Protocol

import msgspec

from delayed.decisions import BYTES_MAX, Decisions
from delayed.records import LaneKey, Message, Row, record_of
from delayed.requests import READS, Found, Reply, Request, Reschedule
from delayed.room import MoveRoom
from delayed.state import DelayedState, was_delivered
from delayed.tally import Tally
from delayed.values import BytesMax, Move, Redirected, Sweep, SweepTopics, TopicKey
from raftlog.clock import TrustedClock
from raftlog.errors import (
    DelayedAlreadyDelivered,
    InvalidRequest,
    OutOfOrderSequence,
    PartitionDecommissioned,
    PartitionNotFound,
    ProducerFenced,
    RaftlogError,
    TopicNotFound,
)
from raftlog.hosting.coordinator import Coordinator, CoordinatorLog
from raftlog.hosting.decisions import Effect, RequestId
from raftlog.node.frame_limits import FRAME_LIMITS, FrameLimits

MOVE_MS: Final = 5_000  # for one attempt
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
_NEEDS_EPOCH: Final = (OutOfOrderSequence, ProducerFenced, InvalidRequest, Redirected)
_log = logging.getLogger("raftlog.delayed")


class Delivery(Protocol):
    """Reads accepted messages, and appends them to their targets."""

    async def read(self, partition: int, offsets: Sequence[int], timeout_ms: int) -> list[Message]:
        """Read the messages at these offsets of a partition of ``__delayed``, in the order of ``offsets``.

        Raises ``RaftlogError``.
        """

    def begin(self, partition: int, *, is_led: bool) -> None:
        """Begin or end a leader epoch of a partition of ``__delayed``.

        Messages read before become invalid.
        """

    async def append(
        self,
        lane: LaneKey,
        messages: Sequence[Message],
        *,
        producer_id: int,
        epoch: int,
        sequence: int,
        timeout_ms: int,
    ) -> None:
        """Append the messages to their target as one batch; return once a batch with them is committed.

        Raises ``RaftlogError``. ``TopicNotFound`` and ``PartitionNotFound`` are raised only if the partition
        surely was deleted, ``PartitionDecommissioned`` only if it has not stored the messages and never will.
        """

    def targets_of(self, lane: LaneKey, messages: Sequence[Message]) -> tuple[int, ...]:
        """The new target partition of each message, for a lane whose partition refuses records."""

    async def new_producer_id(self, timeout_ms: int) -> int:
        """Allocate a producer id. Raises ``RaftlogError``."""

    async def gone(self, lanes: Collection[LaneKey]) -> Set[LaneKey]:
        """The lanes whose partitions did not exist at some time after the call began.

        Raises ``RaftlogError``.
        """

    async def deleted(self, topics: Collection[TopicKey]) -> Set[TopicKey]:
        """The topics that did not exist at some time after the call began. Raises ``RaftlogError``."""


class DelayedCoordinator(Coordinator[Decisions, Request, Reply, Row]):
    """Coordinator of the delayed messages of one partition; the derived state of its replica."""

    reads = READS

    def __init__(
        self,
        name: str,
        partition: int,
        clock: TrustedClock,
        delivery: Delivery,
        *,
        pending_max: int,
        pending_bytes_max: int = BYTES_MAX,
        batch_bytes_max: BytesMax,
        room: MoveRoom,
        frame_limits: FrameLimits = FRAME_LIMITS,
    ) -> None:
        """All coordinators of the broker share ``room``."""
        self.state = DelayedState()
        super().__init__(name, clock, record_of, self.state, frame_limits)
        self.tally = Tally()
        self._partition = partition
        self._delivery = delivery
        self._pending_max = pending_max
        self._pending_bytes_max = pending_bytes_max
        self._batch_bytes_max = batch_bytes_max
        self._room = room

    # Callbacks of the replica.

    def leads(self, log: CoordinatorLog | None) -> None:
        """Start or end the coordination of the partition, as ``Coordinator.leads`` describes."""
        self._delivery.begin(self._partition, is_led=log is not None)
        super().leads(log)

    def topic_deleted(self) -> None:
        """Check now whether deleted topics have messages or schedules in this partition."""
        if (decisions := self.decisions) is not None:
            self.step(lambda: decisions.look_for_topics(self._now_ms(), self._clock.wall_ms()))

    async def ask(self, request: Request, timeout_ms: int) -> Reply:
        """Answer a request, as ``Coordinator.ask`` describes.

        Descriptions of messages have the committed offsets of the messages' records. A rescheduled message
        may be delivered before the answer is sent.
        """
        reply = await super().ask(request, timeout_ms)
        if not isinstance(reply, Found):
            return reply
        if isinstance(request, Reschedule) and was_delivered(self.state, request.id):
            raise DelayedAlreadyDelivered("the message was rescheduled, and has been delivered since")
        replace = msgspec.structs.replace
        return Found(
            tuple(
                replace(one, waiting=replace(one.waiting, offset=self.state.waiting[one.id].offset))
                for one in reply.messages
                if one.id in self.state.waiting
            )
        )

    # Hooks of the coordinator.

    def begin(self, now_ms: int, before: Decisions | None) -> Decisions:
        """Make the decisions of a leader, beginning with the committed state.

        Batches in delivery are sent again.
        """
        return Decisions(
            self.state,
            now_ms=now_ms,
            wall_ms=self._clock.wall_ms(),
            pending_max=self._pending_max,
            pending_bytes_max=self._pending_bytes_max,
            batch_bytes_max=self._batch_bytes_max,
            tally=self.tally,
            is_time_known=self._clock.is_known,
            has_room=self.has_room,
        )

    def step(self, work: Callable[[], object], request_id: RequestId | None = None) -> None:
        """Run a step, as ``Coordinator.step`` describes.

        While brokers do not agree on a time, no message is due.
        """
        if self.decisions is not None:
            self.decisions.is_time_known = self._clock.is_known
        super().step(work, request_id)

    def perform(self, effect: Effect) -> None:
        """Move a batch, or look for deleted partitions or topics, in a background task."""
        assert self.decisions is not None
        if isinstance(effect, Sweep):
            self.do_beside(self._sweep(effect, self.decisions))
            return
        if isinstance(effect, SweepTopics):
            self.do_beside(self._sweep_topics(effect, self.decisions))
            return
        assert isinstance(effect, Move)
        self.do_beside(self._carry(effect, self.decisions))

    async def _sweep(self, sweep: Sweep, decisions: Decisions) -> None:
        gone = await self.tried(self._delivery.gone(sweep.lanes), "a sweep of lanes")
        if isinstance(gone, RaftlogError):
            _log.info("%s: cannot check lanes now, will retry: %s", self._name, gone)
            return
        if gone and decisions is self.decisions:
            decisions.gone(sweep, sorted(gone))
            self.carry_out()

    async def _sweep_topics(self, sweep: SweepTopics, decisions: Decisions) -> None:
        gone = await self.tried(self._delivery.deleted(sweep.topics), "a sweep of topics")
        if isinstance(gone, RaftlogError):
            _log.info("%s: cannot check topics now, will retry: %s", self._name, gone)
            return
        if decisions is self.decisions:
            decisions.topics_gone(sorted(gone), self._now_ms(), self._clock.wall_ms())
            self.carry_out()

    async def _carry(self, move: Move, decisions: Decisions) -> None:
        """Repeat a move until its outcome is known.

        The records of its messages are committed: offsets are final.
        """
        waiting = [self.state.waiting[id_] for id_ in move.batch.ids]
        size_bytes = sum(one.size_bytes for one in waiting)
        offsets = [one.offset for one in waiting]
        pause_s = PAUSE_MIN_S
        while not await self._try(move, offsets, size_bytes, decisions, is_repeated=pause_s > PAUSE_MIN_S):
            self.tally.retries += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    async def _try(
        self, move: Move, offsets: Sequence[int], size_bytes: int, decisions: Decisions, *, is_repeated: bool
    ) -> bool:
        """Try a move once.

        Return False if the move must be retried, for example after an unexpected error.
        """

        async def attempt() -> tuple[RaftlogError | Redirected | None, int | None]:
            async with self._room.held(size_bytes, is_repeated=is_repeated):
                failure = await self._attempt(move, offsets)
            if move.is_last_epoch and isinstance(failure, _NEEDS_EPOCH):
                return failure, await self._delivery.new_producer_id(MOVE_MS)
            return failure, None

        what = f"a batch for {move.lane}"
        outcome = await self.tried(attempt(), what)
        if isinstance(outcome, RaftlogError):
            _log.warning("%s: cannot move %s, will retry: %s", self._name, what, outcome)
            return False
        return self._report(move, decisions, *outcome)

    async def _attempt(self, move: Move, offsets: Sequence[int]) -> RaftlogError | Redirected | None:
        """Send a batch.

        Return the target's error, a redirection, or None. Raises if the messages cannot be read.
        """
        messages = await self._delivery.read(self._partition, offsets, MOVE_MS)
        try:
            await self._delivery.append(
                move.lane,
                messages,
                producer_id=move.producer_id,
                epoch=move.batch.epoch,
                sequence=move.batch.sequence,
                timeout_ms=MOVE_MS,
            )
        except PartitionDecommissioned:
            return Redirected(self._delivery.targets_of(move.lane, messages))
        except RaftlogError as error:
            return error
        return None

    def _report(
        self,
        move: Move,
        decisions: Decisions,
        failure: RaftlogError | Redirected | None,
        new_producer_id: int | None,
    ) -> bool:
        """Report an outcome to the decisions of this leader; return False if the move must be retried.

        If other decisions have begun since, the outcome is dropped.
        """
        if decisions is not self.decisions:
            return True
        now_ms, wall_ms = self._now_ms(), self._clock.wall_ms()
        match failure:
            case None:
                decisions.delivered(move, now_ms, wall_ms)
            case Redirected(partitions):
                decisions.redirected(move, partitions, now_ms, wall_ms, new_producer_id)
            case TopicNotFound() | PartitionNotFound():
                decisions.refused(move, str(failure), is_gone=True, now_ms=now_ms, wall_ms=wall_ms)
            case OutOfOrderSequence() | ProducerFenced():
                decisions.out_of_order(move, now_ms, wall_ms, new_producer_id)
            case InvalidRequest():
                decisions.refused(
                    move,
                    str(failure),
                    is_gone=False,
                    now_ms=now_ms,
                    wall_ms=wall_ms,
                    new_producer_id=new_producer_id,
                )
            case _:
                _log.info("%s: cannot move a batch for %s, will retry: %s", self._name, move.lane, failure)
                return False
        self.carry_out()
        return True
