"""Waits end once, in order, and never with another proposal's fate."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.core.ready import Appended, ReadConfirmed, Refused
from raftlog.errors import CommitUnknown, InvariantViolated, NotLeader, Overloaded
from raftlog.node.group.pending_requests import UNSETTLED_READS_MAX, Proposal, UncommittedBytes, Waits
from raftlog.types import EntryId, Index, NodeId, Term
from tests.helpers.storage_batches import storage_batch


def in_log(waits: Waits[str], base: int, count: int = 1, term: int = 1) -> Proposal[str]:
    """A proposal that the core has appended."""
    proposal: Proposal[str] = Proposal(Index(base), Term(term), [storage_batch(base, count, epoch=term)])
    token = waits.token()
    waits.offered(token, proposal)
    assert waits.settle(Appended(token, EntryId(Term(term), Index(base)))) == proposal.batches
    return proposal


def test_proposals_end_when_their_own_last_batch_is_applied() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        first, second = in_log(waits, 0, 2), in_log(waits, 2)
        size = waits.uncommitted_bytes
        waits.applied(storage_batch(0, 2, epoch=1).header, "a")
        assert (first.outcome.result(), second.outcome.done()) == ("a", False)
        assert waits.uncommitted_bytes == size - first.size_bytes
        waits.applied(storage_batch(2, epoch=1).header, "b")
        assert (second.outcome.result(), waits.uncommitted_bytes) == ("b", 0)

    asyncio.run(story())


def test_what_another_leader_put_in_a_proposals_place_does_not_acknowledge_it() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        proposal = in_log(waits, 5)
        waits.applied(storage_batch(5, epoch=2).header, "not ours")
        assert not proposal.outcome.done()
        waits.leadership_lost()
        assert isinstance(proposal.outcome.exception(), CommitUnknown)
        assert waits.uncommitted_bytes == 0

    asyncio.run(story())


def test_a_proposal_that_stands_elsewhere_than_it_was_stamped_is_a_broken_invariant() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        token = waits.token()
        waits.offered(token, Proposal(Index(0), Term(1), [storage_batch(0)]))
        with pytest.raises(InvariantViolated):
            waits.settle(Appended(token, EntryId(Term(1), Index(1))))

    asyncio.run(story())


def test_losing_the_office_ends_every_wait() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        proposal = in_log(waits, 0)
        durable, replicated = waits.until_durable(Index(0)), waits.until_replicated(Index(0), 2)
        _, read = waits.read()
        ready = waits.until_ready()
        waits.leadership_lost()
        waits.leadership_lost()  # and again, which must not matter
        for future, kind in ((proposal.outcome, CommitUnknown), (durable, CommitUnknown), (read, NotLeader)):
            assert isinstance(future.exception(), kind)
        assert isinstance(replicated.exception(), CommitUnknown)
        assert ready.result() is None
        assert not waits.counts_replicas

    asyncio.run(story())


def test_waiters_that_have_gone_are_passed_over() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        proposal = in_log(waits, 0)
        token, read = waits.read()
        other_token, other = waits.read()
        durable, replicated = waits.until_durable(Index(0)), waits.until_replicated(Index(0), 2)
        for future in (proposal.outcome, read, durable, replicated):
            future.cancel()
        await asyncio.sleep(0)
        waits.settle(ReadConfirmed(token, Index(0)))
        waits.settle(Refused(other_token, NodeId(2)))
        assert isinstance(other.exception(), NotLeader)
        waits.applied(storage_batch(0, epoch=1).header, "a")
        waits.durable(Index(0))
        waits.replicated(lambda index: 0)
        assert not waits.counts_replicas
        assert waits.uncommitted_bytes == 0

    asyncio.run(story())


def test_who_waits_no_longer_for_another_role_leaves_nothing() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        gone, stays = waits.until_role_changes(), waits.until_role_changes()
        gone.cancel()
        await asyncio.sleep(0)
        assert list(waits._role_changes) == [stays]
        waits.role_changed()
        assert stays.done()
        assert not waits._role_changes

    asyncio.run(story())


# requirement: N2
def test_what_waits_is_bounded_for_all_groups_of_a_broker_together() -> None:
    async def story() -> None:
        shared = UncommittedBytes(bytes_max=1)
        one, other, exempt = Waits[str](shared), Waits[str](shared), Waits[str]()
        one.check_room()
        in_log(one, 0)
        with pytest.raises(Overloaded, match="broker") as refused:
            other.check_room()
        assert refused.value.is_definite
        assert refused.value.details["retry_after_ms"]
        exempt.check_room()
        one.applied(storage_batch(0, epoch=1).header, "a")
        other.check_room()

    asyncio.run(story())


# requirement: N2
def test_a_replica_that_ends_gives_back_what_it_had_of_the_bound() -> None:
    async def story() -> None:
        shared = UncommittedBytes(bytes_max=1)
        waits = Waits[str](shared)
        in_log(waits, 0)
        waits.offered(waits.token(), Proposal(Index(1), Term(1), [storage_batch(1)]))
        waits.leadership_lost()
        assert shared.total == waits.uncommitted_bytes > 0  # the core has yet to settle it
        waits.ended()
        assert shared.total == waits.uncommitted_bytes == 0

    asyncio.run(story())


def test_who_has_stopped_waiting_leaves_nothing_behind() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        for _ in range(100):
            for future in (waits.until_durable(Index(5)), waits.until_ready(), waits.until_role_changes()):
                future.cancel()
        await asyncio.sleep(0)
        assert [*waits._durable, *waits._ready, *waits._role_changes] == []

    asyncio.run(story())


def test_reads_that_a_leader_cannot_confirm_are_bounded() -> None:
    async def story() -> None:
        waits: Waits[str] = Waits()
        tokens = []
        for _ in range(UNSETTLED_READS_MAX):
            token, future = waits.read()
            future.cancel()
            tokens.append(token)
        with pytest.raises(Overloaded):
            waits.read()
        waits.settle(ReadConfirmed(tokens[0], Index(3)))
        waits.read()

    asyncio.run(story())
