"""Options say what they take."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable
from datetime import timedelta
from inspect import Parameter
from typing import Any
from unittest.mock import create_autospec

import pytest

from raftlog import Client, Partition, Queue
from raftlog.aio import Client as AioClient
from raftlog.aio import Queue as AioQueue
from raftlog.client.client import url_from
from raftlog.client.consumer.options import ConsumerSettings, consumer_options
from raftlog.client.options import (
    PRESETS,
    ClientSettings,
    ProducerSettings,
    broker_urls,
    producer_options,
    seconds,
)
from raftlog.client.partition import AsyncPartition, TailSettings
from raftlog.client.queue import JobSettings, wanted_jobs
from raftlog.client.values import encode_headers, encode_value
from raftlog.client.worker.options import WorkerSettings, worker_options
from raftlog.errors import InvalidRecord, InvalidRequest
from raftlog.records.batch import Codec
from tests.helpers.misused_options import misspelt, misspelt_of_aio, of_wrong_types
from tests.helpers.virtual_client import VirtualClient


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("5ms", 0.005),
        ("30s", 30),
        ("2m", 120),
        ("1h", 3600),
        ("14d", 1_209_600),
        (timedelta(seconds=2), 2),
        (0, 0),
    ],
)
def test_a_duration_is_text_with_a_unit_or_a_timedelta(written: str, expected: float) -> None:
    assert seconds("linger", written) == pytest.approx(expected)


@pytest.mark.parametrize("option", ["key", "value"])
def test_a_decoder_that_is_no_function_is_refused_where_it_is_given(option: str) -> None:
    decoders: dict[str, Any] = {option: json}
    with Client("raftlog://localhost:1") as client:
        uses = (
            lambda: client.partition("orders", 0, **decoders),
            lambda: client.consumer("g", "orders", **decoders),
            lambda: client.worker("orders", group="g", **decoders),
        )
        for use in uses:
            with pytest.raises(TypeError, match=f"{option} is <module 'json'.*such as json.loads"):
                use()


@pytest.mark.parametrize("option", ["key", "value"])
async def test_a_decoder_that_is_no_function_is_refused_by_the_async_client(option: str) -> None:
    decoders: dict[str, Any] = {option: json}
    async with VirtualClient("raftlog://localhost:1") as client:
        refused = pytest.raises(TypeError, match=f"{option} is <module 'json'.*such as json.loads")
        with refused:
            client.partition("orders", 0, **decoders)
        with refused:
            client.consumer("g", "orders", **decoders)
        with refused:
            client.worker("orders", group="g", **decoders)


@pytest.mark.parametrize(
    "written", ["5", "", "5 ms", "-5ms", "5w", 5, 0.5, timedelta(seconds=-1), None, True]
)
def test_a_duration_without_a_unit_is_refused_and_the_option_is_named(written: str) -> None:
    with pytest.raises(ValueError, match=r"linger is .*'5ms'"):
        producer_options(linger=written) if written is not None else seconds("linger", written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("raftlog://a:1,b:2", ("http://a:1", "http://b:2")),
        ("raftlog://localhost", ("http://localhost:7070",)),
        ("http://127.0.0.1:8080/", ("http://127.0.0.1:8080",)),
        ("https://logs.example:443", ("https://logs.example",)),
        ("https://a:1,b:2, c:3", ("https://a:1", "https://b:2", "https://c:3")),
        (["http://a:1", "b:2", "a:1"], ("http://a:1", "http://b:2")),
        ("raftlog://[::1]:7071", ("http://[::1]:7071",)),
    ],
)
def test_brokers_are_named_by_url_or_list(written: str | list[str], expected: tuple[str, ...]) -> None:
    assert broker_urls(written) == expected


@pytest.mark.parametrize(
    "written",
    [
        "",
        " ",
        "kafka://a:1",
        "raftlog://",
        "http://a:1/v1",
        "http://a:x",
        "a:1,,b:2",
        "a:1?b=c",
        "a:1#b",
        "raftlog://me:secret@a:1",
        [],
    ],
)
def test_what_is_no_address_is_refused(written: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"^url: ") as refused:
        broker_urls(written)
    assert "relative" not in str(refused.value), "words of a library"
    assert "secret" not in str(refused.value)


def test_the_environment_names_the_cluster() -> None:
    assert url_from({"RAFTLOG_URL": "raftlog://b:1"}) == "raftlog://b:1"
    assert url_from({}) == "raftlog://localhost:7070"


def test_presets_are_small_and_quick_or_large_and_patient_and_yield_to_what_is_said() -> None:
    # requirement: B5 N1
    latency, throughput = (producer_options(preset=name) for name in PRESETS)
    assert latency.linger_s == 0
    assert latency.batch_bytes < producer_options().batch_bytes < throughput.batch_bytes
    assert throughput.linger_s > producer_options().linger_s
    assert throughput.buffer_bytes > producer_options().buffer_bytes
    assert producer_options(preset="latency", linger="1ms").linger_s == 0.001


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [
        ("acks", "most", "'quorum'"),
        ("acks", -2, "'every'"),
        ("acks", True, "0, 1"),
        ("compression", "brotli", "'zstd'"),
        ("partitioner", "murmur", "'round_robin'"),
        ("preset", "fast", "'throughput'"),
        ("batch_bytes", 0, "from 1"),
        ("batch_bytes", "1MB", "from 1"),
        ("buffer_bytes", 1.5, "from 1"),
        ("delivery_timeout", 0, "greater than 0"),
        ("transactional_id", "copy 1", "A-Z"),
        ("transactional_id", "x" * 250, "249"),
    ],
)
def test_an_unknown_value_is_refused_with_the_choices(option: str, value: object, choices: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is .*{choices}"):
        producer_options(**{option: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("linger", ["1s", "500ms"])
def test_a_batch_may_not_wait_until_its_records_fail(linger: str) -> None:
    # requirement: P6
    with pytest.raises(
        ValueError, match=rf"linger is '{linger}' and delivery_timeout '500ms': .* make linger shorter"
    ):
        producer_options(linger=linger, delivery_timeout="500ms")
    assert producer_options(linger="499ms", delivery_timeout="500ms").linger_s == 0.499


@pytest.mark.parametrize("option", [{"acks": 1}, {"acks": 0}, {"idempotent": False}])
def test_a_transaction_stores_each_record_once_and_committed(option: dict[str, object]) -> None:
    # requirement: D3
    with pytest.raises(ValueError, match=f"{next(iter(option))} is"):
        producer_options(transactional_id="copy-1", **option)  # type: ignore[arg-type]


# requirement: D4
@pytest.mark.parametrize(
    ("delivery", "options", "acks", "is_idempotent"),
    [
        ("at_most_once", {}, "0", False),
        ("at_most_once", {"acks": 0, "idempotent": False}, "0", False),
        ("at_least_once", {}, "quorum", True),
        ("at_least_once", {"acks": "every", "idempotent": False}, "every", False),
        ("exactly_once", {"transactional_id": "copy-1"}, "quorum", True),
        ("exactly_once", {"transactional_id": "copy-1", "acks": 2}, "2", True),
    ],
)
def test_one_setting_selects_what_belongs_together(
    delivery: str, options: dict[str, Any], acks: str, is_idempotent: bool
) -> None:
    made = producer_options(delivery=delivery, **options)
    assert (made.acks, made.is_idempotent, made.wants_answer) == (acks, is_idempotent, acks != "0")


# requirement: D4
@pytest.mark.parametrize(
    ("delivery", "options", "named"),
    [
        ("at_most_once", {"acks": "quorum"}, "acks 'quorum'"),
        ("at_most_once", {"idempotent": True}, "idempotent"),
        ("at_most_once", {"transactional_id": "a"}, "transactional_id"),
        ("at_least_once", {"acks": 0}, "acks '0'"),
        ("at_least_once", {"acks": 1}, "acks '1'"),
        ("at_least_once", {"transactional_id": "a"}, "transactional_id"),
        ("exactly_once", {}, "transactional_id, such as"),
        ("exactly_once", {"transactional_id": "a", "acks": 1}, "acks '1'"),
        ("exactly_once", {"transactional_id": "a", "idempotent": False}, "idempotent"),
        ("twice", {}, "choose 'at_least_once', 'at_most_once', 'exactly_once'"),
    ],
)
def test_a_producers_option_that_contradicts_its_delivery_is_refused(
    delivery: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ValueError, match=f"delivery is '{delivery}'.*{named}"):
        producer_options(delivery=delivery, **options)


# requirement: D4
@pytest.mark.parametrize(
    ("delivery", "option"),
    [
        ("exactly_once", "commit_interval"),
        ("at_most_once", "transaction_timeout"),
        ("at_least_once", "transaction_timeout"),
    ],
)
def test_a_consumers_option_that_contradicts_its_delivery_is_refused(delivery: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"delivery is '{delivery}'.*{option}"):
        consumer_options("g", "t", delivery=delivery, **{option: "5s"})  # type: ignore[arg-type]


# requirement: D4
@pytest.mark.parametrize(
    ("delivery", "option"), [("at_least_once", "commit_interval"), ("exactly_once", "transaction_timeout")]
)
def test_no_time_at_all_is_no_default(delivery: str, option: str) -> None:
    for nothing in (0, "", timedelta(0)):
        with pytest.raises(ValueError, match=option):
            consumer_options("g", "t", delivery=delivery, **{option: nothing})  # type: ignore[arg-type]


def test_an_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="linger_ms"):
        AioClient("raftlog://localhost").producer("orders", linger_ms=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="broker"):
        Client(broker="localhost")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("method", "kind", "check"),
    [
        (Client, ClientSettings, AioClient.__init__),
        (Client.producer, ProducerSettings, producer_options),
        (Client.consumer, ConsumerSettings, consumer_options),
        (Client.worker, WorkerSettings, worker_options),
        (Partition.tail, TailSettings, AsyncPartition.chunks),
        (Queue.receive, JobSettings, wanted_jobs),
        (Queue.jobs, JobSettings, wanted_jobs),
    ],
)
def test_help_shows_each_option_with_its_default(
    method: Callable[..., object], kind: type, check: Callable[..., object]
) -> None:
    shown, checked = (
        {name: each.default for name, each in parameters.items() if each.kind is Parameter.KEYWORD_ONLY}
        for parameters in (inspect.signature(method).parameters, inspect.signature(check).parameters)
    )
    assert kind.__annotations__.keys() <= shown.keys()
    assert checked.items() - {("environment", None)} <= shown.items()


async def test_a_double_of_the_client_is_awaited_as_the_client_is() -> None:
    client, queue = create_autospec(AioClient, instance=True), create_autospec(AioQueue, instance=True)
    assert client.consumer("g", "orders") is client.consumer.return_value
    assert await queue.receive(limit=2) is queue.receive.return_value


def test_a_misspelt_option_is_refused_at_the_call_with_the_nearest_name() -> None:
    with Client("raftlog://localhost:1") as client:
        for name, call in misspelt(client).items():
            with pytest.raises(TypeError, match=rf"has no option '{name}'; did you mean '\w+'\?"):
                call()


async def test_a_misspelt_option_of_the_async_client_is_refused_before_it_is_awaited() -> None:
    async with VirtualClient("raftlog://localhost:1") as client:
        for name, call in misspelt_of_aio(client).items():
            with pytest.raises(TypeError, match=rf"has no option '{name}'; did you mean '\w+'\?"):
                call()


def test_a_value_of_a_wrong_type_is_refused_and_the_option_is_named() -> None:
    with Client("raftlog://localhost:1") as client:
        for name, call in of_wrong_types(client).items():
            with pytest.raises(ValueError, match=f"{name} is"):
                call()


def test_what_is_chosen_is_what_holds() -> None:
    options = producer_options(acks=2, compression="zstd", idempotent=False, delivery_timeout="1m")
    assert (options.acks, options.codec, options.is_idempotent) == ("2", Codec.ZSTD, False)
    assert options.delivery_timeout_s == 60
    assert not producer_options(acks=0).is_idempotent
    assert {producer_options(acks=acks).acks for acks in ("all", -1, "-1", "Quorum")} == {"quorum"}


@pytest.mark.parametrize("number", ["0", True, 0.0, None])
def test_a_partition_is_named_by_its_number(number: object) -> None:
    with pytest.raises(TypeError, match=r"number is .*such as 0"):
        AioClient().partition("orders", number)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="count from 0"):
        AioClient().partition("orders", -1)
    with pytest.raises(TypeError, match="topic is 5"):
        AioClient().partition(5, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (math.nan, "the value is nan"),
        ({"price": math.inf}, "/price is inf"),
        ({"a": [1, {"b": -math.inf}]}, "/a/1/b is -inf"),
        (timedelta, "type"),
    ],
)
def test_numbers_that_json_does_not_have_are_refused(value: object, where: str) -> None:
    with pytest.raises(InvalidRecord, match=f"value: .*{where}"):
        encode_value(value)


def test_null_and_its_name_are_json() -> None:
    assert encode_value({"a": None, "b": "null", "c": 0.5}) == b'{"a":null,"b":"null","c":0.5}'


async def test_a_setting_that_is_no_number_is_not_sent_as_null() -> None:
    async with AioClient() as client:
        with pytest.raises(InvalidRequest, match=r"/config/retention\.ms is nan"):
            await client.topics.alter("orders", config={"retention.ms": math.nan})  # type: ignore[dict-item]


@pytest.mark.parametrize("tags", [["a,b"], [5], "a"])
def test_a_tag_is_text_without_commas(tags: list[str]) -> None:
    with pytest.raises(InvalidRecord, match="tags: "):
        encode_headers(None, tags)
