"""Decisions of the coordinator of all delayed messages of one partition of ``__delayed``, without IO.

The inputs are requests and time; the outputs are records, answers and batches to move, in order. Each output
is sent once all earlier records are committed.

Decides: whether a request is refused, or is too late. Leaves to others: which batches move (``lanes``), when
schedules fire (``scheduling``), reading and appending (``coordinator``).

A message is due once the wall clock of this coordinator has reached the message's time, and delays are
measured by that clock. While the brokers do not agree on a time, no message is due, and requests that need
the current time are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from delayed.draft import UNKNOWN_TIME_MS, Draft, Output
from delayed.gone_topics import GoneTopics
from delayed.lanes import Lanes
from delayed.records import (
    ChangeKey,
    LaneKey,
    Message,
    MessageKey,
    Outcome,
    Producer,
    ProducerKey,
    Row,
)
from delayed.requests import (
    Add,
    Added,
    Cancel,
    Counted,
    CountTopic,
    Described,
    Done,
    Found,
    Moving,
    NeedsProducerId,
    NewMessage,
    Read,
    ReadMany,
    ReadMoving,
    Reply,
    Request,
    Reschedule,
    StateName,
    When,
)
from delayed.scheduling import Scheduling
from delayed.state import DelayedState, size_of, was_delivered
from delayed.tally import Tally
from delayed.values import BytesMax, Move, Sweep, TopicKey
from raftlog.errors import (
    DelayedAlreadyDelivered,
    DelayedNotFound,
    InvalidRequest,
    RaftlogError,
)
from raftlog.hosting.budget import RECHECK_MS, Budget
from raftlog.hosting.decisions import RequestId

RETRY_AFTER_MS: Final = (1_000, 3_600_000)  # the shortest and the longest retry time
LOOK_MS: Final = (1_000, 10_000)  # shortest and longest pause between two searches, which take milliseconds
BYTES_MAX: Final = 1 << 30  # of one partition
DUE_MS_MAX: Final = 253_402_300_799_000  # the end of the year 9999


class Counts(NamedTuple):
    """Numbers of messages that are not in their target topics yet. ``pending`` does not include ``due``."""

    pending: int
    due: int
    failed: int
    oldest_ms: int | None  # the earliest time of due messages
    size_bytes: int  # of all these messages on disk


class Decisions:
    """Decisions of one leader about all delayed messages of a partition.

    ``state`` is the state when they begin.
    """

    def __init__(
        self,
        state: DelayedState,
        *,
        now_ms: int,
        wall_ms: int,
        pending_max: int,
        pending_bytes_max: int = BYTES_MAX,
        batch_bytes_max: BytesMax,
        tally: Tally | None = None,
        is_time_known: bool = True,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """``has_room`` says whether the disk has room outside its reserve."""
        tally = tally or Tally()
        self._draft = Draft(state.copy(), now_ms, wall_ms, has_room, is_time_known)
        self._budget = Budget(
            "pending delayed messages",
            pending_max,
            "wait until some messages are delivered, cancel some, or raise delayed.pending_max",
        )
        self._failed_budget = Budget(
            "failed delayed messages", pending_max, "cancel some messages, or raise delayed.pending_max"
        )
        self._bytes_budget = Budget(
            "bytes of delayed messages",
            pending_bytes_max,
            "send smaller messages, cancel some, wait for deliveries, or raise delayed.pending_bytes_max",
        )
        # By topic (None: all topics): the time at which room is freed, and until when that value is valid.
        self._frees_ms: dict[str | None, tuple[int, int]] = {}
        self._lanes = Lanes(self._draft, batch_bytes_max, tally)
        self._schedules = Scheduling(self._draft, tally, self._has_room, self._lanes.add)
        self._gone_topics = GoneTopics(self._draft, self._lanes.is_moving, self._schedules)
        self._collect()

    @property
    def is_time_known(self) -> bool:
        """Whether the brokers agree on a time.

        While they do not, no message is due: late is better than early.
        """
        return self._draft.is_time_known

    @is_time_known.setter
    def is_time_known(self, is_known: bool) -> None:
        self._draft.is_time_known = is_known

    @property
    def state(self) -> DelayedState:
        """The state that is reached once all written records are committed."""
        return self._draft.state

    def counts(self) -> Counts:
        """The numbers of messages, for metrics. The cost depends on the number of due messages only."""
        due, failed = self._lanes.due_count, len(self.state.failed)
        pending = max(0, len(self.state.waiting) - failed - due)
        return Counts(pending, due, failed, self._lanes.oldest_due_ms(), self.state.sizes.total)

    def take(self) -> list[Output]:
        """Take the answers, records and effects that were added since the last call, in order."""
        return self._draft.take()

    def next_deadline_ms(self) -> int:
        """The time in milliseconds at which ``tick`` must be called at the latest.

        Early enough to notice a jump of the wall clock.
        """
        if not self.is_time_known:
            return self._draft.now_ms + UNKNOWN_TIME_MS
        parts = (self._lanes, self._schedules, self._gone_topics)
        return min(part.deadline_ms() for part in parts)

    def forget(self, request_id: RequestId, request: Request) -> None:
        """Do nothing: requests about delayed messages never wait."""

    def receive(self, request_id: RequestId, request: Request, now_ms: int, wall_ms: int) -> None:
        """Handle a request. The answer, which may be a refusal, is among the outputs."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        try:
            reply = self._reply_to(request)
        except RaftlogError as refusal:
            self._draft.answer(request_id, refusal)
        else:
            self._draft.answer(request_id, reply)
        self._collect()

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Move due messages, and fire due schedules."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        self._collect()

    def expire(self, now_ms: int, trusted_ms: int | None) -> None:
        """Do nothing: no row of ``__delayed`` expires by its age."""

    def _collect(self) -> None:
        self._gone_topics.collect()
        if self.is_time_known:
            self._schedules.collect()
            self._lanes.collect()

    # Outcomes of effects.

    def delivered(self, move: Move, now_ms: int, wall_ms: int) -> None:
        """Note that a batch was delivered (``Lanes.delivered``)."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        self._lanes.delivered(move)

    def refused(
        self,
        move: Move,
        reason: str,
        *,
        is_gone: bool,
        now_ms: int,
        wall_ms: int,
        new_producer_id: int | None = None,
    ) -> None:
        """Note that a batch was refused (``Lanes.refused``). A schedule with a failed message ends."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        failed = self._lanes.refused(move, reason, is_gone=is_gone, new_producer_id=new_producer_id)
        self._schedules.failed(failed, reason)

    def out_of_order(self, move: Move, now_ms: int, wall_ms: int, new_producer_id: int | None = None) -> None:
        """Send a batch again in a new producer epoch (``Lanes.out_of_order``)."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        self._lanes.out_of_order(move, new_producer_id)

    def redirected(
        self,
        move: Move,
        partitions: Sequence[int],
        now_ms: int,
        wall_ms: int,
        new_producer_id: int | None = None,
    ) -> None:
        """Move the messages of a batch to other partitions (``Lanes.redirected``)."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        self._lanes.redirected(move, partitions, new_producer_id)
        self._collect()

    def gone(self, sweep: Sweep, lanes: Iterable[LaneKey]) -> None:
        """Delete the lanes of deleted partitions (``Lanes.gone``)."""
        self._lanes.gone(sweep, lanes)

    def look_for_topics(self, now_ms: int, wall_ms: int) -> None:
        """Ask which topics were deleted (``GoneTopics.look``)."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        self._gone_topics.look()

    def topics_gone(self, topics: Iterable[TopicKey], now_ms: int, wall_ms: int) -> None:
        """End messages and schedules of deleted topics (``GoneTopics.gone``)."""
        self._draft.now_ms, self._draft.wall_ms = now_ms, wall_ms
        self._gone_topics.gone(topics)
        self._collect()

    # Requests.

    def _reply_to(self, request: Request) -> Reply:
        match request:
            case Add():
                return self._add(request)
            case Reschedule():
                return self._reschedule(request)
            case Cancel():
                return self._cancel(request)
            case Read():
                self._check_waits(request.id)
                return Found((self._described(request.id),))
            case ReadMany():
                return self._list(request)
            case ReadMoving():
                lane = self.state.lanes.get(LaneKey(request.topic, request.partition))
                return Moving(is_moving=lane is not None and bool(lane.ids))
            case CountTopic(topic=topic, topic_id=topic_id):
                schedules = self._schedules.count_of(TopicKey(topic, topic_id))
                return Counted(self.state.open.of(topic), self.state.failures.of(topic), schedules)
            case _:
                return self._schedules.reply_to(request)

    def _add(self, request: Add) -> Reply:
        state, rows, due = self.state, list[Row](), list[int]()
        if state.producer_id is None and request.new_producer_id < 0:
            return NeedsProducerId()
        for message in request.messages:
            before = state.waiting.find(message.id) or state.recent.get(message.id)
            if before is not None:  # a repeated request
                due.append(before.due_ms)
                continue
            due.append(self._due_ms(message.when, request.delay_ms_max))
            rows.append(Row(MessageKey(message.id), _message(request, message, due[-1], self._draft.wall_ms)))
        if rows:
            self._draft.check_disk()
        size_bytes = sum(size_of(row.value) for row in rows if isinstance(row.value, Message))
        self._check_room(request.topic, len(rows), size_bytes)
        self._gone_topics.added(request.topic)
        if rows and state.producer_id is None:
            rows.insert(0, Row(ProducerKey(), Producer(request.new_producer_id)))
        self._draft.write(*rows)
        for row in rows:
            if isinstance(row.key, MessageKey):
                self._lanes.add(row.key.id)
        return Added(tuple(due))

    def _reschedule(self, request: Reschedule) -> Reply:
        self._check_open(request.id)
        due_ms = self._due_ms(request.when, request.delay_ms_max)
        self._draft.check_disk()
        change = msgspec.structs.replace(self._draft.change_of(request.id), due_ms=due_ms)
        self._draft.write(Row(ChangeKey(request.id), change))
        self._lanes.add(request.id)
        return Found((self._described(request.id),))

    def _cancel(self, request: Cancel) -> Reply:
        left = self.state.recent.get(request.id)
        if left is not None and left.outcome is Outcome.CANCELLED:
            return Done()
        self._check_open(request.id)
        self._draft.write(*self._draft.leaving(request.id, Outcome.CANCELLED))
        return Done()

    def _list(self, request: ReadMany) -> Reply:
        ids = self.state.waiting.behind(request.after, request.topic, request.count_max)
        return Found(tuple(map(self._described, ids)))

    def _described(self, id_: bytes) -> Described:
        reason = self.state.failed.get(id_, "")
        state: StateName = "pending"
        if reason:
            state = "failed"
        elif self._lanes.is_moving(id_):
            state = "delivering"
        return Described(id_, self.state.waiting[id_], state, reason)

    def _due_ms(self, when: When, delay_ms_max: int) -> int:
        if when.delay_ms >= 0 or delay_ms_max >= 0:
            self._draft.check_time()
        due_ms = when.at_ms if when.delay_ms < 0 else self._draft.wall_ms + when.delay_ms
        field = "deliver_at" if when.delay_ms < 0 else "delay"
        if delay_ms_max >= 0 and due_ms - self._draft.wall_ms > delay_ms_max:
            raise InvalidRequest(
                f"{field} is {due_ms - self._draft.wall_ms} ms from now, longer than the topic keeps "
                f"records: send at most {delay_ms_max} ms, or raise retention.ms",
                field=field,
            )
        if due_ms > DUE_MS_MAX:
            raise InvalidRequest(f"{field} is after the year 9999; send an earlier time", field=field)
        return due_ms

    def _check_waits(self, id_: bytes) -> None:
        if id_ in self.state.waiting:
            return
        if was_delivered(self.state, id_):
            raise DelayedAlreadyDelivered("the message was already delivered")
        raise DelayedNotFound(
            "the delayed message is not pending: it was cancelled, or delivered more than 10 minutes ago, or "
            "never accepted"
        )

    def _check_open(self, id_: bytes) -> None:
        self._check_waits(id_)
        if self._lanes.is_moving(id_):
            raise DelayedAlreadyDelivered("the message is being delivered; it can no longer be changed")

    def _check_room(self, topic: str, count: int, size_bytes: int) -> None:
        """Raise ``QuotaExceeded`` or ``Overloaded`` if the limits allow no more messages of the topic.

        Failed messages have a separate limit of equal size.
        """
        for budget, used, more in (
            (self._budget, self.state.open, count),
            (self._bytes_budget, self.state.sizes, size_bytes),
        ):
            if more > 0 and not budget.has_room(used, topic, more):
                whose = None if budget.is_in_share(used, topic, more) else topic
                budget.check(used, "topic", topic, more, self._retry_after_ms(whose))
        if self.state.failures.total:
            self._failed_budget.check(self.state.failures, "topic", topic, min(count, 1), RECHECK_MS)

    def _retry_after_ms(self, topic: str | None) -> int:
        """The milliseconds until the next message of a topic (None: of any topic) is due.

        If all messages have failed, the milliseconds until a retry makes sense.
        """
        now_ms, (shortest_ms, longest_ms) = self._draft.now_ms, RETRY_AFTER_MS
        known = {key: each for key, each in self._frees_ms.items() if now_ms < each[1]}
        if topic not in known:
            due_ms = self._lanes.first_due_ms(topic)
            left_ms = RECHECK_MS if due_ms is None else due_ms - self._draft.wall_ms
            known[topic] = now_ms + left_ms, now_ms + min(max(left_ms, LOOK_MS[0]), LOOK_MS[1])
        self._frees_ms = known
        return min(max(known[topic][0] - now_ms, shortest_ms), longest_ms)

    def _has_room(self, topic: str, size_bytes: int) -> bool:
        """Whether the limits allow that a schedule fires a message for this topic."""
        try:
            self._check_room(topic, 1, size_bytes)
        except RaftlogError:
            return False
        return True


def _message(request: Add, new: NewMessage, due_ms: int, wall_ms: int) -> Message:
    return Message(
        topic=request.topic,
        topic_id=request.topic_id,
        partition=new.partition,
        due_ms=due_ms,
        accepted_ms=wall_ms,
        value=new.value,
        key=new.key,
        headers=new.headers,
        timestamp_ms=new.timestamp_ms,
    )
