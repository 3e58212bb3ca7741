"""What a client promises about time: lingering, long silences, waiting, deadlines. In virtual time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import copy

import pytest
from aiohttp import web

from raftlog.aio import Client
from raftlog.clock import Clock
from raftlog.errors import CommitUnknown, ConnectionLost, NotLeader, NotSent, Overloaded, RaftlogError
from tests.helpers.fake_broker import FakeBroker, FakeCluster, Trouble, fake_cluster
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import VirtualClock, eventually

HOUR_S = 3600.0


@asynccontextmanager
async def connected(
    *, partitions: int = 1, brokers: int = 1, clock: Clock | None = None
) -> AsyncIterator[tuple[FakeCluster, Client]]:
    """A cluster and a client of it. A test that never ends fails after an hour."""
    async with (
        asyncio.timeout(HOUR_S),
        fake_cluster(partitions, brokers) as cluster,
        VirtualClient(cluster.urls, retry_timeout="10s", clock=clock) as client,
    ):
        yield cluster, client


def now() -> float:
    """Seconds of virtual time."""
    return asyncio.get_running_loop().time()


class SlowClock(VirtualClock):
    """One that loses a part in ten thousand: by it, every timer of the loop fires a little early."""

    def monotonic(self) -> float:
        """Seconds, a little too few."""
        return super().monotonic() * 0.9999


@pytest.mark.parametrize("clock", [VirtualClock(), SlowClock()], ids=["exact", "slow"])
async def test_a_batch_leaves_after_its_linger_though_its_timer_fires_a_little_early(clock: Clock) -> None:
    # requirement: B1
    async with connected(clock=clock) as (_, client):
        async with client.producer("orders", linger="1s") as producer:
            receipt = await (await producer.send("x"))
        assert receipt.offset == 0
        assert 1.0 <= now() < 1.1


async def test_after_a_silence_in_which_brokers_forget_a_producer_its_order_stays() -> None:
    # requirement: P6
    async with connected() as (cluster, client):
        producer = client.producer("orders", linger=0, batch_bytes=1)
        await (await producer.send("0"))
        await asyncio.sleep(HOUR_S / 2)
        cluster.partition().producers.clear()
        cluster.trouble(Trouble.SLOW)  # whatever leaves behind the first overtakes it
        for number in range(1, 7):
            await producer.send(str(number))
        await producer.close()
        assert cluster.partition().values() == [b"%d" % number for number in range(7)]


@pytest.mark.parametrize("trouble", [Trouble.HANG_AFTER, Trouble.UNKNOWN_AFTER])
async def test_after_an_unknown_outcome_nothing_is_lost_or_doubled(trouble: Trouble) -> None:
    # requirement: D2
    async with connected() as (cluster, client):
        producer = client.producer("orders", linger="1ms", delivery_timeout="200ms")
        await (await producer.send("0"))
        cluster.trouble(*[trouble] * (1 if trouble is Trouble.HANG_AFTER else 100))
        sent_at = now()
        lost = await producer.send("1")
        with pytest.raises((CommitUnknown, ConnectionLost)) as caught:
            await lost
        assert not caught.value.is_definite
        assert 0.2 <= now() - sent_at < 0.25
        cluster.troubles.clear()
        for number in range(2, 6):
            await (await producer.send(str(number)))
        assert cluster.partition().values() == [b"%d" % number for number in range(6)]  # and only once
        assert cluster.partition().batches[-1].header.producer_epoch == 1


class SilentController(FakeBroker):
    """It is cut off from the active controller, and waits for it."""

    async def _producer(self, request: web.Request) -> web.Response:
        await self.cluster.release.wait()
        return await super()._producer(request)


async def test_a_producer_id_comes_from_another_broker_where_the_first_is_silent() -> None:
    async with connected(brokers=2) as (cluster, client):
        await cluster.replace(SilentController(cluster, 1))
        cluster.leader = 2
        assert (await client.send("orders", "x")).offset == 0
        assert now() < 3.0


async def test_no_pause_before_a_retry_outlasts_the_deadline_and_nothing_is_sent_then() -> None:
    # requirement: D2
    async with connected() as (cluster, client):
        cluster.retry_after_ms = 60_000
        cluster.trouble(Trouble.OVERLOADED, Trouble.UNKNOWN_AFTER)
        producer = client.producer("orders", linger=0, delivery_timeout="2s")
        refused = await producer.send("x")
        with pytest.raises(Overloaded):  # surely not written
            await refused
        assert now() == pytest.approx(2.0, abs=0.01)
        cluster.troubles.clear()
        assert (await (await producer.send("y"))).offset == 0


async def test_the_first_send_to_a_topic_is_refused_by_the_deadline_whatever_pause_brokers_ask_for() -> None:
    # requirement: D2
    async with connected() as (cluster, client):
        cluster.refusal = Overloaded("too much", retry_after_ms=60_000)
        producer = client.producer("orders", delivery_timeout="2s")
        with pytest.raises(Overloaded):
            await producer.send("x")
        assert now() < 2.1
        cluster.refusal = None
        assert (await (await producer.send("x"))).offset == 0


async def test_closing_is_bounded_and_tells_each_record_what_is_known_of_it() -> None:
    async with connected() as (cluster, client):
        producer = client.producer("orders", linger=0, batch_bytes=200)
        cluster.trouble(Trouble.HANG_AFTER)
        sent = await producer.send("0")
        await asyncio.sleep(0.02)
        kept = [await producer.send(str(number)) for number in range(1, 40)]
        began = now()
        await producer.close("50ms")
        assert now() - began < 0.06
        unknown, unsent = sent.exception(), kept[-1].exception()
        assert isinstance(unknown, CommitUnknown)
        assert isinstance(unsent, NotSent)
        with pytest.raises(NotSent):
            await producer.send("late")
        await producer.close()


@pytest.mark.parametrize("end", ["room", "close"])
async def test_a_send_that_waits_for_room_goes_on_or_is_told_of_the_close(end: str) -> None:
    # requirement: N2
    async with connected() as (cluster, client):
        producer = client.producer("orders", linger=0, buffer_bytes=1_000)
        cluster.trouble(Trouble.HANG_AFTER)
        await producer.send(b"x" * 900)  # nothing else is there that could make room
        waiting = asyncio.create_task(producer.send(b"y" * 900))
        await asyncio.sleep(1)
        assert not waiting.done()
        if end == "room":
            cluster.release.set()
            assert (await (await waiting)).offset == 1
        else:
            await producer.close(0)
            with pytest.raises(NotSent):
                await waiting


@pytest.mark.parametrize("what", ["the producer id", "the leader"])
async def test_a_batch_whose_time_is_over_ends_no_question_that_others_wait_for(what: str) -> None:
    async with connected(partitions=2) as (cluster, client):
        producer = client.producer("orders", linger=0, delivery_timeout="2s")
        await client.topics.partitions("orders")
        if what == "the leader":
            for partition in range(2):
                await (await producer.send("known", partition=partition))
            cluster.trouble(Trouble.NO_LEADER)  # who leads either partition has to be asked again
        else:
            await client.send("orders", "known", partition=0)  # with an id of its own
        cluster.knows.clear()
        early = await producer.send("early", partition=0)
        await asyncio.sleep(1.5)
        late = await producer.send("late", partition=1)
        with pytest.raises(RaftlogError):
            await early
        cluster.knows.set()
        assert (await late).partition == 1


async def test_a_silent_leader_is_doubted_again_when_no_broker_could_be_asked() -> None:
    async with connected(brokers=2) as (cluster, client):
        producer = client.producer("orders", linger=0)
        await (await producer.send("0"))
        cluster.trouble(Trouble.HANG_AFTER)
        cluster.knows.clear()
        pending = await producer.send("1")
        await asyncio.sleep(7)  # the first look at the others has ended without an answer
        assert not pending.done()
        cluster.leader = 2
        cluster.knows.set()
        asked_at = now()
        assert (await pending).offset == 1
        assert now() - asked_at < 3


async def test_a_silent_leader_is_left_soon_after_the_election_that_replaces_it() -> None:
    async with connected(brokers=2) as (cluster, client):
        producer = client.producer("orders", linger=0)
        await (await producer.send("0"))
        cluster.trouble(Trouble.HANG_AFTER)
        pending = await producer.send("1")
        await eventually(lambda: bool(cluster.in_flight))
        cluster.leader = 0  # an election is held
        await asyncio.sleep(0.65)
        cluster.leader, elected_at = 2, now()
        assert (await pending).offset == 1
        assert now() - elected_at <= 0.1


class BusyBroker(FakeBroker):
    """Each produce takes so long that it could be a broker that was stopped."""

    looks = 0

    async def _produce(self, request: web.Request) -> web.Response:
        await asyncio.sleep(0.5)
        return await super()._produce(request)

    async def _partitions(self, request: web.Request) -> web.Response:
        self.looks += 1
        return await super()._partitions(request)


async def test_brokers_that_always_take_long_are_not_asked_for_the_leader_as_well() -> None:
    async with connected() as (cluster, client):
        busy = BusyBroker(cluster, 1)
        await cluster.replace(busy)
        producer = client.producer("orders", linger=0)
        looks = []
        for number in range(20):
            await (await producer.send(str(number)))
            looks.append(busy.looks)
        assert looks[0] > 1  # besides the one that every client makes
        assert looks[10] == looks[-1] < 15


async def test_a_read_has_its_time_for_retries_however_long_it_has_waited() -> None:
    # requirement: C3
    async with connected() as (cluster, client):
        waiting = asyncio.create_task(client.partition("orders", 0).read(0, wait="50s"))
        await asyncio.sleep(49)
        await cluster.brokers[1].stop()
        await asyncio.sleep(5)
        await cluster.brokers[1].start()
        await client.send("orders", "x")
        assert [message.value for message in await waiting] == [b"x"]


async def test_brokers_that_name_each_other_as_the_leader_are_not_asked_without_a_pause() -> None:
    async with connected(brokers=2) as (cluster, client):
        producer = client.producer("orders", linger=0, delivery_timeout="10s")
        await (await producer.send("known"))
        other = copy(cluster)  # what broker 2 believes
        cluster.brokers[2].cluster = other
        cluster.leader, other.leader = 2, 1
        asked = cluster.produce_count + other.produce_count
        with pytest.raises(NotLeader):
            await (await producer.send("x"))
        assert cluster.produce_count + other.produce_count - asked < 100


async def test_a_read_goes_on_once_a_leader_is_elected() -> None:
    async with connected() as (cluster, client):
        cluster.known_leader = 99  # nobody
        reading = asyncio.ensure_future(client.partition("orders", 0).read("earliest"))
        await asyncio.sleep(2)
        assert not reading.done()
        cluster.known_leader = None
        await reading
        assert now() < 4


async def test_a_read_goes_to_the_leader_that_a_refusal_names_although_metadata_are_old() -> None:
    async with connected(brokers=2) as (cluster, client):
        cluster.leader, cluster.known_leader = 2, 1
        await client.partition("orders", 0).read("earliest")
        assert now() < 1


async def test_a_producer_id_that_could_not_be_had_is_asked_for_again() -> None:
    async with connected() as (cluster, client):
        await client.send("orders", "known", partition=0)  # with an id of its own
        cluster.knows.clear()
        producer = client.producer("orders", linger=0, delivery_timeout="60s")
        pending = await producer.send("x", partition=0)
        await asyncio.sleep(15)  # the first request for an id has been given up
        cluster.knows.set()
        assert (await pending).offset == 1
        assert now() < 25


async def test_a_flush_waits_for_the_partition_that_takes_longest() -> None:
    async with connected(partitions=2) as (cluster, client):
        producer = client.producer("orders", linger="10s")
        cluster.partition_troubles[0] = deque([Trouble.NO_LEADER] * 3)
        receipts = [await producer.send("x", partition=partition) for partition in range(2)]
        await producer.flush()
        assert [receipt.done() for receipt in receipts] == [True, True]
