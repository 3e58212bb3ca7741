"""Brokers that are down, answers that never come, and metadata fetched once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import msgspec
import pytest
from aiohttp import web
from msgspec import structs

from raftlog.aio import Client
from raftlog.client.environment import Environment
from raftlog.client.session import Session
from raftlog.errors import (
    CommitUnknown,
    ConnectionLost,
    NoLeader,
    NotSent,
    ProducerFenced,
    RaftlogError,
    TopicExists,
    TopicNotFound,
)
from raftlog.wire import bodies
from tests.helpers.fake_broker import FakeBroker, Handler, fake_cluster
from tests.helpers.virtual_client import VirtualClient
from tests.helpers.virtual_time import VirtualClock


def unused_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def test_topics_are_made_listed_described_and_deleted() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        made = await client.topics.create("sales", partitions=3, retention="14d")
        assert made.config == {"retention.ms": 1_209_600_000}
        with pytest.raises(TopicExists) as caught:
            await client.topics.create("sales")
        assert (caught.value.code, caught.value.retryable) == ("topic_exists", False)
        assert (await client.topics.create("sales", exist_ok=True)).partitions == 3
        assert [topic.name for topic in await client.topics.list()] == ["orders", "sales"]
        assert len(await client.topics.partitions("sales")) == 3
        await client.topics.delete("sales")
        with pytest.raises(TopicNotFound):
            await client.topics.describe("sales")
        assert (await client.cluster.describe()).brokers == 1
        assert [broker.broker_id for broker in await client.brokers.list()] == [1]


async def test_one_bootstrap_broker_that_answers_is_enough() -> None:
    async with (
        fake_cluster() as cluster,
        VirtualClient([unused_url(), *cluster.urls, unused_url()]) as client,
    ):
        assert (await client.send("orders", "x")).offset == 0


async def test_brokers_that_were_not_named_are_found_and_used() -> None:
    async with fake_cluster(brokers=3) as cluster, VirtualClient(cluster.urls[:1]) as client:
        await client.send("orders", "x")
        await cluster.brokers[1].stop()
        cluster.leader = 2
        assert (await client.cluster.describe()).brokers == 3
        assert (await client.send("orders", "y")).offset == 1


def new_session(*urls: str) -> Session:
    """One that the test opens, if it has to."""
    return Session(urls, environment=Environment(), request_timeout_s=10, retry_timeout_s=30)


def test_bootstrap_addresses_come_after_those_that_brokers_advertise() -> None:
    """They may be other names of the same brokers, also of the one that was turned away."""
    session = new_session("http://balancer:1", "http://b:1")
    session.learn_brokers(["http://a:1", "http://b:1", "http://c:1"])
    session.turn_away("http://a:1", ConnectionLost())
    session.turn_away("http://b:1", NoLeader())
    assert session.preferred == "http://c:1"
    session.learn_brokers(["http://a:1", "http://b:1", "http://c:1"])
    for broker in ("c", "a", "b"):
        assert session.preferred == f"http://{broker}:1"
        session.turn_away(f"http://{broker}:1", ConnectionLost())
    assert session.preferred == "http://balancer:1"


def test_a_broker_that_is_turned_away_before_its_turn_is_used_last() -> None:
    session = new_session("http://a:1", "http://b:1", "http://c:1")
    session.turn_away("http://b:1", ConnectionLost())
    session.turn_away("http://a:1", NoLeader())
    assert session.preferred == "http://c:1"


class IsolatedBroker(FakeBroker):
    """It reaches no other broker: it knows neither the active controller nor any leader."""

    async def _producer(self, request: web.Request) -> web.Response:
        raise NoLeader("no active controller was found in time", retry_after_ms=500)

    async def _partitions(self, request: web.Request) -> web.Response:
        known = await super()._partitions(request)
        found = msgspec.json.decode(known.body or b"", type=bodies.PartitionList)
        items = [structs.replace(one, leader=None) for one in found.items]
        return web.Response(body=msgspec.json.encode(structs.replace(found, items=items)))


async def test_a_client_leaves_a_broker_that_finds_no_leader() -> None:
    async with fake_cluster() as cluster:
        isolated = cluster.brokers[2] = IsolatedBroker(cluster, 2)
        await isolated.start()
        async with asyncio.timeout(10), VirtualClient(isolated.url, retry_timeout="5s") as client:
            await client.brokers.list()
            assert (await client.send("orders", "x")).offset == 0


class DoubtfulBroker(FakeBroker):
    """It answers requests for producer ids in this way, one after another; the last answer stays."""

    answers: Sequence[RaftlogError] = ()

    async def _producer(self, request: web.Request) -> web.Response:
        answer, *later = self.answers
        self.answers = later or self.answers
        if isinstance(answer, ConnectionLost) and request.transport is not None:
            request.transport.abort()
        raise answer


@pytest.mark.parametrize(
    "answers",
    [
        (CommitUnknown("it may be done", committed=None), NoLeader(retry_after_ms=10)),
        (ConnectionLost(), NoLeader(retry_after_ms=10)),
        (NoLeader(retry_after_ms=10), ConnectionLost()),
    ],
    ids=lambda answers: " then ".join(type(each).__name__ for each in answers),
)
async def test_a_refusal_does_not_hide_an_attempt_in_doubt(answers: Sequence[RaftlogError]) -> None:
    async with fake_cluster() as cluster:
        broker = cluster.brokers[2] = DoubtfulBroker(cluster, 2)
        broker.answers = answers
        await broker.start()
        session = new_session(broker.url)
        await session.open()
        with pytest.raises(RaftlogError) as caught:
            await session.ask_any("POST", "/v1/producers", retry_timeout_s=0.5)
        await session.close()
    assert not caught.value.is_definite


def refused(status: int, code: str) -> web.Response:
    problem = {"type": "", "title": "", "status": status, "detail": f"said {code}", "code": code}
    return web.json_response(problem, status=status, content_type="application/problem+json")


REFUSED_AGAIN: dict[str, tuple[Callable[[Client], Awaitable[object]], int, str]] = {
    "forget": (lambda client: client.brokers.forget(4), 404, "broker_not_found"),
    "delete a queue": (lambda client: client.queue("mail", group="g").delete(), 404, "queue_not_found"),
    "commit offsets": (lambda client: client.groups.commit("g", {("orders", 0): 1}), 409, "conflict"),
}


# requirement: D2
@pytest.mark.parametrize("change", REFUSED_AGAIN)
async def test_a_final_refusal_does_not_hide_an_attempt_in_doubt(change: str) -> None:
    ask, status, code = REFUSED_AGAIN[change]
    answers = refused(504, "commit_unknown"), refused(status, code)
    async with answering(*answers) as url, VirtualClient(url, retry_timeout="5s") as client:
        with pytest.raises(CommitUnknown, match=f"said commit_unknown.*said {code}") as caught:
            await ask(client)
    assert isinstance(caught.value.__cause__, RaftlogError)
    assert caught.value.__cause__.code == code


async def test_a_refusal_of_what_brokers_remember_ends_the_doubt() -> None:
    answers = refused(504, "commit_unknown"), refused(403, "producer_fenced")
    async with answering(*answers) as url, VirtualClient(url, retry_timeout="5s") as client:
        producer = client.producer("orders", transactional_id="t")
        with pytest.raises(ProducerFenced):
            await producer.transaction().__aenter__()
        await producer.close(0)


async def test_the_bootstrap_address_is_asked_again_when_all_brokers_have_moved() -> None:
    async with fake_cluster() as cluster:
        balancer = FakeBroker(cluster, 9)  # no broker that the others know
        await balancer.start()
        async with VirtualClient([balancer.url], retry_timeout="5s") as client:
            await client.send("orders", "x")
            await cluster.brokers.pop(1).stop()
            cluster.brokers[2], cluster.leader = FakeBroker(cluster, 2), 2
            await cluster.brokers[2].start()
            assert (await client.send("orders", "y")).offset == 1
        await balancer.stop()


async def test_without_any_broker_the_error_is_definite_and_in_time() -> None:
    async with VirtualClient(unused_url(), retry_timeout="100ms") as client:
        with pytest.raises(NotSent) as caught:
            await client.cluster.describe()
        assert caught.value.is_definite
        producer = client.producer("orders", delivery_timeout="100ms")
        with pytest.raises(NotSent):
            await producer.send("x")


async def test_a_client_that_never_had_an_answer_gives_up_soon_and_says_why() -> None:
    urls = [unused_url(), unused_url()]
    # With their default times these would outlast the test's own time limit together.
    async with asyncio.timeout(20), VirtualClient(urls) as client:
        for call in (
            client.cluster.describe(),
            client.topics.create("x"),
            client.partition("orders", 0).read(0),
            client.partition("orders", 0).offset_at(),
            client.send("orders", "x"),
        ):
            with pytest.raises(NotSent) as caught:
                await call
            told = f"no broker answered; {urls[0]} cannot be reached: Connection refused"
            assert str(caught.value).startswith((told, told.replace(urls[0], urls[1])))
            assert all(url in str(caught.value) for url in urls)


async def test_a_client_that_had_an_answer_waits_for_brokers_to_come_back() -> None:
    async with fake_cluster() as cluster, VirtualClient(cluster.urls) as client:
        await client.cluster.describe()
        await cluster.brokers[1].stop()
        asking = asyncio.create_task(client.cluster.describe())
        await asyncio.wait([asking], timeout=1.0)  # longer than a client waits that had no answer
        assert not asking.done()
        await cluster.brokers[1].start()
        assert (await asking).brokers == 1


async def test_a_client_that_is_closed_sends_nothing() -> None:
    async with fake_cluster() as cluster:
        async with VirtualClient(cluster.urls) as client:
            await client.cluster.describe()
        with pytest.raises(NotSent):
            await client.cluster.describe()


@asynccontextmanager
async def serving(answer: Handler) -> AsyncIterator[str]:
    """The URL of a server that answers all requests by a function."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def answering(*responses: web.Response) -> AbstractAsyncContextManager[str]:
    """The URL of a server that gives these answers, one after another."""
    left = list(responses)

    async def answer(request: web.Request) -> web.Response:
        return left.pop(0)

    return serving(answer)


