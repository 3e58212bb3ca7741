"""Bodies that are not what their header says, and what a control batch may hold."""

from __future__ import annotations

import random

import cramjam
import pytest

from raftlog.errors import CorruptBatch, InvalidRecord
from raftlog.records.batch import CONTROL_BIT, HEADER_BYTES, Batch, Codec, encode_batch, stamp
from raftlog.records.builder import BatchBuilder, Record, build_batch
from raftlog.records.compression import compress, decompress
from raftlog.records.control import ControlType, control_type, leader_change_batch
from raftlog.records.reader import StoredRecord, check_records, iter_records, read_records, read_rows
from raftlog.types import NodeId
from tests.helpers.raw_records import raw_record
from tests.unit.records.samples import RECORDS, one_batch, ours

LIMIT = 1 << 20


def with_body(body: bytes, *, record_count: int = 6, attributes: int = 0) -> Batch:
    """The sample's header, with another body and a right checksum."""
    header = one_batch(ours(Codec.NONE)).header
    changed = header._replace(record_count=record_count, attributes=attributes)
    return one_batch(encode_batch(changed, body))


BODY = bytes(one_batch(ours(Codec.NONE)).data[HEADER_BYTES:])


def test_records_come_with_their_offsets() -> None:
    # requirement: M1
    stamped = stamp(ours(Codec.NONE), base_offset=100, leader_epoch=1, append_time_ms=None)
    found = read_records(stamped)
    assert [record.offset for record in found] == list(range(100, 106))
    assert [record.timestamp_ms for record in found] == [record.timestamp_ms for record in RECORDS]
    tagged = len(b"tagged") + 2 * len("trace") + 2 + len("none") + len("größe".encode()) + 1
    assert [record.size_bytes for record in found] == [5, 9, 0, 170, tagged, 1094]


def test_a_record_without_a_timestamp_keeps_having_none() -> None:
    (record,) = read_records(one_batch(build_batch([Record(b"x")], codec=Codec.NONE, timestamp_ms=-1)))
    assert record.timestamp_ms == -1


@pytest.mark.parametrize("record_count", [1, 5, 7, 2**20, 2**31 - 1])
def test_a_wrong_count_is_corrupt(record_count: int) -> None:
    with pytest.raises(CorruptBatch):
        read_records(with_body(BODY, record_count=record_count))


@pytest.mark.parametrize("length", [0, 1, 5, 40, len(BODY) - 1])
def test_a_body_cut_short_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptBatch):
        read_records(with_body(BODY[:length]))


def test_bytes_after_the_last_record_are_corrupt() -> None:
    for tail in (b"\0", b"\x0e" + bytes(7), bytes(60)):
        with pytest.raises(CorruptBatch):
            read_records(with_body(BODY + tail))


@pytest.mark.parametrize(
    "record",
    [
        b"\x10\0\0\0\x01" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\0",  # a value of 2^63-1 bytes
        b"\x0e\0\0\0\xff\xff\xff\xff",  # a key whose length does not end
        b"\x0c\0\0\0\x01\x01\xfe\xff\xff\xff\x0f",  # two thousand million headers
        b"\x0c\0\0\0\x01\x01\x01",  # minus one header
        b"\x12\0\0\0\x01\x01\x02\x02\xff\x01",  # a header name that is not UTF-8
        b"\x0c\0\0\x02\x01\x01\0",  # offset 1 in a batch of one record
        b"\x0c\0\0\x01\x01\x01\0",  # offset -1
        b"\x0e\0\0\0\x01\x01\0",  # a record said to be longer than it is
        b"\x80" * 20,
        b"\xff" * 200,
    ],
    ids=range(10),
)
def test_a_malformed_record_is_corrupt(record: bytes) -> None:
    header = one_batch(ours(Codec.NONE)).header._replace(record_count=1, last_offset_delta=0)
    with pytest.raises(CorruptBatch):
        read_records(one_batch(encode_batch(header, record)))


def test_offsets_that_do_not_rise_are_corrupt() -> None:
    one = b"\x0c\0\0\0\x01\x01\0"
    with pytest.raises(CorruptBatch, match="offset 0 follows 0"):
        read_records(with_body(one + one, record_count=2))


