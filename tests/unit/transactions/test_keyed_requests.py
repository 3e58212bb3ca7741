"""Which requests with an idempotency key are carried out, and what the others are told."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest
from msgspec.structs import replace

from broker.settings import KEYS_BYTES_MAX, TransactionSettings
from raftlog.errors import Conflict, IdempotencyInProgress, IdempotencyKeyReused, Overloaded, QuotaExceeded
from tests.helpers.decided_transactions import KEY_RETENTION_MS, Coordinator
from transactions import keyed_requests
from transactions.decisions import ENDED_MAX, PAUSE_MS, SWEEP_MS
from transactions.kept_requests import KEY_BYTES, size_of
from transactions.records import Handle, KeyedRequest, RequestKey, State, TransactionKey
from transactions.requests import (
    AnsweredBefore,
    Claim,
    Done,
    End,
    Ended,
    Join,
    Open,
    Opened,
    Prepare,
)
from transactions.room import KEYS_SHARE, LOOK_MS
from transactions.state import TransactionsState

TIMEOUT_MS = 5_000
ANSWER = (
    b'{"records":[{"partition":2,"offset":4512345,"timestamp":1795253716922}],"durability":{"acks":"quorum",'
    b'"committed":true,"fsynced":true,"replicas":3}}'
)


def opening(name: str = "__a", attempt: int = 1, digest: bytes = b"key", content: bytes = b"body") -> Open:
    """The opening of a keyed request."""
    claim = Claim(digest=digest, fingerprint=content, attempt=attempt)
    return Open(transactional_id=name, timeout_ms=TIMEOUT_MS, new_producer_id=7, claim=claim)


def begun(coordinator: Coordinator, ask: Open | None = None) -> Handle:
    """A keyed request that is running."""
    ask = ask or opening()
    opened = coordinator.ask(ask)
    assert isinstance(opened, Opened), opened
    handle = Handle(ask.transactional_id, opened.producer_id, opened.epoch)
    assert coordinator.ask(Join(transaction=handle, partitions=(("orders", 0),))) == Done()
    return handle


def answered(coordinator: Coordinator, ask: Open | None = None, answer: bytes = b"answer") -> Handle:
    """A keyed request that is committed."""
    handle = begun(coordinator, ask)
    coordinator.ask(End(transaction=handle, is_commit=True, answer=answer))
    ended = coordinator.complete()
    assert isinstance(ended, Ended)
    assert ended.is_committed
    return handle


# requirement: D3
def test_a_committed_request_is_answered_with_the_first_answer() -> None:
    coordinator = Coordinator()
    answered(coordinator)
    for leader in (coordinator, coordinator.next_leader()):
        assert leader.ask(opening("__b", 2)) == AnsweredBefore(answer=b"answer")
        assert isinstance(leader.ask(opening("__b", 2, content=b"other")), IdempotencyKeyReused)
        assert "__b" not in leader.committed.transactions


def test_a_request_is_claimed_and_answered_in_one_batch_with_its_transaction() -> None:
    coordinator = Coordinator()
    both = {TransactionKey, RequestKey}
    handle = begun(coordinator)
    assert coordinator.written == [both, {TransactionKey}], "opened, joined"
    coordinator.ask(End(transaction=handle, is_commit=True, answer=b"answer"))
    assert coordinator.written[2:] == [both]


# requirement: D3
def test_partitions_that_are_named_at_the_opening_take_part() -> None:
    coordinator = Coordinator()
    partitions = (("orders", 1), ("orders", 0))
    ask = Open(transactional_id="__a", timeout_ms=TIMEOUT_MS, new_producer_id=7, partitions=partitions)
    assert coordinator.ask(ask) == Opened(producer_id=7, epoch=0)
    handle, before = Handle("__a", 7, 0), len(coordinator.written)
    assert coordinator.ask(Join(transaction=handle, partitions=partitions[:1])) == Done()
    assert len(coordinator.written) == before, "nothing is new"
    coordinator.advance(TIMEOUT_MS)
    (mark,) = coordinator.marks
    assert (mark.is_commit, mark.partitions) == (False, (("orders", 0), ("orders", 1)))


# requirement: D3
def test_a_repetition_waits_until_all_partitions_show_the_records() -> None:
    coordinator = Coordinator()
    handle = begun(coordinator)
    coordinator.ask(End(transaction=handle, is_commit=True, answer=b"answer"))
    for leader in (coordinator, coordinator.next_leader()):
        assert leader.ask(opening("__b", 2)) is None
        assert leader.complete() == AnsweredBefore(answer=b"answer")


# requirement: D3
def test_a_running_request_is_in_progress_until_its_time_is_over() -> None:
    coordinator = Coordinator()
    opened = coordinator.ask(opening())
    assert isinstance(opened, Opened), "and its broker dies before the first record"
    for leader in (coordinator, coordinator.next_leader()):
        assert isinstance(leader.ask(opening("__b", 2)), IdempotencyInProgress)
        assert isinstance(leader.ask(opening("__b", 2, content=b"other")), IdempotencyKeyReused)
        leader.advance(TIMEOUT_MS - 1)
        assert isinstance(leader.ask(opening("__b", 2)), IdempotencyInProgress)
        leader.advance(1)
        leader.complete()
        assert leader.committed.transactions["__a"].state is State.COMPLETE
        assert not leader.committed.requests
        answered(leader, opening("__b", 2, content=b"other"))


def test_a_repeated_opening_is_not_refused_by_its_own_record() -> None:
    coordinator = Coordinator()
    first = begun(coordinator)
    assert coordinator.ask(opening()) is None, "the first transaction is aborted"
    assert coordinator.complete() == Opened(producer_id=7, epoch=first.epoch + 2)
    late = coordinator.ask(End(transaction=first, is_commit=True, answer=b"late"))
    assert isinstance(late, Ended)
    assert not late.is_committed


def test_an_abort_frees_the_key() -> None:
    coordinator = Coordinator()
    handle = begun(coordinator)
    coordinator.ask(End(transaction=handle, is_commit=False))
    assert not coordinator.committed.requests, "with the decision"
    coordinator.complete()
    answered(coordinator, opening(attempt=2, content=b"other"))


def test_another_opening_of_the_id_frees_the_key() -> None:
    coordinator = Coordinator()
    begun(coordinator, opening("copy-1"))
    coordinator.ask(Open(transactional_id="copy-1", timeout_ms=TIMEOUT_MS))
    assert isinstance(coordinator.complete(), Opened)
    answered(coordinator, opening("copy-1", 2))


def test_a_keyed_transaction_is_committed_by_its_request_only() -> None:
    coordinator = Coordinator()
    handle = begun(coordinator, opening("sink~1"))
    for wrong in (
        End(transaction=handle, is_commit=True),
        Prepare(transaction=handle, prepared_ms_max=60_000),
    ):
        assert isinstance(coordinator.ask(wrong), Conflict)
    plain = coordinator.ask(Open(transactional_id="copy-1", timeout_ms=TIMEOUT_MS, new_producer_id=8))
    assert isinstance(plain, Opened)
    other = Handle("copy-1", 8, 0)
    assert coordinator.ask(Join(transaction=other, partitions=(("orders", 0),))) == Done()
    assert isinstance(coordinator.ask(End(transaction=other, is_commit=True, answer=b"?")), Conflict)


def test_answers_expire_after_their_own_retention() -> None:
    coordinator = Coordinator()
    answered(coordinator)
    coordinator.advance(KEY_RETENTION_MS)
    assert coordinator.ask(opening("__b", 2)) == AnsweredBefore(answer=b"answer")
    coordinator.advance(2 * SWEEP_MS)
    assert not coordinator.committed.requests
    assert coordinator.committed.keys.total == 0
    assert "__a" in coordinator.committed.transactions, "ids have another one"
    answered(coordinator, opening("__b", 2))


def test_no_answer_is_forgotten_while_no_time_is_trusted() -> None:
    coordinator = Coordinator(keys_bytes_max=2 * KEY_BYTES - 1)
    answered(coordinator)
    coordinator.is_time_trusted = False
    coordinator.advance(4 * KEY_RETENTION_MS)
    further = opening("__b", digest=b"further")
    assert isinstance(coordinator.ask(further), Overloaded), "not even for another key"
    assert coordinator.ask(opening("__b", 2)) == AnsweredBefore(answer=b"answer")
    coordinator.is_time_trusted = True
    coordinator.advance(2 * SWEEP_MS)
    answered(coordinator, further)
    assert b"key" not in coordinator.committed.requests


def test_a_running_request_does_not_expire() -> None:
    coordinator = Coordinator()
    handle = begun(
        coordinator,
        Open(
            transactional_id="__a",
            timeout_ms=4 * KEY_RETENTION_MS,
            new_producer_id=7,
            claim=Claim(digest=b"key", fingerprint=b"body", attempt=1),
        ),
    )
    coordinator.advance(2 * KEY_RETENTION_MS)
    coordinator.ask(End(transaction=handle, is_commit=True, answer=b"answer"))
    coordinator.complete()
    assert coordinator.ask(opening("__b", 2)) == AnsweredBefore(answer=b"answer")


def of_client(client: str, digest: bytes) -> Open:
    """A keyed request of a client with this address."""
    ask = opening(digest=digest)
    assert ask.claim is not None
    return replace(ask, claim=replace(ask.claim, client=client))


# requirement: N2
@pytest.mark.parametrize("answer", [b"", b"x" * 60])
def test_a_client_has_half_of_the_bytes_of_keys_and_answers(answer: bytes) -> None:
    coordinator = Coordinator(keys_bytes_max=6 * (KEY_BYTES + len("10.0.0.1") + len(answer)))
    coordinator.advance(1_000)
    for digest in (b"1", b"2", b"3"):
        answered(coordinator, of_client("10.0.0.1", digest), answer=answer)
    for leader in (coordinator, coordinator.next_leader()):
        refused = leader.ask(of_client("10.0.0.1", b"4"))
        assert isinstance(refused, QuotaExceeded)
        assert "client 10.0.0.1" in str(refused)
        assert "transactions.keys_bytes_max" in str(refused)
        answered(leader, of_client("10.0.0.2", b"5"))


# requirement: N2
def test_a_refused_key_has_room_at_the_time_that_the_refusal_says() -> None:
    coordinator = Coordinator(keys_bytes_max=5 * KEY_BYTES)
    answered(coordinator, of_client("10.0.0.2", b"of another, older"))
    coordinator.advance(2 * SWEEP_MS)
    answered(coordinator, of_client("10.0.0.1", b"0"))
    answered(coordinator, of_client("10.0.0.1", b"1"))
    coordinator.advance(5_000)
    refused = coordinator.ask(of_client("10.0.0.1", b"2"))
    assert isinstance(refused, QuotaExceeded)
    retry_after_ms = int(str(refused.details["retry_after_ms"]))
    assert KEY_RETENTION_MS - 6_000 < retry_after_ms <= KEY_RETENTION_MS
    coordinator.now_ms += retry_after_ms - 2
    assert isinstance(coordinator.ask(of_client("10.0.0.1", b"2")), QuotaExceeded)
    coordinator.now_ms += 2 + LOOK_MS  # not at a sweep
    answered(coordinator, of_client("10.0.0.1", b"2"))


# requirement: N2
def test_the_next_leader_forgets_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot has the keys in another order."""
    monkeypatch.setattr(keyed_requests, "LOOKED_AT_MAX", 1)
    coordinator = Coordinator(keys_bytes_max=2 * 3 * (KEY_BYTES + 20))
    for digest in (b"c", b"b", b"a"):
        answered(coordinator, of_client("10.0.0.1", digest))
        coordinator.advance(SWEEP_MS)
    leader = coordinator.next_leader()
    refused = leader.ask(of_client("10.0.0.1", b"d"))
    assert isinstance(refused, QuotaExceeded)
    leader.now_ms += int(str(refused.details["retry_after_ms"])) + LOOK_MS
    answered(leader, of_client("10.0.0.1", b"d"))
    assert b"c" not in leader.committed.requests
    assert b"b" in leader.committed.requests


