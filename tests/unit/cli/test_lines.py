"""Lines of a file as records, and consumed messages as lines."""

from __future__ import annotations

import io
import json

import click
import pytest
from msgspec.structs import astuple, replace

from api.cli.lines import LINE_BYTES_MAX, Json, Keyed, Plain, blocks_of_lines, whole
from api.cli.message_format import renderer
from raftlog.client.messages import Message
from raftlog.errors import InvalidRecord, InvalidRequest
from raftlog.records.builder import Record


def lines_of(data: bytes) -> list[bytes]:
    return [line for block in blocks_of_lines(io.BufferedReader(io.BytesIO(data))) for line in block]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\x00\xff\r\n\n", [b"\x00\xff\r", b""]),
    ],
)
def test_only_the_line_feed_is_taken_off_a_line(data: bytes, lines: list[bytes]) -> None:
    assert lines_of(data) == lines


def test_lines_may_span_many_blocks() -> None:
    lines = [b"x" * size for size in (1, 3 << 20, 0, 1 << 20, 5)]
    assert lines_of(b"\n".join(lines) + b"\n") == lines


@pytest.mark.parametrize("data", [b"", b"a\nb\n", bytes(LINE_BYTES_MAX), bytes(LINE_BYTES_MAX + 1)])
def test_a_whole_input_is_one_record(data: bytes) -> None:
    assert list(whole(io.BufferedReader(io.BytesIO(data)))) == [[data]]


def test_of_an_input_that_no_record_can_hold_one_byte_too_many_is_read() -> None:
    source = io.BufferedReader(io.BytesIO(bytes(2 * LINE_BYTES_MAX)))
    assert [len(line) for line in next(whole(source))] == [LINE_BYTES_MAX + 1]


def test_a_line_that_no_record_can_hold_ends_reading() -> None:
    found = lines_of(b"a\n" + bytes(4 * LINE_BYTES_MAX))
    assert found[0] == b"a"
    assert LINE_BYTES_MAX < len(found[1]) < 2 * LINE_BYTES_MAX
    assert len(found) == 2


def test_the_first_separator_parts_key_and_value() -> None:
    assert Keyed(b"::")(b"k::v::w") == (*astuple(Record(b"v::w", b"k")), None)
    assert Plain(b"k")(b"v") == (*astuple(Record(b"v", b"k")), None)
    with pytest.raises(InvalidRequest, match="separator ':'"):
        Keyed(b":")(b"no key here")


def test_a_line_of_json_is_a_record_as_in_a_json_produce() -> None:
    parsed = Json()(
        b'{"key": "u", "value": {"id": 1}, "headers": {"a": "b"}, "tags": ["new"], "partition": 2}'
    )
    assert parsed == (*astuple(Record(b'{"id":1}', b"u", (("a", b"b"), ("raftlog.tag", b"new")))), 2)
    assert Json()(b'{"value": "AP8=", "encoding": "base64"}') == (*astuple(Record(b"\x00\xff")), None)
    assert Json()(b'{"value": null, "key": "gone"}') == (*astuple(Record(None, b"gone")), None)
    assert Json()(b"  \r") is None


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"{", "JSON"),
        (b'{"valeu": 1}', "/valeu"),
        (b"{}", "value"),
        (b"[1]", "object"),
        (b'{"value":"\xff"}', "UTF-8"),
        (b'{"value":1,"timestamp":-5}', "/timestamp: is out of range"),
        (b'{"value":"?","encoding":"base64"}', "/value"),
    ],
)
def test_garbage_in_place_of_json_is_named(line: bytes, word: str) -> None:
    with pytest.raises(InvalidRecord, match=word):
        Json()(line)


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
