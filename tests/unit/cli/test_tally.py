"""Counting what became of records."""

from __future__ import annotations

import signal
import threading

import pytest

from api.cli.rejects import Rejects
from api.cli.tally import Tally, percentile
from raftlog.client.options import Duration
from raftlog.client.receipts import Batch, BlockingPendingReceipt, Durability, Stored
from raftlog.errors import CommitUnknown, NotSent, RaftlogError, RecordTooLarge

STORED = Stored(0, 0, Durability("quorum", True, True, 2, 1))


def sent(
    tally: Tally, first_line: int, count: int, of: type[BlockingPendingReceipt] = BlockingPendingReceipt
) -> Batch:
    """A block with one batch of so many records."""
    batch = Batch("t", 0, timestamp_ms=0, due=0, deadline=0, lock=threading.Lock())
    tally.block(first_line, [b"0123456789"] * count).extend(of(batch, n) for n in range(count))
    return batch


class Interrupting(BlockingPendingReceipt):
    """Ctrl-C comes whenever its outcome is asked for."""

    def exception(self, timeout: Duration | None = None) -> RaftlogError | None:
        """The outcome."""
        signal.raise_signal(signal.SIGINT)
        return super().exception(timeout)


def test_blocks_are_counted_once_they_are_done() -> None:
    tally = Tally()
    first = sent(tally, 1, 3)
    tally.count()
    assert tally.stored == 0
    first.finish(STORED)
    second = sent(tally, 4, 2)
    tally.count()
    assert tally.stored == 3
    second.finish(STORED)
    tally.count()
    assert (tally.stored, tally.stored_bytes, tally.exit_code) == (5, 50, 0)
    assert tally.summary(acknowledged=True).startswith("5 records, 0.0 MB in ")


def test_one_record_is_told_as_one() -> None:
    tally = Tally()
    sent(tally, 1, 1).finish(STORED)
    tally.count()
    assert tally.summary(acknowledged=True).startswith("1 record, 0.0 MB in ")


def test_ctrl_c_while_counting_is_raised_when_all_are_counted() -> None:
    tally = Tally()
    for first_line in (1, 4):
        sent(tally, first_line, 3, Interrupting).finish(STORED)
    with pytest.raises(KeyboardInterrupt):
        tally.count()
    assert tally.stored == 6
    tally.count()
    assert (tally.stored, tally.exit_code) == (6, 0)


@pytest.mark.parametrize(
    ("errors", "code"),
    [
        ([RecordTooLarge("big")], 1),
        ([NotSent("nobody"), RecordTooLarge("big")], 4),
        ([RecordTooLarge("big"), CommitUnknown("late"), NotSent("nobody")], 3),
    ],
)
def test_the_gravest_failure_decides_how_it_ends(errors: list[RaftlogError], code: int) -> None:
    tally = Tally()
    for number, error in enumerate(errors):
        sent(tally, 1 + 10 * number, 2).finish(error)
        tally.count()
    assert tally.has_failed
    assert tally.exit_code == code
    assert len(tally.complaints()) == len(errors)


def test_only_a_record_that_is_refused_alone_is_rejected() -> None:
    rejects = Rejects(limit=10)
    tally = Tally(rejects)
    batch = sent(tally, 1, 1)
    tally.block(2, [b"0123456789"]).append(BlockingPendingReceipt(batch, 1))
    sent(tally, 3, 1).finish(RecordTooLarge("alone"))
    batch.finish(RecordTooLarge("two together"))
    tally.count()
    assert rejects.count == 1
    assert tally.complaints() == [
        "error (record_too_large): records refused: 2; the first of them, line 1: two together"
    ]


def test_a_complaint_names_the_first_line() -> None:
    tally = Tally()
    tally.refuse(9, RecordTooLarge("later"))
    tally.refuse(4, RecordTooLarge("first"))
    assert tally.complaints() == [
        "error (record_too_large): records refused: 2; the first of them, line 4: first"
    ]


def test_all_of_few_records_are_timed_and_some_of_many() -> None:
    tally = Tally()
    assert all(tally.timer(line) for line in range(1, 1_001))
    assert sum(tally.timer(line) is not None for line in range(1_001, 2_601)) == 100


def test_percentiles_count_every_number() -> None:
    counts = {1: 50, 7: 49, 100: 1}
    assert [percentile(counts, part) for part in (0.01, 0.5, 0.51, 0.99, 1.0)] == [1, 1, 7, 7, 100]
