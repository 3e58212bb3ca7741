"""The numbers in the OpenAPI document are those that the broker checks: a limit is taken, and no more."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from api.app import ROUTES
from api.resources.documentation import openapi
from broker.ports import Limits
from delayed.records import ID_BYTES
from partitions.metadata.planner import NewTopic, PlannerLimits, plan
from raftlog.errors import InvalidRequest
from raftlog.wire import headers, media_types
from tests.helpers.fake_services import fake_cluster
from tests.helpers.http_server import HttpServer, Reply, serve

Schema = dict[str, Any]
LIMITS = Limits(fetch_bytes_max=4 << 20, produce_timeout_ms_default=7_000)
DOCUMENT: Schema = openapi(ROUTES, "0", LIMITS)
RECORDS = "/v1/topics/{topic}/partitions/{partition}/records"
PRODUCER = {headers.PRODUCER_ID: "1", headers.PRODUCER_EPOCH: "0", headers.PRODUCER_SEQUENCE: "0"}
PLACE = {"topic": "orders", "partition": 0, "offset": 0}
SOME = {"topic": "orders", "partitions": [0]}
NOT_THERE = ("partition", "broker")  # a path with a number beyond is 404, as with many others below
RECORD = {"value": 1, "key": "k", "tags": ["a"], "headers": {"a": "b"}, "headers_raw": [["a", "YQ=="]]}
BODIES: dict[str, Schema] = {
    "CreateTopic": {"name": "new"},
    "ChangeTopic": {"config": {}},
    "AddPartitions": {"count": 1},
    "DecommissionPartitions": {"count": 1},
    "RecommissionPartitions": {},
    "Produce": {"records": [RECORD]},
    "TransferLeadership": {},
    "OneReplica": {"broker_id": 1},
    "SetReplicas": {"replicas": [1]},
    "UnsafeRecover": {},
    "CreateProducer": {},
    "JoinGroup": {
        "topics": ["orders"],
        "tags": ["a"],
        "tags_all": ["a"],
        "tags_none": ["b"],
        "strategies": ["range"],
        "owned": [SOME],
        "member_id": "m",
        "instance_id": "i",
    },
    "SyncGroup": {"generation": 1, "assignments": {"m": [SOME]}},
    "HeartbeatGroup": {"generation": 1},
    "PollGroup": {
        "topics": ["orders"],
        "tags": ["a"],
        "tags_all": ["a"],
        "tags_none": ["b"],
        "wait": "0ms",
        "ack": [PLACE],
        "positions": [PLACE],
    },
    "CommitOffsets": {"offsets": [PLACE]},
    "DeleteBefore": {"offset": 0},
    "SetArchived": {"offset": 0},
    "AddOffsets": {"group": "g", "offsets": [PLACE]},
    "ResetOffsets": {"to": "earliest", "topics": ["orders"], "partitions": [SOME]},
    "DeleteGroupOffsets": {"partitions": [SOME]},
    "OpenTransaction": {"transactional_id": "a", "after": "a@1.0"},
    "PrepareTransaction": {},
    "Execute": {
        "transactional_id": "a",
        "records": [{"topic": "orders", **RECORD}],
        "group_offsets": {"group": "g", "offsets": [PLACE]},
    },
    "BeginRun": {"sink_key": "a", "owner": "query", "run": "run", "sequence": 0},
    "CommitBatch": {"sink_key": "a", "sequence": 0, "transactions": ["a~1@1.0"]},
    "AbortBatch": {"sink_key": "a", "transactions": ["a~1@1.0"]},
    "RescheduleMessage": {"delay": "1s"},
    "AdmitBroker": {
        "token": "a",
        "proof": "0" * 64,
        "admission_id": "0" * 32,
        "host": "broker-4",
        "port": 7000,
        "http": "http://broker-4:8000",
        "rack": "a",
    },
    "StartPlan": {
        "moves": [{"topic": "orders", "topic_id": "0" * 32, "partition": 0, "replicas": [1], "target": [2]}],
        "waits_for": [1],
    },
    "ReceiveJobs": {"tags": ["a"], "tags_all": ["a"], "tags_none": ["b"]},
    "AckJobs": {"receipts": ["a"]},
    "NackJobs": {"receipts": ["a"]},
    "ExtendJobs": {"receipts": ["a"]},
    "DeadLetterJobs": {"receipts": ["a"]},
    "CreateSchedule": {"topic": "orders", "cron": "0 0 * * *", "record": RECORD},
    "ChangeSchedule": {"paused": True},
    "SettleDeadLetters": {"ids": ["orders/0/1"], "reason": "late"},
}


def operations() -> Iterator[tuple[str, str, Schema]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


def parts(schema: Schema, place: str, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Schema]]:
    """Each part of a body with its place, such as ``.records[].key``; recursive parts once."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in above:
            yield from parts(DOCUMENT["components"]["schemas"][name], place, (*above, name))
        return
    yield place, schema
    for one in schema.get("anyOf", ()):
        yield from parts(one, place, above)
    for name, of_field in schema.get("properties", {}).items():
        yield from parts(of_field, f"{place}.{name}", above)
    for inner, sign in (("items", "[]"), ("additionalProperties", "{}"), ("propertyNames", "{name}")):
        if isinstance(schema.get(inner), dict):
            yield from parts(schema[inner], place + sign, above)


