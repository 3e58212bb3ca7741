"""What a browser finds at a broker: the way to the documents, and a page for each kind of problem."""

from __future__ import annotations

import html
import re
from urllib.parse import urlsplit

import pytest

from api.http.errors import TABLE
from raftlog.wire import paths
from tests.helpers.http_server import HttpServer, served

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
        assert f"href='{paths.problem(error.code)}'" in listed
        text = plain((await server.get(paths.problem(error.code))).body)
        assert all(str(part) in text for part in kind)
        assert ("nothing was changed" in text) == error.is_definite


@pytest.mark.parametrize("code", ["nothing", "no-leaders", "%3Cscript%3E", "x" * 300])
@served()
async def test_an_unknown_problem_is_not_found(server: HttpServer, code: str) -> None:
    answer = await server.get(f"/problems/{code}")
    assert (answer.status, answer.code) == (404, "path_not_found")
    assert "/problems lists them" in str(answer.json["detail"])
