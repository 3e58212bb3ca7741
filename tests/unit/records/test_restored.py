"""Records that were stored before become batches without holes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftlog.records.batch import check_batch, split_batches
from raftlog.records.reader import read_records
from raftlog.records.restored import PlacedRecord, RestoredBatches

# requirement: A8

PARTS = st.none() | st.binary(max_size=40)
RECORDS = st.builds(
    PlacedRecord,
    st.integers(1, 1 << 33),  # the distance from the record before
    st.integers(-1, 1 << 45) | st.sampled_from([1, 2]),
    st.booleans(),
    PARTS,
    PARTS,
    st.lists(st.tuples(st.text(max_size=3), PARTS), max_size=2).map(tuple),
)


@given(st.integers(0, 1 << 40), st.lists(RECORDS, max_size=20), st.integers(0, 1 << 33))
def test_batches_have_each_record_and_follow_one_another(
    first: int, steps: list[PlacedRecord], rest: int
) -> None:
    batches, at, placed = RestoredBatches(first, 1 << 20), first - 1, list[PlacedRecord]()
    for step in steps:
        at += step.offset
        placed.append(step._replace(offset=at))
        batches.add(placed[-1])
    found = split_batches(batches.taken(at + 1 + rest))
    read = []
    for batch in found:
        check_batch(batch)
        for one in read_records(batch):
            kind = batch.header.is_append_time
            read.append(PlacedRecord(one.offset, one.timestamp_ms, kind, one.key, one.value, one.headers))
    assert read == placed
    ends = [first, *(batch.last_offset + 1 for batch in found)]
    assert [batch.base_offset for batch in found] == ends[:-1]
    assert ends[-1] == at + 1 + rest


def test_one_record_is_enough_for_a_reader_of_few_bytes() -> None:
    batches = RestoredBatches(0, 1)
    assert not batches.is_full
    batches.add(PlacedRecord(3, 0, False, None, b"value"))
    assert batches.is_full