BOUNDS: dict[str, set[str]] = {
    "integer": {"minimum", "maximum"},
    "string": {"maxLength"},
    "array": {"maxItems"},
    "object": {"maxProperties"},
}


def is_bounded(schema: Schema) -> bool:
    """Whether a body can make the broker hold no more than a known number of values or characters here."""
    kind = schema.get("type")
    if kind not in BOUNDS or BOUNDS[kind] <= {*schema}:
        return True
    if "enum" in schema:  # numbers are checked later, and may have to travel to another broker before
        return kind != "integer"
    if kind == "string":
        return re.search(r"\{\d+(,\d+)?\}(/\?)?\$$", schema.get("pattern", "")) is not None
    return kind == "object" and not isinstance(schema.get("additionalProperties"), dict)


# requirement: N2
def test_every_value_of_every_body_has_a_bound() -> None:
    open_ended = {
        f"{method} {path} {kind}: {place}"
        for path, method, operation in operations()
        for kind, content in operation.get("requestBody", {"content": {}})["content"].items()
        for place, schema in parts(content["schema"], "")
        if kind == media_types.JSON and not is_bounded(schema)
    }
    assert open_ended == set()


def limited_parameters() -> Iterator[tuple[str, str, Schema, int, int]]:
    """Path, method and parameter, with a number at a limit and the one beyond."""
    for path, method, operation in operations():
        for parameter in operation.get("parameters", ()):
            schema = parameter["schema"]
            if parameter["name"] in NOT_THERE or schema["type"] != "integer":
                continue
            yield path, method, parameter, schema["minimum"], schema["minimum"] - 1
            yield path, method, parameter, schema["maximum"], schema["maximum"] + 1


