"""Transactional ids and sinks have a bound, and each client a share of it."""

from __future__ import annotations

import tracemalloc

import pytest
from msgspec.structs import replace

from broker.settings import TransactionSettings
from raftlog.errors import InvalidRequest, Overloaded, QuotaExceeded, RaftlogError
from raftlog.hosting.budget import RECHECK_MS
from tests.helpers.decided_transactions import ID_RETENTION_MS, Coordinator
from transactions.decisions import ENDED_MAX, GROUPS_MAX, PARTITIONS_MAX, PAUSE_MS, SWEEP_MS, Decisions
from transactions.records import Handle, Sink, SinkKey, State, Transaction, TransactionKey
from transactions.requests import (
    BeginRun,
    CommitBatch,
    Done,
    End,
    Join,
    Open,
    Opened,
    Prepare,
    RunBegun,
)
from transactions.state import NAME_BYTES, PARTITION_BYTES, ROW_BYTES, TransactionsState

MAX_BYTES = 40 * ROW_BYTES


def opening(name: str, client: str = "", number: int = 7) -> Open:
    return Open(transactional_id=name, timeout_ms=60_000, new_producer_id=number, client=client)


def fill(coordinator: Coordinator, client: str) -> RaftlogError:
    """Open ids until one is refused."""
    for number in range(100):
        reply = coordinator.ask(opening(f"{client}-{number}", client, number))
        if isinstance(reply, RaftlogError):
            return reply
    raise AssertionError("nothing was refused")


# requirement: N2
def test_a_client_has_a_quarter_and_all_have_a_bound() -> None:
    coordinator = Coordinator(state_bytes_max=MAX_BYTES)
    first = fill(coordinator, "10.0.0.1")
    assert isinstance(first, QuotaExceeded)
    assert first.details["retry_after_ms"] == ID_RETENTION_MS, "when the first id is forgotten"
    assert coordinator.committed.used.of("10.0.0.1") <= MAX_BYTES // 4
    for number in range(2, 8):
        last = fill(coordinator, f"10.0.0.{number}")
    assert isinstance(last, Overloaded)
    assert "transactions.state_bytes_max" in str(last)
    assert coordinator.committed.used.total <= MAX_BYTES
    again = coordinator.ask(opening("10.0.0.1-0", "10.0.0.1", 99))
    assert isinstance(again, Opened), "an id that is there goes on"


