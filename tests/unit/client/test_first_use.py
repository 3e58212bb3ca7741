"""A consumer joins its group at its first use. Until then it sends nothing, and its options are checked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import pytest

import raftlog
from raftlog import aio
from raftlog.errors import NotSent
from raftlog.testing.waits import eventually as eventually_blocking
from raftlog.types import TopicPartition
from tests.helpers.async_tests import beside
from tests.helpers.virtual_client import VirtualClient, filled
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, whole_broker

LONGER_THAN_A_SESSION_S = 20.0
LEAVES, JOINS = "DELETE /v1/groups/g/members/m", "POST /v1/groups/g/members"
TARGETS = [TopicPartition(TOPIC, 0)]


async def iterated(taken: aio.Consumer) -> None:
    """The first record of ``async for``."""
    async for _ in taken:
        break


USES: Mapping[str, Callable[[aio.Consumer], Awaitable[object]]] = {
    "async with": lambda taken: taken.__aenter__(),
    "async for": iterated,
    "poll": lambda taken: taken.poll(0),
    "batches": lambda taken: anext(aiter(taken.batches())),
    "commit": lambda taken: taken.commit(),
    "seek": lambda taken: taken.seek(TOPIC, 0, 0),
    "pause": lambda taken: taken.pause(TARGETS),
    "resume": lambda taken: taken.resume(TARGETS),
}
BLOCKING_USES: Mapping[str, Callable[[raftlog.Consumer], object]] = {
    "with": lambda taken: taken.__enter__(),
    "for": lambda taken: next(iter(taken)),
    "poll": lambda taken: taken.poll(0),
    "batches": lambda taken: next(taken.batches()),
    "commit": lambda taken: taken.commit(),
    "seek": lambda taken: taken.seek(TOPIC, 0, 0),
    "pause": lambda taken: taken.pause(TARGETS),
    "resume": lambda taken: taken.resume(TARGETS),
}


# requirement: P6
@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
async def test_a_consumer_that_is_not_used_sends_nothing(delivery: str) -> None:
    async with filled(1) as (broker, client):
        before = [*broker.requests]
        taken = client.consumer("g", TOPIC, member_id="m", delivery=delivery)
        await asyncio.sleep(LONGER_THAN_A_SESSION_S)
        assert (taken.member_id, taken.generation, taken.is_assigned) == ("m", -1, False)
        assert (taken.assignment, taken.positions, taken.lag) == (frozenset(), {}, {})
        assert repr(taken).endswith("open>")
        await taken.close()
        assert broker.requests == before
        for _ in range(2):
            with pytest.raises(NotSent, match="the consumer is closed"):
                await anext(aiter(taken.batches()))
        assert broker.requests == before


@pytest.mark.parametrize("use", USES)
async def test_a_consumer_joins_at_its_first_use(use: str) -> None:
    async with filled(1) as (_, client):
        taken = client.consumer("g", TOPIC)
        with suppress(KeyError):  # the partition is not known to be its own yet
            await USES[use](taken)
        await eventually(lambda: taken.is_assigned)
        assert taken.assignment == {*TARGETS}
        await taken.close()


async def test_a_block_joins_and_leaves() -> None:
    async with filled(1) as (broker, client):
        async with client.consumer("g", TOPIC, member_id="m") as taken:
            assert await taken.poll("20s") is not None
        assert broker.counted(JOINS) > 0
        assert broker.counted(LEAVES) > 0


async def test_chosen_partitions_are_read_from_the_first_use_on() -> None:
    async with filled(3) as (broker, client):
        taken = client.consumer(None, assign=[(TOPIC, 0)])
        before = [*broker.requests]
        await asyncio.sleep(LONGER_THAN_A_SESSION_S)
        assert broker.requests == before
        assert (await taken.poll("20s")) is not None


async def test_the_end_of_the_client_closes_a_consumer_that_was_not_used() -> None:
    async with whole_broker(partitions=1) as broker:
        before = [*broker.requests]
        async with VirtualClient(broker.url) as client:
            taken = client.consumer("g", TOPIC)
        assert repr(taken).endswith("closed>")
        with pytest.raises(NotSent):
            await taken.poll("1s")
        async with client:  # opened again
            with pytest.raises(NotSent):
                await taken.poll("1s")
        await taken.close()
        assert broker.requests == before


WRONG: Mapping[str, dict[str, object]] = {
    "reset": {"topics": TOPIC, "reset": "never"},
    "topics": {"topics": ()},
    "assign": {"topics": TOPIC, "assign": [(TOPIC, 0)]},
    "transactional_id": {"topics": TOPIC, "delivery": "exactly_once", "member_id": "a member"},
    "transaction_timeout": {"topics": TOPIC, "transaction_timeout": "1s"},
}


@pytest.mark.parametrize("option", WRONG)
async def test_wrong_options_are_refused_before_the_first_use(option: str) -> None:
    async with VirtualClient("raftlog://localhost:1") as client:
        with pytest.raises(ValueError, match=option):
            client.consumer("g", **WRONG[option])  # type: ignore[arg-type]  # options of tests
    with raftlog.Client("raftlog://localhost:1") as blocking, pytest.raises(ValueError, match=option):
        blocking.consumer("g", **WRONG[option])  # type: ignore[arg-type]  # options of tests


async def test_a_consumer_can_be_made_before_its_client_is_opened() -> None:
    async with filled(1) as (broker, _):
        client = VirtualClient(broker.url)
        taken = client.consumer("g", TOPIC)
        async with client, taken:
            assert await taken.poll("20s") is not None


def test_a_blocking_consumer_that_is_not_used_sends_nothing() -> None:
    with beside(whole_broker(partitions=1)) as broker:
        before = [*broker.requests]
        with raftlog.Client(broker.url) as client:
            closed, left = client.consumer("g", TOPIC), client.consumer("g", TOPIC)
            closed.close()
            assert [repr(each).rpartition(" ")[2] for each in (closed, left)] == ["closed>", "open>"]
        assert repr(left).endswith("closed>")
        with pytest.raises(NotSent):
            left.poll("1s")
        assert broker.requests == before


@pytest.mark.parametrize("use", BLOCKING_USES)
def test_a_blocking_consumer_joins_at_its_first_use(use: str) -> None:
    with beside(whole_broker(partitions=1)) as broker, raftlog.Client(broker.url) as client:
        client.send(TOPIC, "1")
        taken = client.consumer("g", TOPIC, member_id="m")
        assert broker.counted("/v1/groups/") == 0
        with suppress(KeyError):  # the partition is not known to be its own yet
            BLOCKING_USES[use](taken)
        eventually_blocking(lambda: taken.is_assigned, what="it has joined")
        taken.close()
        assert broker.counted(LEAVES) == 1