async def test_an_answer_that_no_broker_wrote_leaves_the_outcome_unknown() -> None:
    async with answering(web.Response(status=502, text="bad gateway")) as url, VirtualClient(url) as client:
        with pytest.raises(ConnectionLost, match="502") as caught:
            await client.topics.create("x")
        assert not caught.value.is_definite


REPEATED: dict[str, Callable[[Client], Awaitable[object]]] = {
    "create, if it is missing": lambda client: client.topics.create("orders", exist_ok=True),
    "add partitions": lambda client: client.topics.add_partitions("orders", 1, expected=1),
    "delete before": lambda client: client.partitions.delete_before("orders", 0, 1),
    "forget": lambda client: client.brokers.forget(4),
    "transfer out of a term": lambda client: client.partitions.transfer_leadership(
        "orders", 0, leader_epoch=7
    ),
}
RAISED: dict[str, Callable[[Client], Awaitable[object]]] = {
    "create": lambda client: client.topics.create("orders"),
    "alter": lambda client: client.topics.alter("orders", config={"retention.ms": 1}),
    "delete": lambda client: client.topics.delete("orders"),
    "drain": lambda client: client.brokers.drain(4),
    "decommission": lambda client: client.brokers.decommission(4),
    "recommission": lambda client: client.brokers.recommission(4),
    "set replicas": lambda client: client.partitions.set_replicas("orders", 0, [1, 2, 3]),
    "abort what is open": lambda client: client.transactions.abort("copy-1"),
    "transfer to a broker": lambda client: client.partitions.transfer_leadership("orders", 0, to=2),
    "start a plan": lambda client: client.cluster.start_plan(),
}


