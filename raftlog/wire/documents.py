"""The operations that return documents for people and tools: the contract, and the kinds of problems."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire import media_types
from raftlog.wire.operation import TEXT, Nothing, Operation, Success

LIST = Operation(
    name="problems.list",
    request="GET /problems",
    summary="List the kinds of problems",
    answer=Nothing,
    success={200: Success("a page", {media_types.HTML: TEXT})},
)

DESCRIBE = Operation(
    name="problems.describe",
    request="GET /problems/{code}",
    summary="Explain a kind of problem",
    text="This is the path of a problem's `type`.",
    answer=Nothing,
    success={200: Success("a page", {media_types.HTML: TEXT})},
    errors=(errors.PathNotFound,),
)

OPENAPI = Operation(
    name="documents.openapi",
    request="GET /openapi.json",
    summary="This contract as OpenAPI 3.1",
    answer=Nothing,
    success={200: Success("the document", {media_types.JSON: {"type": "object"}})},
)

PAGE = Operation(
    name="documents.page",
    request="GET /docs",
    summary="This contract as a page",
    answer=Nothing,
    success={200: Success("a page", {media_types.HTML: TEXT})},
)

ROOT = Operation(
    name="documents.root",
    request="GET /",
    summary="Redirect to `/docs`",
    answer=Nothing,
    success={303: Success("the page", headers=("Location",))},
)


def page_of(code: str) -> str:
    """The path of the page that explains a kind of error. The ``type`` of a problem ends with this path."""
    return DESCRIBE.at(code=code.replace("_", "-"))
