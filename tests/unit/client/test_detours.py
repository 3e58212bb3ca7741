"""One broker that answers is enough: addresses that cannot be reached, resolved, or that never answer."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import aiohttp
import pytest

from raftlog.client.detours import AFTER_S, DIRECT_AGAIN_S, Detours
from raftlog.client.environment import Environment
from raftlog.client.session import SILENCE_S, Session
from raftlog.errors import NotSent
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.no_brokers import frozen_broker, other_service
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import VirtualClock
from tests.helpers.whole_broker import TOPIC, whole_broker


def unused_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("place", [frozen_broker, other_service])
async def test_an_advertised_address_that_is_no_broker_is_avoided(
    place: Callable[[], AbstractAsyncContextManager[str]],
) -> None:
    async with (
        place() as advertised,
        whole_broker(partitions=1, advertised=advertised) as whole,
        VirtualClient(whole.url, request_timeout="2s", retry_timeout="20s") as client,
    ):
        assert (await client.send(TOPIC, "sent")).offset == 0
        assert (await client.partition(TOPIC, 0).read(0)).messages[0].value == b"sent"


# requirement: P6
async def test_what_an_unreachable_address_leads_is_read_and_written_through_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    advertised = unused_url()
    async with (
        whole_broker(partitions=3, advertised=advertised) as whole,
        VirtualClient(whole.url, retry_timeout="8s") as client,
    ):
        began = asyncio.get_running_loop().time()
        for partition in range(3):
            assert (await client.send(TOPIC, "sent", partition=partition)).offset == 0
            assert (await client.partition(TOPIC, partition).read(0)).messages[0].value == b"sent"
        async with client.consumer("billing", TOPIC) as consumer:
            found = [await consumer.poll("10s") for _ in range(3)]
        assert {message.partition for message in found if message is not None} == {0, 1, 2}
        assert asyncio.get_running_loop().time() - began < 12
    warnings = [record.getMessage() for record in caplog.records if "advertises" in record.getMessage()]
    assert len(warnings) == 2, warnings  # of the client, and of the client of its consumers
    assert advertised in warnings[0]
    assert whole.url in warnings[0]


async def test_an_address_is_tried_again_and_used_once_it_can_be_reached() -> None:
    detours = Detours(VirtualClock())
    detours.failed("http://a:1", 0.0, "refused")
    assert not detours.is_needed("http://a:1")  # a broker that has just ended: soon another one leads
    await asyncio.sleep(AFTER_S)
    assert detours.is_needed("http://a:1")
    await asyncio.sleep(DIRECT_AGAIN_S - 0.1)
    assert detours.is_needed("http://a:1")
    await asyncio.sleep(0.2)
    assert [detours.is_needed("http://a:1") for _ in range(2)] == [False, True]  # one request tries it
    detours.answered("http://a:1")
    assert not detours.is_needed("http://a:1")
    assert "http://a:1" not in detours


@pytest.mark.parametrize("frozen_count", [1, 2])
async def test_a_frozen_first_broker_does_not_use_up_the_time_of_the_others(frozen_count: int) -> None:
    async with (
        frozen_broker() as one,
        frozen_broker() as other,
        fake_cluster() as cluster,
        VirtualClient([*[one, other][:frozen_count], *cluster.urls], retry_timeout="9s") as client,
    ):
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert [topic.name for topic in await client.topics.list()] == ["orders"]
        assert loop.time() - began <= frozen_count * SILENCE_S + 0.1


async def test_the_first_request_that_changes_something_goes_to_a_broker_that_answers() -> None:
    async with (
        frozen_broker() as frozen,
        fake_cluster() as cluster,
        VirtualClient([frozen, *cluster.urls], retry_timeout="9s") as client,
    ):
        assert (await client.topics.create("sales")).name == "sales"  # it is never repeated
        assert asyncio.get_running_loop().time() < 2 * SILENCE_S


async def test_nothing_was_sent_where_all_brokers_are_frozen() -> None:
    async with (
        frozen_broker() as one,
        frozen_broker() as other,
        VirtualClient([one, other], retry_timeout="9s") as client,
    ):
        with pytest.raises(NotSent) as caught:
            await client.topics.create("sales")
        assert caught.value.is_definite


NO_NAMES = ("a" * 64, "a..b")  # of machines: a label has 1 to 63 characters


# requirement: P6
@pytest.mark.parametrize("name", NO_NAMES)
async def test_an_advertised_address_that_is_no_name_is_avoided(name: str) -> None:
    async with (
        whole_broker(partitions=1, advertised=f"http://{name}:7070") as whole,
        VirtualClient(whole.url, retry_timeout="20s") as client,
    ):
        assert (await client.send(TOPIC, "sent")).offset == 0
        assert (await client.partition(TOPIC, 0).read(0)).messages[0].value == b"sent"
        assert [topic.name for topic in await client.topics.list()] == [TOPIC]


# requirement: P6
@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_first_address_that_is_no_name_costs_no_request(name: str) -> None:
    async with (
        fake_cluster() as cluster,
        VirtualClient([f"http://{name}:1", *cluster.urls], retry_timeout="9s") as client,
    ):
        assert (await client.topics.create("sales")).name == "sales"


async def test_where_no_address_is_a_name_nothing_is_sent_and_the_reason_is_told() -> None:
    async with asyncio.timeout(5), VirtualClient("http://a..b:1") as client:
        with pytest.raises(NotSent, match=r"a\.\.b:1 cannot be reached: the host name is invalid"):
            await client.topics.create("sales")


class SlowNames(aiohttp.abc.AbstractResolver):
    """Names that a resolver never finds, as where a firewall drops its questions."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        """Wait for ever."""
        await asyncio.Event().wait()
        return []

    async def close(self) -> None:
        """See the base class."""


@pytest.mark.parametrize("request_timeout_s", [10, 2, 1, 0.05])
async def test_a_name_that_is_never_resolved_is_no_unknown_outcome(request_timeout_s: float) -> None:
    def connector() -> aiohttp.BaseConnector:
        return aiohttp.TCPConnector(resolver=SlowNames())

    environment = Environment(clock=VirtualClock(), rng=random.Random(7), connector=connector)
    session = Session(
        ["http://log-1.internal:1"],
        environment=environment,
        request_timeout_s=request_timeout_s,
        retry_timeout_s=30,
    )
    await session.open()
    with pytest.raises(NotSent, match="log-1"):
        await session.ask("POST", "http://log-1.internal:1/v1/topics", body=b"{}")
    await session.close()
