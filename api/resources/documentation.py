"""Generates the documents of the contract from the route table: OpenAPI 3.1 and an HTML page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from aiohttp import web

from api.http.errors import status_and_title
from api.http.routes import CAPPED, Call, Handler, Parameter, Route
from api.resources.html_pages import page, text
from api.resources.problem_pages import problem_table
from broker.ports import Limits
from raftlog.errors import InternalError, RaftlogError
from raftlog.node.computing import computed
from raftlog.wire import documents, headers, media_types
from raftlog.wire.operation import BodyType
from raftlog.wire.problems import Problem

REFERENCE = "#/components/schemas/{name}"
GONE = 410  # status of an offset below the log start; the table has 416, for offsets above the end

_EVERYWHERE = (headers.REQUEST_ID, headers.METADATA_VERSION)
_OF_HEADERS = {
    headers.REQUEST_ID: "names the request in logs and problems",
    headers.METADATA_VERSION: "the version of the broker's metadata",
    headers.LEADER: "host:port of the partition's leader",
    headers.WAIT_CAPPED: "the longest wait of the broker, such as `55s`, if `wait` was longer",
    headers.TIMEOUT_CAPPED: "the longest timeout of the broker, such as `300s`, if `timeout` was longer",
    headers.NEXT_OFFSET: "the next offset to fetch",
    headers.HIGH_WATERMARK: "one past the newest record that can be read",
    headers.LAST_STABLE_OFFSET: "no transaction below it is open; end of reads with `isolation=committed`",
    headers.LOG_START_OFFSET: "the oldest record kept",
    headers.LEADER_EPOCH: "the term of the leader",
    headers.ARCHIVED: "`true`: these records are below the log start, and come from the archive",
    headers.SERVED_BY: "the id of the broker whose replica was read",
    headers.IDEMPOTENCY_REPLAYED: "`true`: an equal request was carried out before, and this is its response",
    "Location": "the path of the resource",
    "ETag": "the version, for If-Match",
}

JsonObject = dict[str, object]


def routes(table: Sequence[Route], version: str, limits: Limits) -> tuple[Route, ...]:
    """Return the routes of the two documents and of the redirect; the documents describe these routes,
    too.
    """
    described: list[Route] = [*table]
    own = (
        Route(
            documents.OPENAPI,
            _page(lambda: msgspec.json.encode(openapi(described, version, limits)), media_types.JSON),
        ),
        Route(documents.PAGE, _page(lambda: reference_page(described, version), media_types.HTML)),
        Route(documents.ROOT, root, negotiated=False),
    )
    described.extend(own)
    return own


def openapi(table: Iterable[Route], version: str, limits: Limits) -> JsonObject:
    """Return the OpenAPI document of a route table, for a broker with these limits."""
    table = tuple(table)
    structs: list[type] = [Problem, *dict.fromkeys(struct for route in table for struct in _structs(route))]
    references, components = msgspec.json.schema_components(tuple(structs), ref_template=REFERENCE)
    known: dict[type, JsonObject] = dict(zip(structs, references, strict=True))
    by_path: dict[str, JsonObject] = {}
    for route in table:
        by_path.setdefault(route.path, {})[route.method.lower()] = _operation(route, known, limits)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "raftlog",
            "version": version,
            "description": "A distributed log. Any broker accepts any request.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": by_path,
        "components": {"schemas": _portable(components)},
    }


def _portable(schema: object) -> object:
    """Translate a schema for tools of other languages.

    Tuples become arrays whose items have any of the types in the tuple: many tools do not support
    ``prefixItems``. The end of a pattern becomes ``$``, because ``\\Z`` has no meaning in these languages.
    """
    if isinstance(schema, list):
        return [_portable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    translated = {name: _portable(part) for name, part in schema.items()}
    if "prefixItems" in translated:
        translated["items"] = {"anyOf": translated.pop("prefixItems")}
    if isinstance(pattern := translated.get("pattern"), str):
        translated["pattern"] = pattern.removesuffix(r"\Z") + "$" * pattern.endswith(r"\Z")
    return translated


def reference_page(table: Iterable[Route], version: str) -> bytes:
    """Return the contract as one self-contained HTML page."""
    sections = "".join(_section(route) for route in table)
    return page(
        "raftlog HTTP API",
        f"<h1>raftlog HTTP API <small>{text(version)}</small></h1>"
        "<p>Any broker accepts any request. Errors are <code>application/problem+json</code> (RFC 9457) "
        "with a "
        f"<code>code</code> and <code>retryable</code>. <a href='{documents.OPENAPI.path}'>OpenAPI 3.1</a>"
        "</p>"
        f"{sections}<h2>Errors</h2>{problem_table()}",
    )


async def root(_: Call) -> web.StreamResponse:
    """Redirect a browser to the page with the contract."""
    return web.Response(status=303, headers={"Location": documents.PAGE.path})


def _page(make: Callable[[], bytes], content_type: str) -> Handler:
    """Create a handler that generates a document at its first request and keeps it; generating takes 50 ms
    and more.
    """
    made: list[bytes] = []
    making = asyncio.Lock()

    async def handle(_: Call) -> web.StreamResponse:
        async with making:
            if not made:
                made.append(await computed(make, is_short=False))
        return web.Response(body=made[0], headers={"Content-Type": content_type})

    return handle


def _operation(route: Route, known: Mapping[type, JsonObject], limits: Limits) -> JsonObject:
    operation: JsonObject = {
        "operationId": route.operation.name,
        "summary": route.operation.summary,
        "responses": _responses(route, known),
    }
    if route.operation.text:
        operation["description"] = route.operation.text
    named = [
        _parameter(parameter, limits) for parameter in route.parameters if not parameter.name.endswith("*")
    ]
    if named:
        operation["parameters"] = named
    if route.operation.bodies:
        operation["requestBody"] = {
            "required": route.operation.body_required,
            "content": {
                kind: {"schema": _schema(body, known)} for kind, body in route.operation.bodies.items()
            },
        }
    return operation


def _parameter(parameter: Parameter, limits: Limits) -> JsonObject:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "description": parameter.description,
        "schema": dict(parameter.schema_for(limits)),
    }


def _responses(route: Route, known: Mapping[type, JsonObject]) -> JsonObject:
    responses: JsonObject = {}
    everywhere = (*_EVERYWHERE, *(header for name, header in CAPPED.items() if name in route.query_names))
    for status, answer in route.operation.answers.items():
        responses[str(status)] = {
            "description": answer.description,
            "headers": {name: _header(name) for name in (*answer.headers, *everywhere)},
            **_content(answer.bodies, known),
        }
    for status, kinds in sorted(_by_status(route).items()):
        codes = ", ".join(sorted(f"`{code}`" for code in kinds))
        described: JsonObject = {
            "description": f"a problem: {codes}",
            **_content({media_types.PROBLEM: Problem}, known),
        }
        responses.setdefault(str(status), described)
    return responses


def _by_status(route: Route) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    kinds: tuple[type[RaftlogError], ...] = (*route.errors, InternalError)
    for kind in kinds:
        status, _ = status_and_title(kind())
        found.setdefault(status, set()).add(kind.code)
        if kind.code == "offset_out_of_range":
            found.setdefault(GONE, set()).add(kind.code)
    return found


def _codes(route: Route) -> list[str]:
    return sorted({kind.code for kind in route.errors})


def _header(name: str) -> JsonObject:
    return {"description": _OF_HEADERS[name], "schema": {"type": "string"}}


def _content(by_type: Mapping[str, BodyType], known: Mapping[type, JsonObject]) -> JsonObject:
    if not by_type:
        return {}
    return {"content": {kind: {"schema": _schema(body, known)} for kind, body in by_type.items()}}


def _schema(body: BodyType, known: Mapping[type, JsonObject]) -> JsonObject:
    if isinstance(body, type):
        return known[body]
    if isinstance(body, tuple):
        return {"anyOf": [known[struct] for struct in body]}
    return dict(body)


def _structs(route: Route) -> Iterable[type[msgspec.Struct]]:
    shown = [
        *route.operation.bodies.values(),
        *(body for answer in route.operation.answers.values() for body in answer.bodies.values()),
    ]
    for body in shown:
        if isinstance(body, type):
            yield body
        elif isinstance(body, tuple):
            yield from body


def _section(route: Route) -> str:
    rows = "".join(
        f"<tr><td><code>{text(parameter.name)}</code></td><td>{parameter.place}</td>"
        f"<td>{text(parameter.description)}</td></tr>"
        for parameter in route.parameters
    )
    answers = "".join(
        f"<tr><td>{status}</td><td></td><td>{text(answer.description)} {_bodies(answer.bodies)}</td></tr>"
        for status, answer in route.operation.answers.items()
    )
    codes = ", ".join(f"<code>{code}</code>" for code in _codes(route))
    request = f"<p>Body: {_bodies(route.operation.bodies)}</p>" if route.operation.bodies else ""
    return (
        f"<h2><code>{route.method} {text(route.path)}</code></h2><p>{text(route.operation.summary)}. "
        f"{text(route.operation.text)}</p>{request}<table>{rows}{answers}</table>"
        + (f"<p>Errors: {codes}</p>" if codes else "")
    )


def _bodies(by_type: Mapping[str, BodyType]) -> str:
    return ", ".join(f"<code>{kind}</code>{_fields(body)}" for kind, body in by_type.items())


def _fields(body: BodyType) -> str:
    if isinstance(body, tuple):
        return " or".join(_fields(struct) for struct in body)
    if not isinstance(body, type):
        return ""
    names = ", ".join(f"<code>{field}</code>" for field in body.__struct_fields__)
    return f" {body.__name__} ({names})"
