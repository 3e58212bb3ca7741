"""The coordinator of all transactions of one partition of ``__transactions``, without IO.

Requests and time go in; records, answers and markers to send come out, in order. An answer, and a marker,
leaves once all records before it are committed. So no marker precedes its decision, and a coordinator that
loses its partition has decided nothing that its successor does not know: what it finds decided and not
complete, it sends again.

Decides: which transaction is open, and its outcome. Leaves to others: what is told of earlier transactions
(``fencing``), which transactions form a batch (``batches``), sending markers and appending (``coordinator``).

Times are those of this coordinator: one that takes over gives each open transaction its whole time again, so
that no clock can end a transaction too early. What is forgotten by its age goes by trusted time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, assert_never

import msgspec

from raftlog.errors import InvalidRequest, OutcomeForgotten, ProducerFenced, RaftlogError, TransactionNotFound
from raftlog.hosting.deadlines import Deadlines
from raftlog.hosting.decisions import RequestId
from raftlog.node.frame_limits import FRAME_LIMITS
from transactions import batches, keyed_requests, sinks
from transactions.expiry import too_old
from transactions.fencing import ENDING, IDLE, goes_on, is_newest, next_epoch, outcome_of, why_closed
from transactions.listing import page_of
from transactions.outcomes import known
from transactions.outputs import Output, Outputs, Row
from transactions.records import (
    EPOCH_LAST,
    Handle,
    KeyedRequest,
    Outcome,
    Participant,
    Sink,
    SinkKey,
    State,
    Transaction,
    TransactionKey,
)
from transactions.requests import (
    AbortBatch,
    AbortOpen,
    AnsweredBefore,
    BeginRun,
    Claim,
    CommitBatch,
    Described,
    Done,
    End,
    Ended,
    Join,
    Listed,
    ListTransactions,
    NeedsProducerId,
    OfOneId,
    Open,
    Opened,
    Prepare,
    ReadAnswer,
    ReadOutcomes,
    ReadTransaction,
    Request,
)
from transactions.room import KEYS_BYTES_MAX, STATE_BYTES_MAX, Room
from transactions.state import TransactionsState
from transactions.tally import AbortReason, Tally

SWEEP_MS: Final = 600_000  # how often ids that nobody uses are looked for, at least
ENDED_MAX: Final = 400  # by their age or their time, in one step: they hold the event loop for some ms
PAUSE_MS: Final = 10  # after so many, in which they are appended
TAKEN_OVER_MAX: Final = 400  # open transactions that a new leader takes over in one step: some ms
REST_MS: Final = 1  # after such a step, in which others are served
PARTITIONS_MAX: Final = 1_000  # of one transaction
GROUPS_MAX: Final = 100
INCARNATIONS_MAX: Final = 4  # of one transactional id, whose names are remembered


class Decisions:
    """``state`` is what the partition's records add up to when this broker begins to lead it."""

    def __init__(
        self,
        state: TransactionsState,
        *,
        now_ms: int,
        wall_ms: int,
        id_retention_ms: int,
        key_retention_ms: int,
        state_bytes_max: int = STATE_BYTES_MAX,
        keys_bytes_max: int = KEYS_BYTES_MAX,
        decision_bytes_max: int = FRAME_LIMITS.decision_bytes_max,
        tally: Tally | None = None,
        before: Decisions | None = None,
    ) -> None:
        """``before``: dropped decisions of this leader; open transactions keep their time limits."""
        self._tally = tally or Tally()
        self._outputs = Outputs(state.copy())
        self._id_retention_ms = id_retention_ms
        self._key_retention_ms = key_retention_ms
        self._decision_bytes_max = decision_bytes_max
        self._room = Room(
            self.state,
            state_bytes_max=state_bytes_max,
            keys_bytes_max=keys_bytes_max,
            id_retention_ms=id_retention_ms,
            key_retention_ms=key_retention_ms,
        )
        self._waiting: dict[str, dict[RequestId, Request]] = {}  # for a transaction to be complete
        self._waits_for: dict[RequestId, str] = {}
        # When an open transaction is aborted.
        self._due: Deadlines[str] = Deadlines(None if before is None else before._due)
        self._sweep_every_ms = min(SWEEP_MS, id_retention_ms, key_retention_ms)
        self._sweep_ms = now_ms + self._sweep_every_ms
        self._aborts_ms = now_ms  # when the next transactions that have exceeded their time are aborted
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._trusted_ms: int | None = None  # as far as ``expire`` was told
        self._left_behind = dict.fromkeys(self.state.open)  # transactions that have yet to be taken over
        self._rests_until_ms = now_ms
        self._catch_up()

    @property
    def state(self) -> TransactionsState:
        """The state once all written records are committed."""
        return self._outputs.state

    def take(self) -> list[Output]:
        """Take the answers, records and effects since the last call, in order."""
        return self._outputs.take()

    def next_deadline_ms(self) -> int:
        """When ``tick`` has something to do, at the latest."""
        due_ms = self._due.next_ms()
        next_ms = self._sweep_ms if due_ms is None else min(self._sweep_ms, max(self._aborts_ms, due_ms))
        return min(next_ms, self._rests_until_ms) if self._left_behind else next_ms

    def receive(self, request_id: RequestId, request: Request, now_ms: int, wall_ms: int) -> None:
        """Answered now, or once a transaction is complete. A refusal is an answer, too."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        if self._left_behind and isinstance(request, OfOneId):
            self._take_over(request.transactional_id)
        self._receive(request_id, request)

    def forget(self, request_id: RequestId, request: Request) -> None:
        """The caller has gone."""
        name = self._waits_for.pop(request_id, None)
        if name is not None:
            del self._waiting[name][request_id]
            if not self._waiting[name]:
                del self._waiting[name]

    def completed(self, handle: Handle, now_ms: int, wall_ms: int) -> None:
        """All partitions and groups of a decided transaction know its outcome."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        name = handle.transactional_id
        found = self.state.transactions.get(name)
        if found is None or not is_newest(handle, found) or found.state not in ENDING:
            return
        is_commit = found.state is State.PREPARE_COMMIT
        self._complete(name, found, is_commit=is_commit)
        for request_id, request in self._waiting.pop(name, {}).items():
            del self._waits_for[request_id]
            if isinstance(request, End):  # the decision is committed, and this record may be lost
                ended = Ended(is_committed=is_commit, next_epoch=next_epoch(handle.epoch))
                self._outputs.answer(request_id, ended, is_settled=True)
            elif isinstance(request, CommitBatch | AbortBatch):  # decided, whoever has registered since
                self._when_complete(request_id, request)
            else:
                self._receive(request_id, request)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Take over some of what earlier leaders have left, and abort some of what has exceeded its time."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        if self._left_behind and now_ms >= self._rests_until_ms:
            self._catch_up()
        if now_ms >= self._aborts_ms:
            names = list(islice(iter(lambda: self._due.take(now_ms), None), ENDED_MAX))
            self._abort_all([(name, self.state.transactions[name]) for name in names], AbortReason.TIMEOUT)
            self._aborts_ms = now_ms + _pause_ms(len(names), 0)

    def expire(self, now_ms: int, trusted_ms: int | None) -> None:
        """Forget some ids and sinks that nobody has used for the whole retention, and old answers."""
        self._trusted_ms = trusted_ms
        if now_ms >= self._sweep_ms:
            self._forget_some(now_ms)

    def _catch_up(self) -> None:
        """Take over some of the transactions that were open when this leader began."""
        for name in list(islice(self._left_behind, TAKEN_OVER_MAX)):
            self._take_over(name)
        self._rests_until_ms = self._now_ms + REST_MS
        if not self._left_behind:
            self._due.all_resumed()

    def _take_over(self, name: str) -> None:
        """Give a transaction its whole time, or send its markers again, unless that was done."""
        if name in self._left_behind:
            transaction = self.state.open[name]
            self._schedule(name, transaction, self._due.resume)
            if transaction.state in ENDING:
                self._mark(name, transaction)

    # Requests.

    def _receive(self, request_id: RequestId, request: Request) -> None:
        try:
            match request:
                case Open():
                    self._open(request_id, request)
                case Join():
                    self._join(request_id, request)
                case End():
                    self._end(request_id, request)
                case Prepare():
                    self._prepare(request_id, request)
                case BeginRun():
                    self._begin_run(request_id, request)
                case CommitBatch():
                    self._commit_batch(request_id, request)
                case AbortBatch():
                    self._abort_batch(request_id, request)
                case AbortOpen():
                    self._abort_open(request_id, request)
                case ReadAnswer():
                    self._read_answer(request_id, request)
                case ReadTransaction():
                    newest = self._existing(request.transactional_id)
                    self._outputs.answer(request_id, Described(transaction=newest))
                case ListTransactions():
                    self._outputs.answer(request_id, self._listed(request))
                case ReadOutcomes():
                    self._outputs.answer(request_id, known(self.state, request.transactions))
                case _:
                    assert_never(request)
        except RaftlogError as refusal:
            self._outputs.answer(request_id, refusal)

    def _open(self, request_id: RequestId, ask: Open) -> None:
        name = ask.transactional_id
        sinks.check_epoch(name, ask.run_epoch, self.state.sinks)
        found = self.state.transactions.get(name)
        if ask.claim is not None:
            before = keyed_requests.held_by(ask.claim, self.state)
            if before is not None:
                self._answer_before(request_id, ask, before)
                return
            self._check_key_room(ask.claim)
        if found is not None and _is_repeated(ask, found):
            self._outputs.answer(request_id, Opened(producer_id=found.producer_id, epoch=found.epoch))
            return
        if found is not None and ask.incarnation in found.incarnations:
            raise ProducerFenced(f"another incarnation has opened {name!r}", current_epoch=found.epoch)
        if ask.after is not None and (found is None or not goes_on(ask.after, found)):
            raise ProducerFenced(
                f"another incarnation has opened {name!r}",
                current_epoch=-1 if found is None else found.epoch,
            )
        if found is None:
            self._check_new(name, ask.client)
        if found is not None and found.state in ENDING:
            self._wait(request_id, name, ask)
        elif found is not None and found.state is State.PREPARED:
            raise batches.still_prepared(name)
        elif found is not None and found.state is State.ONGOING:
            self._decide([(name, found)], abort=AbortReason.FENCED)
            self._wait(request_id, name, ask)
        elif found is None or found.epoch >= EPOCH_LAST:
            if ask.new_producer_id < 0:
                self._outputs.answer(request_id, NeedsProducerId())
                return
            self._begin(request_id, ask, ask.new_producer_id, 0, found)
        else:
            self._begin(request_id, ask, found.producer_id, found.epoch + 1, found)

    def _begin(
        self, request_id: RequestId, ask: Open, producer_id: int, epoch: int, before: Transaction | None
    ) -> None:
        name, claim = ask.transactional_id, ask.claim
        _check_participants(ask.partitions, ())
        has_begun = bool(ask.partitions or claim)
        new = Transaction(
            producer_id=producer_id,
            epoch=epoch,
            state=State.ONGOING if has_begun else State.EMPTY,
            partitions=tuple(sorted(ask.partitions)),
            timeout_ms=ask.timeout_ms,
            began_ms=self._wall_ms if has_begun else 0,
            changed_ms=self._wall_ms,
            last=None if before is None else before.last,
            request=b"" if claim is None else claim.digest,
            run_epoch=ask.run_epoch,
            client=ask.client if before is None else before.client,
            incarnations=_incarnations(ask, before),
        )
        if new.client:  # as many of the brokers' own ids are open as requests are handled
            self._check_parts(name, before, new)
        handle = Handle(name, producer_id, epoch)
        rows = () if claim is None else (keyed_requests.claimed(claim, handle, self._wall_ms),)
        self._put(name, new, *rows)
        self._outputs.answer(request_id, Opened(producer_id=producer_id, epoch=epoch))

    def _read_answer(self, request_id: RequestId, ask: ReadAnswer) -> None:
        before = keyed_requests.held_by(ask.claim, self.state)
        if before is None:
            self._outputs.answer(request_id, Done())
        else:
            self._answer_before(request_id, ask, before)

    def _answer_before(self, request_id: RequestId, ask: Open | ReadAnswer, before: KeyedRequest) -> None:
        """Once all of its records are visible."""
        name = keyed_requests.waits_for(before, self.state)
        if name is not None:
            self._wait(request_id, name, ask)
        else:
            self._outputs.answer(request_id, AnsweredBefore(answer=before.answer or b""))

    def _join(self, request_id: RequestId, ask: Join) -> None:
        """From the first partition or group on, the transaction is open, and its time runs."""
        name, found = self._open_one(ask.transaction)
        sinks.check_epoch(name, found.run_epoch, self.state.sinks)
        partitions = tuple(sorted({*found.partitions, *ask.partitions}))
        groups = tuple(sorted({*found.groups, *ask.groups}))
        _check_participants(partitions, groups)
        if (partitions, groups) != (found.partitions, found.groups):
            joined = msgspec.structs.replace(
                found, partitions=partitions, groups=groups, changed_ms=self._wall_ms
            )
            self._check_parts(name, found, joined)
            if found.state in IDLE:
                joined = msgspec.structs.replace(joined, state=State.ONGOING, began_ms=self._wall_ms)
            self._put(name, joined)
        self._outputs.answer(request_id, Done())

    def _end(self, request_id: RequestId, ask: End) -> None:
        handle, name = ask.transaction, ask.transactional_id
        found = self.state.transactions.get(name)
        if found is None:
            raise OutcomeForgotten(f"transactional id {name!r} is not known, perhaps not any more")
        if not is_newest(handle, found):
            outcome = outcome_of(handle, found)
            self._outputs.answer(
                request_id, Ended(is_committed=outcome.is_committed, next_epoch=next_epoch(handle.epoch))
            )
        elif found.state in ENDING:
            self._wait(request_id, name, ask)
        elif found.state in IDLE:  # a batch may be on its way: the epoch rises
            self._complete(name, found, is_commit=ask.is_commit)
            self._receive(request_id, ask)
        elif found.state is State.PREPARED and ask.is_commit:
            raise batches.not_alone(name)
        else:
            if ask.is_commit:
                keyed_requests.check_committable(handle, found, ask.answer)
            abort = None if ask.is_commit else AbortReason.PRODUCER
            self._decide([(name, found)], abort=abort, answer=ask.answer)
            self._wait(request_id, name, ask)

    def _prepare(self, request_id: RequestId, ask: Prepare) -> None:
        name = ask.transactional_id
        found = self._existing(name)
        if not (is_newest(ask.transaction, found) and found.state is State.PREPARED):
            self._open_one(ask.transaction)
            sinks.check_epoch(name, found.run_epoch, self.state.sinks)
            batches.check_sink(name)
            keyed_requests.check_committable(ask.transaction, found, None)
            prepared = msgspec.structs.replace(
                found,
                state=State.PREPARED,
                prepared_ms_max=ask.prepared_ms_max,
                began_ms=found.began_ms or self._wall_ms,
                changed_ms=self._wall_ms,
            )
            self._put(name, prepared)
        self._outputs.answer(request_id, Done())

    def _commit_batch(self, request_id: RequestId, ask: CommitBatch) -> None:
        before = self.state.sinks.get(ask.key)
        sinks.check_driver(ask, before)
        if before is None:
            self._check_new(ask.key, ask.client)
        if before is None or sinks.is_new_batch(ask, before):
            chosen = batches.chosen(ask.key, ask.handles, self._existing, self._decision_bytes_max)
            sink = sinks.after(ask, before, self._wall_ms)
            self._check_parts(ask.key, before, sink, chosen)
            self._decide(chosen, abort=None, beside=((SinkKey(ask.key), sink),))
            if ask.run:  # attempts that do not count
                self._abort_all(batches.open_of(ask.key, self.state), AbortReason.PRODUCER)
        else:
            batches.check_repeated(ask.key, ask.sequence, ask.handles, before)
        self._when_complete(request_id, ask)

    def _begin_run(self, request_id: RequestId, ask: BeginRun) -> None:
        before = self.state.sinks.get(ask.key)
        if before is None:
            self._check_new(ask.key, ask.client)
        sink = sinks.registered(ask, before, self._wall_ms)
        if sink is not None:
            self._check_parts(ask.key, before, sink)
            self._outputs.write((SinkKey(ask.key), sink))
            of_others = batches.open_of(ask.key, self.state)
            self._abort_all([one for one in of_others if one[1].run_epoch != sink.epoch], AbortReason.FENCED)
        newest = sink or before
        assert newest is not None, "a sink that nobody knows gets its first run"
        self._outputs.answer(request_id, sinks.begun(ask, newest))

    def _abort_batch(self, request_id: RequestId, ask: AbortBatch) -> None:
        self._abort_all(batches.abortable(ask.key, ask.handles, self._existing), AbortReason.PRODUCER)
        if ask.run_epoch:
            of_sink = batches.open_of(ask.key, self.state)
            self._abort_all(
                [one for one in of_sink if one[1].run_epoch == ask.run_epoch], AbortReason.PRODUCER
            )
        self._when_complete(request_id, ask)

    def _abort_all(self, chosen: batches.Chosen, reason: AbortReason) -> None:
        """However many there are: they need not end together."""
        for one in chosen:
            self._decide([one], abort=reason)

    def _abort_open(self, request_id: RequestId, ask: AbortOpen) -> None:
        name, found = ask.transactional_id, self._existing(ask.transactional_id)
        is_meant = ask.transaction in (None, (found.producer_id, found.epoch))
        if is_meant and found.state in (State.ONGOING, State.PREPARED):
            self._decide([(name, found)], abort=AbortReason.OPERATOR)
        if self.state.transactions[name].state in ENDING:
            self._wait(request_id, name, ask)
        else:
            self._outputs.answer(request_id, Done())

    # Parts.

    def _listed(self, ask: ListTransactions) -> Listed:
        names = self.state.open_names if ask.open_only else self.state.names
        known = self.state.transactions
        page = page_of((name, known[name]) for name in names.after(ask.after, ask.count_max))
        return Listed(transactions=page.transactions, has_more=page.has_more)

    def _existing(self, name: str) -> Transaction:
        found = self.state.transactions.get(name)
        if found is None:
            raise TransactionNotFound(f"there is no transactional id {name!r}; open it first")
        return found

    def _open_one(self, handle: Handle) -> tuple[str, Transaction]:
        """Raises what its producer is told if the transaction takes nothing more."""
        found = self._existing(handle.transactional_id)
        error = why_closed(handle, found)
        if error is not None:
            raise error
        return handle.transactional_id, found

    def _decide(
        self,
        chosen: Iterable[tuple[str, Transaction]],
        *,
        abort: AbortReason | None,
        answer: bytes | None = None,
        beside: tuple[Row, ...] = (),
    ) -> None:
        """Commit or abort all, in one batch of records; the markers follow once it is committed."""
        state = State.PREPARE_COMMIT if abort is None else State.PREPARE_ABORT
        decided = [
            (name, msgspec.structs.replace(found, state=state, changed_ms=self._wall_ms))
            for name, found in chosen
        ]
        self._tally.decided(len(decided), abort)
        rows: list[Row] = [(TransactionKey(name), transaction) for name, transaction in decided]
        for _, transaction in decided:
            if transaction.request:
                stored = answer if abort is None else None
                rows.append(keyed_requests.decided(transaction.request, stored, self.state, self._wall_ms))
        if rows or beside:
            self._outputs.write(*rows, *beside, frees_room=True)
        for name, transaction in decided:
            self._schedule(name, transaction)
            self._mark(name, transaction)

    def _mark(self, name: str, transaction: Transaction) -> None:
        self._outputs.mark(name, transaction, is_commit=transaction.state is State.PREPARE_COMMIT)

    def _complete(self, name: str, found: Transaction, *, is_commit: bool) -> None:
        """The epoch rises: what is still on its way for this transaction is refused from now on."""
        self._put(
            name,
            Transaction(
                producer_id=found.producer_id,
                epoch=found.epoch + 1,
                state=State.COMPLETE,
                timeout_ms=found.timeout_ms,
                changed_ms=self._wall_ms,
                last=Outcome(found.producer_id, found.epoch, is_commit),
                run_epoch=found.run_epoch,
                client=found.client,
                incarnations=found.incarnations,
            ),
            frees_room=True,
        )

    def _wait(self, request_id: RequestId, name: str, request: Request) -> None:
        """Receive the request again when the transaction is complete."""
        self._waiting.setdefault(name, {})[request_id] = request
        self._waits_for[request_id] = name

    def _when_complete(self, request_id: RequestId, ask: CommitBatch | AbortBatch) -> None:
        """Answer once all transactions of a batch are complete."""
        for handle in ask.handles:
            found = self.state.transactions.get(handle.transactional_id)
            if found is not None and is_newest(handle, found) and found.state in ENDING:
                self._wait(request_id, handle.transactional_id, ask)
                return
        self._outputs.answer(request_id, Done())

    def _put(self, name: str, transaction: Transaction, *beside: Row, frees_room: bool = False) -> None:
        self._outputs.write((TransactionKey(name), transaction), *beside, frees_room=frees_room)
        self._schedule(name, transaction)

    def _schedule(
        self, name: str, transaction: Transaction, set_due: Callable[[str, int], None] | None = None
    ) -> None:
        """The time of a transaction runs from its first partition on, and again from its preparation on."""
        self._left_behind.pop(name, None)
        limits_ms = {State.ONGOING: transaction.timeout_ms, State.PREPARED: transaction.prepared_ms_max}
        limit_ms = limits_ms.get(transaction.state)
        if limit_ms is None:
            self._due.discard(name)
            return
        if transaction.state is State.ONGOING and name in self._due:
            return  # another partition gives it no more time
        (set_due or self._due.set)(name, self._now_ms + limit_ms)

    def _check_new(self, name: str, client: str) -> None:
        self._room.check_new(name, client, self._wall_ms, self._sweep_ms - self._now_ms)

    def _check_parts(
        self,
        name: str,
        before: Transaction | Sink | None,
        after: Transaction | Sink,
        ending: Iterable[tuple[str, Transaction]] = (),
    ) -> None:
        ends_ms = self._due.next_ms() or self._sweep_ms  # an end frees room
        self._room.check_parts(name, before, after, ends_ms - self._now_ms, ending)

    def _check_key_room(self, claim: Claim) -> None:
        """Check the room for a key, after expired keys were forgotten if needed; see ``Room.check_key``."""
        client = claim.client
        if claim.digest in self.state.requests or self._room.has_for_key(client):
            return
        if self._room.key_due(client, self._wall_ms) <= self._wall_ms:
            self._forget_some(self._now_ms)
        self._room.check_key(client, self._wall_ms)

    def _forget_some(self, now_ms: int) -> None:
        """Forget some of what is too old, and say when there is more to forget."""
        self._room.expired()
        retentions_ms = self._id_retention_ms, self._key_retention_ms
        rows = list(islice(too_old(self.state, self._trusted_ms, *retentions_ms), ENDED_MAX))
        for row in rows:
            self._outputs.write(row)
        self._sweep_ms = now_ms + _pause_ms(len(rows), self._sweep_every_ms)


def _pause_ms(ended: int, rest_ms: int) -> int:
    """The time until the next step: a short one after a whole step, as more may be left."""
    return PAUSE_MS if ended == ENDED_MAX else rest_ms


def _check_participants(partitions: Sequence[Participant], groups: Sequence[str]) -> None:
    if len(partitions) > PARTITIONS_MAX:
        raise InvalidRequest(
            f"a transaction has at most {PARTITIONS_MAX} partitions; write to fewer or commit more often",
            field="partition",
        )
    if len(groups) > GROUPS_MAX:
        raise InvalidRequest(
            f"group: a transaction has offsets of at most {GROUPS_MAX} groups; commit earlier", field="group"
        )


def _is_repeated(ask: Open, found: Transaction) -> bool:
    """Whether this very request has opened the id."""
    if ask.incarnation:
        return ask.incarnation in found.incarnations[-1:]
    return (found.producer_id, found.epoch, found.state) == (ask.new_producer_id, 0, State.EMPTY)


def _incarnations(ask: Open, before: Transaction | None) -> tuple[str, ...]:
    """A late copy of an opening must not fence the opening after it."""
    known = () if before is None else before.incarnations
    return (*known, ask.incarnation)[-INCARNATIONS_MAX:] if ask.incarnation else known