# requirement: N2
def test_one_address_sends_ten_keyed_requests_a_second_all_day() -> None:
    settings = TransactionSettings(keys_bytes_max=KEYS_BYTES_MAX)
    answer = zlib.compress(ANSWER)
    share = settings.keys_bytes_max // settings.partitions // KEYS_SHARE
    in_a_day = 10 * settings.key_retention_ms // 1_000 // settings.partitions
    request = KeyedRequest(
        fingerprint=b"",
        transaction=Handle("a", 1, 1),
        attempt=1,
        changed_ms=1,
        answer=answer,
        client="::" * 19,
    )
    assert in_a_day * size_of(request) <= share


# requirement: N2
def test_a_key_takes_the_memory_that_it_counts_also_on_its_leader() -> None:
    """What the leader has decided and what its log says share their bytes."""
    committed, count = TransactionsState(), 4_000
    decided = committed.copy()
    tracemalloc.start()
    for number in range(count):
        request = KeyedRequest(
            fingerprint=number.to_bytes(16, "big"),
            transaction=Handle("__one-shot-3~2.0", 1 << 60, 7),
            attempt=1 << 60,
            changed_ms=1_790_000_000_000,
            answer=zlib.compress(ANSWER),
            client="10.0.0.1",
        )
        for state in (decided, committed):
            state.put(RequestKey(number.to_bytes(16, "big")), request)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert committed.keys.of("10.0.0.1") > count * (KEY_BYTES + 100)
    assert used < 1.2 * committed.keys.total


