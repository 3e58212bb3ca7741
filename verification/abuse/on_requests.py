"""Attacks with requests that are small to send and expensive to serve."""

from __future__ import annotations

import json
import struct
import zlib
from collections import Counter
from functools import partial
from typing import Final

from raftlog.records.batch import HEADER_BYTES, Codec, checksum
from raftlog.records.builder import Record, build_batch
from raftlog.wire import groups, media_types, partitions, records, transactions
from verification.abuse.target import BATCH, Attack, Target

BOMB_BYTES: Final = 15 << 20
BLANK_BYTES: Final = 8 << 20  # the JSON decoder skips 16 MiB of blanks or escapes in some 45 ms
_CRC_AT: Final = 17
_CRC: Final = struct.Struct(">I")


def _bomb(content: bytes) -> bytes:
    return build_batch([Record(content)], codec=Codec.ZSTD, timestamp_ms=1)


def bombs_read_as_json(target: Target) -> Counter[str]:
    """Produce a few kilobytes that decompress to a record of 15 MiB; read the record in five concurrent
    requests.
    """
    responses: Counter[str] = Counter()
    for content in (bytes(BOMB_BYTES), b"x" * BOMB_BYTES, b"[" + b"1," * (BOMB_BYTES // 2 - 1) + b"1]"):
        answer, body = target.ask("POST", target.records, _bomb(content), BATCH)
        responses[answer] += 1
        if answer != "200":
            continue
        responses += target.at_once(5, partial(_read, target, json.loads(body)["base_offset"]))
    return responses


def _read(target: Target, offset: int, broker: int) -> str:
    return target.ask("GET", f"{target.records}?offset={offset}&limit=1", broker=broker)[0]


def bombs_in_one_body(target: Target) -> Counter[str]:
    """Produce one request with nine hundred batches, each of which decompresses to many times its size."""
    body = _bomb(bytes(BOMB_BYTES)) * 900
    return Counter([target.ask("POST", target.records, body, BATCH)[0]])


def many_batches(target: Target) -> Counter[str]:
    """Produce one request with 240,000 batches of one record each."""
    body = build_batch([Record(b"v")], codec=Codec.NONE, timestamp_ms=1) * 240_000
    body = body[: 16 << 20]
    return target.at_once(2, lambda broker: target.ask("POST", target.records, body, BATCH, broker=broker)[0])


def many_records_deflated(target: Target) -> Counter[str]:
    """Produce one request of a few kilobytes: compressed JSON with 1.3 million records."""
    body = b'{"records":[' + b",".join([b'{"value":1}'] * 1_300_000) + b"]}"
    headers = {"Content-Type": media_types.JSON, "Content-Encoding": "deflate"}
    packed = zlib.compress(body, 9)
    return target.at_once(
        4, lambda broker: target.ask("POST", target.records, packed, headers, broker=broker)[0]
    )


def large_texts(target: Target) -> Counter[str]:
    """Send compressed JSON of 15 MiB that is invalid or one huge value, to several operations."""
    texts = (b"x", b"\\u0041", "é".encode(), b"AAAA")
    bodies = [b" " * BLANK_BYTES, b'{"records":[' + b" " * BLANK_BYTES + b"{}]}", b"\n" * BOMB_BYTES]
    for text in texts:
        long = text * (BOMB_BYTES // len(text))
        bodies.append(b'{"records":[{"value":"' + long)  # without an end
        bodies.append(b'{"records":[{"value":"' + long + b'\\ud800"}]}')  # half of a surrogate pair
        bodies.append(b'{"records":[{"encoding":"base64","value":"' + long + b'"}]}')
        bodies.append(b'{"' + long + b'":1}')  # a field that does not exist
    group = groups.OFFSETS.at(group="large-texts")
    requests = (
        ("POST", target.records, media_types.JSON),
        ("POST", target.records, media_types.NDJSON),
        ("PUT", group, media_types.JSON),
        ("POST", transactions.EXECUTE.path, media_types.JSON),
    )
    responses: Counter[str] = Counter()
    for body in bodies[:: max(1, len(bodies) // target.times(len(bodies)))]:
        packed = zlib.compress(body, 1)
        for method, path, media_type in requests:
            headers = {"Content-Type": media_type, "Content-Encoding": "deflate"}
            responses[target.ask(method, path, packed, headers)[0]] += 1
    return responses


def undecodable_batches(target: Target) -> Counter[str]:
    """Produce batches whose checksums are right and whose records cannot be decoded."""
    responses: Counter[str] = Counter()
    whole = build_batch([Record(b"value" * 20)] * 5, codec=Codec.NONE, timestamp_ms=1)
    for at in range(HEADER_BYTES, len(whole), 7):
        batch = bytearray(whole)
        batch[at] ^= 0xFF
        _CRC.pack_into(batch, _CRC_AT, checksum(bytes(batch[_CRC_AT + _CRC.size :])))
        responses[target.ask("POST", target.records, bytes(batch), BATCH)[0]] += 1
    responses[target.ask("GET", f"{target.records}?limit=10")[0]] += 1
    return responses


def long_pages(target: Target) -> Counter[str]:
    """Read 100,000 records in pages of ten thousand, with five concurrent readers."""
    batch = build_batch([Record(b"v")] * 10_000, codec=Codec.ZSTD, timestamp_ms=1)
    responses = Counter(target.ask("POST", target.records, batch, BATCH)[0] for _ in range(target.times(10)))

    def read(broker: int) -> str:
        answer = ""
        for page in range(target.times(10)):
            path = f"{target.records}?offset=-{(page + 1) * 10_000}&limit=10000&max_bytes=8388608"
            answer = target.ask("GET", path, broker=broker)[0]
        return answer

    return responses + target.at_once(5, read)


def many_producers(target: Target) -> Counter[str]:
    """Allocate many producer ids, and send one batch under each of several ids that were never allocated."""
    responses: Counter[str] = Counter()
    for number in range(target.times(500)):
        responses[target.ask("POST", records.CREATE.path, b"{}", {"Content-Type": media_types.JSON})[0]] += 1
        batch = build_batch(
            [Record(b"v")],
            codec=Codec.NONE,
            timestamp_ms=1,
            producer_id=number,
            producer_epoch=0,
            base_sequence=0,
        )
        responses[target.ask("POST", target.records, batch, BATCH)[0]] += 1
    return responses


def foreign_pages(target: Target) -> Counter[str]:
    """Send requests that a web page in an operator's browser can send: with a foreign Host or a foreign
    Origin.
    """
    responses: Counter[str] = Counter()
    move = partitions.TRANSFER_LEADERSHIP.at(topic=target.topic, partition=0)
    for _ in range(target.times(100)):
        responses[target.ask("GET", target.records, headers={"Host": "evil.example"})[0]] += 1
        responses[target.ask("POST", move, b"", {"Origin": "http://evil.example"})[0]] += 1
    return responses


ATTACKS: Final = (
    Attack("bombs read as JSON by five", bombs_read_as_json, bound_mib=5 * 21),  # in base64
    Attack("900 bombs in one body", bombs_in_one_body, bound_mib=16),  # of one batch, decompressed
    Attack("240,000 batches in one body", many_batches, bound_mib=2 * 16),
    Attack("1.3 million records, deflated", many_records_deflated, bound_mib=2 * 16),
    Attack("15 MiB of text, deflated", large_texts, bound_mib=5 * 16),
    Attack("batches that cannot be decoded", undecodable_batches),
    Attack("pages of 10,000 records for five", long_pages, bound_mib=5 * 8),
    Attack("producer ids, given and made up", many_producers),
    Attack("foreign Host and Origin", foreign_pages),
)
