"""A member of a group: what it says that it owns, what it tries again, and how it leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from raftlog.aio import Client, Consumer
from raftlog.assignors import ASSIGNORS, Subscription
from raftlog.assignors.values import Plan
from raftlog.client.consumer import membership
from raftlog.client.consumer.membership import Membership
from raftlog.errors import InvalidRequest, RaftlogError
from raftlog.types import TopicPartition
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import eventually
from tests.helpers.whole_broker import TOPIC, Trouble, WholeBroker, whole_broker

POSITIONS = "GET /v1/groups/g/offsets"
JOINS, BEATS = "POST /v1/groups/g/members", "members/b:heartbeat"
FIRST = "GET /v1/topics/orders/partitions/1/offsets"
SHORT = {"session_timeout": "2s", "rebalance_timeout": "60s"}
LONG = {"session_timeout": "20s", "rebalance_timeout": "60s"}
NEVER = [Trouble.LOST] * 100_000


async def member(client: Client, name: str, **options: object) -> Consumer:
    """A consumer of the group, which begins to join."""
    taken = client.consumer("g", TOPIC, member_id=name, **options)  # type: ignore[arg-type]  # of tests
    return await taken.__aenter__()


# What a member says that it owns.


class Witness:
    """The cooperative strategy, which remembers what members said before each plan."""

    name = "cooperative-sticky"

    def __init__(self) -> None:
        self.heard: list[dict[str, tuple[int, int]]] = []  # partitions that each owned, and the generation

    def assign(self, members: Mapping[str, Subscription], partition_counts: Mapping[str, int]) -> Plan:
        """As the cooperative strategy does."""
        self.heard.append({name: (len(one.owned), one.owned_generation) for name, one in members.items()})
        return ASSIGNORS[self.name].assign(members, partition_counts)


def have_all(*members: Consumer, count: int = 6) -> Callable[[], bool]:
    """Whether they read all partitions, each of them by one member."""

    def condition() -> bool:
        owned: list[TopicPartition] = [each for one in members for each in one.assignment]
        return len(owned) == len(set(owned)) == count and all(one.is_assigned for one in members)

    return condition


# requirement: G4
@pytest.mark.parametrize("prefers", [[], ["range"]])
async def test_a_member_fenced_while_others_join_leaves_no_partition_unread(prefers: list[str]) -> None:
    witness = Witness()
    async with whole_broker(partitions=6) as broker, VirtualClient(broker.url) as client:
        a = await member(client, "a", strategies=[*prefers, witness], **LONG)
        await eventually(have_all(a))
        joins, syncs = broker.requests.count(JOINS), broker.counted("a:sync")
        broker.trouble("a:sync", Trouble.HELD)
        b = await member(client, "b", strategies=[*prefers, witness], **LONG)
        await eventually(lambda: broker.counted("a:sync") > syncs)
        c = await member(client, "c", strategies=[witness], **LONG)
        await eventually(
            lambda: broker.requests.count(JOINS) == joins + 4
        )  # b joins again: c has, so a is refused
        broker.release.set()
        await eventually(have_all(a, b, c))
        assert {"a": (0, 2), "b": (0, 2), "c": (0, -1)} in witness.heard


# requirement: G4
async def test_a_cooperative_member_says_what_it_has_until_it_is_removed() -> None:
    witness = Witness()
    async with whole_broker(partitions=6) as broker, VirtualClient(broker.url) as client:
        a = await member(client, "a", strategies=[witness], **LONG)
        await eventually(have_all(a))
        b = await member(client, "b", strategies=[witness], **LONG)
        await eventually(have_all(a, b))
        assert witness.heard[1:] == [{"a": (6, 1), "b": (0, -1)}, {"a": (3, 2), "b": (0, 2)}]
        await client._session.ask_any("DELETE", "/v1/groups/g/members/a")
        await eventually(lambda: witness.heard[-1].get("a") == (0, -1))
        await eventually(have_all(a, b))


# requirement: G4
async def test_a_member_without_an_answer_owns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "PARK_S", 0.5)
    witness = Witness()
    async with (
        whole_broker(partitions=6) as broker,
        VirtualClient(broker.url, retry_timeout="100ms") as client,
    ):
        a = await member(client, "a", strategies=[witness], **LONG)
        await eventually(have_all(a))
        broker.trouble("a:sync", *NEVER)
        async with VirtualClient(broker.url) as other:
            b = await member(other, "b", strategies=[witness], **LONG)
            await eventually(lambda: len(witness.heard) == 3)  # the plan of b: a, whose plan is lost, gave up
            broker.troubles.clear()
            await eventually(have_all(a, b))
            assert witness.heard[1:] == [{"a": (6, 1), "b": (0, -1)}, {"a": (0, 2), "b": (0, 2)}]


# What is tried again in the same generation.


def failed_heartbeats(monkeypatch: pytest.MonkeyPatch) -> list[RaftlogError]:
    """The errors of heartbeats from now on, each after its retries."""
    failed: list[RaftlogError] = []
    heartbeat = Membership.heartbeat

    async def watched(self: Membership, wait_ms: int | None = None) -> bool:
        try:
            return await heartbeat(self, wait_ms)
        except RaftlogError as error:
            failed.append(error)
            raise

    monkeypatch.setattr(Membership, "heartbeat", watched)
    return failed


# requirement: G4
@pytest.mark.parametrize("retry_timeout", ["100ms", "30s"])  # shorter and longer than the session
async def test_a_member_without_its_positions_keeps_its_place_and_disturbs_nobody(retry_timeout: str) -> None:
    async with (
        whole_broker(partitions=2) as broker,
        VirtualClient(broker.url) as client,
        VirtualClient(broker.url, retry_timeout=retry_timeout) as other,
    ):
        a = await member(client, "a", **SHORT)
        await eventually(have_all(a, count=2))
        broker.trouble(FIRST, *NEVER)
        b = await member(other, "b", **SHORT)
        await eventually(lambda: broker.counted(BEATS) > 4 or a.generation > 2)  # longer than its session
        assert (a.generation, b.generation, len(b.assignment)) == (2, 2, 0)
        await a.close()
        await eventually(lambda: b.generation == 3)
        await client._session.ask_any("DELETE", "/v1/groups/g/members/b")
        await eventually(lambda: b.generation == 5)  # the fourth has no member
        broker.troubles.clear()
        await eventually(have_all(b, count=2))
        assert b.generation == 5


# requirement: G4
async def test_a_member_whose_heartbeats_fail_asks_for_no_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = failed_heartbeats(monkeypatch)
    async with whole_broker() as broker, VirtualClient(broker.url, retry_timeout="200ms") as client:
        b = await member(client, "b", session_timeout="5s", rebalance_timeout="60s")
        await eventually(have_all(b, count=2))
        joins = broker.requests.count(JOINS)
        broker.trouble(BEATS, *NEVER)
        await eventually(lambda: bool(failed))
        broker.troubles.clear()
        before = broker.counted(BEATS)
        await eventually(lambda: broker.counted(BEATS) > before + 1)
        assert (b.generation, b.is_assigned, broker.requests.count(JOINS)) == (1, True, joins)


# requirement: G4
async def test_a_heartbeat_may_wait_longer_than_retries_last(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = failed_heartbeats(monkeypatch)
    async with whole_broker() as broker, VirtualClient(broker.url, retry_timeout="100ms") as client:
        b = await member(client, "b", session_timeout="1500ms", rebalance_timeout="60s")
        await eventually(lambda: broker.counted(BEATS) > 3)
        assert (failed, b.generation, b.is_assigned) == ([], 1, True)


async def test_an_error_that_stays_ends_a_member_that_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def committed(_: Membership) -> dict[TopicPartition, int]:
        raise InvalidRequest("never")

    monkeypatch.setattr(Membership, "committed", committed)
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        b = await member(client, "b", **LONG)
        with pytest.raises(InvalidRequest, match="never"):
            await b.poll("5s")


LEAVES = "DELETE /v1/groups/g/members"


async def seen(broker: WholeBroker, part: str) -> None:
    """Return once the broker's proxy has a request of this kind."""
    await eventually(lambda: bool(broker.counted(part)))


# requirement: G3
async def test_a_join_that_arrives_after_the_leave_leaves_no_member_behind() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        broker.trouble(JOINS, Trouble.HELD)
        consumer = await client.consumer("g", TOPIC, session_timeout="10s").__aenter__()
        await seen(broker, JOINS)
        closing = asyncio.create_task(consumer.close())
        await seen(broker, LEAVES)
        broker.release.set()
        await closing
        assert (await client.groups.describe("g")).members == []


# requirement: G3
async def test_a_join_without_an_answer_does_not_hold_a_closing_member_for_long() -> None:
    async with whole_broker() as broker, VirtualClient(broker.url) as client:
        broker.trouble(JOINS, Trouble.HELD)
        consumer = await client.consumer("g", TOPIC, session_timeout="10s").__aenter__()
        await seen(broker, JOINS)
        async with asyncio.timeout(15):
            await consumer.close()