# requirement: N2
def test_sinks_and_the_partitions_of_a_transaction_count() -> None:
    coordinator = Coordinator(state_bytes_max=MAX_BYTES)
    begun = BeginRun(key="sink", owner="query", run="r", sequence=0, client="10.0.0.1")
    assert isinstance(coordinator.ask(begun), RunBegun)
    coordinator.ask(opening("copy", "10.0.0.1"))
    used = coordinator.committed.used.of("10.0.0.1")
    assert used >= 2 * ROW_BYTES
    few = (MAX_BYTES // 4 - used) // (PARTITION_BYTES + len("orders"))
    handle = Handle("copy", 7, 0)
    partitions = [("orders", number) for number in range(PARTITIONS_MAX)]
    assert coordinator.ask(Join(transaction=handle, partitions=tuple(partitions[:few]))) == Done()
    more = Join(transaction=handle, partitions=tuple(partitions[: few + 1]))
    too_many = coordinator.ask(more)
    assert isinstance(too_many, QuotaExceeded)
    assert "fewer tasks of a sink" in str(too_many), "waiting does not help a sink whose tasks are all open"
    assert too_many.details["retry_after_ms"] == RECHECK_MS, "any transaction may end before its time"
    refused = coordinator.ask(BeginRun(key="more", owner="query", run="r", sequence=0, client="10.0.0.1"))
    assert isinstance(refused, QuotaExceeded)


# requirement: N2
def test_an_id_is_refused_until_open_transactions_make_room_if_they_can() -> None:
    """Their partitions make room at any time; what is left of them does when an id is forgotten."""
    coordinator = Coordinator(state_bytes_max=MAX_BYTES)
    partitions = tuple(("orders", number) for number in range(PARTITIONS_MAX))
    taken = MAX_BYTES // 4 - 4 * ROW_BYTES
    parts = partitions[: taken // (PARTITION_BYTES + len("orders"))]
    coordinator.ask(opening("copy", "10.0.0.1"))
    assert coordinator.ask(Join(transaction=Handle("copy", 7, 0), partitions=parts)) == Done()
    refused = fill(coordinator, "10.0.0.1")
    assert refused.details["retry_after_ms"] == RECHECK_MS
    coordinator.ask(End(transaction=Handle("copy", 7, 0), is_commit=True))
    coordinator.complete()
    assert isinstance(coordinator.ask(opening("more", "10.0.0.1", 90)), Opened)
    coordinator.advance(RECHECK_MS)  # open transactions are looked for so often
    coordinator.ask(opening("last", "10.0.0.1", 91))
    coordinator.ask(Join(transaction=Handle("last", 91, 0), partitions=parts[:1]))
    refused = fill(coordinator, "10.0.0.1")
    assert refused.details["retry_after_ms"] > RECHECK_MS, "one partition is too little"


# requirement: N2
@pytest.mark.parametrize("is_known", [False, True])
def test_the_partitions_with_which_a_transaction_is_opened_count(is_known: bool) -> None:
    coordinator = Coordinator(state_bytes_max=MAX_BYTES)
    if is_known:
        coordinator.ask(opening("copy", "10.0.0.1"))
    used = coordinator.committed.used.of("10.0.0.1")
    partitions = tuple(("orders", number) for number in range(PARTITIONS_MAX))
    few = partitions[: (MAX_BYTES // 4 - ROW_BYTES - 100) // (PARTITION_BYTES + len("orders"))]
    refused = coordinator.ask(replace(opening("copy", "10.0.0.1", 8), partitions=partitions))
    assert isinstance(refused, QuotaExceeded)
    assert coordinator.committed.used.of("10.0.0.1") == used
    assert isinstance(coordinator.ask(replace(opening("copy", "10.0.0.1", 8), partitions=few)), Opened)


# requirement: N2
def test_a_transaction_has_so_many_partitions_and_groups() -> None:
    coordinator = Coordinator()
    coordinator.ask(opening("copy"))
    partitions = tuple(("orders", number) for number in range(PARTITIONS_MAX + 1))
    groups = tuple(f"group-{number}" for number in range(GROUPS_MAX + 1))
    handle = Handle("copy", 7, 0)
    assert coordinator.ask(Join(transaction=handle, partitions=partitions[1:], groups=groups[1:])) == Done()
    for field, more in (
        ("partition", Join(transaction=handle, partitions=partitions[:1])),
        ("group", Join(transaction=handle, groups=groups[:1])),
    ):
        refused = coordinator.ask(more)
        assert isinstance(refused, InvalidRequest)
        assert refused.details["field"] == field
    assert coordinator.ask(Join(transaction=handle, partitions=partitions[1:2])) == Done()


# requirement: N2
@pytest.mark.parametrize("client", ["10.0.0.1", ""])
def test_the_next_leader_counts_the_same(client: str) -> None:
    coordinator = Coordinator()
    for number in range(5):
        coordinator.ask(opening(f"copy-{number}", client, number))
        coordinator.ask(Join(transaction=Handle(f"copy-{number}", number, 0), partitions=(("orders", 1),)))
    leader = coordinator.next_leader()
    assert leader.committed.used.of(client) == coordinator.committed.used.of(client) > 5 * ROW_BYTES
    assert leader.committed.used.total == leader.committed.used.of(client)


# requirement: N2
@pytest.mark.parametrize(("tasks", "count"), [(200, 200), (400, 200), (400, 400)])
def test_the_tasks_of_a_sink_come_from_one_address(tasks: int, count: int) -> None:
    """They share one coordinator; what their partitions take is what they count."""
    settings = TransactionSettings()
    coordinator = Coordinator(state_bytes_max=settings.state_bytes_max // settings.partitions)
    topic = "events.of.production"
    tracemalloc.start()
    for task in range(tasks):
        name = f"sink~{task}"
        coordinator.ask(opening(name, "10.0.0.1", task))
        partitions = tuple((topic, number) for number in range(count))
        assert coordinator.ask(Join(transaction=Handle(name, task, 0), partitions=partitions)) == Done()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 1.3 * coordinator.committed.used.of("10.0.0.1")


# requirement: N2
def test_a_sink_that_grows_counts() -> None:
    """Its batches with their transactions, and the runs before."""
    coordinator = Coordinator(state_bytes_max=MAX_BYTES)
    begun = BeginRun(key="sink", owner="query", run="r" * 64, sequence=0, client="10.0.0.1")
    first = coordinator.ask(begun)
    assert isinstance(first, RunBegun)
    handles = tuple(Handle(f"sink~{number}", number, 0) for number in range(7))
    for handle in handles:
        coordinator.ask(opening(handle.transactional_id, "10.0.0.1", handle.producer_id))
        coordinator.ask(Prepare(transaction=handle, prepared_ms_max=60_000))
    batch = CommitBatch(
        key="sink", sequence=0, handles=handles, run=begun.run, run_epoch=first.epoch, client="10.0.0.1"
    )
    before = coordinator.committed.snapshot()
    refused = coordinator.ask(batch)
    assert isinstance(refused, QuotaExceeded)
    assert "fewer tasks of a sink" in str(refused)
    assert coordinator.committed.snapshot() == before
    runs = [coordinator.ask(replace(begun, run=f"{number:064}")) for number in range(9)]
    assert isinstance(runs[0], RunBegun)
    assert isinstance(runs[-1], QuotaExceeded)
    assert coordinator.committed.used.of("10.0.0.1") <= MAX_BYTES // 4


# requirement: N2
def test_a_batch_whose_end_frees_more_than_its_sink_takes_is_committed() -> None:
    coordinator = Coordinator(state_bytes_max=MAX_BYTES)
    handle = Handle("sink~1", 7, 0)
    coordinator.ask(opening("sink~1", "10.0.0.1"))
    kept = ROW_BYTES + 50  # for a sink without transactions
    free = MAX_BYTES // 4 - coordinator.committed.used.of("10.0.0.1") - kept
    partitions = tuple(("orders", number) for number in range(free // (PARTITION_BYTES + len("orders"))))
    assert coordinator.ask(Join(transaction=handle, partitions=partitions)) == Done()
    coordinator.ask(Prepare(transaction=handle, prepared_ms_max=60_000))
    assert coordinator.ask(CommitBatch(key="sink", sequence=1, handles=(handle,), client="10.0.0.1")) is None
    assert coordinator.complete() == Done()


# requirement: N2
def test_all_that_a_row_lists_counts() -> None:
    state = TransactionsState()
    handles = (Handle("s~1", 7, 0), Handle("s~2", 8, 0))
    sink = Sink(sequence=1, handles=handles, retired=("a", "b", "c"))
    used = Transaction(
        producer_id=7, epoch=0, state=State.ONGOING, partitions=(("orders", 0),), groups=("g", "h")
    )
    for number in range(2):  # a row takes the place of the one before
        state.put(SinkKey("s"), sink)
        state.put(TransactionKey("s~1"), used)
        names = ["s~1", "s~2", "a", "b", "c", "g", "h"]
        listed = NAME_BYTES * len(names) + 3 * len("".join(names)) + PARTITION_BYTES + len("orders")
        assert state.used.total == 2 * ROW_BYTES + 2 * len("s" + "s~1") + listed, number
    state.put(SinkKey("s"), None)
    state.put(TransactionKey("s~1"), None)
    assert state.used.total == 0


# requirement: N2
def test_ids_and_sinks_that_nobody_uses_are_forgotten_some_at_a_time() -> None:
    """All at once would hold the event loop of a broker for longer than its peers wait for it."""
    state = TransactionsState()
    for number in range(ENDED_MAX):
        state.put(SinkKey(f"sink-{number}"), Sink(sequence=1, handles=(), changed_ms=1))
        unused = Transaction(producer_id=number, epoch=0, state=State.COMPLETE, changed_ms=1)
        state.put(TransactionKey(f"copy-{number}"), unused)
    used = Transaction(producer_id=7, epoch=0, state=State.EMPTY, changed_ms=1_000)
    state.put(TransactionKey("used"), used)
    coordinator = Coordinator(state, ID_RETENTION_MS + 2 - SWEEP_MS)
    steps = [(coordinator.step(), coordinator.now_ms - ID_RETENTION_MS - 2) for _ in range(3)]
    assert steps == [(ENDED_MAX, 0), (ENDED_MAX, PAUSE_MS), (0, 2 * PAUSE_MS)]
    assert (list(coordinator.committed.transactions), len(coordinator.committed.sinks)) == (["used"], 0)


@pytest.mark.parametrize("of_ids_ms", [60_000, 1 << 40])
@pytest.mark.parametrize("of_keys_ms", [70_000, 1 << 40])
def test_state_is_looked_at_as_often_as_the_shortest_retention_lasts(of_ids_ms: int, of_keys_ms: int) -> None:
    made = Decisions(
        TransactionsState(), now_ms=0, wall_ms=0, id_retention_ms=of_ids_ms, key_retention_ms=of_keys_ms
    )
    assert made.next_deadline_ms() == min(of_ids_ms, of_keys_ms, SWEEP_MS)
