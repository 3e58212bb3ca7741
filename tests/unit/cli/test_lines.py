"""Lines of a file as records."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import astuple

from api.cli.lines import LINE_BYTES_MAX, Json, Keyed, Plain, blocks_of_lines, whole
from raftlog.errors import InvalidRequest
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
    ],
)
def test_garbage_in_place_of_json_is_named(line: bytes, word: str) -> None:
    with pytest.raises(InvalidRequest, match=word):
        Json()(line)
