"""One run of a coordinator of transactions with producers, partitions, groups and a sink, drawn by a seed.

Requests, answers and markers are late, lost and repeated; coordinators are deposed with records half
appended. Partitions are models of what ``partitions`` promises: a marker fences its transaction.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from raftlog.errors import Conflict, ProducerFenced, RaftlogError, Rejected
from raftlog.hosting.decisions import Answer, Write
from tests.helpers.transaction_groups import GROUPS, Place, TransactionGroups
from tests.helpers.transaction_groups import PARTITIONS as INPUTS
from transactions.decisions import Decisions
from transactions.fencing import ENDING, check_takes_part
from transactions.outputs import Mark, Output, Row
from transactions.records import Handle, Participant, Sink, State, Transaction
from transactions.requests import (
    AbortBatch,
    AbortOpen,
    CommitBatch,
    Described,
    Done,
    End,
    Ended,
    Join,
    NeedsProducerId,
    Open,
    Opened,
    Prepare,
    ReadTransaction,
    Reply,
    Request,
)
from transactions.state import TransactionsState
from verification.simulator.scenarios.transactions.moves import problem_of

PARTITIONS: list[Participant] = [("out", 0), ("out", 1), ("in", 0)]
IDS = ("solo", "sink~a", "sink~b")
TIMEOUT_MS = 1_000
PREPARED_MS = 5_000
Told = Callable[[Reply | RaftlogError], None]


@dataclass
class Partition:
    """What a partition keeps of transactions."""

    fences: dict[int, int] = field(default_factory=dict)  # by producer: the lowest epoch that may write
    batches: dict[Handle, int] = field(default_factory=dict)  # of transactions
    outcomes: dict[Handle, bool] = field(default_factory=dict)  # by markers

    def append(self, handle: Handle) -> bool:
        """A batch of a transaction that has joined."""
        if handle.epoch < self.fences.get(handle.producer_id, 0):
            return False
        assert handle not in self.outcomes, f"{handle} writes behind its marker"
        self.batches[handle] = self.batches.get(handle, 0) + 1
        return True

    def mark(self, mark: Mark) -> None:
        """A marker, perhaps not for the first time."""
        handle = mark.transaction
        if handle.epoch >= self.fences.get(handle.producer_id, 0):
            self.fences[handle.producer_id] = handle.epoch + 1
            self.outcomes[handle] = mark.is_commit


@dataclass
class Epoch:
    """One coordinator, until it is deposed."""

    decisions: Decisions
    pending: list[Output] = field(default_factory=list)
    told: dict[int, Told] = field(default_factory=dict)
    open_since: dict[tuple[Handle, State], int] = field(default_factory=dict)  # as it has decided
    is_deposed: bool = False


class TransactionWorld:
    """Invariants are asserted at each step; ``finish`` heals everything and asserts the rest."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.committed = TransactionsState()
        self.partitions = {target: Partition() for target in PARTITIONS}
        self.now_ms = 1
        self.outcomes: dict[Handle, bool] = {}  # as decided
        self.asked: set[Handle] = set()  # transactions that somebody wanted to commit
        self.aborted: set[Handle] = set()  # transactions that a sink was told to be aborted
        self.owners: dict[Handle, Producer] = {}
        self.batches: dict[tuple[str, int], tuple[Handle, ...]] = {}
        self.prepared: dict[str, Handle] = {}
        self.tally: dict[str, int] = {}
        self._ids = count(1)
        self._producer_ids = count(1_000)
        self._sequence = 0
        self._waiting: list[tuple[Callable[[], None], bool]] = []  # on their way; timers are sure
        self._is_healed = False
        self.groups = TransactionGroups(self.outcomes.get, self._check_open)
        self._coordinator = self._begin()
        self.producers = [Producer(self, name) for name in IDS for _ in range(2)]

    # Steps.

    def run(self, steps: int) -> None:
        """Draw so many steps."""
        for _ in range(steps):
            choice = self.rng.random()
            if choice < 0.30:
                self.rng.choice(self.producers).act()
            elif choice < 0.34:
                self._sink_acts()
            elif choice < 0.35:
                self.send(AbortOpen(transactional_id=self.rng.choice(IDS)), lambda reply: None)
            elif choice < 0.70 and self._waiting:
                self._deliver(self.rng.randrange(len(self._waiting)))
            elif choice < 0.93:
                self._commit_one()
            elif choice < 0.97:
                self._advance(self.rng.choice((10, 300, TIMEOUT_MS)))
            elif choice < 0.985:
                self._depose()
            elif choice < 0.99:
                self.groups.fail_over()
            else:
                self.groups.take_over(self.random_place())

    def finish(self) -> None:
        """Everything arrives, nothing new begins; then each transaction has one outcome everywhere."""
        self._is_healed = True
        for _ in range(3):
            for _ in range(2_000):
                if self._waiting:
                    self._deliver(0)
                elif self._coordinator.pending:
                    self._commit_one()
                else:
                    break
            self._advance(PREPARED_MS + TIMEOUT_MS)
        assert not self._waiting, "messages without end"
        for name, found in self.committed.transactions.items():
            assert found.state in (State.EMPTY, State.COMPLETE), f"{name} hangs: {found}"
        for target, partition in self.partitions.items():
            for handle in partition.batches:
                assert handle in partition.outcomes, f"{handle} stays open in {target}"
                assert partition.outcomes[handle] == self.outcomes[handle], f"{handle} is torn in {target}"
        self.tally["offsets"] = self.groups.check_all()

    def send(self, request: Request, told: Told) -> None:
        """A request is on its way, perhaps twice; its answer may be lost."""
        for _ in range(1 if self.rng.random() < 0.8 else 2):
            self._on_its_way(partial(self._receive, request, told))

    def _receive(self, request: Request, told: Told) -> None:
        epoch, request_id = self._coordinator, next(self._ids)
        epoch.told[request_id] = told
        epoch.decisions.receive(request_id, request, self.now_ms, self.now_ms)
        self._take(epoch)

    def _deliver(self, number: int) -> None:
        message, is_sure = self._waiting.pop(number)
        if is_sure or self._is_healed or self.rng.random() > 0.03:
            message()

    def _on_its_way(self, message: Callable[[], None], *, is_sure: bool = False) -> None:
        self._waiting.append((message, is_sure))

    def _advance(self, time_ms: int) -> None:
        self.now_ms += time_ms
        if self._coordinator.decisions.next_deadline_ms() <= self.now_ms:
            self._coordinator.decisions.tick(self.now_ms, self.now_ms)
            self._coordinator.decisions.expire(self.now_ms, self.now_ms)
            self._take(self._coordinator)
        self._check_limits(self._coordinator)

    def _check_limits(self, epoch: Epoch) -> None:
        """Nothing prolongs the time of a transaction but its preparation and another coordinator."""
        before, epoch.open_since = epoch.open_since, {}
        for name, found in epoch.decisions.state.open.items():
            if found.state not in ENDING:
                place = Handle(name, found.producer_id, found.epoch), found.state
                epoch.open_since[place] = since_ms = before.get(place, self.now_ms)
                limit_ms = found.timeout_ms if found.state is State.ONGOING else found.prepared_ms_max
                assert self.now_ms - since_ms < max(1, limit_ms), f"{place} is open since {since_ms}"

    def _begin(self) -> Epoch:
        state = TransactionsState()
        state.restore(self.committed.snapshot())
        epoch = Epoch(
            Decisions(
                state,
                now_ms=self.now_ms,
                wall_ms=self.now_ms,
                id_retention_ms=1 << 40,
                key_retention_ms=1 << 40,
            )
        )
        self._take(epoch)
        return epoch

    def _depose(self) -> None:
        """Some of what was being appended is committed by the next leader."""
        old = self._coordinator
        old.is_deposed = True
        writes = [each for each in old.pending if isinstance(each, Write)]
        for write in writes[: self.rng.randint(0, len(writes))]:
            self._committed(write.rows)
        self._coordinator = self._begin()

    # What the coordinator wants.

    def _take(self, epoch: Epoch) -> None:
        for wanted in epoch.decisions.take():
            if isinstance(wanted, Answer) and wanted.is_settled:
                self._on_its_way(partial(epoch.told.pop(wanted.request_id), wanted.reply))
            else:
                epoch.pending.append(wanted)
        self._check_limits(epoch)
        self._finish_front(epoch)

    def _finish_front(self, epoch: Epoch) -> None:
        while epoch.pending and not isinstance(epoch.pending[0], Write):
            wanted = epoch.pending.pop(0)
            if isinstance(wanted, Mark):
                self._mark(epoch, wanted)
                continue
            assert isinstance(wanted, Answer)
            told, reply = epoch.told.pop(wanted.request_id), wanted.reply
            self._on_its_way(partial(told, reply))

    def _commit_one(self) -> None:
        epoch = self._coordinator
        if epoch.pending:
            write = epoch.pending.pop(0)
            assert isinstance(write, Write)
            self._committed(write.rows)
            self._finish_front(epoch)

    def _committed(self, rows: tuple[Row, ...]) -> None:
        decided: set[Handle] = set()
        for key, value in rows:
            if isinstance(value, Transaction):
                name = key.transactional_id  # type: ignore[union-attr]
                before = self.committed.transactions.get(name)
                self._check_move(name, before, value)
                if value.state in ENDING:
                    decided.add(Handle(name, value.producer_id, value.epoch))
            self.committed.put(key, value)
        for _, value in rows:
            if isinstance(value, Sink):
                assert set(value.handles) == decided, "a batch is not decided as a whole"
                batch = "sink", value.sequence
                assert self.batches.setdefault(batch, value.handles) == value.handles, "a batch came twice"

    def _check_move(self, name: str, before: Transaction | None, after: Transaction) -> None:
        problem = problem_of(before, after)
        assert problem is None, f"{name}: {problem}"
        if before is not None and before.state in ENDING:
            self._check_marked(Handle(name, before.producer_id, before.epoch), before)
        if after.state in ENDING:
            self._decided(Handle(name, after.producer_id, after.epoch), after.state is State.PREPARE_COMMIT)
        if after.last is not None:
            self._decided(Handle(name, after.last.producer_id, after.last.epoch), after.last.is_committed)

    def _check_marked(self, handle: Handle, before: Transaction) -> None:
        for target in before.partitions:
            assert handle in self.partitions[target].outcomes, f"{handle} is complete without {target}"
        for group in before.groups:
            assert self.groups.is_ended(handle, group), f"{handle} is complete without {group}"

    def _decided(self, handle: Handle, is_commit: bool) -> None:
        kind = "commits" if is_commit else "aborts"
        self.tally[kind] = self.tally.get(kind, 0) + 1
        assert handle in self.asked or not is_commit, f"nobody has committed {handle}"
        assert self.outcomes.setdefault(handle, is_commit) == is_commit, f"{handle} has two outcomes"
        assert not (is_commit and handle in self.aborted), f"{handle} was told to be aborted"

    def _mark(self, epoch: Epoch, mark: Mark) -> None:
        assert self.outcomes.get(mark.transaction) is mark.is_commit, "a marker before its decision"
        left: set[Participant | str] = {*mark.partitions, *mark.groups}

        def arrive(target: Participant | str) -> None:
            if isinstance(target, str):
                self.groups.end(mark.transaction, target, mark.is_commit)
            else:
                self.partitions[target].mark(mark)
            left.discard(target)
            complete()

        def complete() -> None:
            if not left and not epoch.is_deposed:
                epoch.decisions.completed(mark.transaction, self.now_ms, self.now_ms)
                self._take(epoch)

        def repeat() -> None:
            if left and not epoch.is_deposed:
                send()

        def send() -> None:
            for target in sorted(left, key=str):
                self._on_its_way(partial(arrive, target))
            self._on_its_way(repeat, is_sure=True)

        if left:
            send()
        else:
            self._on_its_way(complete, is_sure=True)

    # A sink, which commits what is prepared.

    def _sink_acts(self) -> None:
        handles = [handle for handle in self.prepared.values() if self.rng.random() < 0.8]
        if self.rng.random() < 0.2:
            self.send(AbortBatch(key="sink", handles=tuple(handles)), partial(self._told_aborted, handles))
            return
        if self.rng.random() < 0.8:
            self._sequence += 1
        batch = CommitBatch(key="sink", sequence=max(1, self._sequence), handles=tuple(handles))
        self.asked.update(handles)

        def told(reply: Reply | RaftlogError) -> None:
            if isinstance(reply, Done):
                assert self.batches["sink", batch.sequence] == tuple(sorted(batch.handles))
                for handle in batch.handles:
                    self.check_shown(handle, True, self.partitions_of(handle))
                self.tally["batches"] = self.tally.get("batches", 0) + bool(batch.handles)

        self.send(batch, told)

    def _told_aborted(self, handles: Iterable[Handle], reply: Reply | RaftlogError) -> None:
        """Nobody is told that a batch is aborted of which something is committed, or will be."""
        if isinstance(reply, Done):
            for handle in handles:
                assert not self.outcomes.get(handle), f"{handle} is committed, and told to be aborted"
                self.aborted.add(handle)

    def check_shown(self, handle: Handle, is_committed: bool, targets: Iterable[Participant]) -> None:
        """Whoever is told that a transaction has ended can read it, or never will."""
        assert self.outcomes[handle] is is_committed, f"{handle} is told another outcome"
        for target in targets:
            shown = self.partitions[target].outcomes.get(handle)
            assert shown is is_committed, f"{handle} has ended, and {target} does not show it"

    def partitions_of(self, handle: Handle) -> list[Participant]:
        """Those with batches of a transaction."""
        return [target for target, partition in self.partitions.items() if handle in partition.batches]

    def _check_open(self, handle: Handle, group: str, told: Callable[[RaftlogError | None], None]) -> None:
        """A group asks the coordinator that leads when the question arrives."""

        def answered(reply: Reply | RaftlogError) -> None:
            refusal: RaftlogError | None = None
            try:
                if isinstance(reply, RaftlogError):
                    raise reply
                assert isinstance(reply, Described)
                check_takes_part(handle, reply.transaction, group)
            except RaftlogError as error:
                refusal = error
            told(refusal)

        ask = ReadTransaction(transactional_id=handle.transactional_id)
        if self.rng.random() < 0.8:
            self._receive(ask, answered)
        else:
            self.send(ask, answered)

    def random_place(self) -> Place:
        """A partition of a group's input."""
        return self.rng.choice(GROUPS), self.rng.randrange(INPUTS)

    def arrive(self, message: Callable[[], None]) -> None:
        """A message to a group is on its way, perhaps twice."""
        for _ in range(1 if self.rng.random() < 0.8 else 2):
            self._on_its_way(message)

    def new_producer_id(self) -> int:
        """One that nobody has."""
        return next(self._producer_ids)