def test_thousands_of_keys_are_kept_through_a_snapshot() -> None:
    coordinator, keys = Coordinator(), [f"{number}".encode() for number in range(3_000)]
    for key in keys:
        answered(coordinator, opening(digest=key), answer=key)
    leader = coordinator.next_leader()
    assert len(leader.committed.transactions) == 1
    for key in keys:
        assert leader.ask(opening("__b", 2, digest=key)) == AnsweredBefore(answer=key)


def test_keys_are_bounded_by_count_and_by_the_bytes_of_their_answers() -> None:
    many, large = Coordinator(keys_bytes_max=4 * KEY_BYTES - 1), Coordinator(keys_bytes_max=4 * KEY_BYTES - 1)
    for digest in (b"key", b"second", b"third"):
        answered(many, opening(digest=digest), answer=b"")
    answered(large, answer=b"x" * KEY_BYTES)
    answered(large, opening(digest=b"second"), answer=b"x")
    for coordinator in (many, large, many.next_leader(), large.next_leader()):
        refused = coordinator.ask(opening("__c", digest=b"further"))
        assert isinstance(refused, Overloaded)
        assert "transactions.key_retention_ms" in str(refused)
        again = coordinator.ask(opening("__c", 2))
        assert isinstance(again, AnsweredBefore), "what is kept is answered all the same"
        coordinator.advance(KEY_RETENTION_MS + 2 * SWEEP_MS)
        answered(coordinator, opening("__c", digest=b"further"))


