"""Decisions of the coordinator of all transactions of one partition of ``__transactions``, without IO.

The inputs are requests and time; the outputs are records, answers and markers to send, in order. An answer or
a marker is sent once all earlier records are committed. So no marker precedes its decision, and the next
coordinator knows all decisions: it sends the markers of decided, incomplete transactions again.

Decides: which transaction is open, and its outcome. Leaves to others: errors about earlier transactions
(``fencing``), which transactions form a batch (``batches``), sending markers and appending (``coordinator``).

Time limits run on this coordinator's clock: a new coordinator gives each open transaction its whole time
again, so no clock can end a transaction too early. Rows expire by trusted time.
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

SWEEP_MS: Final = 600_000  # maximum interval of the search for unused ids
ENDED_MAX: Final = 400  # transactions or rows that one step ends, which blocks the event loop for some ms
PAUSE_MS: Final = 10  # after such a step, to append its records
TAKEN_OVER_MAX: Final = 400  # open transactions that one step takes over, which blocks the loop for some ms
REST_MS: Final = 1  # after such a step, to serve other tasks
PARTITIONS_MAX: Final = 1_000  # of one transaction
GROUPS_MAX: Final = 100
INCARNATIONS_MAX: Final = 4  # remembered incarnations of one transactional id


class Decisions:
    """Decisions of one leader about all transactions of a partition, which begin with ``state``."""

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
        """``before`` are dropped decisions of this leader: open transactions keep their time limits."""
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
        self._waiting: dict[str, dict[RequestId, Request]] = {}  # requests waiting for complete transactions
        self._waits_for: dict[RequestId, str] = {}
        # Times at which open transactions are aborted.
        self._due: Deadlines[str] = Deadlines(None if before is None else before._due)
        self._sweep_every_ms = min(SWEEP_MS, id_retention_ms, key_retention_ms)
        self._sweep_ms = now_ms + self._sweep_every_ms
        self._aborts_ms = now_ms  # earliest time of the next aborts of transactions above their time limits
        self._now_ms, self._wall_ms = now_ms, wall_ms
        self._trusted_ms: int | None = None  # of the newest call of ``expire``
        self._left_behind = dict.fromkeys(self.state.open)  # transactions that are not taken over yet
        self._rests_until_ms = now_ms
        self._catch_up()

    @property
    def state(self) -> TransactionsState:
        """The state that is reached once all written records are committed."""
        return self._outputs.state

    def take(self) -> list[Output]:
        """Take the answers, records and effects that were added since the last call, in order."""
        return self._outputs.take()

    def next_deadline_ms(self) -> int:
        """The time in milliseconds at which ``tick`` must be called at the latest."""
        due_ms = self._due.next_ms()
        next_ms = self._sweep_ms if due_ms is None else min(self._sweep_ms, max(self._aborts_ms, due_ms))
        return min(next_ms, self._rests_until_ms) if self._left_behind else next_ms

    def receive(self, request_id: RequestId, request: Request, now_ms: int, wall_ms: int) -> None:
        """Handle a request; the answer is among the outputs now, or once a transaction is complete."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        if self._left_behind and isinstance(request, OfOneId):
            self._take_over(request.transactional_id)
        self._receive(request_id, request)

    def forget(self, request_id: RequestId, request: Request) -> None:
        """Drop a waiting request, because its caller has gone."""
        name = self._waits_for.pop(request_id, None)
        if name is not None:
            del self._waiting[name][request_id]
            if not self._waiting[name]:
                del self._waiting[name]

    def completed(self, handle: Handle, now_ms: int, wall_ms: int) -> None:
        """Complete a decided transaction, because all its partitions and groups have the outcome."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        name = handle.transactional_id
        found = self.state.transactions.get(name)
        if found is None or not is_newest(handle, found) or found.state not in ENDING:
            return
        is_commit = found.state is State.PREPARE_COMMIT
        self._complete(name, found, is_commit=is_commit)
        for request_id, request in self._waiting.pop(name, {}).items():
            del self._waits_for[request_id]
            if isinstance(request, End):  # the decision is committed; this record need not be
                ended = Ended(is_committed=is_commit, next_epoch=next_epoch(handle.epoch))
                self._outputs.answer(request_id, ended, is_settled=True)
            elif isinstance(request, CommitBatch | AbortBatch):  # decided, whoever has registered since
                self._when_complete(request_id, request)
            else:
                self._receive(request_id, request)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Take over some transactions of earlier leaders, and abort some that exceed their time limits."""
        self._now_ms, self._wall_ms = now_ms, wall_ms
        if self._left_behind and now_ms >= self._rests_until_ms:
            self._catch_up()
        if now_ms >= self._aborts_ms:
            names = list(islice(iter(lambda: self._due.take(now_ms), None), ENDED_MAX))
            self._abort_all([(name, self.state.transactions[name]) for name in names], AbortReason.TIMEOUT)
            self._aborts_ms = now_ms + _pause_ms(len(names), 0)

    def expire(self, now_ms: int, trusted_ms: int | None) -> None:
        """Delete some old answers, and some ids and sinks that were unused for the whole retention."""
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
        """Give a transaction its whole time, or send its markers again, unless it was taken over before."""
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
        if new.client:  # the number of requests limits the open ids of brokers
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
        """Answer with the stored answer of an equal request, once all records of that request are visible."""
        name = keyed_requests.waits_for(before, self.state)
        if name is not None:
            self._wait(request_id, name, ask)
        else:
            self._outputs.answer(request_id, AnsweredBefore(answer=before.answer or b""))

    def _join(self, request_id: RequestId, ask: Join) -> None:
        """Add partitions and groups; with the first, the transaction is open and its time runs."""
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
            raise OutcomeForgotten(f"transactional id {name!r} is unknown, or was forgotten; open it again")
        if not is_newest(handle, found):
            outcome = outcome_of(handle, found)
            self._outputs.answer(
                request_id, Ended(is_committed=outcome.is_committed, next_epoch=next_epoch(handle.epoch))
            )
        elif found.state in ENDING:
            self._wait(request_id, name, ask)
        elif found.state in IDLE:  # a delayed batch may still arrive: raise the epoch
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
            if ask.run:  # abort the failed attempts of the run
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
        assert newest is not None, "an unknown sink gets its first run"
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
        """Abort any number of transactions, each by a separate batch of records."""
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
        """Id and transaction, if this accepts batches and offsets; else raises the error for its producer."""
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
        """Commit or abort transactions in one batch of records; send markers once the batch is committed."""
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
        """Write a transaction as complete and raise the epoch, so that its delayed batches are refused."""
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
        """Let the request wait; handle it again when the transaction of this id is complete."""
        self._waiting.setdefault(name, {})[request_id] = request
        self._waits_for[request_id] = name

    def _when_complete(self, request_id: RequestId, ask: CommitBatch | AbortBatch) -> None:
        """Answer once all transactions of the batch are complete."""
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
        """Set a transaction's time limit when its first partition joins, and again when it is prepared."""
        self._left_behind.pop(name, None)
        limits_ms = {State.ONGOING: transaction.timeout_ms, State.PREPARED: transaction.prepared_ms_max}
        limit_ms = limits_ms.get(transaction.state)
        if limit_ms is None:
            self._due.discard(name)
            return
        if transaction.state is State.ONGOING and name in self._due:
            return  # another partition does not extend the time
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
        """Check the room for a keyed request (``Room.check_key``); first delete old requests if needed."""
        client = claim.client
        if claim.digest in self.state.requests or self._room.has_for_key(client):
            return
        if self._room.key_due(client, self._wall_ms) <= self._wall_ms:
            self._forget_some(self._now_ms)
        self._room.check_key(client, self._wall_ms)

    def _forget_some(self, now_ms: int) -> None:
        """Delete some rows that are too old, and schedule the next deletion."""
        self._room.expired()
        retentions_ms = self._id_retention_ms, self._key_retention_ms
        rows = list(islice(too_old(self.state, self._trusted_ms, *retentions_ms), ENDED_MAX))
        for row in rows:
            self._outputs.write(row)
        self._sweep_ms = now_ms + _pause_ms(len(rows), self._sweep_every_ms)