class Producer:
    """One incarnation: it opens its id, joins partitions, writes, ends. It believes every answer."""

    def __init__(self, world: TransactionWorld, name: str) -> None:
        self._world = world
        self.name = name
        self._handle: Handle | None = None
        self._joined: set[Participant] = set()
        self._written: dict[Participant, int] = {}
        self._added: dict[Place, int] = {}
        self._is_asking = False

    def act(self) -> None:
        """The next thing it does."""
        if self._is_asking and self._world.rng.random() < 0.9:
            return  # else it gives up waiting
        self._is_asking, rng = True, self._world.rng
        if self._handle is None and rng.random() < 0.9:
            self._is_asking = False  # the other incarnation goes on
        elif self._handle is None:
            self._open(-1)
        elif rng.random() < 0.3:
            self._join(self._handle, rng.choice(PARTITIONS))
        elif rng.random() < 0.5:
            self._add(self._handle, self._world.random_place())
        elif self.name != "solo" and rng.random() < 0.5:
            self._prepare(self._handle)
        else:
            self._end(self._handle, rng.random() < 0.7)

    def _open(self, producer_id: int) -> None:
        ask = Open(transactional_id=self.name, timeout_ms=TIMEOUT_MS, new_producer_id=producer_id)

        def told(reply: Reply | RaftlogError) -> None:
            self._is_asking = False
            if isinstance(reply, NeedsProducerId):
                self._is_asking = True
                self._open(self._world.new_producer_id())
            elif isinstance(reply, Opened):
                self._goes_on(Handle(self.name, reply.producer_id, reply.epoch))

        self._world.send(ask, told)

    def _join(self, handle: Handle, target: Participant) -> None:
        def told(reply: Reply | RaftlogError) -> None:
            self._is_asking = False
            if isinstance(reply, Done):
                taken = self._world.partitions[target].append(handle)
                if handle == self._handle and taken:
                    self._written[target] = self._written.get(target, 0) + 1
            elif isinstance(reply, ProducerFenced) and handle == self._handle:
                self._handle = None

        self._world.send(Join(transaction=handle, partitions=(target,)), told)

    def _add(self, handle: Handle, place: Place) -> None:
        """Have the group join, then add an offset."""
        groups = self._world.groups
        offset = groups.next_offset(handle)

        def added(is_taken: bool) -> None:
            self._is_asking = False
            if is_taken and handle == self._handle:
                self._added[place] = max(offset, self._added.get(place, 0))

        def told(reply: Reply | RaftlogError) -> None:
            self._is_asking = isinstance(reply, Done)
            if isinstance(reply, Done):
                self._world.arrive(partial(groups.add, handle, place, offset, added))
            elif isinstance(reply, ProducerFenced) and handle == self._handle:
                self._handle = None

        self._world.send(Join(transaction=handle, groups=(place[0],)), told)

    def _prepare(self, handle: Handle) -> None:
        def told(reply: Reply | RaftlogError) -> None:
            self._is_asking = False
            if isinstance(reply, Done):
                self._world.prepared[self.name] = handle
            if handle == self._handle:
                self._handle = None

        self._world.send(Prepare(transaction=handle, prepared_ms_max=PREPARED_MS), told)

    def _end(self, handle: Handle, is_commit: bool) -> None:
        def told(reply: Reply | RaftlogError) -> None:
            self._is_asking, is_own = False, handle == self._handle
            if isinstance(reply, Ended):
                self._world.check_shown(handle, reply.is_committed, self._written if is_own else ())
                self._world.groups.check_ended(handle, reply.is_committed, self._added if is_own else {})
                self._world.tally["ended"] = self._world.tally.get("ended", 0) + 1
            elif isinstance(reply, Rejected) and not isinstance(reply, Conflict):
                assert not self._world.outcomes.get(handle), f"{handle} is committed, and refused: {reply!r}"
            if is_own:
                is_next = isinstance(reply, Ended) and reply.next_epoch >= 0
                self._goes_on(
                    Handle(self.name, handle.producer_id, reply.next_epoch)
                    if is_next and isinstance(reply, Ended)
                    else None
                )

        if is_commit:
            self._world.asked.add(handle)
        self._world.send(End(transaction=handle, is_commit=is_commit), told)

    def _goes_on(self, handle: Handle | None) -> None:
        self._handle, self._written, self._added = handle, {}, {}
        if handle is not None:
            assert self._world.owners.setdefault(handle, self) is self, f"{handle} was given to two"
