"""Foreign bytes end well or in ``CorruptBatch``; records come back as they were sent."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raftlog.errors import CorruptBatch, InvalidRecord, RecordTooLarge
from raftlog.records.batch import (
    HEADER_BYTES,
    Batch,
    Codec,
    check_batch,
    encode_batch,
    parse_header,
    split_batches,
    stamp,
    validate_produced,
)
from raftlog.records.builder import BatchBuilder, Record, build_batch
from raftlog.records.compression import compress
from raftlog.records.control import control_type
from raftlog.records.reader import check_records, iter_records, read_records
from tests.helpers.raw_records import raw_record

BYTES_MAX = 1 << 20
SOUND = {
    codec: build_batch(
        [Record(b"value" * 9, key=b"key", headers=(("name", b"1"), ("none", None)), timestamp_ms=9)] * 5,
        codec=codec,
        timestamp_ms=0,
    )
    for codec in Codec
}
EXTREMES = (-(2**63), -(2**31), -2, 2**31, 2**62, *(2**63 - below for below in (200, 100, 64, 40, 34, 33, 1)))

timestamps = st.integers(min_value=-1, max_value=2**63 - 2)
optional_bytes = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=20), optional_bytes), max_size=4).map(tuple)
records = st.builds(Record, optional_bytes, optional_bytes, headers, timestamps)
codecs = st.sampled_from(list(Codec))
numbers = {1: st.integers(-(2**7), 2**7 - 1), 2: st.integers(-(2**15), 2**15 - 1)}
numbers |= {4: st.integers(-(2**31), 2**31 - 1), 8: st.integers(-(2**63), 2**63 - 1)}
header_fields = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": numbers[8],
        "attributes": numbers[2],
        "last_offset_delta": st.integers(-1, 6) | numbers[4],
        "base_timestamp": numbers[8],
        "max_timestamp": numbers[8],
        "producer_id": st.integers(-2, 2) | numbers[8],
        "producer_epoch": numbers[2],
        "base_sequence": numbers[4],
        "record_count": st.integers(-1, 6) | numbers[4],
    },
)


def look_at_everything(data: bytes) -> None:
    """All that anyone does with foreign bytes; only the errors of bad input may come out."""
    try:
        batches = split_batches(data)
    except CorruptBatch:
        return
    for batch in batches:
        for look in (check_batch, read_records, control_type):
            try:
                look(batch)
            except CorruptBatch:
                continue
        try:
            validate_produced(batch, bytes_max=BYTES_MAX, allow_append_time=False)
        except (CorruptBatch, InvalidRecord, RecordTooLarge):
            continue
        stamp(batch.data, base_offset=5, leader_epoch=1, append_time_ms=7)


@given(st.binary(max_size=300))
def test_random_bytes_are_a_batch_or_corrupt(data: bytes) -> None:
    # requirement: M3
    look_at_everything(data)


# requirement: M3
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=lambda codec: codec.name)
@pytest.mark.parametrize("field", ["length", "key", "value", "header_count", "header_name", "header_value"])
def test_an_extreme_length_is_corrupt(field: str, codec: Codec) -> None:
    header = parse_header(SOUND[codec])._replace(record_count=2, last_offset_delta=1)
    for number in EXTREMES:
        body = raw_record() + raw_record(1, **{field: number})
        (batch,) = split_batches(encode_batch(header, compress(codec, body)))
        for look in (read_records, check_records, lambda batch: list(iter_records(batch))):
            with pytest.raises(CorruptBatch):
                look(batch)


@given(codecs, st.binary(max_size=300), st.integers(-1, 60))
def test_a_random_body_is_read_or_corrupt(codec: Codec, body: bytes, record_count: int) -> None:
    header = parse_header(SOUND[codec])
    look_at_everything(encode_batch(header._replace(record_count=record_count), body))


@given(codecs, header_fields)
def test_random_header_fields_are_understood_or_corrupt(codec: Codec, fields: dict[str, int]) -> None:
    data = SOUND[codec]
    look_at_everything(encode_batch(parse_header(data)._replace(**fields), data[HEADER_BYTES:]))


@given(codecs, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=4))
def test_flipped_bits_are_found_or_harmless(codec: Codec, flips: list[tuple[int, int]]) -> None:
    # requirement: M3
    data = bytearray(SOUND[codec])
    for position, bit in flips:
        data[position % len(data)] ^= 1 << bit
    look_at_everything(bytes(data))
    body = bytes(data[HEADER_BYTES:])
    look_at_everything(encode_batch(parse_header(SOUND[codec]), body))


@given(codecs, st.integers(0, 400), st.binary(max_size=20))
def test_a_batch_cut_short_or_with_more_behind_it_is_corrupt(codec: Codec, cut: int, tail: bytes) -> None:
    # requirement: M3
    data = SOUND[codec]
    look_at_everything(data[: len(data) - cut % len(data)])
    look_at_everything(data + tail)
    body = data[HEADER_BYTES:]
    look_at_everything(encode_batch(parse_header(data), body[: len(body) - cut % len(body)] + tail))


@given(st.lists(records, min_size=1, max_size=12), codecs)
@example([Record(None, timestamp_ms=-1), Record(None, timestamp_ms=2**63 - 2)], Codec.NONE)
@example([Record(None, timestamp_ms=2**63 - 2), Record(None, timestamp_ms=-1)], Codec.NONE)
def test_records_come_back_as_they_went_in(sent: list[Record], codec: Codec) -> None:
    # requirement: T9
    (batch,) = split_batches(build_batch(sent, codec=codec, timestamp_ms=0))
    validate_produced(batch, bytes_max=BYTES_MAX, allow_append_time=False)
    found = read_records(batch)
    assert [Record(it.value, it.key, it.headers, it.timestamp_ms) for it in found] == sent
    assert [it.offset for it in found] == list(range(len(sent)))
    assert batch.header.max_timestamp == max(it.timestamp_ms for it in found)


@given(st.lists(records, min_size=1, max_size=12))
def test_one_by_one_and_all_at_once_give_the_same_bytes(sent: list[Record]) -> None:
    builder = BatchBuilder()
    sizes = [builder.append(record) for record in sent]
    assert builder.build() == build_batch(sent, codec=Codec.NONE, timestamp_ms=0)
    assert all(smaller < larger for smaller, larger in itertools.pairwise(sizes))


@given(st.lists(codecs, max_size=5))
def test_concatenated_batches_split_where_they_were_joined(chosen: list[Codec]) -> None:
    batches: list[Batch] = split_batches(b"".join(SOUND[codec] for codec in chosen))
    assert [bytes(batch.data) for batch in batches] == [SOUND[codec] for codec in chosen]
