"""One-shot transactions of a broker, whose coordinators the test answers for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from raftlog.errors import CommitUnknown, NoLeader, RaftlogError, TransactionAborted
from raftlog.types import NodeId
from tests.helpers.http_server import HttpServer, served
from transactions import one_shot
from transactions.batches import partition_of
from transactions.one_shot import OneShots
from transactions.records import Handle, State, Transaction
from transactions.requests import (
    Claim,
    Described,
    End,
    Ended,
    OfOneId,
    Open,
    Opened,
    ReadTransaction,
    Reply,
)
from transactions.service import TransactionService

PARTITIONS = 16
Answer = Callable[[OfOneId], Reply | RaftlogError | None]
CLAIM = Claim(digest=b"key", fingerprint=b"body", attempt=1)


class AnsweredByTest:
    """Coordinators that answer what ``answer`` says, or as if all went well."""

    def __init__(self, answer: Answer = lambda request: None) -> None:
        self.asked: list[OfOneId] = []
        self.timeouts_ms: list[int] = []
        self._answer = answer

    async def partition_count(self, timeout_ms: int) -> int:
        """As by default."""
        return PARTITIONS

    async def ask(self, request: OfOneId, *, timeout_ms: int) -> Reply:
        """See ``TransactionService.ask``."""
        await asyncio.sleep(0)
        self.asked.append(request)
        self.timeouts_ms.append(timeout_ms)
        found = self._answer(request)
        if isinstance(found, RaftlogError):
            raise found
        if found is not None:
            return found
        if isinstance(request, Open):
            return Opened(producer_id=7, epoch=0)
        if isinstance(request, ReadTransaction):
            return Described(transaction=Transaction(producer_id=7, epoch=1, state=State.COMPLETE))
        assert isinstance(request, End)
        return Ended(is_committed=request.is_commit, next_epoch=1)

    def ids(self) -> list[str]:
        """Those that were opened."""
        return [request.transactional_id for request in self.asked if isinstance(request, Open)]


def one_shots(coordinators: AnsweredByTest) -> OneShots:
    """Those of broker 2."""
    return OneShots(NodeId(2), cast("TransactionService", coordinators))


async def answer(handle: Handle, left_ms: int) -> bytes:
    """Nothing is written."""
    return b"answer"


async def run(shots: OneShots, *, claim: Claim | None = None, spread: int = 3) -> bytes:
    """One that borrows its id."""
    done = await shots.run(
        answer, partitions=[], transactional_id=None, claim=claim, spread=spread, timeout_ms=1_000
    )
    return done.answer


async def test_a_borrowed_id_is_of_the_wanted_coordinator_and_used_again() -> None:
    coordinators = AnsweredByTest()
    shots = one_shots(coordinators)
    for spread in range(2 * PARTITIONS):
        assert await run(shots, spread=spread) == b"answer"
    ids = coordinators.ids()
    assert ids[:PARTITIONS] == ids[PARTITIONS:]
    assert [partition_of(name, PARTITIONS) for name in ids[:PARTITIONS]] == [*range(PARTITIONS)]
    assert all(name.startswith("__one-shot-") and "~2." in name for name in ids)


async def test_each_step_has_the_time_that_is_left() -> None:
    coordinators = AnsweredByTest()
    await run(one_shots(coordinators))
    assert [type(request) for request in coordinators.asked] == [Open, End]
    assert all(0 < timeout_ms <= 1_000 for timeout_ms in coordinators.timeouts_ms)
    first = coordinators.asked[0]
    assert isinstance(first, Open)
    assert first.timeout_ms > 1_000, "the coordinator aborts no transaction that still has time"


async def test_two_requests_never_have_the_same_id() -> None:
    coordinators = AnsweredByTest()
    shots = one_shots(coordinators)
    await run(shots)
    await asyncio.gather(*(run(shots) for _ in range(3)))
    assert len(set(coordinators.ids()[1:])) == 3


# requirement: D3
async def test_a_commit_in_doubt_is_unknown_and_its_id_is_not_lent_again() -> None:
    lost = CommitUnknown("its coordinator did not answer")
    coordinators = AnsweredByTest(lambda request: lost if isinstance(request, End) else None)
    shots = one_shots(coordinators)
    with pytest.raises(CommitUnknown) as told:
        await run(shots)
    assert told.value.details["committed"] is None
    assert told.value.details["transaction"] == f"{coordinators.ids()[0]}@7.0"
    assert [type(request) for request in coordinators.asked] == [Open, End], "no abort behind a commit"
    with pytest.raises(CommitUnknown):
        await run(shots)
    assert len(set(coordinators.ids())) == 2


# requirement: N2
async def test_requests_without_an_outcome_leave_a_bounded_number_of_ids() -> None:
    lost = CommitUnknown("its coordinator did not answer")
    coordinators = AnsweredByTest(lambda request: lost if isinstance(request, End) else None)
    shots = one_shots(coordinators)
    for _ in range(2 * one_shot.IN_DOUBT_MAX):
        with pytest.raises(CommitUnknown):
            await run(shots)
    ids = coordinators.ids()
    assert len(set(ids)) == one_shot.IN_DOUBT_MAX
    assert ids[one_shot.IN_DOUBT_MAX :] == ids[: one_shot.IN_DOUBT_MAX], "the oldest first"


async def test_an_id_whose_transaction_cannot_end_stops_no_other_request() -> None:
    lost = CommitUnknown("a partition has no leader")
    ending = Described(transaction=Transaction(producer_id=7, epoch=0, state=State.PREPARE_COMMIT))

    def answers(request: OfOneId) -> Reply | RaftlogError | None:
        if isinstance(request, ReadTransaction):
            return ending
        return lost if isinstance(request, End) else None

    coordinators = AnsweredByTest(answers)
    shots = one_shots(coordinators)
    for _ in range(one_shot.IN_DOUBT_MAX + 2):
        with pytest.raises(CommitUnknown):
            await run(shots)
    assert len(set(coordinators.ids())) == one_shot.IN_DOUBT_MAX + 2


async def test_an_opening_in_doubt_shows_nothing() -> None:
    lost = CommitUnknown("its coordinator did not answer")
    coordinators = AnsweredByTest(lambda request: lost)
    with pytest.raises(CommitUnknown) as told:
        await run(one_shots(coordinators))
    assert told.value.details["committed"] is False


# requirement: D3
async def test_an_opening_in_doubt_says_nothing_about_an_earlier_request_with_the_key() -> None:
    lost = CommitUnknown("its coordinator did not answer")
    coordinators = AnsweredByTest(lambda request: lost)
    with pytest.raises(CommitUnknown) as told:
        await run(one_shots(coordinators), claim=CLAIM)
    assert told.value.details.get("committed") is None


# requirement: D3
async def test_a_transaction_that_was_aborted_meanwhile_is_not_reported_as_committed() -> None:
    aborted = Ended(is_committed=False, next_epoch=1)
    coordinators = AnsweredByTest(lambda request: aborted if isinstance(request, End) else None)
    with pytest.raises(TransactionAborted):
        await run(one_shots(coordinators))


async def test_a_commit_that_was_not_taken_is_followed_by_an_abort() -> None:
    nobody = NoLeader("no leader")
    coordinators = AnsweredByTest(lambda request: nobody if isinstance(request, End) else None)
    with pytest.raises(NoLeader):
        await run(one_shots(coordinators))
    ends = [request for request in coordinators.asked if isinstance(request, End)]
    assert [end.is_commit for end in ends] == [True, False]


async def test_the_answer_is_stored_for_a_key_only() -> None:
    coordinators = AnsweredByTest()
    shots = one_shots(coordinators)
    await run(shots, claim=CLAIM)
    await run(shots)
    ends = [request for request in coordinators.asked if isinstance(request, End)]
    assert [end.answer for end in ends] == [b"answer", None]


@served(partitions=3)
async def test_a_key_selects_its_coordinator(server: HttpServer) -> None:
    coordinators = AnsweredByTest()
    pipeline = server.request_pipeline
    pipeline.services = replace(pipeline.services, one_shots=one_shots(coordinators))
    body = {"records": [{"value": 1}]}
    for number in range(20):
        for _ in range(2):
            await server.call("POST", "/v1/topics/orders/records", body, {"Idempotency-Key": f"{number}"})
    ids = coordinators.ids()
    assert ids[::2] == ids[1::2]
    assert len(set(ids)) > 5
