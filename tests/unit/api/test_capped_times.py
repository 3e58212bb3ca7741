"""A time that is longer than the broker allows is cut, and the answer says so."""

from __future__ import annotations

import pytest

from api.http import parameters
from api.http.routes import CAPPED
from api.http.services import Limits
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.http_server import HttpServer, serve, served

PATH = "/v1/topics/orders/partitions/0/records"
HEADER = "raftlog-wait-capped"


@pytest.mark.parametrize(
    ("wait", "told"),
    [
        ("50ms", None),
        ("0", None),
        ("51ms", "50ms"),
        ("1h", "50ms"),
        ("99999999s", "50ms"),
        ("999999999999d", "50ms"),
    ],
)
@served(Limits(wait_ms_max=50), partitions=1)
async def test_an_answer_says_that_its_wait_was_cut(server: HttpServer, wait: str, told: str | None) -> None:
    for accept in ("application/json", "application/vnd.raftlog.batch.v1"):
        empty = await server.get(f"{PATH}?wait={wait}", Accept=accept)
        assert (empty.status, empty.headers.get(HEADER)) == (204, told)
    beyond = await server.get(f"{PATH}?offset=7&wait={wait}")
    assert (beyond.status, beyond.headers.get(HEADER)) == (416, told)
    moved = await server.post(
        f"/v1/topics/orders/partitions/0:set-replicas?wait={wait}", {"replicas": [1, 2, 3]}
    )
    assert (moved.status, moved.headers.get(HEADER)) == (200, told)


@pytest.mark.parametrize(
    ("timeout", "told"), [("2s", None), ("2001ms", "2s"), ("1h", "2s"), ("999999999999d", "2s")]
)
@in_virtual_time
async def test_an_answer_says_that_its_timeout_was_cut(timeout: str, told: str | None) -> None:
    header = "raftlog-timeout-capped"
    async with serve(Limits(produce_timeout_ms_max=2_000, produce_timeout_ms_default=1_000)) as server:
        await server.topic(partitions=1)
        for path in (PATH, "/v1/topics/orders/records"):
            done = await server.post(f"{path}?timeout={timeout}", {"records": [{"value": "v"}]})
            assert (done.status, done.headers.get(header)) == (200, told)
            assert HEADER not in done.headers


@served(partitions=1)
async def test_no_other_answer_speaks_of_a_wait(server: HttpServer) -> None:
    for path in (PATH, f"{PATH}?offset=0", "/v1/topics"):
        assert HEADER not in (await server.get(path)).headers


@served()
async def test_the_document_names_the_header_wherever_a_request_may_wait(server: HttpServer) -> None:
    paths = (await server.get("/openapi.json")).json["paths"]
    assert isinstance(paths, dict)
    for path, methods in paths.items():
        for method, operation in methods.items():
            parameters = [one["name"] for one in operation.get("parameters", [])]
            for status, answer in operation["responses"].items():
                for name, header in CAPPED.items():
                    is_named = header in answer.get("headers", {})
                    assert is_named == (name in parameters and int(status) < 400), (path, method, status)


@pytest.mark.parametrize(
    ("milliseconds", "text"), [(55_000, "55s"), (1_500, "1500ms"), (50, "50ms"), (0, "0s")]
)
def test_a_duration_is_told_as_it_may_be_sent(milliseconds: int, text: str) -> None:
    assert parameters.duration_text(milliseconds) == text
    assert parameters.duration_ms({"wait": text}, "wait", 1) == milliseconds
