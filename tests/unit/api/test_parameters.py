"""The small parsers of URLs and headers."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http import json_bodies, parameters
from partitions.values import AtTime, LastRecords, Start
from raftlog.errors import InvalidRequest
from raftlog.wire import media_types

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
