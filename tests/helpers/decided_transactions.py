"""A coordinator of transactions whose records are committed at once, in time that the test moves."""

from __future__ import annotations

from raftlog.errors import RaftlogError
from raftlog.hosting.decisions import Answer, Write
from transactions.decisions import SWEEP_MS, Decisions
from transactions.outputs import Mark, Output
from transactions.records import Handle, Key, Sink, SinkKey, State, Transaction, TransactionKey, Value
from transactions.requests import Done, Join, Open, Opened, Prepare, Reply, Request
from transactions.room import KEYS_BYTES_MAX, STATE_BYTES_MAX
from transactions.state import TransactionsState
from verification.simulator.scenarios.transactions.moves import ENDING, problem_of

KEY_RETENTION_MS = 10 * SWEEP_MS
ID_RETENTION_MS = 100 * SWEEP_MS
HOUR_MS = 3_600_000


class Coordinator:
    """Decisions whose records are committed at once, and whose markers arrive when ``complete`` is called."""

    def __init__(
        self,
        state: TransactionsState | None = None,
        now_ms: int = 1,
        *,
        state_bytes_max: int = STATE_BYTES_MAX,
        keys_bytes_max: int = KEYS_BYTES_MAX,
    ) -> None:
        self._keys_bytes_max = keys_bytes_max
        self.now_ms = now_ms
        self.is_time_trusted = True
        self.committed = state or TransactionsState()
        self.marks: list[Mark] = []
        self.replies: dict[int, Reply | RaftlogError] = {}
        self.written: list[set[type[Key]]] = []  # the kinds of rows of each batch
        self.rows: tuple[tuple[Key, Value | None], ...] = ()  # of the largest batch
        self._decisions = Decisions(
            self.committed,
            now_ms=now_ms,
            wall_ms=now_ms,
            id_retention_ms=ID_RETENTION_MS,
            key_retention_ms=KEY_RETENTION_MS,
            state_bytes_max=state_bytes_max,
            keys_bytes_max=keys_bytes_max,
        )
        self._ids = 0
        self._take(self._decisions.take())

    def ask(self, request: Request) -> Reply | RaftlogError | None:
        """The reply, or None while it waits; then ``replies`` has it later."""
        self._ids += 1
        self._decisions.expire(self.now_ms, self.now_ms if self.is_time_trusted else None)
        self._decisions.receive(self._ids, request, self.now_ms, self.now_ms)
        self._take(self._decisions.take())
        return self.replies.get(self._ids)

    def forget(self, number: int, request: Request) -> None:
        """The caller of a request has gone; the first request has number 1."""
        self._decisions.forget(number, request)

    def complete(self) -> Reply | RaftlogError | None:
        """All markers have arrived; the reply to the newest request."""
        marks, self.marks = self.marks, []
        for mark in marks:
            self._decisions.completed(mark.transaction, self.now_ms, self.now_ms)
        self._take(self._decisions.take())
        return self.replies.get(self._ids)

    def advance(self, time_ms: int) -> None:
        """Time passes, in steps that are short enough for each sweep."""
        ends_at = self.now_ms + time_ms
        while self.now_ms < ends_at:
            self.now_ms = min(ends_at, self.now_ms + SWEEP_MS)
            self._decisions.tick(self.now_ms, self.now_ms)
            self._decisions.expire(self.now_ms, self.now_ms if self.is_time_trusted else None)
            self._take(self._decisions.take())

    def step(self) -> int:
        """Time passes until the next deadline: the number of batches that are written then."""
        before, self.now_ms = len(self.written), max(self.now_ms, self._decisions.next_deadline_ms())
        self._decisions.tick(self.now_ms, self.now_ms)
        self._decisions.expire(self.now_ms, self.now_ms if self.is_time_trusted else None)
        self._take(self._decisions.take())
        return len(self.written) - before

    def next_leader(self) -> Coordinator:
        """One that begins with what is committed."""
        state = TransactionsState()
        state.restore(self.committed.snapshot())
        return Coordinator(state, self.now_ms, keys_bytes_max=self._keys_bytes_max)

    def _check(self, key: Key, value: Value | None) -> None:
        """Every row says when it was written, and follows from the row before."""
        assert value is None or value.changed_ms == self.now_ms, f"{value} was written at {self.now_ms}"
        if isinstance(key, TransactionKey) and isinstance(value, Transaction):
            problem = problem_of(self.committed.transactions.get(key.transactional_id), value)
            assert problem is None, f"{key.transactional_id}: {problem}"
        if isinstance(key, SinkKey) and isinstance(value, Sink):
            before = self.committed.sinks.get(key.key)
            assert before is None or before.client == value.client
            is_new = before is not None and value.run != before.run
            assert not is_new or value.retired[-1:] == ((before.run,) if before and before.run else ())

    def _take(self, outputs: list[Output]) -> None:
        for wanted in outputs:
            match wanted:
                case Write(rows, frees_room):
                    self.written.append({type(key) for key, _ in rows})
                    self.rows = max(self.rows, rows, key=len)
                    for key, value in rows:
                        self._check(key, value)
                        assert frees_room or not _ends(value), "retention waits for the end"
                        self.committed.put(key, value)
                case Answer(request_id, reply):
                    self.replies[request_id] = reply
                case Mark():
                    self.marks.append(wanted)


def _ends(value: Value | None) -> bool:
    return isinstance(value, Transaction) and value.state in (*ENDING, State.COMPLETE)


def opened(coordinator: Coordinator, name: str, producer_id: int = 7, *, run_epoch: int = 0) -> Handle:
    """A new transaction."""
    reply = coordinator.ask(
        Open(transactional_id=name, timeout_ms=60_000, new_producer_id=producer_id, run_epoch=run_epoch)
    )
    assert isinstance(reply, Opened), reply
    return Handle(name, reply.producer_id, reply.epoch)


def prepared(coordinator: Coordinator, name: str, producer_id: int, *, run_epoch: int = 0) -> Handle:
    """A transaction with records, prepared for an hour."""
    handle = opened(coordinator, name, producer_id, run_epoch=run_epoch)
    assert coordinator.ask(Join(transaction=handle, partitions=(("orders", 0),))) == Done()
    assert coordinator.ask(Prepare(transaction=handle, prepared_ms_max=HOUR_MS)) == Done()
    return handle
