"""The coordinator of all delayed messages of one partition of ``__delayed``, without IO.

Requests and time go in; records, answers and batches to move come out, in order. Each leaves once all records
before it are committed. A lane, the way to one target partition, has one batch on its way at most. Which
messages are in it, and its sequence, is committed before it is sent; a successor sends the same batch again,
and the target recognises the duplicate.

Decides: what is due, what a batch contains, and whether a request comes too late. Leaves to others: reading
and appending (``coordinator``).

A message is due once the wall clock of this coordinator has reached its time.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, assert_never

from delayed.records import (
    Change,
    ChangeKey,
    Lane,
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
    Described,
    Done,
    Found,
    NeedsProducerId,
    NewMessage,
    Read,
    ReadMany,
    Reply,
    Request,
    Reschedule,
    StateName,
    When,
)
from delayed.state import DelayedState
from delayed.tally import Tally
from raftlog.errors import (
    DelayedAlreadyDelivered,
    InvalidRequest,
    Overloaded,
    RaftlogError,
    UnknownDelayed,
)
from raftlog.hosting.decisions import Answer, Effect, RequestId, Write
from raftlog.records.batch import EPOCH_MAX, SEQUENCE_MAX

MOVE_COUNT_MAX: Final = 400  # their tombstones and the lane are one batch of records
MOVE_BYTES_MAX: Final = 512 << 10
LOOK_MS: Final = 1_000  # a wall clock that jumps is noticed after this time
IDLE_MS: Final = 600_000
DUE_MS_MAX: Final = 253_402_300_799_000  # the end of the year 9999

BytesMax = Callable[[str], int]
"""The size of a batch that a topic takes now."""


@dataclass(frozen=True, slots=True)
class Move(Effect):
    """Append these messages to their target as one batch, then report its outcome."""

    lane: LaneKey
    batch: Lane
    producer_id: int

    @property
    def is_last_epoch(self) -> bool:
        """Whether another epoch needs another producer id."""
        return self.batch.epoch >= EPOCH_MAX


Output = Answer[Reply] | Write[Row] | Move


class Decisions:
    """``state`` is what the partition's records add up to when this broker begins to lead it."""

    def __init__(
        self,
        state: DelayedState,
        *,
        now_ms: int,
        wall_ms: int,
        pending_max: int,
        batch_bytes_max: BytesMax,
        tally: Tally | None = None,
    ) -> None:
        self._tally = tally or Tally()
        self.state = state.copy()
        self._pending_max = pending_max
        self._batch_bytes_max = batch_bytes_max
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._wanted: list[Output] = []
        self._ready: dict[LaneKey, deque[bytes]] = {}  # due, and not on their way yet
        self._due = [
            (one.due_ms, id_) for id_, one in self.state.waiting.items() if id_ not in self.state.failed
        ]
        heapq.heapify(self._due)
        self._moving = {id_ for lane in self.state.lanes.values() for id_ in lane.ids}
        for key, lane in sorted(self.state.lanes.items()):
            if lane.ids:
                self._move(key, lane)
        self.tick(now_ms, wall_ms)

    def take(self) -> list[Output]:
        """See ``raftlog.hosting.decisions.Decisions``."""
        taken, self._wanted = self._wanted, []
        return taken

    def next_deadline_ms(self) -> int:
        """When the next message is due; soon enough to notice a clock that jumps."""
        if not self._due:
            return self._now_ms + IDLE_MS
        return self._now_ms + min(LOOK_MS, max(0, self._due[0][0] - self._wall_ms))

    def forget(self, request_id: RequestId, request: Request) -> None:
        """Nothing waits here."""

    def receive(self, request_id: RequestId, request: Request, now_ms: int, wall_ms: int) -> None:
        """Answered now; a refusal is an answer, too."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        try:
            reply = self._reply_to(request)
        except RaftlogError as refusal:
            self._wanted.append(Answer(request_id, refusal))
        else:
            self._wanted.append(Answer(request_id, reply))
        self._collect()

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Move what is due."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._collect()

    # Outcomes of a move.

    def delivered(self, move: Move, now_ms: int, wall_ms: int) -> None:
        """The target has the batch: the messages leave, and the next batch of the lane may go."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        rows: list[Row] = []
        for id_ in move.batch.ids:
            rows += self._left(id_, Outcome.DELIVERED)
        following = (move.batch.sequence + len(move.batch.ids)) & SEQUENCE_MAX
        self._tally.delivered += len(move.batch.ids)
        self._moving.difference_update(move.batch.ids)
        idle = Lane(move.batch.epoch, following, producer_id=move.batch.producer_id)
        self._write(*rows, Row(move.lane, idle))
        self._start(move.lane)

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
        """The target will never take this batch. Its messages fail; of several, each is tried alone.

        ``is_gone``: there is no such partition. Then nothing of the lane is left. ``new_producer_id`` is for
        the epochs after the last one.
        """
        self._now_ms, self._wall_ms = now_ms, wall_ms
        ids = move.batch.ids
        if len(ids) > 1 and not is_gone:
            self._resend(move, ids[:1], ids[1:], new_producer_id)
            return
        rows = [Row(ChangeKey(id_), Change(self.state.waiting[id_].due_ms, reason)) for id_ in ids]
        self._tally.failed += len(ids)
        self._moving.difference_update(ids)
        self._write(*rows, Row(move.lane, None if is_gone else _next_epoch(move, (), new_producer_id)))
        self._start(move.lane)

    def out_of_order(self, move: Move, now_ms: int, wall_ms: int, new_producer_id: int | None = None) -> None:
        """The target has lost what it knew of this lane, and not taken the batch: begin a new epoch."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._resend(move, move.batch.ids, (), new_producer_id)

    def _resend(
        self, move: Move, ids: tuple[bytes, ...], later: tuple[bytes, ...], new_producer_id: int | None
    ) -> None:
        self._moving.difference_update(later)
        self._ready.setdefault(move.lane, deque()).extendleft(reversed(later))
        lane = _next_epoch(move, ids, new_producer_id)
        self._write(Row(move.lane, lane))
        self._move(move.lane, lane)

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
            case _:
                assert_never(request)

    def _add(self, request: Add) -> Reply:
        state, rows, due = self.state, list[Row](), list[int]()
        if state.producer_id is None and request.new_producer_id < 0:
            return NeedsProducerId()
        for message in request.messages:
            before = state.waiting.get(message.id) or state.recent.get(message.id)
            if before is not None:  # an equal request was carried out
                due.append(before.due_ms)
                continue
            due.append(self._due_ms(message.when, request.delay_ms_max))
            rows.append(Row(MessageKey(message.id), _message(request, message, due[-1], self._wall_ms)))
        if len(state.waiting) + len(rows) > self._pending_max:
            raise Overloaded(
                f"this partition of __delayed has {len(state.waiting)} messages of {self._pending_max}; "
                "retry when some are delivered, or raise delayed.pending_max",
                retry_after_ms=1_000,
            )
        if rows and state.producer_id is None:
            rows.insert(0, Row(ProducerKey(), Producer(request.new_producer_id)))
        self._write(*rows)
        for row in rows:
            if isinstance(row.key, MessageKey):
                heapq.heappush(self._due, (state.waiting[row.key.id].due_ms, row.key.id))
        return Added(tuple(due))

    def _reschedule(self, request: Reschedule) -> Reply:
        self._check_open(request.id)
        due_ms = self._due_ms(request.when, request.delay_ms_max)
        self._write(Row(ChangeKey(request.id), Change(due_ms)))
        heapq.heappush(self._due, (due_ms, request.id))
        return Found((self._described(request.id),))

    def _cancel(self, request: Cancel) -> Reply:
        left = self.state.recent.get(request.id)
        if left is not None and left.outcome is Outcome.CANCELLED:
            return Done()
        self._check_open(request.id)
        self._write(*self._left(request.id, Outcome.CANCELLED))
        return Done()

    def _list(self, request: ReadMany) -> Reply:
        ids = heapq.nsmallest(
            request.count_max,
            (
                id_
                for id_, one in self.state.waiting.items()
                if id_ > request.after and request.topic in (None, one.topic)
            ),
        )
        return Found(tuple(map(self._described, ids)))

    def _described(self, id_: bytes) -> Described:
        reason = self.state.failed.get(id_, "")
        state: StateName = "pending"
        if reason:
            state = "failed"
        elif id_ in self._moving:
            state = "delivering"
        return Described(id_, self.state.waiting[id_], state, reason)

    def _due_ms(self, when: When, delay_ms_max: int) -> int:
        due_ms = when.at_ms if when.delay_ms < 0 else self._wall_ms + when.delay_ms
        field = "deliver_at" if when.delay_ms < 0 else "delay"
        if delay_ms_max >= 0 and due_ms - self._wall_ms > delay_ms_max:
            raise InvalidRequest(
                f"{field} is {due_ms - self._wall_ms} ms from now, longer than the topic keeps records: send "
                f"at most {delay_ms_max} ms, or raise retention.ms",
                field=field,
            )
        if due_ms > DUE_MS_MAX:
            raise InvalidRequest(f"{field} is after the year 9999; send an earlier time", field=field)
        return due_ms

    def _check_waits(self, id_: bytes) -> None:
        if id_ in self.state.waiting:
            return
        left = self.state.recent.get(id_)
        if left is not None and left.outcome is Outcome.DELIVERED:
            raise DelayedAlreadyDelivered("the message was delivered already")
        raise UnknownDelayed(
            "no such delayed message is pending: it was cancelled, or delivered more than 10 minutes ago, or "
            "never accepted"
        )

    def _check_open(self, id_: bytes) -> None:
        self._check_waits(id_)
        if id_ in self._moving:
            raise DelayedAlreadyDelivered("the message is being delivered; it is too late to change it")

    def _left(self, id_: bytes, outcome: Outcome) -> list[Row]:
        rows = [Row(MessageKey(id_), None, outcome)]
        if id_ in self.state.changed:
            rows.append(Row(ChangeKey(id_), None))
        return rows

    def _write(self, *rows: Row) -> None:
        if not rows:
            return
        self._wanted.append(Write(rows))
        for row in rows:
            self.state.put(row, self._wall_ms)

    # Time.

    def _collect(self) -> None:
        """What is due queues for its lane, in the order of time."""
        touched: dict[LaneKey, None] = {}
        while self._due and self._due[0][0] <= self._wall_ms:
            due_ms, id_ = heapq.heappop(self._due)
            if self._is_due(id_) and self.state.waiting[id_].due_ms == due_ms:
                one = self.state.waiting[id_]
                lane = LaneKey(one.topic, one.partition)
                self._ready.setdefault(lane, deque()).append(id_)
                touched[lane] = None
        for lane in touched:
            self._start(lane)

    def _is_due(self, id_: bytes) -> bool:
        one = self.state.waiting.get(id_)
        is_open = id_ not in self._moving and id_ not in self.state.failed
        return one is not None and is_open and one.due_ms <= self._wall_ms

    def _start(self, key: LaneKey) -> None:
        """Send the next batch of an idle lane. What was cancelled or has another time by now is left out."""
        ready, before = self._ready.get(key), self.state.lanes.get(key) or Lane(0, 0)
        if not ready or before.ids:
            return
        bytes_max = min(MOVE_BYTES_MAX, self._batch_bytes_max(key.topic))
        ids, size_bytes = dict[bytes, None](), 0
        while ready and len(ids) < MOVE_COUNT_MAX:
            one = self.state.waiting.get(ready[0])
            if one is not None and one.due_ms > self._wall_ms:  # the clock went back, or it has another time
                heapq.heappush(self._due, (one.due_ms, ready[0]))
            elif self._is_due(ready[0]):
                size_bytes += self.state.waiting[ready[0]].size_bytes
                if ids and size_bytes > bytes_max:
                    break
                ids[ready[0]] = None
            ready.popleft()
        if not ready:
            del self._ready[key]
        if ids:
            lane = Lane(before.epoch, before.sequence, tuple(ids), before.producer_id)
            self._moving.update(ids)
            self._write(Row(key, lane))
            self._move(key, lane)

    def _move(self, key: LaneKey, lane: Lane) -> None:
        producer_id = self.state.producer_id if lane.producer_id is None else lane.producer_id
        assert producer_id is not None
        self._wanted.append(Move(key, lane, producer_id))


def _next_epoch(move: Move, ids: tuple[bytes, ...], new_producer_id: int | None) -> Lane:
    """No epoch comes twice: the target would take the batch for the one that it has."""
    if not move.is_last_epoch:
        return Lane(move.batch.epoch + 1, 0, ids, move.batch.producer_id)
    assert new_producer_id is not None
    return Lane(0, 0, ids, new_producer_id)


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