def _pause_ms(ended: int, rest_ms: int) -> int:
    """The milliseconds until the next step: few if this step has done its maximum, since more may be left."""
    return PAUSE_MS if ended == ENDED_MAX else rest_ms


def _check_participants(partitions: Sequence[Participant], groups: Sequence[str]) -> None:
    if len(partitions) > PARTITIONS_MAX:
        raise InvalidRequest(
            f"a transaction has at most {PARTITIONS_MAX} partitions; write to fewer, or commit more often",
            field="partition",
        )
    if len(groups) > GROUPS_MAX:
        raise InvalidRequest(
            f"group: a transaction has at most {GROUPS_MAX} groups; commit more often", field="group"
        )


def _is_repeated(ask: Open, found: Transaction) -> bool:
    """Whether this request, or an earlier copy of it, has already opened the transactional id."""
    if ask.incarnation:
        return ask.incarnation in found.incarnations[-1:]
    return (found.producer_id, found.epoch, found.state) == (ask.new_producer_id, 0, State.EMPTY)


def _incarnations(ask: Open, before: Transaction | None) -> tuple[str, ...]:
    """The incarnations to remember, so that a late copy of an ``Open`` does not fence a later incarnation."""
    known = () if before is None else before.incarnations
    return (*known, ask.incarnation)[-INCARNATIONS_MAX:] if ask.incarnation else known
