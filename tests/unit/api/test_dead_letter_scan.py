"""Which dead letters are open, found in parts of any size."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from api.resources.dead_letter_scan import URL_LETTERS_MAX, Cursor, Scan, Selection, letter_of
from partitions.values import FetchResult
from raftlog.errors import InvalidRequest
from raftlog.records.batch import Batch, stamp
from raftlog.records.builder import Record
from raftlog.records.failures import ATTEMPTS, FAILED_AT, ORIGIN, REASON, FailedRecord, Origin, tombstone
from raftlog.types import Offset
from tests.helpers.dead_letters import batch, letter, stored
from tests.helpers.fetching import fetch_result

ALL = Selection()
FOREIGN = Record(b"not ours", b"orders/0/1")


def log_of(batches: Sequence[Sequence[FailedRecord | Record]]) -> list[Batch]:
    """Stored batches, one after the other."""
    found: list[Batch] = []
    for records in batches:
        base = found[-1].last_offset + 1 if found else 0
        found.append(stamp(batch(*records), base_offset=base, leader_epoch=1, append_time_ms=None))
    return found


def fetched(log: Sequence[Batch], offset: int, count: int = 1 << 30) -> FetchResult:
    """At most ``count`` batches from an offset on."""
    taken = [each for each in log if each.last_offset >= offset][:count]
    end = log[-1].last_offset + 1 if log else 0
    data = b"".join(bytes(each.data) for each in taken)
    return fetch_result(data, taken[-1].last_offset + 1 if taken else offset, offset=offset, end=end)


def scanned(
    log: Sequence[Batch], cursor: Cursor, limit: int, selection: Selection = ALL, kept: int = URL_LETTERS_MAX
) -> Scan:
    """A scan in requests of one batch each, which continue at a cursor that was a text."""
    while True:
        scan = Scan(Cursor.parse(str(cursor)), selection, limit)
        scan.read(fetched(log, scan.at, 1), 1 << 20)
        if scan.is_complete:
            return scan
        cursor = scan.continued(kept)


def offsets(
    log: Sequence[Batch], limit: int, selection: Selection = ALL, kept: int = URL_LETTERS_MAX
) -> list[int]:
    """Where open dead letters are, page by page."""
    found: list[int] = []
    cursor: Cursor | None = Cursor(0)
    while cursor is not None:
        scan = scanned(log, cursor, limit, selection, kept)
        assert len(scan.offsets) <= limit
        found += scan.offsets
        cursor = scan.following(None)
    return found


events = st.one_of(
    st.builds(letter, st.integers(0, 6), reason=st.sampled_from(["late", "lost"])),
    st.builds(lambda offset: tombstone(str(Origin("orders", 0, offset)), "discarded"), st.integers(0, 6)),
    st.just(FOREIGN),
)


@given(
    st.lists(st.lists(events, min_size=1, max_size=4), max_size=8),
    st.integers(1, 5),
    st.sampled_from(["", "late"]),
    st.integers(1, 3),
)
def test_open_are_the_newest_records_that_are_dead_letters(
    batches: list[list[FailedRecord | Record]], limit: int, reason: str, kept: int
) -> None:
    # requirement: A7
    newest: dict[bytes | None, tuple[int, FailedRecord | None]] = {}
    for offset, record in enumerate(record for some in batches for record in some):
        each = stored(record, offset)
        newest[each.key] = (offset, letter_of(each))
    wanted = sorted(offset for offset, each in newest.values() if each is not None and reason in each.reason)
    assert offsets(log_of(batches), limit, Selection(reason=reason), kept) == wanted


def test_a_dead_letter_that_is_settled_during_the_scan_is_not_open() -> None:
    before = log_of([[letter(1)], [letter(2)]])
    scan = Scan(Cursor(0), ALL, 10)
    scan.read(fetched(before, 0, 1), 1 << 20)
    assert (scan.is_complete, list(scan.offsets)) == (False, [0])
    after = log_of([[letter(1)], [letter(2)], [tombstone(str(Origin("orders", 0, 1)), "redriven")]])
    assert list(scanned(after, scan.continued(URL_LETTERS_MAX), 10).offsets) == [1]


def test_later_failures_are_not_part_of_a_scan() -> None:
    """So that a worker that fails at once does not keep a redrive of all dead letters going."""
    scan = Scan(Cursor(0), ALL, 1)
    scan.read(fetched(log_of([[letter(1), letter(2)]]), 0), 1 << 20)
    cursor = scan.following(None)
    assert cursor is not None
    later = log_of([[letter(1), letter(2)], [letter(1), letter(3)]])
    page = scanned(later, cursor, 10)
    assert list(page.offsets) == [1]
    assert page.following(None) is None


def test_an_open_transaction_does_not_keep_a_scan_from_its_end() -> None:
    shown = fetched(log_of([[letter(1)]]), 0)
    scan = Scan(Cursor(0), ALL, 5)
    scan.read(replace(shown, high_watermark=Offset(9)), 1 << 20)
    assert (scan.is_complete, scan.offsets) == (True, [0])


def test_a_dead_letter_that_fails_again_during_the_scan_is_shown_once() -> None:
    scan = Scan(Cursor(0), ALL, 10)
    scan.read(fetched(log_of([[letter(1)], [letter(2)]]), 0, 1), 1 << 20)
    later = log_of([[letter(1)], [letter(2)], [letter(1, reason="again")]])
    page = scanned(later, scan.continued(URL_LETTERS_MAX), 10)
    assert list(page.offsets) == [1, 2]
    assert page.following(None) is None


def test_a_page_that_is_shown_in_part_continues_there() -> None:
    log = log_of([[letter(number) for number in range(5)]])
    scan = scanned(log, Cursor(0), 5)
    cursor = scan.following(3)
    assert cursor is not None
    assert list(scanned(log, cursor, 5).offsets) == [3, 4]


def test_a_cursor_is_short_and_loses_nothing() -> None:
    log = log_of([[letter(number)] for number in range(3 * URL_LETTERS_MAX + 7)])
    scan = Scan(Cursor(0), ALL, 1000)
    scan.read(fetched(log, 0, 250), 1 << 30)
    assert not scan.is_complete
    assert len(scan.offsets) == 250
    cursor = scan.continued(URL_LETTERS_MAX)
    assert len(str(cursor)) < 4000
    assert offsets(log, 1000) == list(range(len(log)))


def test_a_page_has_no_more_than_its_limit_whatever_its_cursor_has() -> None:
    log = log_of([[letter(number)] for number in range(10)])
    scan = Scan(Cursor(0), ALL, 1000)
    scan.read(fetched(log, 0, 8), 1 << 30)
    page = scanned(log, scan.continued(1000), 3)
    assert list(page.offsets) == [0, 1, 2]
    cursor = page.following(None)
    assert cursor is not None
    assert list(scanned(log, cursor, 100).offsets) == list(range(3, 10))


def test_a_scan_reads_no_more_than_it_may() -> None:
    log = log_of([[letter(number, value=bytes(1000))] for number in range(20)])
    scan = Scan(Cursor(0), ALL, 100)
    scan.read(fetched(log, 0), 5000)
    assert 5000 < scan.read_bytes < 7000
    assert scan.at < 10
    assert not scan.is_complete


def test_a_scan_goes_on_where_the_log_begins_and_ends_where_it_is_cut() -> None:
    scan = Scan(Cursor(0), ALL, 10)
    scan.move(7)
    assert (scan.at, scan.is_complete) == (7, False)
    cut = Scan(Cursor(0, at=9, end=12), ALL, 10)
    cut.move(0)
    assert cut.is_complete


def test_records_are_not_wrapped_in_cursor_text_that_no_broker_sent() -> None:
    nested = base64.urlsafe_b64encode(b"\x96\0\0\0\0\x90" + b"\x91" * 90_000 + b"\xc0").decode()
    for text in ("", "x", "AAAA", "é", "\ud800", str(Cursor(0))[:-1], str(Cursor(0, end=-2)), nested):
        with pytest.raises(InvalidRequest) as refused:
            Cursor.parse(text)
        assert refused.value.details["field"] == "page_token"


def test_a_selection_has_ids_a_part_of_the_reason_and_a_key() -> None:
    one = letter(1, key=b"u1", reason="ValueError: No such user")
    assert Selection.of(["orders/0/1"], "no SUCH", "u1", "id").has(one)
    assert not Selection.of(["orders/0/2"], None, None, "id").has(one)
    assert not Selection.of(None, "other", None, "id").has(one)
    assert not Selection.of(None, None, "u", "id").has(one)
    assert not Selection.of(None, None, "", "id").has(one)
    assert Selection.of(None, None, "", "id").has(letter(1, key=b""))
    assert not Selection.of(None, None, "", "id").has(letter(1, key=None))


def test_only_partitions_that_may_have_the_ids_are_read() -> None:
    assert list(Selection().partitions(3)) == [0, 1, 2]
    assert list(Selection.of(["orders/5/1", "orders/0/9"], None, None, "id").partitions(3)) == [0, 2]


@pytest.mark.parametrize("text", ["", "orders", "orders/1", "orders/1/x"])
def test_an_id_is_an_origin(text: str) -> None:
    with pytest.raises(InvalidRequest, match="topic/partition/offset"):
        Selection.of([text], None, None, "ids")


def foreign_records() -> list[Record]:
    dead = letter(1).as_dead_letter()
    numbers = {ATTEMPTS: b"9" * 40, FAILED_AT: b"-1", ORIGIN: b"orders/0/99999999999999999999", REASON: None}
    changed = [
        replace(dead, headers=tuple((name, wrong if name == each else old) for name, old in dead.headers))
        for each, wrong in numbers.items()
        if each != REASON
    ]
    other_key = replace(dead, key=b"orders/0/2")
    not_canonical = replace(dead, key=b"orders/0/01", headers=((ORIGIN, b"orders/0/01"), *dead.headers[1:]))
    return [FOREIGN, *changed, other_key, not_canonical, replace(dead, headers=dead.headers[1:])]


@pytest.mark.parametrize("record", foreign_records())
def test_a_foreign_record_is_skipped_and_counted(record: Record) -> None:
    assert letter_of(stored(record, 0)) is None
    scan = scanned(log_of([[record], [letter(7)]]), Cursor(0), 10)
    assert (list(scan.offsets), scan.foreign) == ([1], 0)  # by the last request of several
    whole = Scan(Cursor(0), ALL, 10)
    whole.read(fetched(log_of([[record], [letter(7)]]), 0), 1 << 20)
    assert whole.foreign == 1
