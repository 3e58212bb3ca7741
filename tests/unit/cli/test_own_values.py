"""Files of a user as records: JSON values and rows of CSV, whatever is wrong with some of them."""

from __future__ import annotations

import io
import json

import pytest

from api.cli.input_formats import input_format
from api.cli.input_options import InputOptions, Lines, Types
from api.cli.lines import LINE_BYTES_MAX
from api.cli.rejects import Rejects
from raftlog.errors import InvalidRecord, InvalidRequest, RecordTooLarge

Found = list[tuple[bytes | None, object]]
LONG = b"1," + b"x" * (2 * LINE_BYTES_MAX) + b"\n"


def read(form: Lines, data: bytes, given: InputOptions) -> tuple[Found, dict[int, str]]:
    """The keys and values of an input, and the reasons of the rejected lines by their number."""
    chosen, found, written = input_format(form, given), Found(), io.BytesIO()
    rejects, number = Rejects(written), 0
    for block in chosen.blocks(io.BufferedReader(io.BytesIO(data))):
        for line in block:
            number += 1
            try:
                fields = chosen.parse(line)
            except (InvalidRecord, RecordTooLarge) as error:
                if rejects.takes(number, line, error):
                    continue
                raise
            if fields is not None:
                found.append((fields[1], json.loads(fields[0] or b"")))
    entries = [json.loads(each) for each in written.getvalue().splitlines()]
    return found, {each["line"]: each["reason"] for each in entries}


# requirement: A12
@pytest.mark.parametrize(
    ("data", "found", "rejected"),
    [
        (b'{"id": "a", "n": 1}\r\n\n {"id": 7}', [(b"a", {"id": "a", "n": 1}), (b"7", {"id": 7})], {}),
        (b'\xef\xbb\xbf{"id": "a"}\n', [(b"a", {"id": "a"})], {}),
        (
            b'{"id": "a"}\n{oops\n[1]\n{"id": null}\n',
            [(b"a", {"id": "a"})],
            {2: "JSON", 3: "no value", 4: "'id'"},
        ),
        (b'{"id": 1.5}\n{"id": true}\n{"id": {}}\n', [], {1: "neither", 2: "neither", 3: "neither"}),
        (b'{"id": "\xff"}\n{"id": "b"}\n', [(b"b", {"id": "b"})], {1: "UTF-8"}),
        (LONG + b'{"id": "b"}', [(b"b", {"id": "b"})], {1: "more than 16777216 bytes"}),
    ],
)
def test_a_line_is_a_value_with_its_key_in_a_field(
    data: bytes, found: Found, rejected: dict[int, str]
) -> None:
    seen, reasons = read(Lines.JSON_VALUES, data, InputOptions(key_field="id"))
    assert seen == found
    assert reasons.keys() == rejected.keys()
    assert all(word in reasons[line] for line, word in rejected.items()), reasons


def test_a_key_may_be_deep_in_a_value_and_may_be_missing_if_it_is_said_so() -> None:
    data = b'{"user": {"id": 4}}\n{"user": 5}\n"text"\n'
    given = InputOptions(key_field="user.id", key_optional=True)
    expected = [(b"4", {"user": {"id": 4}}), (None, {"user": 5}), (None, "text")]
    assert read(Lines.JSON_VALUES, data, given) == (expected, {})


def test_the_value_is_the_text_of_the_line() -> None:
    parse = input_format(Lines.JSON_VALUES, InputOptions()).parse
    assert parse(b' {"price": 1.10,  "id": 12345678901234567890123}\r') == (
        b'{"price": 1.10,  "id": 12345678901234567890123}',
        None,
        (),
        None,
        None,
    )


def row(identity: str, text: str) -> tuple[bytes, dict[str, str]]:
    return identity.encode(), {"id": identity, "text": text}


# requirement: A12
@pytest.mark.parametrize(
    ("data", "found", "rejected"),
    [
        (b"id,text\n1,a\n2,", [row("1", "a"), row("2", "")], {}),
        (b"\xef\xbb\xbfid,text\r\n\r\n1,a\r\n", [row("1", "a")], {}),
        (b'id,text\n1,"a ""b"", c"\n2,5" pipe\n', [row("1", 'a "b", c'), row("2", '5" pipe')], {}),
        (b'id,text\n1,"a\n\nb"\nx\n2,c\n', [row("1", "a\n\nb"), row("2", "c")], {5: "1 cell, "}),
        (b'id,text\n1,"a\r\nb"\r\n', [row("1", "a\r\nb")], {}),
        (b"id,text\n1,a,b\n2\n,a\n3,c", [row("3", "c")], {2: "3 cells", 3: "1 cell", 4: "no value"}),
        (b'id,text\n1,"a\n2,b\n3,c\n', [row("2", "b"), row("3", "c")], {2: "a quote is not closed"}),
        (b'id,text\n1,"a"b\n2,"a\n"b\n3,c\n', [row("3", "c")], {2: "not CSV", 3: "quote", 4: "not CSV"}),
        (b"id,text\n1,a\rb\n2,b\n", [row("2", "b")], {2: "carriage return"}),
        (b"id,text\n1,\xff\n2,\xc3\xa9\n", [row("2", "é")], {2: "UTF-8"}),
        (b"id,text\n" + LONG + b"2,b", [row("2", "b")], {2: "more than 16777216 bytes"}),
    ],
    ids=[
        "plain",
        "mark",
        "quotes",
        "lines",
        "crlf",
        "columns",
        "open-quote",
        "open-quotes",
        "return",
        "utf8",
        "too-long",
    ],
)
def test_a_row_is_an_object_with_its_key_in_a_column(
    data: bytes, found: Found, rejected: dict[int, str]
) -> None:
    seen, reasons = read(Lines.CSV, data, InputOptions(key_column="id"))
    assert seen == found
    assert reasons.keys() == rejected.keys()
    assert all(word in reasons[line] for line, word in rejected.items()), reasons


def test_a_quote_that_is_never_closed_takes_bounded_memory_and_one_row() -> None:
    lines = [b"%07d,%s" % (number, b"x" * 1_000) for number in range(20_000)]
    lines[0] = b'0,"x'
    found, rejected = read(Lines.CSV, b"\n".join(lines), InputOptions(columns="id,text"))
    assert (len(found), rejected) == (19_999, {1: "the row is not CSV: a quote is not closed"})


def test_cells_are_numbers_and_truth_values_on_request() -> None:
    cells = "007;-1.50;1e3;true;True;;12345678901234567890123;NaN"
    given = InputOptions(columns="a,b,c,d,e,f,g,h", delimiter=";", types=Types.JSON)
    fields = input_format(Lines.CSV, given).parse(cells.encode())
    assert fields is not None
    assert fields[0] == (
        b'{"a":"007","b":-1.50,"c":1e3,"d":true,"e":"True","f":null,"g":12345678901234567890123,"h":"NaN"}'
    )


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (b"id,id", "column 'id' appears twice"),
        (b"a,b", "there is no column 'id'; the columns are a, b"),
        (b"id,\xff", "not UTF-8"),
        (b'id,"a', "a quote is not closed"),
    ],
)
def test_names_that_no_row_can_have_end_the_input(names: bytes, wrong: str) -> None:
    parse = input_format(Lines.CSV, InputOptions(key_column="id")).parse
    with pytest.raises(InvalidRequest, match=wrong) as ended:
        parse(names)
    assert not Rejects(io.BytesIO()).takes(1, names, ended.value)
