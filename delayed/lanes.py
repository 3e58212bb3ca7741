"""Lanes to the target partitions: the due messages, and the next batch of each lane.

A lane has at most one batch in delivery. The batch's messages and sequence are committed before the batch is
sent, so a new leader sends an equal batch again, and the target recognises the duplicate.

Decides: the messages of a batch, and the effect of its outcome. Leaves to others: requests (``decisions``),
reading and appending (``coordinator``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from msgspec.structs import replace

from delayed.draft import IDLE_MS, Draft, wait_ms
from delayed.due_times import DueTimes
from delayed.pending import Waiting
from delayed.records import ChangeKey, Lane, LaneKey, Outcome, Row
from delayed.tally import Tally
from delayed.values import BytesMax, Move, Sweep
from raftlog.records.batch import SEQUENCE_MAX

MOVE_COUNT_MAX: Final = 400  # so that their tombstones and the lane fit into one batch of records
MOVE_BYTES_MAX: Final = 512 << 10
SWEEP_MS: Final = IDLE_MS
ROWS_MAX: Final = 500  # of one batch


class Lanes:
    """All lanes of one partition of ``__delayed``, in one leader epoch."""

    def __init__(self, draft: Draft, batch_bytes_max: BytesMax, tally: Tally) -> None:
        self._draft = draft
        self._state = draft.state
        self._batch_bytes_max = batch_bytes_max
        self._tally = tally
        self._due = DueTimes(self._state)
        self._ready: dict[LaneKey, deque[bytes]] = {}  # due messages that are not in delivery yet
        self._moving = {id_ for lane in self._state.lanes.values() for id_ in lane.ids}
        self._sweep_ms = draft.now_ms + SWEEP_MS
        for key, lane in sorted(each for each in self._state.lanes.items() if each[1].ids):
            self._move(key, lane)

    @property
    def due_count(self) -> int:
        """The number of due messages that are not delivered yet."""
        return len(self._moving) + sum(map(len, self._ready.values()))

    def oldest_due_ms(self) -> int | None:
        """The earliest time of the due messages in milliseconds; None without a due message."""
        firsts = [lane.ids[0] for lane in self._state.lanes.values() if lane.ids]
        firsts += (ready[0] for ready in self._ready.values())
        times = map(self._state.waiting.due_of, firsts)
        return min((due_ms for due_ms in times if due_ms is not None), default=None)

    def first_due_ms(self, topic: str | None) -> int | None:
        """The earliest time of the messages of one topic, or of all topics (None), except failed messages."""
        sent = (key for key, lane in self._state.lanes.items() if lane.ids)
        if any(topic in (None, key.topic) for key in chain(self._ready, sent)):
            return self._draft.wall_ms
        return self._due.first_ms(topic)

    def add(self, id_: bytes) -> None:
        """Add a new or rescheduled message."""
        self._due.add(self._state.waiting[id_].due_ms, id_)

    def is_moving(self, id_: bytes) -> bool:
        """Whether a message is in delivery, so that it cannot be changed."""
        return id_ in self._moving

    def deadline_ms(self) -> int:
        """The time in milliseconds at which ``collect`` must be called at the latest.

        Early enough to notice a jump of the wall clock.
        """
        draft, next_ms = self._draft, self._due.next_ms()
        if not self._due.is_complete:
            return draft.now_ms
        return draft.now_ms + wait_ms(None if next_ms is None else next_ms - draft.wall_ms)

    def collect(self) -> None:
        """Queue due messages for their lanes, in the order of their times."""
        self._sweep()
        if not self._due.is_complete:
            self._due.read_some()
        if not self._due.is_complete:
            return
        touched: dict[LaneKey, None] = {}
        for id_ in self._due.take(self._draft.wall_ms):
            one = self._state.waiting.find(id_)
            if one is not None and self._is_due(id_, one):
                lane = LaneKey(one.topic, one.partition)
                self._ready.setdefault(lane, deque()).append(id_)
                touched[lane] = None
        for lane in touched:
            self._start(lane)

    # Outcomes of a move.

    def delivered(self, move: Move) -> None:
        """Remove the messages of a delivered batch, and send the lane's next batch."""
        rows: list[Row] = []
        for id_ in move.batch.ids:
            leaving = self._draft.leaving(id_, Outcome.DELIVERED)
            self._tally.note_delivered(self._draft.wall_ms - leaving[0].due_ms)
            rows += leaving
        following = (move.batch.sequence + len(move.batch.ids)) & SEQUENCE_MAX
        self._moving.difference_update(move.batch.ids)
        idle = Lane(move.batch.epoch, following, producer_id=move.batch.producer_id)
        self._draft.write(*rows, Row(move.lane, idle))
        self._start(move.lane)

    def refused(
        self, move: Move, reason: str, *, is_gone: bool, new_producer_id: int | None
    ) -> tuple[bytes, ...]:
        """Handle a batch that the target will never store: try each message alone, then mark it as failed.

        With ``is_gone`` the partition was deleted: all messages of the batch fail, and the lane is deleted.
        ``new_producer_id`` is used after the last producer epoch. Returns the failed messages.
        """
        ids = move.batch.ids
        if len(ids) > 1 and not is_gone:
            self._resend(move, ids[:1], ids[1:], new_producer_id)
            return ()
        rows = [Row(ChangeKey(id_), self._draft.change_of(id_, failed=reason)) for id_ in ids]
        self._tally.failed += len(ids)
        self._moving.difference_update(ids)
        self._draft.write(*rows, Row(move.lane, None if is_gone else _next_epoch(move, (), new_producer_id)))
        self._start(move.lane)
        return ids

    def out_of_order(self, move: Move, new_producer_id: int | None) -> None:
        """Send the batch again in a new producer epoch: the target has lost the lane's producer state."""
        self._resend(move, move.batch.ids, (), new_producer_id)

    def redirected(self, move: Move, partitions: Sequence[int], new_producer_id: int | None) -> None:
        """Give each message another target partition, because the batch's target is decommissioned."""
        ids = move.batch.ids
        rows = [
            Row(ChangeKey(id_), replace(self._draft.change_of(id_), partition=partition))
            for id_, partition in zip(ids, partitions, strict=True)
        ]
        self._moving.difference_update(ids)
        self._draft.write(*rows, Row(move.lane, _next_epoch(move, (), new_producer_id)))
        for id_ in ids:
            self.add(id_)
        self._start(move.lane)

    def gone(self, sweep: Sweep, gone: Iterable[LaneKey]) -> None:
        """Delete lanes whose partitions did not exist at some time after the sweep began.

        A lane that was used since then may lead to a new partition with an equal name, so it stays.
        """
        rows = [Row(key, None) for key in gone if self._state.lanes.get(key) is sweep.lanes[key]]
        for first in range(0, len(rows), ROWS_MAX):
            self._draft.write(*rows[first : first + ROWS_MAX])

    def _resend(
        self, move: Move, ids: tuple[bytes, ...], later: tuple[bytes, ...], new_producer_id: int | None
    ) -> None:
        self._moving.difference_update(later)
        self._ready.setdefault(move.lane, deque()).extendleft(reversed(later))
        lane = _next_epoch(move, ids, new_producer_id)
        self._draft.write(Row(move.lane, lane))
        self._move(move.lane, lane)

    # The next batch.

    def _is_due(self, id_: bytes, one: Waiting) -> bool:
        is_open = id_ not in self._moving and id_ not in self._state.failed
        return is_open and one.due_ms <= self._draft.wall_ms

    def _start(self, key: LaneKey) -> None:
        """Send the next batch of an idle lane. Messages that were cancelled or rescheduled are left out."""
        ready, before = self._ready.get(key), self._state.lanes.get(key) or Lane(0, 0)
        if not ready or before.ids:
            return
        bytes_max = min(MOVE_BYTES_MAX, self._batch_bytes_max(key.topic))
        ids, size_bytes = dict[bytes, None](), 0
        while ready and len(ids) < MOVE_COUNT_MAX:
            one = self._state.waiting.find(ready[0])
            if one is not None and one.due_ms > self._draft.wall_ms:  # the clock went back, or a new time
                self._due.add(one.due_ms, ready[0])
            elif one is not None and self._is_due(ready[0], one):
                size_bytes += one.size_bytes
                if ids and size_bytes > bytes_max:
                    break
                ids[ready[0]] = None
            ready.popleft()
        if not ready:
            del self._ready[key]
        if ids:
            lane = Lane(before.epoch, before.sequence, tuple(ids), before.producer_id)
            self._moving.update(ids)
            self._draft.write(Row(key, lane))
            self._move(key, lane)

    def _move(self, key: LaneKey, lane: Lane) -> None:
        producer_id = self._state.producer_id if lane.producer_id is None else lane.producer_id
        assert producer_id is not None
        self._draft.perform(Move(key, lane, producer_id))

    def _sweep(self) -> None:
        """Ask whether the partitions of idle lanes still exist, in order to delete lanes of deleted
        partitions.
        """
        if self._draft.now_ms < self._sweep_ms:
            return
        self._sweep_ms = self._draft.now_ms + SWEEP_MS
        idle = {key: lane for key, lane in self._state.lanes.items() if not lane.ids}
        if idle:
            self._draft.perform(Sweep(idle))


def _next_epoch(move: Move, ids: tuple[bytes, ...], new_producer_id: int | None) -> Lane:
    """The lane in its next producer epoch. An epoch is never reused: the target would detect a duplicate."""
    if not move.is_last_epoch:
        return Lane(move.batch.epoch + 1, 0, ids, move.batch.producer_id)
    assert new_producer_id is not None
    return Lane(0, 0, ids, new_producer_id)
