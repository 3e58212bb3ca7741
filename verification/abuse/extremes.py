"""Derives extreme requests from the OpenAPI document that a broker publishes.

``one_by_one`` makes one request for each field of each operation and each extreme value; the other fields are
valid. ``mixed`` draws whole requests from a seed: most fields valid, many at their limits, a few extreme.
Equal documents and seeds give equal requests. Leaves to others: sending requests and checking responses
(``bad_inputs``).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote

from raftlog.wire import media_types

Schema = dict[str, Any]
Json = object

MANY: Final = 100_000  # items, and levels of nesting
LONG: Final = 1_000_000  # characters
URL_TEXT_MAX: Final = 9_000  # characters; a longer path is refused without parsing
_DEEP: Final = "\x01deep\x01"  # placeholder for a value that json.dumps cannot write
_EDGES: Final = (31, 53, 63, 64)
INTEGERS: Final = (
    *(0, -1, 10**400, -(10**400), 1.5, 1e308),
    *(sign * 2**bits + by for bits in _EDGES for sign in (1, -1) for by in (-1, 0)),
    *(float("nan"), float("inf")),
)
STRINGS: Final = (
    *("", "\n", "\ud800", "x\n", "x\x00", "\u202ex", "\uff4frders", "\u0663", "e\u0301", ".."),
    *("a/b", "%", "__offsets", "null", "-1", "0", "1e999", "0x10", "1" * 400),
    *("9223372036854775807", "18446744073709551616", "999999999999d", "-99999999999999999"),
    *("timestamp:999999999999999", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.999999-23:59"),
    *("60 24 32 13 8", "* * 31 2 *", "../../etc/passwd", "127", "AA==", "f" * 32),
)
OTHERS: Final[tuple[Json, ...]] = (None, True, [], {}, [[]], {"": None}, _DEEP)
_SHARE: Final = {
    "path": 0.02,
    "query": 0.05,
    "header": 0.05,
}  # share of mixed requests with an extreme value in this place
_SHARE_OF_DELETIONS: Final = (
    0.9  # share of deletions left out, because later requests need the deleted resources
)
_CANDIDATES: Final = ("1s", "0" * 32, "0" * 64, "http://localhost:1")


class _Again(str):
    """A field name that can appear twice in one JSON object."""

    __slots__ = ()
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@dataclass(frozen=True, slots=True)
class Extreme:
    """A request with an extreme value; ``name`` has the field and the value."""

    name: str
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """The OpenAPI document of a cluster. ``known`` has the names of existing resources, by the field of a
    request.
    """

    document: Schema
    known: dict[str, object]

    def one_by_one(self) -> Iterator[Extreme]:
        """Yield a request for every field and every extreme value; its other fields are valid."""
        for operation in self._operations():
            yield from operation.with_one_parameter()
            yield from operation.with_one_body()

    def mixed(self, seed: int) -> Iterator[Extreme]:
        """Yield an endless series of random requests that the seed determines."""
        rng = random.Random(seed)
        operations = [each for each in self._operations() for _ in range(each.weight)]
        while True:
            yield rng.choice(operations).drawn(rng)

    def bodies(self) -> Iterator[tuple[Extreme, str]]:
        """Yield valid requests for each operation with a body: one for each media type of the body."""
        for operation in self._operations():
            for media_type in operation.media_types:
                yield operation.valid, media_type

    def valid(self) -> Iterator[Extreme]:
        """Yield a valid request of each operation."""
        for operation in self._operations():
            yield operation.valid

    @property
    def header_names(self) -> list[str]:
        """Names of the header parameters of all operations."""
        parameters = (
            parameter
            for methods in self.document["paths"].values()
            for described in methods.values()
            for parameter in described.get("parameters", ())
        )
        return sorted(
            {each["name"] for each in parameters if each["in"] == "header" and "*" not in each["name"]}
        )

    def _operations(self) -> Iterator[_Operation]:
        for template, methods in self.document["paths"].items():
            for method, described in methods.items():
                yield _Operation(self, method.upper(), template, described)

    def resolved(self, schema: Schema) -> Schema:
        """Return the schema to which a ``$ref`` points; return other schemas unchanged."""
        if "$ref" not in schema:
            return schema
        found: Schema = self.document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        return found

    def good(self, schema: Schema, name: str = "") -> Json:
        """Return a short valid value of a field with this name."""
        schema = self.resolved(schema)
        if name in self.known:
            return self.known[name]
        if "anyOf" in schema:
            return self.good(schema["anyOf"][0], name)
        if "enum" in schema:
            return schema["enum"][0]
        match schema.get("type"):
            case "object":
                return self._good_object(schema)
            case "array":
                return [self.good(schema["items"])] * schema.get("minItems", 0)
            case "integer":
                return max(0, schema.get("minimum", 0))
            case "boolean":
                return False
            case _:
                return next(text for text in (*_CANDIDATES, "x") if _fits(text, schema) or text == "x")

    def _good_object(self, schema: Schema) -> dict[str, Json]:
        inner = schema.get("properties", {})
        return {each: self.good(inner[each], each) for each in schema.get("required", ())}

    def mutants(self, schema: Schema, name: str = "") -> Iterator[tuple[str, Json]]:
        """Yield a path inside the value and an extreme value for this path; the rest of the value
        is valid.
        """
        schema = self.resolved(schema)
        for value in _extremes_of(schema):
            yield f" = {_shown(value)}", value
        for option in schema.get("anyOf", [schema]):
            yield from self._in_object(self.resolved(option))
            yield from self._in_list(self.resolved(option), name)
            yield from self._in_map(self.resolved(option))

    def _in_object(self, schema: Schema) -> Iterator[tuple[str, Json]]:
        inner: Schema = schema.get("properties", {})
        if not inner:
            return
        good = self._good_object(schema)
        yield "/no_such_field", {**good, "no_such_field": 1}
        for each, described in inner.items():
            for place, value in self.mutants(described, each):
                yield f"/{each}{place}", {**good, each: value}
            yield f"/{each} twice", {**good, each: self.good(described, each), _Again(each): 0}
            yield f"/{each} missing", {other: value for other, value in good.items() if other != each}

    def _in_list(self, schema: Schema, name: str) -> Iterator[tuple[str, Json]]:
        if schema.get("type") != "array" or not isinstance(schema.get("items"), dict):
            return
        for place, value in self.mutants(schema["items"]):
            yield f"/0{place}", [value]
        good = next(iter(cast("list[Json]", self.good(schema, name))), self.good(schema["items"]))
        for count in _counts(schema.get("maxItems")):
            yield f" with {count} items", [good] * count

    def _in_map(self, schema: Schema) -> Iterator[tuple[str, Json]]:
        inner = schema.get("additionalProperties")
        if not isinstance(inner, dict):
            return
        for place, value in self.mutants(inner):
            yield f"/x{place}", {"x": value}
        good = self.good(inner)
        for key in _texts(schema.get("propertyNames", {})):
            yield f" with key {_shown(key)}", {key: good}
        for count in _counts(schema.get("maxProperties")):
            yield f" with {count} keys", {f"k{number}": good for number in range(count)}

    def drawn(self, schema: Schema, rng: random.Random, name: str = "") -> Json:
        """Draw a value that is mostly valid, often at a limit, and sometimes extreme."""
        schema = self.resolved(schema)
        if rng.random() < 0.02:
            return rng.choice(_extremes_of(schema))
        if name in self.known and rng.random() < 0.9:
            return self.known[name]
        if "anyOf" in schema:
            return self.drawn(rng.choice(schema["anyOf"]), rng, name)
        if "properties" in schema:
            needed = schema.get("required", ())
            return {
                each: self.drawn(inner, rng, each)
                for each, inner in schema["properties"].items()
                if each in needed or rng.random() < 0.3
            }
        if schema.get("type") == "array" and isinstance(schema.get("items"), dict):
            return [
                self.drawn(schema["items"], rng)
                for _ in range(rng.choice((1, 1, 1, 2, 5, schema.get("minItems", 0))))
            ]
        if rng.random() < 0.6:
            return self.good(schema, name)
        return rng.choice([value for value in _extremes_of(schema) if _fits(value, schema)] or [None])


@dataclass(frozen=True, slots=True)
class _Operation:
    contract: Contract
    method: str
    template: str
    described: Schema

    @property
    def weight(self) -> int:
        """Relative probability that a random request calls this operation; operations with a body have a
        higher one.
        """
        return 5 if self._good_body()[0] else 1

    @property
    def media_types(self) -> list[str]:
        return [media_type for media_type, _ in self._bodies()]

    @property
    def valid(self) -> Extreme:
        body, headers = self._good_body()
        return self._request({}, headers, body, "valid")

    def with_one_parameter(self) -> Iterator[Extreme]:
        body, headers = self._good_body()
        for parameter in self.described.get("parameters", ()):
            name = parameter["name"]
            for value in _parameter_values(parameter):
                yield self._request({name: value}, headers, body, f"{name} = {_shown(value)}")
            yield self._request({f"{name}&{name}": ""}, headers, body, f"{name} twice")
        if body is not None:
            yield self._request({}, headers, None, "no body")

    def with_one_body(self) -> Iterator[Extreme]:
        for media_type, content in self._bodies():
            headers = {"Content-Type": media_type}
            if media_type == media_types.JSON:
                for place, value in self.contract.mutants(content.get("schema", {})):
                    yield self._request({}, headers, _encoded(value), place)

    def drawn(self, rng: random.Random) -> Extreme:
        values: dict[str, str] = {}
        for parameter in self.described.get("parameters", ()):
            share = _SHARE_OF_DELETIONS if self.method == "DELETE" else _SHARE[parameter["in"]]
            if rng.random() < share:
                values[parameter["name"]] = rng.choice(_parameter_values(parameter))
        body, headers = None, {}
        for media_type, content in self._bodies():
            if media_type == media_types.JSON:
                headers = {"Content-Type": media_type}
                body = _encoded(self.contract.drawn(content.get("schema", {}), rng))
        return self._request(values, headers, body, "mixed")

    def _bodies(self) -> Iterable[tuple[str, Schema]]:
        content: Schema = self.described.get("requestBody", {}).get("content", {})
        return content.items()

    def _good_body(self) -> tuple[bytes | None, dict[str, str]]:
        for media_type, content in self._bodies():
            if media_type == media_types.JSON:
                good = self.contract.good(content.get("schema", {}))
                return _encoded(good), {"Content-Type": media_type}
        return None, {}

    def _request(
        self, values: Mapping[str, str], headers: Mapping[str, str], body: bytes | None, what: str
    ) -> Extreme:
        places = {each["name"]: each["in"] for each in self.described.get("parameters", ())}
        known = {**self.contract.known, **values}
        for part in ("members", "queues"):
            if f"/{part}" in self.template and "group" not in values:
                known["group"] = known.get(f"group of {part}", "x")
        path = re.sub(r"\{(\w+)\}", lambda found: _quoted(str(known.get(found[1], "x"))), self.template)
        sent = {name: value for name, value in values.items() if places.get(name) == "header"}
        query = [
            (name, value) for name, value in values.items() if places.get(name) not in ("header", "path")
        ]
        if query:
            path += "?" + "&".join(f"{quote(name, safe='&')}={_quoted(value)}" for name, value in query)
        return Extreme(f"{self.method} {self.template} {what}", self.method, path, {**headers, **sent}, body)


def _extremes_of(schema: Schema) -> list[Json]:
    """Return extreme values for a field, including numbers and texts around the limits in the schema."""
    kinds = {option.get("type") for option in schema.get("anyOf", [schema])}
    found: list[Json] = [*OTHERS]
    if kinds & {"integer", "number", None}:
        found += INTEGERS
        for option in schema.get("anyOf", [schema]):
            found += [option["minimum"] - by for by in (0, 1) if "minimum" in option]
            found += [option["maximum"] + by for by in (0, 1) if "maximum" in option]
    if kinds & {"string", None}:
        for option in schema.get("anyOf", [schema]):
            found += _texts(option)
    return _distinct([*found, 0, "x"])


def _distinct(values: list[Json]) -> list[Json]:
    """Return the values without duplicates; 0, 0.0 and False count as different."""
    return list({repr(value)[:5_000]: value for value in values}.values())


def _texts(schema: Schema) -> list[str]:
    limit = schema.get("maxLength") or max(
        map(int, re.findall(r"\{\d,(\d+)\}", schema.get("pattern", ""))), default=0
    )
    at_limit = [text * count for count in (limit, limit + 1) for text in ("x", "\U0001f600")] if limit else []
    return [*STRINGS, *at_limit, "x" * LONG]


def _counts(limit: int | None) -> tuple[int, ...]:
    return (0, MANY) if limit is None else (0, limit, limit + 1, MANY)


def _parameter_values(parameter: Schema) -> list[str]:
    texts = [*_texts(parameter.get("schema", {})), *map(str, INTEGERS)]
    texts = [text for text in texts if len(text) <= URL_TEXT_MAX] + ["x" * URL_TEXT_MAX]
    if parameter["in"] == "header":
        return [text for text in texts if text.isascii() and text.isprintable()]
    return texts


def _fits(value: Json, schema: Schema) -> bool:
    """Return whether the schema permits a value that is neither a list nor an object."""
    if "enum" in schema:
        return value in schema["enum"]
    match schema.get("type"):
        case "integer":
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            return is_whole and schema.get("minimum", value) <= value <= schema.get("maximum", value)
        case "string":
            return (
                isinstance(value, str)
                and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", LONG)
                and re.search(schema.get("pattern", ""), value) is not None
            )
        case "boolean" | "object" | "array" as kind:
            return isinstance(value, {"boolean": bool, "object": dict, "array": list}[kind])
        case "null":
            return value is None
        case _:
            return True


def _encoded(value: Json) -> bytes:
    return json.dumps(value).replace(json.dumps(_DEEP), "[" * MANY + "]" * MANY).encode()


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")


def _shown(value: Json) -> str:
    return ascii(value)[:60] if not isinstance(value, dict | list) else "…"
