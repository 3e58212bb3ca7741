"""The small parsers of URLs and headers, and times that are cut to a limit."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http import json_bodies, parameters
from api.http.routes import CAPPED
from broker.ports import Limits
from partitions.values import AtTime, LastRecords, Start
from raftlog.errors import InvalidRequest
from raftlog.wire import media_types
from tests.helpers.http_server import HttpServer, serve, served

OFFERED = (media_types.JSON, media_types.BATCH)


@given(st.text(max_size=40))
def test_no_text_makes_a_parser_raise_anything_but_its_error(text: str) -> None:
    for parse in (parameters.position, parameters.position_or_time, json_bodies.time_ms):
        with contextlib.suppress(InvalidRequest):
            parse(text, "here")
    with contextlib.suppress(InvalidRequest):
        parameters.duration_ms({"here": text}, "here", 0)


@given(
    st.datetimes(datetime(1970, 1, 3), datetime(9999, 1, 1)).map(
        lambda moment: moment.replace(microsecond=0)
    ),
    st.integers(-720, 720),
)
def test_a_time_is_the_same_in_every_zone(moment: datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=UTC).astimezone(timezone(timedelta(minutes=minutes)))
    milliseconds = round(moment.replace(tzinfo=UTC).timestamp()) * 1000
    assert json_bodies.time_ms(zoned.isoformat(), "at") == milliseconds
    assert parameters.position(f"timestamp:{zoned.isoformat()}", "at") == AtTime(milliseconds)
    assert parameters.position_or_time(zoned.isoformat(), "at") == AtTime(milliseconds)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0", 0),
        ("9223372036854775807", (1 << 63) - 1),
        ("earliest", Start.EARLIEST),
        ("latest", Start.LATEST),
        ("-100", LastRecords(100)),
        ("timestamp:1767225600000", AtTime(1767225600000)),
        ("timestamp:2026-01-01T00:00:00Z", AtTime(1767225600000)),
        ("timestamp:2026-01-01T02:00:00 02:00", AtTime(1767225600000)),  # a plus sign that became a blank
    ],
)
def test_a_position_is_a_number_a_name_a_time_or_a_count(text: str, position: object) -> None:
    assert parameters.position(text, "offset") == position


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250", 250), ("250ms", 250), ("30s", 30_000), ("1m", 60_000), ("2h", 7_200_000), ("1d", 86_400_000)],
)
def test_a_duration_has_a_unit(text: str, milliseconds: int) -> None:
    assert parameters.duration_ms({"wait": text}, "wait", 0) == milliseconds


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, media_types.JSON),
        ("*/*", media_types.JSON),
        (media_types.BATCH, media_types.BATCH),
        ("application/*", media_types.JSON),
        (f"{media_types.JSON};q=0.1, {media_types.BATCH};q=0.2", media_types.BATCH),
        (f"{media_types.JSON};q=0, */*", media_types.BATCH),
        ("text/html, */*;q=0.8", media_types.JSON),
        ("text/html", None),
        ("application/json;q=high", None),
        ("", None),
    ],
)
def test_the_media_type_that_is_liked_best_is_chosen(accept: str | None, chosen: str | None) -> None:
    headers = {} if accept is None else {"Accept": accept}
    assert parameters.accepted(headers, OFFERED) == chosen


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