def test_gaps_of_compaction_are_kept() -> None:
    kept = b"\x0c\0\0\x02\x01\x01\0" + b"\x0c\0\0\x08\x01\x01\0"
    assert [record.offset for record in read_records(with_body(kept, record_count=2))] == [1, 4]


@pytest.mark.parametrize(
    "codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY], ids=lambda codec: codec.name
)
def test_a_body_that_would_grow_beyond_its_bound_is_corrupt(codec: Codec) -> None:
    data = bytes(LIMIT + 1)
    compressor = {
        Codec.GZIP: cramjam.gzip.compress,
        Codec.LZ4: cramjam.lz4.compress,
        Codec.ZSTD: cramjam.zstd.compress,
        Codec.SNAPPY: cramjam.snappy.compress_raw,
    }[codec]
    body = bytes(compressor(data))
    assert len(decompress(codec, body, bytes_max=LIMIT + 1)) == LIMIT + 1
    with pytest.raises(CorruptBatch):
        decompress(codec, body, bytes_max=LIMIT)


def test_a_snappy_block_that_lies_about_its_length_is_not_believed() -> None:
    for body in (
        b"\xff\xff\xff\x1f\x00",
        b"\x82SNAPPY\0" + bytes(8) + b"\x7f\xff\xff\xff",
        b"\x82SNAPPY\0\0",
    ):
        with pytest.raises(CorruptBatch):
            read_records(with_body(body, attributes=Codec.SNAPPY))


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\0\0\0\x09"], ids=str)
def test_a_control_batch_needs_a_key_that_is_known(key: bytes | None) -> None:
    builder = BatchBuilder()
    builder.append(Record(b"", key=key))
    header = one_batch(builder.build()).header._replace(attributes=CONTROL_BIT)
    with pytest.raises(CorruptBatch):
        control_type(one_batch(encode_batch(header, builder.body())))


def test_a_users_batch_is_no_control_batch() -> None:
    with pytest.raises(CorruptBatch):
        control_type(one_batch(ours(Codec.NONE)))


def test_a_users_record_with_the_key_of_a_control_record_makes_no_control_batch() -> None:
    control = leader_change_batch(base_offset=0, leader_epoch=1, leader=NodeId(1), timestamp_ms=1)
    (record,) = read_records(control)
    assert control_type(control) is ControlType.LEADER_CHANGE
    with pytest.raises(CorruptBatch, match="not a control batch"):
        control_type(one_batch(build_batch([Record(b"", key=record.key)], codec=Codec.NONE, timestamp_ms=1)))


def test_the_builder_tells_its_size_as_it_grows() -> None:
    builder = BatchBuilder(timestamp_ms=5)
    sizes = [builder.append(record) for record in RECORDS]
    assert sizes == sorted(sizes)
    assert len(builder.build()) == sizes[-1]
    assert builder.record_count == len(RECORDS)


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([], "records"),
        ([Record(b"x", timestamp_ms=-2)], "timestamp_ms"),
        ([Record(b"x", timestamp_ms=2**63 - 1)], "timestamp_ms"),
        ([Record("text")], "value"),  # type: ignore[arg-type]
    ],
    ids=["none", "below", "above", "text"],
)
def test_what_cannot_be_built_is_refused_by_name(records: list[Record], named: str) -> None:
    with pytest.raises(InvalidRecord, match=named):
        build_batch(records, codec=Codec.NONE, timestamp_ms=0)


def test_a_large_body_is_read_like_a_small_one() -> None:
    # requirement: T9
    records = [Record(b"v" * 3_000_000, key=b"k", headers=(("h", None),), timestamp_ms=it) for it in range(4)]
    found = read_records(one_batch(build_batch(records, codec=Codec.LZ4, timestamp_ms=0)))
    assert [Record(it.value, it.key, it.headers, it.timestamp_ms) for it in found] == records


