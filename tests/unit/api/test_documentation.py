"""The documents and pages of a broker say what the code does."""

from __future__ import annotations

import asyncio
import html
import re
import threading
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from api.app import ROUTES
from api.http.errors import TABLE
from api.http.routes import Route
from api.resources import documentation
from api.resources.documentation import openapi
from broker.ports import Limits
from raftlog.errors import BY_CODE, NotSent, RaftlogError
from raftlog.wire import documents, headers
from tests.helpers.async_tests import in_real_time
from tests.helpers.http_server import HttpServer, serve, served

DOCUMENT = Path(__file__).parents[3] / "docs" / "http-api.md"


@served()
async def test_the_openapi_document_has_every_route_and_a_problem_for_each(server: HttpServer) -> None:
    document = (await server.get("/openapi.json")).json
    assert document["openapi"] == "3.1.0"
    described = document["paths"]
    assert isinstance(described, dict)
    for route in ROUTES:
        operation = described[route.path][route.method.lower()]
        assert operation["summary"]
        assert {"200", "201", "202", "204"} & operation["responses"].keys()
        named = {parameter["name"] for parameter in operation.get("parameters", [])}
        assert set(re.findall(r"{(\w+)}", route.path)) <= named
    assert described[documents.OPENAPI.path]
    assert described[documents.PAGE.path]


# requirement: N2
@in_real_time
async def test_a_document_is_made_once_and_away_from_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    makes = documentation.openapi

    def openapi_here(table: Iterable[Route], version: str, limits: Limits) -> documentation.JsonObject:
        threads.append(threading.get_ident())
        return makes(table, version, limits)

    monkeypatch.setattr(documentation, "openapi", openapi_here)
    async with serve() as server:
        pages = await asyncio.gather(*(server.get(documents.OPENAPI.path) for _ in range(5)))
    assert {page.status for page in pages} == {200}
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_operation_ids_are_unique() -> None:
    document = openapi(ROUTES, "0", Limits())
    described = document["paths"]
    assert isinstance(described, dict)
    ids = [operation["operationId"] for path in described.values() for operation in path.values()]
    assert len(ids) == len(set(ids))


async def test_the_page_for_people_is_whole_and_needs_nothing_else() -> None:
    class Links(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.tags: list[str] = []
            self.links: list[str] = []

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.tags.append(tag)
            self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    async with serve() as server:
        page = await server.get("/docs")
        assert page.headers["content-type"] == "text/html"
        text = page.body.decode()
        for route in ROUTES:
            assert f"{route.method} {route.path}" in text
        for kind in TABLE:
            assert kind.code in text
        links = Links()
        links.feed(text)
        assert links.links == [documents.OPENAPI.path, *(documents.page_of(kind.code) for kind in TABLE)]
        assert "script" not in links.tags


def test_every_error_has_a_status_and_a_title() -> None:
    assert set(BY_CODE.values()) - {NotSent} <= TABLE.keys()  # that one never left a client
    assert len({(error.code, kind.status) for error, kind in TABLE.items()}) == len(TABLE)
    assert all(400 <= kind.status < 600 and all(kind) for kind in TABLE.values())


@pytest.mark.parametrize("named", [f"{route.method} {route.path}" for route in ROUTES])
def test_every_path_has_a_heading(named: str) -> None:
    assert re.search(rf"^#+ .*`{re.escape(named)}`", DOCUMENT.read_text(), re.MULTILINE)


@pytest.mark.parametrize("error", TABLE, ids=lambda error: error.__name__)
def test_every_error_is_explained_as_on_its_page(error: type[RaftlogError]) -> None:
    found = re.search(rf"^### `{error.code}`\n(.*?)^##", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    kind = TABLE[error]
    assert f"{kind.status}. {kind.cause} {kind.remedy}" in " ".join(found[1].split())


@pytest.mark.parametrize(
    "name", sorted(value for name, value in vars(headers).items() if name.isupper() and value[0].isupper())
)
def test_every_header_has_a_heading(name: str) -> None:
    assert re.search(rf"^#+ `{name}", DOCUMENT.read_text(), re.MULTILINE)


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9"


def plain(page: bytes) -> str:
    """The text of a page, with backticks around code."""
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"</?code>", "`", page.decode())))


@pytest.mark.parametrize("accept", [BROWSER, "application/json", "*/*"])
@served()
async def test_the_root_leads_to_the_documents(server: HttpServer, accept: str) -> None:
    answer = await server.get("/", Accept=accept)
    assert (answer.status, answer.headers["location"]) == (303, "/docs")


@pytest.mark.parametrize("accept", [BROWSER, "text/plain", "application/json", "image/png"])
@served()
async def test_metrics_are_given_to_everybody(server: HttpServer, accept: str) -> None:
    answer = await server.get("/metrics", Accept=accept)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("application/openmetrics-text")


@served()
async def test_the_type_of_a_problem_is_a_page_that_explains_it(server: HttpServer) -> None:
    kind = str((await server.get("/v1/topics/nobody")).json["type"])
    page = await server.get(urlsplit(kind).path, Accept=BROWSER)
    assert (page.status, page.headers["content-type"]) == (200, "text/html")
    text = plain(page.body)
    assert "topic_not_found" in text
    assert "404: No such topic" in text
    assert "nothing was changed" in text
    assert "Create the topic" in text


@served()
async def test_every_problem_has_its_page_and_the_list_leads_to_it(server: HttpServer) -> None:
    listed = (await server.get("/problems")).body.decode()
    for error, kind in TABLE.items():
        assert f"href='{documents.page_of(error.code)}'" in listed
        text = plain((await server.get(documents.page_of(error.code))).body)
        assert all(str(part) in text for part in kind)
        assert ("nothing was changed" in text) == error.is_definite


@pytest.mark.parametrize("code", ["nothing", "no-leaders", "%3Cscript%3E", "x" * 300])
@served()
async def test_an_unknown_problem_is_not_found(server: HttpServer, code: str) -> None:
    answer = await server.get(f"/problems/{code}")
    assert (answer.status, answer.code) == (404, "path_not_found")
    assert "/problems lists them" in str(answer.json["detail"])