@pytest.mark.parametrize("change", [*REPEATED, *RAISED])
async def test_only_what_undoes_no_change_of_others_is_repeated_in_doubt(change: str) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response(
            {"type": "", "title": "", "status": 504, "detail": "lost", "code": "commit_unknown"},
            status=504,
            content_type="application/problem+json",
        )

    async with serving(answer) as url, VirtualClient(url, retry_timeout="1s") as client:
        with pytest.raises(CommitUnknown):
            await (REPEATED | RAISED)[change](client)
    assert (len(asked) > 1) == (change in REPEATED)


async def test_a_transfer_to_any_broker_names_the_current_leader_epoch_in_each_attempt() -> None:
    sent: list[object] = []

    async def answer(request: web.Request) -> web.Response:
        if request.method == "GET":
            shown = bodies.PartitionDescription(0, 1, 7, [1, 2], [], [1, 2], 0, 0, 0, 0, 0)
            return web.Response(body=msgspec.json.encode(shown), content_type="application/json")
        sent.append(await request.json())
        if len(sent) == 1:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"topic": "orders", "partition": 0, "leader": 2, "leader_epoch": 8})

    async with serving(answer) as url, VirtualClient(url) as client:
        moved = await client.partitions.transfer_leadership("orders", 0)
    assert (moved.leader, sent) == (2, [{"to": None, "leader_epoch": 7}] * 2)