@pytest.mark.parametrize(
    "pattern", [b"\0\x01", b"\xff\xff", b"\0\0", b"\x80\x80"], ids=["headers", "long", "zero", "endless"]
)
def test_a_few_compressed_bytes_do_not_claim_gigabytes(pattern: bytes) -> None:
    count = 5 << 20
    number = b"\x80\x80\x80\x05"  # zigzag of count
    after_length = b"\0\0\0\x01\x01" + number + pattern * count
    length = len(after_length) << 1
    encoded_length = bytes(
        [length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14 & 0x7F | 0x80, length >> 21]
    )
    record = encoded_length + after_length
    with pytest.raises(CorruptBatch):
        read_records(with_body(compress(Codec.ZSTD, record), record_count=1, attributes=Codec.ZSTD))


# requirement: M3
@pytest.mark.parametrize("field", ["key", "value", "header_name", "header_value"])
def test_a_length_near_the_end_of_64_bits_is_damage_and_no_lack_of_memory(field: str) -> None:
    batch = with_body(raw_record() + raw_record(1, **{field: 2**63 - 40}), record_count=2)
    with pytest.raises(CorruptBatch):
        read_records(batch)
    with pytest.raises(CorruptBatch):
        check_records(batch)
    found = iter_records(batch)
    assert next(found).value == b"value"
    with pytest.raises(CorruptBatch):
        next(found)


# requirement: M3
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def test_a_lack_of_memory_is_no_damage(codec: Codec) -> None:
    def make(*fields: object) -> StoredRecord:
        raise MemoryError

    with pytest.raises(MemoryError):
        read_rows(make, one_batch(ours(codec)))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
def test_the_check_at_the_door_takes_exactly_what_readers_can_read(codec: Codec) -> None:
    # requirement: M5
    rng = random.Random(f"door {codec.name}")
    plain = bytes(one_batch(ours(Codec.NONE)).data)
    count, refused = len(RECORDS), 0
    for _ in range(3000):
        body = bytearray(plain[HEADER_BYTES:])
        for _ in range(rng.choice((1, 1, 2))):
            body[rng.randrange(len(body))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        record_count = rng.choice((count, count, count, count - 1, count + 1))
        header = one_batch(plain).header._replace(
            record_count=record_count, last_offset_delta=record_count - 1, attributes=codec
        )
        batch = one_batch(encode_batch(header, compress(codec, bytes(body))))
        try:
            readable = [record.offset for record in read_records(batch)] == [*range(record_count)]
        except CorruptBatch:
            readable = False
        if not readable:
            refused += 1
            with pytest.raises(CorruptBatch):
                check_records(batch)
            continue
        check_records(batch)
        assert list(iter_records(batch)) == read_records(batch)
        assert list(iter_records(batch, 1)) == read_records(batch)[1:]
    assert 500 < refused < 2900


def test_the_check_of_a_few_plain_records_takes_only_what_readers_can_read() -> None:
    # requirement: M5
    rng = random.Random("few and plain")
    records = [Record(b"value", key=b"key"), Record(b""), Record(None, key=b"k" * 70)]
    plain = bytes(one_batch(build_batch(records, codec=Codec.NONE, timestamp_ms=1_000)).data)
    outcomes = {"taken": 0, "refused": 0}
    for _ in range(5000):
        body = bytearray(plain[HEADER_BYTES:])
        for _ in range(rng.choice((0, 1, 1, 2))):
            body[rng.randrange(len(body))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        count = rng.choice((3, 3, 3, 2, 4))
        base_timestamp = rng.choice((0, 1_000, -1, (1 << 63) - 1))
        header = one_batch(plain).header._replace(
            record_count=count, last_offset_delta=count - 1, base_timestamp=base_timestamp
        )
        batch = one_batch(encode_batch(header, bytes(body)))
        try:
            check_records(batch)
        except CorruptBatch:
            outcomes["refused"] += 1
            continue
        outcomes["taken"] += 1
        assert [record.offset for record in read_records(batch)] == [*range(count)]
    assert min(outcomes.values()) > 500


def test_the_records_before_damage_come_first() -> None:
    body = bytes(one_batch(build_batch([Record(b"v")] * 3, codec=Codec.NONE, timestamp_ms=0)).data)
    at = HEADER_BYTES + 2 * (len(body) - HEADER_BYTES) // 3
    damaged = with_body(body[HEADER_BYTES:at] + b"\xff" * 8, record_count=3)
    found: list[int] = []
    with pytest.raises(CorruptBatch):
        found.extend(record.offset for record in iter_records(damaged))
    assert found == [0, 1]
