"""Records of retry and dead-letter topics: what failed comes back as its producer sent it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.errors import InvalidRecord
from raftlog.records.failures import KEY, ORIGIN, FailedRecord, Origin, origin_of, tombstone

optional_bytes = st.none() | st.binary(max_size=20)
names = st.text(max_size=10) | st.sampled_from([ORIGIN, KEY, "raftlog.tag", "raftlog.attempts"])
failed_records = st.builds(
    FailedRecord,
    origin=st.builds(
        Origin, st.sampled_from(["orders", "a.b-c"]), st.integers(0, 9), st.integers(0, 2**63 - 1)
    ),
    key=optional_bytes,
    value=optional_bytes,
    headers=st.lists(st.tuples(names, optional_bytes), max_size=4).map(tuple),
    timestamp_ms=st.integers(-1, 2**53),
    attempts=st.integers(0, 2**31),
    reason=st.text(max_size=1000).filter(lambda text: text == text.encode(errors="replace").decode()),
    failed_ms=st.integers(0, 2**53),
    redrives=st.integers(0, 9),
)


@given(failed_records)
def test_a_record_comes_back_from_both_topics(failed: FailedRecord) -> None:
    # requirement: A7
    dead = failed.as_dead_letter()
    assert dead.key == failed.id.encode()
    assert origin_of(failed.id) == failed.origin
    assert failed.redriven().id != failed.id  # the tombstone does not settle a later failure
    assert dead.value is not None  # it would be a tombstone
    assert FailedRecord.from_dead_letter(dead.value, dead.headers, failed.timestamp_ms) == failed
    retry = failed.as_retry()
    assert (retry.key, retry.value) == (failed.key, failed.value)
    assert FailedRecord.from_retry(retry.key, retry.value, retry.headers, failed.timestamp_ms) == failed


# requirement: A7
@pytest.mark.parametrize(("stored", "sent"), [(-(2**63), -1), (-2, -1), (2**63 - 1, 2**63 - 2)])
def test_a_timestamp_that_cannot_be_sent_becomes_the_nearest(stored: int, sent: int) -> None:
    failed = FailedRecord(Origin("orders", 0, 1), None, b"v", (), stored, 1, "bad", 5)
    retry, dead = failed.as_retry(), failed.as_dead_letter()
    assert (retry.timestamp_ms, dead.timestamp_ms) == (sent, sent)
    assert FailedRecord.from_retry(None, b"v", retry.headers, stored).timestamp_ms == sent
    assert FailedRecord.from_dead_letter(b"v", dead.headers, stored).timestamp_ms == sent


# requirement: A7
@given(failed_records)
def test_a_record_without_its_contents_says_where_they_are(failed: FailedRecord) -> None:
    letter = replace(failed, key=b"k" * (1 << 20)).without_contents()
    assert (letter.key, letter.value, letter.headers) == (None, None, ())
    assert letter.reason.endswith(f"are at {failed.origin} only)")
    dead = letter.as_dead_letter()
    assert FailedRecord.from_dead_letter(b"", dead.headers, letter.timestamp_ms) == letter
    assert failed.without_contents().key == failed.key


@pytest.mark.parametrize("origin", [b"", b"orders", b"orders/1", b"orders/x/1", b"orders/1/-1", b"/1/1"])
def test_a_foreign_record_is_named(origin: bytes) -> None:
    with pytest.raises(InvalidRecord, match="failed record"):
        FailedRecord.from_retry(b"k", b"v", ((ORIGIN, origin),), 0)


def test_a_settled_dead_letter_is_a_tombstone_of_its_key() -> None:
    # requirement: A7
    settled = tombstone("orders/1/7", "discarded")
    assert (settled.key, settled.value) == (b"orders/1/7", None)


TOO_LONG = f"orders/1/2#{'1' * 20}"


@pytest.mark.parametrize(
    "text",
    ["", "orders", "orders/1/2#", "orders/1/2#0", "orders/1/2#x", "orders/1/2#1#1", "/1/2#1", TOO_LONG],
)
def test_a_text_that_is_no_id_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        origin_of(text)