async def test_a_response_that_is_nested_too_deeply_is_of_no_broker() -> None:
    nested = web.Response(body=b'{"broker_id":' + b"[" * 100_000, content_type="application/json")
    async with answering(nested) as url, VirtualClient(url) as client:
        with pytest.raises(ConnectionLost, match="cannot be read"):
            await client.cluster.describe()


@pytest.mark.parametrize("end", ["closed", "reset", "in the head", "in the body"])
async def test_a_connection_that_breaks_behind_a_request_leaves_the_outcome_unknown(end: str) -> None:
    # requirement: D2
    begun = {
        "in the head": b"HTTP/1.1 201 Cre",
        "in the body": b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{",
    }

    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")  # the request is here whole, and may be carried out
        writer.write(begun.get(end, b""))
        if end == "reset":
            writer.transport.abort()
        writer.close()

    server = await asyncio.start_server(break_off, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, VirtualClient(url, retry_timeout="300ms") as client:
        with pytest.raises(ConnectionLost) as caught:
            await client.topics.create("x")
        assert not caught.value.is_definite


@asynccontextmanager
async def writing(head: bytes, piece: bytes, *, pause_s: float = 0.0) -> AsyncIterator[tuple[str, list[int]]]:
    """The URL of something that answers with ``head`` and then pieces without end, and how many of each."""
    sent: list[int] = []
    answers: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent.append(0)
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head)
            while not writer.is_closing():
                writer.write(piece)
                await writer.drain()
                sent[-1] += 1
                await asyncio.sleep(pause_s)
        writer.transport.abort()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(
        lambda *streams: answers.append(asyncio.create_task(answer(*streams))), "127.0.0.1", 0
    )
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", sent
        await asyncio.gather(*answers)  # they end with their connections


@pytest.mark.parametrize(
    ("head", "piece", "word"),
    [
        (b"\r\n", bytes(1 << 20), "more than 16777216 bytes"),
        (b"Content-Length: 9999999999\r\n\r\n", b"x", "more than 16777216 bytes"),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n%s\r\n" % bytes(1 << 20), "more than"),
        (b"", b"Name: value\r\n" * 1_000, "Too many headers"),
        (b"Name: ", b"x" * (1 << 20), "more than 8190 bytes"),
    ],
    ids=["body", "length", "chunks", "headers", "header"],
)
async def test_an_answer_without_end_is_given_up(head: bytes, piece: bytes, word: str) -> None:
    async with (
        writing(b"HTTP/1.1 200 OK\r\n" + head, piece) as (url, sent),
        VirtualClient(url, retry_timeout="5s") as client,
    ):
        with pytest.raises(ConnectionLost, match=word) as caught:
            await client.topics.create("x")
        assert not caught.value.is_definite
        assert max(sent) < 64


async def test_the_time_of_a_request_holds_for_a_body_that_trickles() -> None:
    async with (
        writing(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", b" ", pause_s=0.01) as (url, _),
        VirtualClient(url, request_timeout="100ms") as client,
    ):
        with pytest.raises(ConnectionLost, match=r"no response within 0\.1 s"):
            await client.topics.create("x")


async def test_what_a_broker_has_said_is_told_when_the_time_is_up_during_the_next_attempt() -> None:
    problem = {"type": "", "title": "", "status": 503, "detail": "start brokers [3]", "code": "no_leader"}
    is_over, asked = asyncio.Event(), list[str]()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) > 1:
            await is_over.wait()
        return web.json_response({**problem, "retryable": True}, status=503)

    async with serving(answer) as url, VirtualClient(url, retry_timeout="400ms") as client:
        with pytest.raises(NoLeader, match="start brokers"):
            await client.cluster.describe()
        asked.append("so that the next answer does not come")
        with pytest.raises(ConnectionLost):  # whether the topic was made is not known
            await client.topics.create("x")
        is_over.set()


async def test_no_attempt_begins_when_the_time_is_up_which_would_hide_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = {"type": "", "title": "", "status": 503, "detail": "start brokers [3]", "code": "no_leader"}
    is_over, asked, late_s, sleep = asyncio.Event(), list[str](), list[float](), asyncio.sleep

    class Slow(VirtualClock):
        def monotonic(self) -> float:
            return super().monotonic() + sum(late_s)

    async def sleeps_too_long(seconds: float) -> None:
        await sleep(seconds)
        late_s.append(10.0)  # as on a machine with too much work

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if len(asked) > 1:
            await is_over.wait()
        return web.json_response({**problem, "retryable": True}, status=503)

    async with serving(answer) as url, VirtualClient(url, clock=Slow(), retry_timeout="9s") as client:
        monkeypatch.setattr("raftlog.client.session.asyncio.sleep", sleeps_too_long)
        with pytest.raises(NoLeader, match="start brokers"):
            await client.topics.create("x")
        is_over.set()
    assert len(asked) == 1


async def test_a_code_newer_than_the_client_is_kept_and_its_wish_for_a_retry_heard() -> None:
    problem = {
        "type": "",
        "title": "",
        "status": 503,
        "detail": "later",
        "code": "too_new",
        "retryable": True,
    }
    cluster = {"cluster_id": "c", "controller": 1, "metadata_version": 1, "brokers": 1, "version": "9"}
    again = web.json_response(problem, status=503)
    refused = web.json_response({**problem, "retryable": False}, status=503)
    async with answering(again, web.json_response(cluster), refused) as url, VirtualClient(url) as client:
        assert (await client.cluster.describe()).version == "9"
        with pytest.raises(RaftlogError, match="later") as caught:
            await client.cluster.describe()
        assert caught.value.problem["code"] == "too_new"


async def test_all_who_need_metadata_share_one_request() -> None:
    async with fake_cluster(4) as cluster, VirtualClient(cluster.urls) as client:
        await asyncio.gather(*(client.send("orders", "x", partition=n % 4) for n in range(40)))
        assert cluster.metadata_count == 1


async def test_a_client_closes_although_a_broker_reads_nothing() -> None:
    with socket.socket() as stopped:
        stopped.bind(("127.0.0.1", 0))
        stopped.listen()
        session = new_session(f"http://127.0.0.1:{stopped.getsockname()[1]}")
        await session.open()
        request = asyncio.create_task(session.ask("POST", session.preferred + "/v1", body=bytes(64 << 20)))
        await asyncio.sleep(0.2)  # the buffers of the connection are full
        async with asyncio.timeout(10):
            await session.close()
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
