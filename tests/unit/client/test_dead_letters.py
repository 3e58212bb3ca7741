"""The client's side of dead letters, with the HTTP application of a broker."""

from __future__ import annotations

import pytest

import raftlog.client.dead_letters
from raftlog import ConnectionLost, DeadLetter, InvalidRequest, UnknownTopic
from raftlog.client.session import Reply, Session
from raftlog.records.failures import FailedRecord, Origin
from raftlog.types import TopicPartition
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.dead_letters import RETRY, add, ids, letter, make_topics
from tests.helpers.http_server import HttpServer, serve
from tests.helpers.virtual_client import VirtualClient


def retry_count(server: HttpServer) -> int:
    return server.cluster.gateway.log(TopicPartition(RETRY, 0)).end


def shown(failed: FailedRecord, dead: DeadLetter) -> DeadLetter:
    """The dead letter as the client should show it."""
    return DeadLetter(
        id=str(failed.origin),
        origin=failed.origin,
        partition=failed.origin.partition,
        offset=dead.offset,
        key=failed.key,
        value=failed.value,
        headers=failed.headers,
        attempts=failed.attempts,
        reason=failed.reason,
        failed_ms=failed.failed_ms,
        timestamp_ms=failed.timestamp_ms,
        size_bytes=dead.size_bytes,
    )


@in_virtual_time
async def test_a_dead_letter_comes_back_as_bytes() -> None:
    # requirement: A7
    failed = [
        letter(1, value=b'{ "a": 1 }', headers=(("h", b"x"), ("b", b"\xff"), ("raftlog.tag", b"t"))),
        letter(2, key=None, value=None, headers=(("n", None),)),
        letter(3, key=b"\xff", value=b"\xff"),
        letter(4, key=b"", value=b""),
    ]
    async with serve() as server, VirtualClient(server.url) as client:
        await make_topics(server)
        await add(server, *failed)
        found = await client.dead_letters.list("orders", "mail")
        assert found == [shown(one, dead) for one, dead in zip(failed, found, strict=True)]


@in_virtual_time
async def test_a_list_has_all_pages_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await make_topics(server, 2)
        await add(server, *(letter(number) for number in range(150)), partition=0)
        await add(server, letter(7, partition=1, key=b"u2", reason="late"), partition=1)
        letters = client.dead_letters
        assert len(await letters.list("orders", "mail")) == 100
        assert len(await letters.list("orders", "mail", limit=None)) == 151
        assert [one.origin.offset for one in await letters.list("orders", "mail", limit=2)] == [0, 1]
        assert [one.id for one in await letters.list("orders", "mail", key="u2")] == ["orders/1/7"]
        assert [one.id for one in await letters.list("orders", "mail", reason="LATE")] == ["orders/1/7"]
        monkeypatch.setattr(raftlog.client.dead_letters, "IDS_BYTES_MAX", 50)
        wanted = [*ids([3, 9, 11]), *ids([7], 1)]
        assert [one.id for one in await letters.list("orders", "mail", ids=wanted)] == wanted
        assert await letters.list("orders", "mail", ids=[]) == []


@in_virtual_time
async def test_redrive_and_discard_take_a_selection_and_a_limit() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await make_topics(server)
        await add(server, *(letter(number) for number in range(5)))
        letters = client.dead_letters
        assert len(await letters.redrive("orders", "mail", all=True, dry_run=True)) == 5
        (only,) = await letters.redrive("orders", "mail", ids=ids([3]))
        assert (only.origin, only.value) == (Origin("orders", 0, 3), None)
        assert [one.id for one in await letters.discard("orders", "mail", key="u1", limit=2)] == ids([0, 1])
        assert [one.id for one in await letters.redrive("orders", "mail", reason="user")] == ids([2, 4])
        assert await letters.list("orders", "mail") == []
        assert retry_count(server) == 3


@in_virtual_time
async def test_a_redrive_with_a_lost_answer_is_repeated_by_its_caller_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        await make_topics(server)
        await add(server, letter(1), letter(2))
        ask, answers = Session.ask, list[Reply]()

        async def lost(self: Session, method: str, url: str, **options: object) -> Reply:
            answers.append(await ask(self, method, url, **options))  # type: ignore[arg-type]
            raise ConnectionLost("on purpose")

        with monkeypatch.context() as patched:
            patched.setattr(Session, "ask", lost)
            with pytest.raises(ConnectionLost):
                await client.dead_letters.redrive("orders", "mail", all=True, limit=1)
        assert len(answers) == 1
        (left,) = await client.dead_letters.redrive("orders", "mail", all=True)
        assert (left.id, retry_count(server)) == ("orders/0/2", 2)


@in_virtual_time
async def test_wrong_calls_name_what_is_wrong() -> None:
    async with serve() as server, VirtualClient(server.url) as client:
        with pytest.raises(UnknownTopic, match=r"orders\.mail\.dlq"):
            await client.dead_letters.list("orders", "mail")
        await make_topics(server)
        await add(server, letter(1))
        letters = client.dead_letters
        with pytest.raises(InvalidRequest, match="all: send either"):
            await letters.discard("orders", "mail")
        with pytest.raises(InvalidRequest, match="ids"):
            await letters.discard("orders", "mail", ids=[])
        with pytest.raises(InvalidRequest, match="limit"):
            await letters.list("orders", "mail", limit=0)
        with pytest.raises(InvalidRequest, match="UTF-8"):
            await letters.list("orders", "mail", key=b"\xff")
        with pytest.raises(TypeError, match="list of ids"):
            await letters.list("orders", "mail", ids="orders/0/1")
        assert len(await letters.list("orders", "mail")) == 1
