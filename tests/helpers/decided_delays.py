"""A coordinator of delayed messages whose records are committed when the test says so, and its targets."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from delayed.decisions import BYTES_MAX, Decisions
from delayed.records import KINDS, LaneKey, Message, Missed, Row, Schedule, record_of
from delayed.requests import Add, CreateSchedule, NewMessage, Reply, Request, When
from delayed.state import DelayedState
from delayed.values import Move, Sweep, SweepTopics
from raftlog.errors import OutOfOrderSequence, ProducerFenced, RaftlogError
from raftlog.hosting.decisions import Answer, Write
from raftlog.records.aborted import AbortedRanges
from raftlog.records.batch import Batch, Codec, split_batches, stamp
from raftlog.records.builder import build_batch
from raftlog.records.reader import read_records
from raftlog.storage.compaction import Compaction, NewestOffsets, Round

WINDOW = 5
MINUTE_MS = 60_000
EACH_MINUTE = "* * * * *"


def id_of(number: int) -> bytes:
    """The id of the n-th message."""
    return number.to_bytes(12, "big")


def new(number: int, *, partition: int = 0, delay_ms: int = -1, at_ms: int = -1) -> NewMessage:
    """A message whose value is its number."""
    when = When(delay_ms, at_ms)
    return NewMessage(id_of(number), partition, when, b"%d" % number, None, (), None)


def add(*messages: NewMessage, topic: str = "orders", delay_ms_max: int = -1) -> Add:
    """A request that brings a producer id."""
    return Add(topic=topic, topic_id=topic, messages=messages, delay_ms_max=delay_ms_max, new_producer_id=7)


def schedule(cron: str = EACH_MINUTE, *, missed: Missed = Missed.ONCE, zone: str = "UTC") -> Schedule:
    """One for the topic of orders."""
    return Schedule(
        topic="orders",
        topic_id="orders",
        partition=0,
        cron=cron,
        time_zone=zone,
        missed=missed,
        created_ms=0,
        after_ms=0,
        value=b"tick",
    )


def create(name: str = "s", wanted: Schedule | None = None) -> CreateSchedule:
    """A request that brings a producer id."""
    return CreateSchedule(id=name, schedule=wanted or schedule(), new_producer_id=7)


@dataclass
class Target:
    """A partition that recognises the newest batches of a producer, as ``partitions.replica.producers``."""

    delivered: list[tuple[int, bytes]] = field(default_factory=list)  # when, and which
    epoch: int = -1
    window: list[tuple[int, int]] = field(default_factory=list)
    producer_id: int = -1  # the newest
    others: dict[int, tuple[int, list[tuple[int, int]]]] = field(default_factory=dict)

    def append(self, move: Move, wall_ms: int) -> None:
        """Raises what a partition raises."""
        if move.producer_id != self.producer_id:
            self.others[self.producer_id] = self.epoch, self.window
            self.producer_id = move.producer_id
            self.epoch, self.window = self.others.get(move.producer_id, (-1, []))
        epoch, first = move.batch.epoch, move.batch.sequence
        if epoch < self.epoch:
            raise ProducerFenced("an old epoch")
        batch = (first, first + len(move.batch.ids))
        if epoch == self.epoch and batch in self.window:
            return
        if self.epoch >= 0 and first != (self.window[-1][1] if epoch == self.epoch else 0):
            raise OutOfOrderSequence(f"{first} after {self.window}")
        self.window = [*(self.window if epoch == self.epoch else ()), batch][-WINDOW:]
        self.epoch = epoch
        self.delivered += ((wall_ms, id_) for id_ in move.batch.ids)


class Coordinator:
    """Decisions of one leader after another. ``commit`` commits what they want so far, in order."""

    def __init__(
        self,
        *,
        wall_ms: int = 1_000_000,
        pending_max: int = 4_000,
        bytes_max: int = 1 << 20,
        pending_bytes_max: int = BYTES_MAX,
    ) -> None:
        self.wall_ms = wall_ms
        self.pending_max, self.bytes_max = pending_max, bytes_max
        self.pending_bytes_max = pending_bytes_max
        self.has_room = True  # on the disk of this leader, above the reserve
        self.committed = DelayedState()
        self.targets: dict[LaneKey, Target] = defaultdict(Target)
        self.moves: list[Move] = []
        self.late: list[Move] = []  # of leaders that are dead
        self.sweeps: list[Sweep] = []
        self.topic_sweeps: list[SweepTopics] = []
        self.replies: dict[int, Reply | RaftlogError] = {}
        self._offset = self._ids = 0
        self._log: list[Batch] = []
        self.lead()

    def lead(self) -> None:
        """A new leader begins with what is committed; all else is lost."""
        state = DelayedState()
        state.restore(self.committed.snapshot())
        self.late += self.moves
        self.moves = []
        self.decisions = Decisions(
            state,
            now_ms=self.wall_ms,
            wall_ms=self.wall_ms,
            pending_max=self.pending_max,
            pending_bytes_max=self.pending_bytes_max,
            batch_bytes_max=lambda topic: self.bytes_max,
            has_room=lambda: self.has_room,
        )

    def send(self, request: Request) -> int:
        """Nothing is committed yet; gives the number of the request."""
        self._ids += 1
        self.decisions.receive(self._ids, request, self.wall_ms, self.wall_ms)
        return self._ids

    def ask(self, request: Request) -> Reply | RaftlogError:
        """The reply, once all is committed."""
        number = self.send(request)
        self.commit()
        return self.replies[number]

    def commit(self, count: int | None = None) -> None:
        """Carry out what is wanted; with ``count`` the leader dies after so many."""
        wanted = self.decisions.take()
        for each in wanted[:count]:
            match each:
                case Write(rows, frees_room):
                    assert self.has_room or frees_room, "the leader begins again"
                    self._append(rows)
                case Answer(number, reply):
                    self.replies[number] = reply
                case Move():
                    self.moves.append(each)
                case Sweep():
                    self.sweeps.append(each)
                case SweepTopics():
                    self.topic_sweeps.append(each)
        if count is not None:
            self.lead()

    def advance(self, by_ms: int) -> None:
        """Time passes, for this coordinator at least."""
        self.wall_ms += by_ms
        self.decisions.tick(self.wall_ms, self.wall_ms)
        self.commit()

    def deliver(self) -> None:
        """All batches arrive, and those that follow them, until none is on its way."""
        self.commit()
        while self.moves:
            move = self.moves.pop(0)
            try:
                self.targets[move.lane].append(move, self.wall_ms)
            except (OutOfOrderSequence, ProducerFenced):
                self.decisions.out_of_order(move, self.wall_ms, self.wall_ms)
            else:
                self.decisions.delivered(move, self.wall_ms, self.wall_ms)
            self.commit()

    def values(self, topic: str = "orders", partition: int = 0) -> list[int]:
        """The numbers of the messages that a target has, in order."""
        return [int.from_bytes(id_, "big") for _, id_ in self.targets[LaneKey(topic, partition)].delivered]

    def messages(self) -> list[Message]:
        """All that were accepted, as their records have them."""
        records = (record for batch in self._log for record in read_records(batch))
        found = (KINDS.decoded(record.key, record.value) for record in records)
        return [known[1] for known in found if known is not None and isinstance(known[1], Message)]

    @property
    def end_offset(self) -> int:
        """Of the log."""
        return self._offset

    def replayed(self, *, compacted_to: int) -> DelayedState:
        """The state of a replica that got the log when a round of compaction had ended at this offset."""
        newest = NewestOffsets(1 << 20, AbortedRanges())
        clean = [batch for batch in self._log if batch.last_offset < compacted_to]
        for batch in clean:
            newest.note(batch)
        compaction = Compaction(Round(newest, compacted_to))
        state = DelayedState()
        for batch in [*compaction.feed(clean), *compaction.flush(), *self._log[len(clean) :]]:
            state.apply(batch)
        return state

    def _append(self, rows: tuple[Row, ...]) -> None:
        data = build_batch([record_of(row) for row in rows], codec=Codec.NONE, timestamp_ms=self.wall_ms)
        batch = stamp(data, base_offset=self._offset, leader_epoch=1, append_time_ms=self.wall_ms)
        self._offset += len(rows)
        self._log.append(split_batches(batch.data)[0])
        self.committed.apply(self._log[-1])
