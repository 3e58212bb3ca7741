"""The checksum of a record: the example of the documents, and what it tells apart."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

from raftlog.client.messages import Message
from raftlog.records.record_checksum import record_crc
from tests.helpers.record_checksums import canonical_bytes, crc32c

PAGE = Path(__file__).resolve().parents[3] / "docs" / "record-format.md"
EXAMPLE = {
    "key": "u1",
    "value": '{"id":1}',
    "encoding": "utf8",
    "headers": {"source": "web"},
    "tags": ["created"],
}
HEADERS = (("source", b"web"), ("raftlog.tag", b"created"))


# requirement: M1
def test_the_documented_bytes_have_the_documented_checksum() -> None:
    section = PAGE.read_text().partition("## Checksum of a record")[2].partition("\n## ")[0]
    documented = bytes.fromhex("".join(re.findall(r"^    ((?:[0-9a-f]{2} ?)+)", section, re.MULTILINE)))
    (checksum,) = re.findall(r"`record_crc` is ([0-9]+)", section)
    assert documented == canonical_bytes(EXAMPLE)
    assert crc32c(documented) == int(checksum) == record_crc(b"u1", b'{"id":1}', HEADERS)


# requirement: M1
def test_a_message_of_the_client_has_the_checksum_of_its_content() -> None:
    message = Message("orders", 0, 42, 5, b"u1", b'{"id":1}', HEADERS, 7)
    assert message.record_crc == crc32c(canonical_bytes(EXAMPLE))


def test_the_order_of_headers_does_not_count_and_everything_else_does() -> None:
    assert record_crc(b"k", b"v", HEADERS) == record_crc(b"k", b"v", HEADERS[::-1])
    records = [
        (b"ab", b"c", ()),
        (b"a", b"bc", ()),
        (None, b"abc", ()),
        (b"", b"abc", ()),
        (b"abc", None, ()),
        (b"abc", b"", ()),
        (b"a", b"bc", (("x", b"y"),)),
        (b"a", b"bc", (("xy", b""),)),
        (b"a", b"bc", (("xy", None),)),
        (b"a", b"bc", (("x", b"y"), ("x", b"y"))),
    ]
    for one, other in combinations(records, 2):
        assert record_crc(*one) != record_crc(*other), (one, other)