def limited(
    schema: Schema,
    sample: Any,  # noqa: ANN401
    place: tuple[str | int, ...] = (),
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    """Where in a body there is a limit, with a value at it and one beyond."""
    if "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    for one in schema.get("anyOf", ()):
        yield from limited(one, sample, place)
    for name, of_field in schema.get("properties", {}).items():
        yield from limited(of_field, sample.get(name) if sample else None, (*place, name))
    item = sample[0] if isinstance(sample, list) and sample else None
    if "items" in schema and place[-1] != "headers_raw":
        yield from limited(schema["items"], item, (*place, 0))
    if "pattern" in schema and isinstance(sample, str):
        yield place, sample, f"{sample}\n"  # a name is matched as a whole
    if "minimum" in schema:
        yield place, schema["minimum"], schema["minimum"] - 1
    if "maximum" in schema:
        yield place, schema["maximum"], schema["maximum"] + 1
    if "maxLength" in schema:
        yield place, "a" * schema["maxLength"], "a" * (schema["maxLength"] + 1)
    if "minLength" in schema:
        yield place, "a" * schema["minLength"], "a" * (schema["minLength"] - 1)
    if "maxItems" in schema:
        items = [numbered(item, number) for number in range(schema["maxItems"] + 1)]
        yield place, items[:-1], items
    if "minItems" in schema:
        items = [numbered(item, number) for number in range(schema["minItems"])]
        yield place, items, items[1:]
    if "maxProperties" in schema and isinstance(sample, dict) and len(sample) == 1:
        ((name, value),) = sample.items()
        named = {numbered(name, number): value for number in range(schema["maxProperties"] + 1)}
        yield place, dict([*named.items()][1:]), named


def numbered(sample: Any, number: int) -> Any:  # noqa: ANN401
    """An item of a list like the sample; texts and numbers all differ."""
    if isinstance(sample, dict | list):
        return sample
    return f"{sample}{number}" if isinstance(sample, str) else (sample or 0) + number


def limited_bodies() -> Iterator[tuple[str, str, str]]:
    """Path, method and the name of the body's schema."""
    for path, method, operation in operations():
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content is not None:
            yield path, method, content["schema"]["$ref"].rpartition("/")[2]


def with_value(body: Any, place: tuple[str | int, ...], value: Any) -> Any:  # noqa: ANN401
    """A copy of a body with another value at one place."""
    if not place:
        return value
    first, *rest = place
    if isinstance(first, int):
        return [with_value(body[0] if body else None, tuple(rest), value)]
    return {
        **body,
        first: with_value(body.get(first, [] if rest and rest[0] == 0 else None), tuple(rest), value),
    }


def filled(path: str, **numbers: int) -> str:
    return path.format(
        **{
            "topic": "orders",
            "partition": 0,
            "broker": 1,
            "offset": 0,
            "code": "x",
            "group": "g",
            "member": "m",
            "transaction": "a@1.0",
            "delayed_id": "0" * (4 + 2 * ID_BYTES),
            **numbers,
        }
    )


def is_refused(reply: Reply, name: str) -> bool:
    """Whether the value itself is refused, rather than that there is nothing with such a number."""
    problem = reply.json if reply.status in (413, 422) else {}
    return problem.get("code") == "record_too_large" or problem.get("field") == name


@pytest.mark.parametrize(
    ("path", "method", "parameter", "good", "bad"),
    [
        pytest.param(*case, id=f"{case[1]} {case[0]} {case[2]['name']} {case[3]}")
        for case in limited_parameters()
    ],
)
async def test_a_parameter_is_taken_up_to_the_limits_of_the_document(
    path: str, method: str, parameter: Schema, good: int, bad: int
) -> None:
    name, place = parameter["name"], parameter["in"]

    async def send(server: HttpServer, number: int) -> Reply:
        target = filled(path, **({name: number} if place == "path" else {}))
        if place == "query":
            target += f"?{name}={number}"
        sent = {**PRODUCER, name: str(number)} if place == "header" else {}
        body = BODIES["Produce"] if method == "POST" else None
        return await server.call(method, target, body, sent=sent)

    async with serve(LIMITS) as server:
        await server.topic(partitions=1)
        assert not is_refused(await send(server, good), name)
        assert is_refused(await send(server, bad), name)


@pytest.mark.parametrize(("path", "method", "name"), [*limited_bodies()])
async def test_a_body_is_taken_up_to_the_limits_of_the_document(path: str, method: str, name: str) -> None:
    sample = BODIES[name]
    async with serve(LIMITS, brokers=7) as server:
        await server.topic(partitions=1)
        for place, good, bad in limited(DOCUMENT["components"]["schemas"][name], sample):
            if place in (("record", "key"), ("record", "headers")):
                continue  # all of a schedule's record has less room
            pointer = "".join(f"/{part}" for part in place)
            taken = await server.call(method, filled(path), with_value(sample, place, good))
            assert not is_refused(taken, pointer), (pointer, taken.body)
            refused = await server.call(method, filled(path), with_value(sample, place, bad))
            is_unknown = place[-1:] == ("topic",) and refused.code == "topic_not_found"
            is_named = is_refused(refused, pointer) or is_refused(refused, pointer.removeprefix("/"))
            assert is_unknown or is_named, (pointer, refused.body)


def test_the_factors_of_the_document_are_those_that_are_planned() -> None:
    described = DOCUMENT["components"]["schemas"]["CreateTopic"]["properties"]["replication_factor"]
    brokers = fake_cluster(broker_count=9).controller.image
    planned = []
    for factor in range(-1, 10):
        with contextlib.suppress(InvalidRequest):
            plan(NewTopic("new", "a" * 32, 1, factor, {}), brokers, PlannerLimits())
            planned.append(factor)
    assert described["anyOf"][0]["enum"] == planned


def test_the_document_follows_the_settings_of_its_broker() -> None:
    fetch = {one["name"]: one["schema"] for one in DOCUMENT["paths"][RECORDS]["get"]["parameters"]}
    assert (fetch["max_bytes"]["maximum"], fetch["min_bytes"]["maximum"]) == (4 << 20, 4 << 20)
    produce = {one["name"]: one["schema"] for one in DOCUMENT["paths"][RECORDS]["post"]["parameters"]}
    assert produce["timeout"]["default"] == "7s"
    small = openapi(ROUTES, "0", Limits(fetch_bytes_max=1024))["paths"]
    assert isinstance(small, dict)
    found = {one["name"]: one["schema"] for one in small[RECORDS]["get"]["parameters"]}
    assert (found["max_bytes"]["maximum"], found["max_bytes"]["default"]) == (1024, 1024)