def old_answers(*counts: tuple[str, int], changed_ms: int = 1) -> TransactionsState:
    """So many requests of each client that were answered at this time."""
    state = TransactionsState()
    for client, count in counts:
        for number in range(count):
            request = KeyedRequest(
                fingerprint=b"body",
                transaction=Handle("__a", 7, 0),
                attempt=1,
                changed_ms=changed_ms,
                answer=b"",
                client=client,
            )
            state.put(RequestKey(f"{client} {number}".encode()), request)
    return state


# requirement: N2
def test_old_answers_are_forgotten_some_at_a_time() -> None:
    """All at once would hold the event loop of a broker for longer than its peers wait for it."""
    coordinator = Coordinator(old_answers(("10.0.0.1", 2 * ENDED_MAX + 1)), KEY_RETENTION_MS + 2)
    began_ms = coordinator.now_ms + SWEEP_MS
    steps = [(coordinator.step(), coordinator.now_ms) for _ in range(3)]
    assert steps == [
        (ENDED_MAX, began_ms),
        (ENDED_MAX, began_ms + PAUSE_MS),
        (1, began_ms + 2 * PAUSE_MS),
    ]
    assert not coordinator.committed.requests
    assert (coordinator.step(), coordinator.now_ms) == (0, began_ms + 2 * PAUSE_MS + SWEEP_MS)


# requirement: N2
def test_a_request_without_room_forgets_some_old_answers_and_the_others_follow() -> None:
    state = old_answers(("10.0.0.2", ENDED_MAX + 1), ("10.0.0.1", ENDED_MAX))
    half = state.keys.of("10.0.0.1")
    coordinator = Coordinator(state, KEY_RETENTION_MS, keys_bytes_max=KEYS_SHARE * half)
    assert isinstance(coordinator.ask(of_client("10.0.0.1", b"new")), Overloaded | QuotaExceeded)
    coordinator.now_ms += 2 + LOOK_MS  # not at a sweep
    before = len(coordinator.written)
    refused = coordinator.ask(of_client("10.0.0.1", b"new"))
    assert isinstance(refused, QuotaExceeded), "those of another client were older"
    assert refused.details["retry_after_ms"] == LOOK_MS
    assert len(coordinator.written) - before == ENDED_MAX
    asked_ms = coordinator.now_ms
    assert (coordinator.step(), coordinator.now_ms) == (ENDED_MAX, asked_ms + PAUSE_MS)
    answered(coordinator, of_client("10.0.0.1", b"new"))
    assert coordinator.step() == 1
