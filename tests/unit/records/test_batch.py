"""What a broker does with a batch: parse, check, validate and stamp it."""

from __future__ import annotations

import struct

import pytest

from raftlog.errors import CorruptBatch, InvalidRecord, RecordTooLarge
from raftlog.records.batch import (
    APPEND_TIME_BIT,
    BATCH_OVERHEAD,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    RECORD_COUNT_MAX,
    TRANSACTIONAL_BIT,
    Batch,
    BatchHeader,
    Codec,
    check_batch,
    encode_batch,
    parse_header,
    split_batches,
    stamp,
    unstamped,
    validate_produced,
)
from raftlog.records.builder import with_producer
from raftlog.records.reader import read_records
from tests.unit.records.samples import PRODUCER, RECORDS, one_batch, ours


def changed(**fields: int) -> Batch:
    """A sound batch with other header fields and the checksum that goes with them."""
    batch = one_batch(ours(Codec.NONE))
    return one_batch(encode_batch(batch.header._replace(**fields), batch.data[HEADER_BYTES:]))


def validate(batch: Batch, *, bytes_max: int = 1 << 20, allow_append_time: bool = False) -> None:
    validate_produced(batch, bytes_max=bytes_max, allow_append_time=allow_append_time)


def test_the_header_tells_what_a_broker_needs_to_know() -> None:
    # requirement: M1
    header = parse_header(ours(Codec.LZ4))
    assert header.size_bytes == len(ours(Codec.LZ4)) == header.batch_length + BATCH_OVERHEAD
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 5, 6)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == PRODUCER
    assert header.codec is Codec.LZ4
    assert header.has_producer
    assert header.attributes == Codec.LZ4
    assert (header.base_timestamp, header.max_timestamp) == (1_700_000_000_000, 1_700_009_999_999)


def test_the_sequence_after_the_largest_is_zero() -> None:
    assert parse_header(ours(Codec.NONE)).last_sequence == (2**31 - 2 + 5) % 2**31 == 3
    assert changed(base_sequence=-1).header.last_sequence == -1
    assert changed(base_sequence=2**31 - 6).header.last_sequence == 2**31 - 1


def test_a_buffer_splits_into_its_batches_without_a_copy() -> None:
    first, second = ours(Codec.NONE), ours(Codec.ZSTD)
    batches = split_batches(first + second)
    assert [bytes(batch.data) for batch in batches] == [first, second]
    assert all(isinstance(batch.data, memoryview) for batch in batches)
    assert split_batches(b"") == []


def test_a_batch_that_is_cut_short_is_corrupt() -> None:
    data = ours(Codec.NONE)
    for end in (1, HEADER_BYTES - 1, HEADER_BYTES, len(data) - 1):
        with pytest.raises(CorruptBatch):
            split_batches(data[:end])
    with pytest.raises(CorruptBatch):
        split_batches(data + b"\0")


def test_every_flipped_bit_from_the_attributes_on_is_noticed() -> None:
    # requirement: M3
    data = bytearray(ours(Codec.NONE, RECORDS[:3]))
    for position in range(17, len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            with pytest.raises(CorruptBatch):
                check_batch(split_batches(data)[0])
            data[position] ^= 1 << bit
    check_batch(one_batch(bytes(data)))


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": 1},
        {"batch_length": 48},
        {"batch_length": -1},
        {"batch_length": 2**31 - 1},
        {"base_offset": -1},
        {"last_offset_delta": -1},
        {"record_count": -1},
    ],
    ids=str,
)
def test_a_header_that_makes_no_sense_is_corrupt(fields: dict[str, int]) -> None:
    header = parse_header(ours(Codec.NONE))._replace(**fields)
    with pytest.raises(CorruptBatch, match=next(iter(fields))):
        parse_header(struct.pack(">qiibIhiqqqhii", *header))


def test_an_unknown_codec_is_corrupt_wherever_it_is_met() -> None:
    batch = changed(attributes=5)
    for look in (lambda: batch.header.codec, lambda: validate(batch), lambda: read_records(batch)):
        with pytest.raises(CorruptBatch, match="codec 5"):
            look()


def test_a_sound_batch_may_be_produced() -> None:
    for codec in Codec:
        validate(one_batch(ours(codec)))
    validate(changed(leader_epoch=9))
    validate(changed(producer_id=-1, producer_epoch=-1, base_sequence=-1))


