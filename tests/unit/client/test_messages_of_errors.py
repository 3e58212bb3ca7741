"""Errors name the matter: TLS, another event loop, the shape of headers, an empty variable."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime, tzinfo
from enum import Enum
from functools import partial

import pytest

from raftlog import Client
from raftlog.aio import Client as AsyncClient
from raftlog.client.client import url_from
from raftlog.client.consumer.options import consumer_options
from raftlog.client.options import URL_DEFAULT
from raftlog.client.producer import AsyncProducer
from raftlog.client.values import encode_headers, encode_json, encode_key, encode_value, timestamp_ms
from raftlog.errors import ConnectionLost, InvalidRecord, NotSent
from tests.helpers.async_tests import beside
from tests.helpers.fake_broker import fake_cluster
from tests.helpers.no_brokers import other_service, tls_port


def test_tls_at_a_port_without_it_is_named() -> None:
    with beside(fake_cluster()) as cluster:
        url = f"https://{cluster.urls[0].rpartition('://')[2]}"
        with (
            Client(url, retry_timeout="30s") as client,
            pytest.raises(NotSent, match=r"TLS failed.*without TLS has http://"),
        ):
            client.topics.list()


@pytest.mark.parametrize("other", [tls_port, partial(other_service, "400 Bad Request")])
def test_http_at_a_port_with_tls_is_named(other: Callable[[], AbstractAsyncContextManager[str]]) -> None:
    named = pytest.raises(ConnectionLost, match="a port with TLS has https:// in its address")
    with beside(other()) as url, Client(url, retry_timeout="500ms") as client, named:
        client.topics.list()


async def sent_at_once(producer: AsyncProducer) -> object:
    return producer.send_nowait("y")


def test_a_client_on_another_event_loop_says_so() -> None:
    with beside(fake_cluster()) as cluster:
        client = AsyncClient(cluster.urls)
        producers = []

        async def begin() -> None:
            await client.open()
            assert (await client.send("orders", "x")).offset == 0
            producers.append(client.producer("orders"))

        async def go_on(act: object) -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                await act()  # type: ignore[operator]

        first = asyncio.new_event_loop()
        first.run_until_complete(begin())
        (producer,) = producers
        pending = first.run_until_complete(producer.send("late"))
        for act in (
            lambda: pending,
            client.open,
            client.close,
            client.topics.list,
            lambda: client.send("orders", "y"),
            lambda: producer.send("y"),
            lambda: asyncio.to_thread(asyncio.run, sent_at_once(producer)),
            lambda: sent_at_once(producer),
            lambda: producer.send_all([]),
            producer.flush,
            producer.close,
            client.partition("orders", 0).read,
        ):
            asyncio.run(go_on(act))
        assert first.run_until_complete(client.send("orders", "y")) is not None  # its own loop goes on
        first.run_until_complete(client.close())
        first.close()


def test_a_client_that_is_opened_again_sends_again() -> None:
    with beside(fake_cluster()) as cluster:
        client = AsyncClient(cluster.urls)

        async def send() -> int:
            async with client:
                return (await client.send("orders", "x")).offset

        assert [asyncio.run(send()) for _ in range(2)] == [0, 1]


def pairs() -> Iterator[tuple[str, str]]:
    yield "a", "b"


@pytest.mark.parametrize(
    "headers", ["ab", b"ab", ("a", "b"), [("a", "b", "c")], [("a",)], 5, pairs(), {("a", "b")}, [None]]
)
def test_headers_of_another_shape_are_named(headers: object) -> None:
    with pytest.raises(InvalidRecord, match="headers: "):
        encode_headers(headers, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("tags", ["ab", 5, (tag for tag in "ab")])
def test_tags_of_another_shape_are_named(tags: object) -> None:
    with pytest.raises(InvalidRecord, match="tags: "):
        encode_headers(None, tags)  # type: ignore[arg-type]


def test_headers_of_either_shape_are_kept() -> None:
    for headers in {"a": "1", "b": None}, [("a", "1"), ("b", None)], (["a", b"1"], ["b", None]):
        assert encode_headers(headers, ()) == (("a", b"1"), ("b", None))  # type: ignore[arg-type]


class Name(str, Enum):  # noqa: UP042 - a StrEnum has the text of its value
    """Text whose ``str()`` is another."""

    ORDERS = "orders"


class Text(str):
    """It misleads about itself."""

    def encode(self, *_: object) -> bytes:
        """Other bytes."""
        return b"other"

    def __str__(self) -> str:
        return "other"

    def __len__(self) -> int:
        return 1


class Bytes(bytes):
    """Its length is not that of its bytes."""

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "text", [Name.ORDERS, Text("orders"), Bytes(b"orders")], ids=["enum", "text", "bytes"]
)
def test_a_subclass_of_text_or_bytes_is_stored_as_what_it_holds(text: str | bytes) -> None:
    name = "a" if isinstance(text, bytes) else text
    ((found, value),) = encode_headers({name: text}, ())
    for stored in (encode_value(text), encode_key(text), value):
        assert type(stored) is bytes
        assert len(stored) == 6
        assert stored == b"orders"
    assert type(found) is str
    assert found in ("orders", "a")
    if not isinstance(text, bytes):
        assert encode_json({"topic": text, "key": None}) == b'{"topic":"orders","key":null}'


def test_a_time_whose_zone_knows_no_offset_is_an_invalid_record() -> None:
    class Nowhere(tzinfo):
        def utcoffset(self, _: object) -> None:
            return None

        dst = tzname = utcoffset

    with pytest.raises(InvalidRecord, match="zone"):
        timestamp_ms(datetime(2026, 1, 1, tzinfo=Nowhere()))


@pytest.mark.parametrize("topics", [b"orders", ["orders", 5], re.compile(b"orders")])
def test_topics_that_are_no_text_are_named(topics: object) -> None:
    with pytest.raises(TypeError, match=r"topics is .*text"):
        consumer_options("g", topics)  # type: ignore[arg-type]


def test_one_id_is_no_list_of_dead_letters() -> None:
    with beside(fake_cluster()) as cluster, Client(cluster.urls) as client:
        for act in client.dead_letters.redrive, client.dead_letters.discard, client.dead_letters.list:
            with pytest.raises(TypeError, match="give a list of ids"):
                act("orders", "g", ids="orders-0-5")


class Broken(dict[str, int]):
    """Its items cannot be read."""

    def items(self) -> object:  # type: ignore[override]
        """Raise."""
        raise LookupError("no items")


def test_what_the_encoding_of_a_value_raises_is_an_invalid_record() -> None:
    with pytest.raises(InvalidRecord, match="value: "):
        encode_value({"a": object()})
    with pytest.raises(InvalidRecord, match="value: "):
        encode_value(Broken)


def test_an_empty_variable_is_none() -> None:
    assert url_from({"RAFTLOG_URL": ""}) == url_from({}) == URL_DEFAULT
    for nothing in ("", " "):
        Client.from_env({"RAFTLOG_URL": nothing, "RAFTLOG_RACK": nothing}).close()


def test_an_iterator_that_outlives_its_client_is_silent() -> None:
    with beside(fake_cluster()) as cluster:
        with Client(cluster.urls) as client:
            client.send("orders", "x")
            tail = client.partition("orders", 0).tail("earliest")
            assert next(tail).value == b"x"
        tail.close()  # type: ignore[attr-defined]
