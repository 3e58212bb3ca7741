"""Requests with one mistake each, derived from the contract that a broker publishes.

Every parameter of every operation gets every kind of invalid value, and every body is replaced by
invalid ones. No such request may be accepted, and none may return 500.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from chaos.abuse.target import Attack, Target
from raftlog.wire import paths

BAD_VALUES: Final = (
    *(
        "",
        "-1",
        "1.5",
        "NaN",
        "1e999",
        "9223372036854775808",
        "0x10",
        "1" * 400,
        "\u0663",
        "null",
        "[]",
        "\x00",
    ),
    *("..", "a/b", "\ud83d\ude00", "%", "'; drop", "true", " 1", "a" * 300),
)
BAD_BODIES: Final = (
    *(b"", b"{", b"null", b"[]", b"0", b'""', b"{}{}", b"\xff\xfe", b'{"records":null}', b'{"records":{}}'),
    *(b'{"records":[null]}', b'{"records":[{"value":1,"key":[]}]}', b'{"no_such_field":1}', b"[" * 100_000),
    *(
        b'{"a":' * 50_000,
        b'{"config":{"retention.ms":"soon"}}',
        b'{"partitions":-1}',
        b'{"name":"a","name":"b"}',
    ),
    *(
        b'{"replicas":[1,1,1]}',
        b'{"replicas":[99]}',
        b'{"name":"\\ud800"}',
        b'{"partitions":1e400}',
        b"\x00" * 100,
    ),
)
GOOD: Final = {"partition": "0", "offset": "0", "broker": "1"}


def bad_inputs(target: Target) -> Counter[str]:
    """All of them, one after the other."""
    answer, document = target.ask("GET", paths.OPENAPI)
    if answer != "200":
        return Counter([answer])
    responses: Counter[str] = Counter()
    for number, (method, path, body, media_type) in enumerate(_requests(target.topic, json.loads(document))):
        if number % round(1 / target.scale) == 0:
            headers = {"Content-Type": media_type} if media_type else {}
            responses[target.ask(method, path, body, headers, broker=number)[0]] += 1
    return responses


def _requests(topic: str, document: dict[str, Any]) -> Iterator[tuple[str, str, bytes | None, str]]:
    for template, operations in document["paths"].items():
        for method, operation in operations.items():
            verb = method.upper()
            parameters = operation.get("parameters", [])
            for parameter in parameters:
                for value in BAD_VALUES:
                    path = _filled(template, topic, parameter, value)
                    if path is not None:
                        yield verb, path, None, ""
            good = _filled(template, topic, {}, "")
            for media_type in operation.get("requestBody", {}).get("content", {}):
                for body in BAD_BODIES:
                    yield verb, str(good), body, media_type


def _filled(template: str, topic: str, bad: dict[str, Any], value: str) -> str | None:
    """The path with one bad parameter; None if the path does not have it."""
    values = {"topic": topic, **GOOD}
    encoded = quote(value.encode("utf-8", "surrogatepass"), safe="")
    if bad.get("in") == "path":
        values[bad["name"]] = encoded
    path = re.sub(r"\{(\w+)\}", lambda found: values.get(found[1], "x"), template)
    if bad.get("in") in (None, "path"):
        return path
    return f"{path}?{bad['name']}={encoded}" if bad["in"] == "query" else None


ATTACKS: Final = (Attack("requests with one mistake", bad_inputs),)