def test_a_batch_above_the_topics_limit_is_too_large() -> None:
    data = ours(Codec.NONE)
    validate(one_batch(data), bytes_max=len(data))
    with pytest.raises(RecordTooLarge) as caught:
        validate(one_batch(data), bytes_max=len(data) - 1)
    assert caught.value.details == {"limit_bytes": len(data) - 1}


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 5},
        {"record_count": 7},
        {"last_offset_delta": 6},
        {"record_count": 0},
        {"record_count": RECORD_COUNT_MAX + 1, "last_offset_delta": RECORD_COUNT_MAX},
    ],
    ids=str,
)
def test_a_count_that_is_not_one_more_than_the_last_delta_is_corrupt(fields: dict[str, int]) -> None:
    with pytest.raises(CorruptBatch, match="record_count"):
        validate(changed(**fields))


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"base_offset": 1}, "/base_offset"),
        ({"attributes": CONTROL_BIT}, "/attributes"),
        ({"attributes": DELETE_HORIZON_BIT}, "/attributes"),
        ({"attributes": APPEND_TIME_BIT}, "/attributes"),
        ({"producer_id": -2}, "/producer_id"),
        ({"base_sequence": -1}, "/base_sequence"),
        ({"producer_epoch": -1}, "/base_sequence"),
        ({"attributes": TRANSACTIONAL_BIT}, "/attributes"),
    ],
    ids=str,
)
def test_what_is_a_brokers_to_set_is_refused_by_name(fields: dict[str, int], pointer: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        validate(changed(**fields))
    errors = caught.value.details["errors"]
    assert isinstance(errors, list)
    assert errors[0].startswith(f"{pointer}: ")


def test_stamping_touches_twelve_bytes_and_leaves_the_producers_checksum() -> None:
    # requirement: L8
    data = ours(Codec.GZIP)
    stamped = stamp(data, base_offset=2**40, leader_epoch=77, append_time_ms=None)
    assert (stamped.base_offset, stamped.leader_epoch) == (2**40, 77)
    assert stamped.data[8:12] == data[8:12]
    assert stamped.data[16:] == data[16:]
    assert data == ours(Codec.GZIP)
    check_batch(stamped)


def test_what_can_be_written_to_is_stamped_in_place_and_unstamped_in_a_copy() -> None:
    # requirement: L8
    first, second = ours(Codec.NONE), ours(Codec.ZSTD)
    body = bytearray(first + second)
    for place, batch in zip((5, 9), split_batches(body), strict=True):
        stamped = stamp(batch.data, base_offset=place, leader_epoch=3, append_time_ms=None)
        check_batch(stamped)
    assert [batch.base_offset for batch in split_batches(body)] == [5, 9]
    again = unstamped(body)
    assert [batch.base_offset for batch in split_batches(body)] == [5, 9]
    assert bytes(again)[16 : len(first)] == first[16:]
    for batch in split_batches(again):
        validate(batch)
    assert unstamped(first) is first


def test_a_batch_that_has_an_append_time_may_go_to_a_topic_without() -> None:
    # requirement: L8
    body = bytearray(ours(Codec.NONE))
    stamp(body, base_offset=5, leader_epoch=3, append_time_ms=1234)
    assert split_batches(body)[0].header.max_timestamp == 1234
    for batch in split_batches(unstamped(body)):
        validate(batch, allow_append_time=False)
        validate(batch, allow_append_time=True)


def test_append_time_is_stamped_over_the_header_alone() -> None:
    # requirement: L8
    data = ours(Codec.SNAPPY)
    stamped = stamp(data, base_offset=9, leader_epoch=1, append_time_ms=1234)
    check_batch(stamped)
    assert stamped.header.is_append_time
    assert stamped.header.codec is Codec.SNAPPY
    assert stamped.header.max_timestamp == 1234
    assert stamped.data[HEADER_BYTES:] == data[HEADER_BYTES:]
    assert {record.timestamp_ms for record in read_records(stamped)} == {1234}


def test_a_fetched_batch_can_be_produced_again_once_its_place_is_reset() -> None:
    # requirement: L8
    fetched = stamp(ours(Codec.NONE), base_offset=9, leader_epoch=1, append_time_ms=1234)
    again = bytearray(fetched.data)
    again[0:8], again[12:16] = bytes(8), b"\xff" * 4
    batch = one_batch(bytes(again))
    validate(batch, allow_append_time=True)
    with pytest.raises(InvalidRecord):
        validate(batch, allow_append_time=False)


def test_producer_fields_can_be_written_in_later() -> None:
    without = one_batch(ours(Codec.LZ4))
    batch = one_batch(with_producer(without.data, 12, 3, 45))
    validate(batch)
    expected = without.header._replace(
        producer_id=12, producer_epoch=3, base_sequence=45, crc=batch.header.crc
    )
    assert batch.header == expected
    assert batch.data[HEADER_BYTES:] == without.data[HEADER_BYTES:]


def test_an_empty_batch_left_by_compaction_reads_as_no_records() -> None:
    for codec in Codec:
        header = BatchHeader(50, 0, 3, 2, 0, int(codec), 9, 1, 2, 7, 0, 0, 0)
        batch = one_batch(encode_batch(header, b""))
        check_batch(batch)
        assert read_records(batch) == []
        assert batch.last_offset == 59
