"""Anomalies of transactions and assignments: a smallest guilty history of each, and a near miss."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.checkers import Anomaly, Evidence, Severity, check, realtime_lags, verdict
from chaos.checkers.commits import committed_offsets
from chaos.history import (
    Assign,
    AssignKind,
    Commit,
    Committed,
    Decision,
    End,
    History,
    Look,
    Open,
    Outcome,
    Poll,
    Send,
)
from chaos.registers import Verdict

Operation = Send | Poll | Assign | Look | Commit | Committed | Open | End
COMMITTED, ABORTED = Decision.COMMITTED, Decision.ABORTED
ACKNOWLEDGED, FAILED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.FAILED, Outcome.UNKNOWN


def sent(
    value: str,
    offset: int | None,
    *,
    at: float,
    process: int = 1,
    partition: int = 0,
    txn: int | None = None,
    outcome: Outcome = ACKNOWLEDGED,
) -> Send:
    return Send(
        process=process,
        partition=partition,
        value=value,
        invoked_s=at,
        completed_s=at + 1,
        outcome=outcome,
        offset=offset,
        txn=txn,
    )


def polled(
    values: str,
    *,
    at: float,
    base: int = 0,
    process: int = 9,
    partition: int = 0,
    txn: int | None = None,
    outcome: Outcome = ACKNOWLEDGED,
    rebalanced: bool = False,
) -> Poll:
    """Each letter is a value; a space is an offset that is not read."""
    records = tuple((base + place, value) for place, value in enumerate(values) if value != " ")
    return Poll(
        process=process,
        partition=partition,
        invoked_s=at,
        completed_s=at + 1,
        records=records,
        outcome=outcome,
        txn=txn,
        rebalanced=rebalanced,
    )


def assigned(*partitions: int, at: float, kind: AssignKind = AssignKind.ASSIGN) -> Assign:
    return Assign(process=9, kind=kind, partitions=partitions, invoked_s=at, completed_s=at + 1)


def committed(offset: int, *, at: float, outcome: Outcome = ACKNOWLEDGED, partition: int = 0) -> Commit:
    return Commit(
        group="g", partition=partition, offset=offset, invoked_s=at, completed_s=at + 1, outcome=outcome
    )


def fetched(offset: int | None, *, at: float) -> Committed:
    return Committed(group="g", partition=0, offset=offset, invoked_s=at, completed_s=at + 1)


def opened(*, at: float, process: int = 1, name: str = "copy", outcome: Outcome = ACKNOWLEDGED) -> Open:
    return Open(process=process, transactional_id=name, invoked_s=at, completed_s=at + 1, outcome=outcome)


def ended(
    decided: Decision | None, *, at: float, asked: Decision = COMMITTED, txn: int = 1, process: int = 1
) -> End:
    return End(process=process, txn=txn, asked=asked, invoked_s=at, completed_s=at + 1, decided=decided)


def looked(high_watermark: int, last_stable: int | None, *, at: float, partition: int = 0) -> Look:
    return Look(
        partition=partition,
        invoked_s=at,
        completed_s=at + 1,
        high_watermark=high_watermark,
        last_stable=last_stable,
    )


def history(operations: Sequence[Operation]) -> History:
    """Without a final read."""
    found = History(has_final_read=False)
    for operation in operations:
        match operation:
            case Send():
                found.sends.append(operation)
            case Poll():
                found.polls.append(operation)
            case Look():
                found.looks.append(operation)
            case Assign():
                found.assigns.append(operation)
            case Commit():
                found.commits.append(operation)
            case Committed():
                found.committed.append(operation)
            case Open():
                found.opens.append(operation)
            case End():
                found.ends.append(operation)
    return found


def abc() -> list[Operation]:
    return [sent("a", 0, at=1), sent("b", 1, at=3), sent("c", 2, at=5)]


def crossed(first: int, second: int) -> list[Operation]:
    """Two transactions of two processes that each write to two partitions; ``second`` in partition 1."""
    return [
        sent("a", 0, at=1, txn=1),
        sent("c", second, at=1, txn=1, partition=1),
        sent("b", 1, at=1, txn=2, process=2),
        sent("d", first, at=1, txn=2, process=2, partition=1),
    ]


def read_each_other(later: str) -> list[Operation]:
    """A transaction reads a value of another one, which reads ``later`` in partition 1."""
    return [
        sent("a", 0, at=1, txn=1),
        sent("x", 0, at=1, process=3, partition=1),
        polled(later, base=1 if later == "b" else 0, at=1, process=1, txn=1, partition=1),
        sent("b", 1, at=1, txn=2, process=2, partition=1),
        polled("a", at=1, process=2, txn=2),
    ]


SUBSCRIBE = AssignKind.SUBSCRIBE
BAD, NORMAL = Severity.BAD, Severity.NORMAL
Case = tuple[str, Severity, list[Operation], list[Operation]]
CASES: list[Case] = [
    (
        "inconsistent-offsets",  # polls of every outcome count
        BAD,
        [sent("a", 0, at=1), sent("b", None, at=1, outcome=UNKNOWN), polled("b", at=3, outcome=UNKNOWN)],
        [sent("a", 0, at=1), sent("b", 0, at=1, outcome=UNKNOWN), polled("a", at=3)],  # never committed
    ),
    (
        "lost-write",
        BAD,
        [*abc(), polled("a c", at=7)],
        [*abc(), polled("ab", at=7)],  # c is only late
    ),
    (
        "lost-write",  # of an unknown outcome, but another value of its transaction was read
        BAD,
        [
            sent("a", 0, at=1, txn=1, outcome=UNKNOWN),
            sent("b", 0, at=1, txn=1, outcome=UNKNOWN, partition=1),
            sent("c", 1, at=3),
            polled("b", at=5, partition=1),
            polled("c", base=1, at=5),
        ],
        [
            sent("a", 0, at=1, txn=1, outcome=UNKNOWN),
            sent("b", 0, at=1, txn=2, process=2, outcome=UNKNOWN, partition=1),
            sent("c", 1, at=3, process=3),
            polled("b", at=5, partition=1),
            polled("c", base=1, at=5),
        ],
    ),
    ("unseen", NORMAL, [*abc(), polled("ab", at=7)], [*abc(), polled("abc", at=7)]),
    (
        "G1a",
        BAD,
        [sent("a", None, at=1, outcome=FAILED), polled("a", at=3)],
        [sent("a", None, at=1, outcome=FAILED), polled("a", at=3, outcome=UNKNOWN)],
    ),
    (
        "precommitted-read",
        BAD,
        [sent("a", 0, at=1, txn=1), polled("a", at=1, txn=1)],
        [sent("a", 0, at=1, txn=1), polled("a", at=3, txn=2)],
    ),
    (
        "int-poll-skip",
        BAD,
        [*abc(), polled("a c", at=7), polled("b", base=1, at=7, process=8)],
        [*abc(), polled("a c", at=7, rebalanced=True), polled("b", base=1, at=7, process=8)],
    ),
    (
        "int-poll-skip",  # from one poll of a transaction to its next
        BAD,
        [*abc(), polled("a", at=7, txn=1), polled("c", base=2, at=7, txn=1), polled("abc", at=9, process=8)],
        [*abc(), polled("a", at=7, txn=1), polled("bc", base=1, at=7, txn=1)],
    ),
    (
        "int-nonmonotonic-poll",
        BAD,
        [*abc(), polled("ab", at=7, txn=1), polled("bc", base=1, at=7, txn=1)],
        [*abc(), polled("ab", at=7, txn=1), polled("bc", base=1, at=7, txn=1, rebalanced=True)],
    ),
    (
        "poll-skip",
        BAD,
        [*abc(), polled("a", at=7), polled("c", base=2, at=9), polled("abc", at=9, process=8)],
        [  # an operation that did not succeed does not advance its process
            *abc(),
            polled("a", at=7),
            polled("b", base=1, at=9, outcome=UNKNOWN),
            polled("bc", base=1, at=11),
        ],
    ),
    (
        "poll-skip",  # a partition that stays assigned keeps its position
        BAD,
        [
            *abc(),
            polled("a", at=7),
            assigned(0, 1, at=9),
            polled("c", base=2, at=11),
            polled("abc", at=9, process=8),
        ],
        [
            *abc(),
            polled("a", at=7),
            assigned(1, at=9),
            polled("c", base=2, at=11),
            polled("abc", at=9, process=8),
        ],
    ),
    (
        "poll-skip",  # normal for members of a group
        NORMAL,
        [
            *abc(),
            assigned(0, at=6, kind=SUBSCRIBE),
            polled("a", at=7),
            polled("c", base=2, at=9),
            polled("b", base=1, at=9, process=8),
        ],
        [*abc(), assigned(0, at=6, kind=SUBSCRIBE), polled("a", at=7), polled("bc", base=1, at=9)],
    ),
    (
        "nonmonotonic-poll",
        BAD,
        [*abc(), polled("abc", at=7), polled("b", base=1, at=9)],
        [*abc(), polled("abc", at=7), assigned(at=8, kind=AssignKind.CRASH), polled("b", base=1, at=9)],
    ),
    (
        "nonmonotonic-poll",
        NORMAL,
        [*abc(), assigned(0, at=6, kind=SUBSCRIBE), polled("abc", at=7), polled("b", base=1, at=9)],
        [*abc(), assigned(0, at=6, kind=SUBSCRIBE), polled("ab", at=7), polled("c", base=2, at=9)],
    ),
    (
        "nonmonotonic-send",
        BAD,
        [sent("a", 1, at=1), sent("b", 0, at=3)],
        [sent("a", 1, at=1), sent("b", 0, at=1, process=2)],
    ),
    (
        "int-nonmonotonic-send",
        BAD,
        [sent("a", 1, at=1, txn=1), sent("b", 0, at=1, txn=1)],
        [sent("a", 0, at=1, txn=1), sent("b", 1, at=1, txn=1)],
    ),
    (
        "int-send-skip",
        NORMAL,
        [sent("a", 0, at=1, txn=1), sent("b", 1, at=1, process=2), sent("c", 2, at=1, txn=1)],
        [sent("a", 0, at=1, txn=1), sent("b", 3, at=1, process=2), sent("c", 2, at=1, txn=1)],  # a hole
    ),
    ("G0", NORMAL, crossed(0, 1), crossed(1, 0)),
    ("G1c", BAD, read_each_other("b"), read_each_other("x")),
    (
        "G1c",  # with an edge between writers
        NORMAL,
        [
            sent("a", 0, at=1, txn=1),
            polled("b", base=0, partition=1, process=1, at=1, txn=1),
            sent("b", 0, at=1, txn=2, partition=1, process=2),
            sent("c", 1, at=1, txn=2, process=2),
        ],
        [
            sent("a", 1, at=1, txn=1),
            polled("b", base=0, partition=1, process=1, at=1, txn=1),
            sent("b", 0, at=1, txn=2, partition=1, process=2),
            sent("c", 0, at=1, txn=2, process=2),
        ],
    ),
    (
        "torn-transaction",
        BAD,
        [
            sent("a", 0, at=1, txn=1),
            sent("b", 1, at=1, txn=1, partition=1),
            sent("c", 0, at=0, partition=1, process=2),
            sent("d", 2, at=3, partition=1),
            polled("a", at=5),
            polled("c d", at=5, partition=1),
        ],
        [
            sent("a", 0, at=1, txn=1),
            sent("b", 1, at=1, txn=1, partition=1),
            sent("c", 0, at=0, partition=1, process=2),
            polled("a", at=5),
            polled("c", at=5, partition=1),  # not past it yet
        ],
    ),
    (
        "consume-counts",
        NORMAL,
        [
            sent("a", 0, at=1),
            assigned(0, at=2, kind=SUBSCRIBE),
            polled("a", at=3, txn=1),
            polled("a", at=5, txn=2),
        ],
        [
            sent("a", 0, at=1),
            assigned(0, at=2, kind=SUBSCRIBE),
            polled("a", at=3, txn=1, outcome=UNKNOWN),
            polled("a", at=5, txn=2),
        ],
    ),
    (
        "committed-offset",
        BAD,
        [committed(5, at=1), committed(7, at=3), fetched(5, at=5)],
        [committed(5, at=1), committed(7, at=3, outcome=UNKNOWN), fetched(5, at=5)],
    ),
    (
        "G0-process",  # the later transaction of a process is the earlier one in the log
        NORMAL,
        [sent("a", 1, at=1, txn=1), sent("b", 0, at=3, txn=2)],
        [sent("a", 0, at=1, txn=1), sent("b", 1, at=3, txn=2)],
    ),
    (
        "G0-realtime",  # the same of two processes, one after the other
        NORMAL,
        [sent("a", 1, at=1, txn=1), sent("b", 0, at=3, txn=2, process=2)],
        [sent("a", 1, at=1, txn=1), sent("b", 0, at=1.5, txn=2, process=2)],
    ),
    (
        "G1c-process",  # a transaction reads what a later one of its process writes
        BAD,
        [
            sent("x", 0, at=1, txn=1),
            polled("a", at=1, process=1, txn=1, partition=1),
            sent("a", 0, at=3, txn=2, partition=1),
        ],
        [
            sent("x", 0, at=1, txn=1),
            polled("a", at=1, process=1, txn=1, partition=1),
            sent("a", 0, at=1, txn=2, process=2, partition=1),
        ],
    ),
    (
        "G1c-realtime",  # a transaction reads what one that begins later writes
        BAD,
        [
            sent("x", 0, at=1, txn=1),
            polled("a", at=1, process=1, txn=1, partition=1),
            sent("a", 0, at=3, txn=2, process=2, partition=1),
        ],
        [
            sent("x", 0, at=1, txn=1),
            polled("a", at=1, process=1, txn=1, partition=1),
            sent("a", 0, at=1.5, txn=2, process=2, partition=1),
        ],
    ),
    (
        "read-from-the-future",  # an end that has a value whose send had not begun
        BAD,
        [Look(partition=0, invoked_s=1, completed_s=2, high_watermark=1), sent("a", 0, at=3)],
        [Look(partition=0, invoked_s=1, completed_s=2, high_watermark=1), sent("a", 0, at=2)],
    ),
    (
        "G1a",  # a transaction that was aborted
        BAD,
        [sent("a", 0, at=1, txn=1, outcome=FAILED), ended(ABORTED, at=3), polled("a", at=5)],
        [sent("a", 0, at=1, txn=1, outcome=UNKNOWN), ended(None, at=3), polled("a", at=5)],
    ),
    (
        "decided-twice",
        BAD,
        [ended(COMMITTED, at=1), ended(ABORTED, at=3)],
        [ended(COMMITTED, at=1), ended(None, at=3), ended(ABORTED, at=5, txn=2)],
    ),
    (
        "decided-twice",  # both were asked for at the same time
        BAD,
        [ended(COMMITTED, at=1), ended(ABORTED, at=1, asked=ABORTED)],
        [ended(ABORTED, at=1), ended(ABORTED, at=1, asked=ABORTED)],
    ),
    (
        "unasked-commit",
        BAD,
        [ended(COMMITTED, at=1, asked=ABORTED), ended(COMMITTED, at=3)],
        [ended(None, at=1), ended(COMMITTED, at=3, asked=ABORTED)],
    ),
    (
        "fenced-write",  # the transaction is aborted, so no reader sees the value
        BAD,
        [
            opened(at=1),
            opened(at=3, process=2),
            sent("a", 0, at=5, txn=1, outcome=FAILED),
        ],
        [
            opened(at=1),
            opened(at=3, process=2),
            sent("a", 0, at=3.5, txn=1, outcome=FAILED),  # before the response to the second opening
            sent("b", None, at=5, txn=1, outcome=FAILED),
        ],
    ),
    (
        "fenced-write",  # nobody told its producer, but it was read
        BAD,
        [
            opened(at=1),
            opened(at=3, process=2),
            sent("a", None, at=5, txn=1, outcome=UNKNOWN),
            polled("a", at=7),
        ],
        [
            opened(at=1),
            opened(at=3, process=2, name="other"),
            sent("a", None, at=5, txn=1, outcome=UNKNOWN),
            polled("a", at=7),
        ],
    ),
    (
        "fenced-write",  # a commit
        BAD,
        [opened(at=1), opened(at=3, process=2), ended(COMMITTED, at=5)],
        [opened(at=1), opened(at=3, process=2), ended(None, at=2), ended(COMMITTED, at=5)],
    ),
    (
        "fenced-write",  # by openings one after the other
        BAD,
        [opened(at=1), opened(at=2.5, process=2), ended(COMMITTED, at=5)],
        [opened(at=1), opened(at=1.5, process=2), ended(COMMITTED, at=5)],
    ),
    (
        "stale-read",  # of the last stable offset
        BAD,
        [looked(9, 7, at=1), looked(9, 5, at=3)],
        [looked(9, 7, at=1), looked(9, 5, at=1.5), looked(9, 5, at=3, partition=1)],
    ),
]


@pytest.mark.parametrize(
    ("kind", "severity", "guilty", "near"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_each_anomaly_is_found_and_its_near_miss_is_not(
    kind: str, severity: Severity, guilty: list[Operation], near: list[Operation]
) -> None:
    found = check(history(guilty))
    assert (kind, severity) in {(anomaly.kind, anomaly.severity) for anomaly in found}
    assert kind not in {anomaly.kind for anomaly in check(history(near))}
    assert verdict(found) is Verdict.INVALID or severity is NORMAL


def test_readers_that_are_held_back_in_the_end_are_found() -> None:
    """Only the last look at each partition counts: transactions may still end before it."""
    guilty, near = History(), History()
    guilty.final_looks = [looked(9, 9, at=1), looked(9, 7, at=3, partition=1)]
    near.final_looks = [looked(9, 7, at=1), looked(9, 9, at=3), looked(9, None, at=5, partition=1)]
    near.looks = [looked(9, 5, at=0)]
    assert [(one.kind, one.partition, one.is_bad) for one in check(guilty)] == [("held-back", 1, True)]
    assert check(near) == []


def test_cycles_need_the_order_of_writes_only_where_asked() -> None:
    (case,) = [case for case in CASES if case[:2] == ("G1c", NORMAL)]
    assert "G1c" not in {anomaly.kind for anomaly in check(history(case[2]), ww_deps=False)}


def test_every_documented_anomaly_has_a_guilty_history_and_a_near_miss() -> None:
    page = (Path(__file__).parents[3] / "docs" / "chaos.md").read_text()
    table = page[page.index("| anomaly | meaning | bad |") :].split("\n\n")[0]
    documented = {name for row in table.splitlines() for name in re.findall("`([^`]+)`", row.split("|")[1])}
    tests = Path(__file__).with_name("test_checkers.py").read_text()  # where those without transactions are
    cases = tests[tests.index("CASES: list[Case] = [") : tests.index("@pytest.mark.parametrize")]
    assert {case[0] for case in CASES} | {"held-back"} | {
        *re.findall(r'^        "([\w-]+)",', cases, re.M)
    } == documented


def test_twice_consumed_values_are_bad_where_exactly_once_is_promised() -> None:
    (case,) = [case for case in CASES if case[0] == "consume-counts"]
    kinds = {anomaly.kind: anomaly.is_bad for anomaly in check(history(case[2]), exactly_once=True)}
    assert kinds["consume-counts"]


def test_a_search_that_is_given_up_makes_the_verdict_unknown() -> None:
    many = history([*(committed(number, at=0) for number in range(12)), fetched(99, at=2)])
    found = [*committed_offsets(Evidence(many), steps_max=1000)]
    assert verdict(found) is Verdict.UNKNOWN
    assert verdict([*found, Anomaly("duplicate", 0, "")]) is Verdict.INVALID
    assert verdict([Anomaly("G0", -1, "", NORMAL)]) is Verdict.VALID


def test_the_lag_of_a_poll_is_how_long_the_next_value_was_known() -> None:
    found = history([*abc(), polled("a", at=3), polled("b", base=1, at=10), polled("c", base=2, at=12)])
    assert [round(lag_s, 3) for _, lag_s in realtime_lags(found)] == [0.0, 4.0, 0.0]
