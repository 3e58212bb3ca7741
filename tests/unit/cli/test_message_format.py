"""How a consumed message is written."""

from __future__ import annotations

import json

import click
import pytest
from msgspec.structs import replace

from api.cli.lines import Json
from api.cli.message_format import renderer
from raftlog.client.messages import Message

MESSAGE = Message("orders", 2, 7, 1_767_225_600_250, b"k", b"v\xff", (("a", b"b"), ("raftlog.tag", b"t")), 1)
EMPTY = Message("orders", 0, 0, 0, None, None, (), 1)


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("value", b"v\xff\n"),
        (r"%p %o %k %v\n", b"2 7 k v\xff\n"),
        ("%T", b"orders"),
        (r"%t\t%h\0", b"2026-01-01T00:00:00.250Z\ta=b,raftlog.tag=t\0"),
        (r"%s%%\x0a", b"17%\n"),
    ],
)
def test_a_message_is_written_as_it_is(form: str, written: bytes) -> None:
    assert renderer(form)(MESSAGE) == written


def test_what_is_not_there_is_written_as_nothing() -> None:
    assert renderer("value")(EMPTY) == b"\n"
    assert renderer("[%k|%v|%h|%s]")(EMPTY) == b"[|||0]"


def test_a_time_outside_the_calendar_is_a_number() -> None:
    assert renderer("%t")(replace(EMPTY, timestamp_ms=1 << 62)) == b"4611686018427387904"


@pytest.mark.parametrize("message", [MESSAGE, EMPTY])
def test_what_is_written_as_json_can_be_produced_again(message: Message) -> None:
    line = renderer("json")(message)
    assert json.loads(line)["offset"] == message.offset
    assert line.endswith(b"\n")
    expected = (message.value, message.key, message.headers, message.timestamp_ms)
    assert Json()(line) == (*expected, None), "the partition of another topic"
    assert Json(keeps_partitions=True)(line) == (*expected, message.partition)


@pytest.mark.parametrize("form", ["text", "%q", "%", r"%v\q", "%v\\"])
def test_a_form_that_is_none_is_wrong_usage(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(click.exceptions.Exit) as ended:
        renderer(form)
    assert ended.value.exit_code == 2
    assert capsys.readouterr().err.startswith("error: --format")
