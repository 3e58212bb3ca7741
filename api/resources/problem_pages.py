"""Serves a page for each kind of error, which the ``type`` of a problem refers to. The pages are generated
from the table of errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from aiohttp import web

from api.http.errors import TABLE, Kind
from api.http.routes import Call, Parameter, Route
from api.resources.html_pages import page, text
from raftlog.errors import PathNotFound, RaftlogError
from raftlog.wire import documents, media_types


async def list_problems(_: Call) -> web.StreamResponse:
    """List all kinds of problems."""
    return _html("raftlog problems", f"<h1>Problems</h1>{problem_table()}{_DOCS}")


async def get_problem(call: Call) -> web.StreamResponse:
    """Describe all kinds of problems with one code: there are two if the status differs."""
    code = call.match_info["code"].replace("-", "_")
    found = list(_of_code(code))
    if not found:
        raise PathNotFound(f"there is no problem {code[:64]!r}; GET {documents.LIST.path} lists them")
    sections = "".join(_section(kind, error) for error, kind in found)
    return _html(f"raftlog problem {code}", f"<h1><code>{code}</code></h1>{sections}{_DOCS}")


def problem_table() -> str:
    """Return all kinds of problems as an HTML table."""
    rows = "".join(
        f"<tr><td><a href='{documents.page_of(error.code)}'><code>{error.code}</code></a></td>"
        f"<td>{kind.status}</td><td>{text(kind.title)}</td><td>{'yes' if error.retryable else 'no'}</td></tr>"
        for error, kind in TABLE.items()
    )
    return f"<table><tr><th>code</th><th>status</th><th>meaning</th><th>retry</th></tr>{rows}</table>"


def outcome(error: type[RaftlogError]) -> str:
    """Return the text that says whether a request with this error was carried out."""
    if error.is_definite:
        return "No: the request was refused, and nothing was changed."
    return "This is unknown: the request may have been carried out, or may still be."


_DOCS = (
    f"<p><a href='{documents.LIST.path}'>All problems</a> · <a href='{documents.PAGE.path}'>HTTP API</a></p>"
)


def _of_code(code: str) -> Iterator[tuple[type[RaftlogError], Kind]]:
    return ((error, kind) for error, kind in TABLE.items() if error.code == code)


def _section(kind: Kind, error: type[RaftlogError]) -> str:
    again = "A retry can succeed." if error.retryable else "A retry does not help."
    return (
        f"<h2>{kind.status}: {text(kind.title)}</h2><p>{text(kind.cause)}</p>"
        f"<p><b>Carried out?</b> {outcome(error)}</p><p><b>Remedy:</b> {text(kind.remedy)} {again}</p>"
    )


def _html(title: str, body: str) -> web.Response:
    return web.Response(body=page(title, body), headers={"Content-Type": media_types.HTML})


_CODE = Parameter("code", "the `code` of a problem, with dashes", place="path")

ROUTES = (
    Route(documents.LIST, list_problems),
    Route(documents.DESCRIBE, get_problem, (_CODE,)),
)
