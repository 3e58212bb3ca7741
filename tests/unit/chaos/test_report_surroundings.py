"""The operations shown with an anomaly."""

from __future__ import annotations

import math
from dataclasses import replace

from chaos.checkers import Anomaly, check
from chaos.harness.report import shown, surroundings
from chaos.harness.report.surroundings import mentioned
from chaos.history import Commit, Committed, Decision, End, History, Look, Outcome, Poll, Send


def send(value: str, at_s: float, offset: int | None, partition: int = 0) -> Send:
    return Send(
        process=3,
        partition=partition,
        value=value,
        invoked_s=at_s,
        completed_s=math.inf if offset is None else at_s + 0.25,
        outcome=Outcome.UNKNOWN if offset is None else Outcome.ACKNOWLEDGED,
        offset=offset,
    )


def poll(at_s: float, *records: tuple[int, str], partition: int = 0) -> Poll:
    return Poll(process=8, partition=partition, invoked_s=at_s, completed_s=at_s + 0.5, records=records)


def test_values_are_those_quoted_in_the_detail() -> None:
    assert mentioned(2, "offset 4 held 'a' and \"it's\"") == {(2, "a"), (2, "it's")}
    assert mentioned(2, repr("\n'\"")) == {(2, "\n'\"")}


def test_without_values_the_offsets_count() -> None:
    assert mentioned(1, "broker 2 and broker 1 differ at 17") == {(1, 17)}
    assert mentioned(1, "the end was 5, and 9 before that") == {(1, 5), (1, 9)}


def test_a_quote_that_no_repr_wrote_is_taken_as_it_is() -> None:
    assert mentioned(0, "'a\nb'") == {(0, "a\nb")}


def test_operations_of_the_partition_are_ordered_by_time() -> None:
    history = History(
        sends=[send("b", 103, None), send("a", 101, 0), send("c", 101, 5), send("a", 100, 7, partition=1)],
        polls=[poll(102, (0, "a"), (1, "x")), poll(102, (1, "x"))],
        final=[poll(161, (0, "a"), (1, "b"), (2, "c"))],
    )
    assert surroundings(history, 0, "'b' and 'a' differ", start_s=100.0) == (
        "   0:01.0  process 3  send  'a' acknowledged at 0 after 250 ms",
        "   0:02.0  process 8  poll  'a' at 0 (of 0 to 1)",
        "   0:03.0  process 3  send  'b' unknown",
        "   1:01.0  process 8  poll  'a' at 0, 'b' at 1 (of 0 to 2)",
    )


def test_a_stale_look_is_shown_with_what_had_the_offset() -> None:
    history = History(
        sends=[send("a", 1, 9)],
        looks=[Look(partition=0, invoked_s=2, completed_s=2.5, high_watermark=5)],
    )
    assert surroundings(history, 0, "the end was 5, and 9 before that") == (
        "   0:01.0  process 3  send  'a' acknowledged at 9 after 250 ms",
        "   0:02.0  look  end 5 after 500 ms",
    )


def test_of_many_polls_the_earliest_and_the_latest_are_shown() -> None:
    history = History(sends=[send("a", 0, 0)], polls=[poll(n, (0, "a")) for n in range(1, 51)])
    lines = surroundings(history, 0, "'a' is at 0 and 3")
    assert [line.split()[0] for line in lines] == [
        "0:00.0",
        *(f"0:0{n}.0" for n in range(1, 6)),
        *(f"0:{n}.0" for n in range(45, 51)),
    ]


def test_long_values_are_cut() -> None:
    value = "v" * 10_000
    (line,) = surroundings(History(sends=[send(value, 0, 0)]), 0, f"{value!r} is lost")
    assert len(line) < 200


def test_the_first_anomalies_of_each_kind_are_shown_with_operations() -> None:
    history = History(sends=[send(f"{n}", n, n) for n in range(30)])
    anomalies = [Anomaly("lost write", 0, f"'{n}' was acknowledged at {n}") for n in range(30)]
    found = shown(history, [*anomalies, Anomaly("duplicate", 0, "'7' is at 7 and 8")])
    assert [len(anomaly.operations) for anomaly in found] == [1] * 10 + [0] * 20 + [1]
    assert found[-1].kind == "duplicate"


def test_a_committed_offset_that_is_wrong_is_shown_with_the_commits_around_it() -> None:
    history = History()
    for second, offset in ((1, 5), (2, 7), (5, 9)):
        history.commits.append(
            Commit(
                group="g",
                partition=3,
                offset=offset,
                invoked_s=second,
                completed_s=second + 0.5,
                outcome=Outcome.ACKNOWLEDGED,
            )
        )
    for second, offset in ((1.6, 5), (3, 5), (6, 9)):
        history.committed.append(
            Committed(group="g", partition=3, offset=offset, invoked_s=second, completed_s=second + 0.25)
        )
    (found,) = shown(history, check(history))
    assert (found.kind, found.partition) == ("committed-offset", 3)
    assert found.detail == "'g = 5' is not linearizable; before it, 'g = 7' was committed"
    assert [line.split(maxsplit=1)[1] for line in found.operations] == [
        "commit  g = 5 acknowledged after 500 ms",
        "committed  g = 5 after 250 ms",
        "commit  g = 7 acknowledged after 500 ms",
        "committed  g = 5 after 250 ms",
    ]


def test_a_transaction_that_was_decided_twice_is_shown_with_its_ends() -> None:
    history = History()
    for second, asked, decided in ((1, Decision.COMMITTED, Decision.COMMITTED), (2, Decision.ABORTED, None)):
        end = End(process=3, txn=7, asked=asked, invoked_s=second, completed_s=second + 0.5, decided=decided)
        history.ends.append(end)
    history.ends.append(replace(history.ends[1], invoked_s=4, completed_s=4.5, decided=Decision.ABORTED))
    history.ends.append(replace(history.ends[0], txn=8))
    (found,) = shown(history, check(history))
    assert (found.kind, found.detail) == ("decided-twice", "'transaction 7' was committed and aborted")
    assert [line.split(maxsplit=1)[1] for line in found.operations] == [
        "process 3  end  transaction 7: committed requested, committed after 500 ms",
        "process 3  end  transaction 7: aborted requested, no response after 500 ms",
        "process 3  end  transaction 7: aborted requested, aborted after 500 ms",
    ]
