"""The judge judged: for each anomaly a smallest history to be flagged, and a near miss that must not be."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from chaos.checkers import check
from chaos.history import History, Look, Outcome, Poll, Send
from tests.helpers.profiled import opcodes_of

ACKNOWLEDGED, FAILED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.FAILED, Outcome.UNKNOWN


class Story:
    """Builds a history line by line; each operation takes the time from ``at`` to ``at + 1``."""

    def __init__(self) -> None:
        self.history = History()

    def send(
        self,
        value: str,
        offset: int | None,
        *,
        at: float,
        outcome: Outcome = ACKNOWLEDGED,
        process: int = 1,
        lasts: float = 1,
        partition: int = 0,
    ) -> Story:
        self.history.sends.append(
            Send(
                process=process,
                partition=partition,
                value=value,
                invoked_s=at,
                completed_s=at + lasts,
                outcome=outcome,
                offset=offset,
            )
        )
        return self

    def poll(
        self,
        *records: tuple[int, str],
        at: float = 50,
        process: int = 8,
        partition: int = 0,
        log_start: int = 0,
    ) -> Story:
        self.history.polls.append(_poll(records, at, process, partition, log_start))
        return self

    def final(
        self,
        *records: tuple[int, str],
        at: float = 100,
        process: int = 9,
        partition: int = 0,
        log_start: int = 0,
    ) -> Story:
        self.history.final.append(_poll(records, at, process, partition, log_start))
        return self

    def look(self, high_watermark: int, *, at: float) -> Story:
        self.history.looks.append(
            Look(partition=0, invoked_s=at, completed_s=at + 1, high_watermark=high_watermark)
        )
        return self


def _poll(
    records: tuple[tuple[int, str], ...], at: float, process: int, partition: int, log_start: int
) -> Poll:
    return Poll(
        process=process,
        partition=partition,
        invoked_s=at,
        completed_s=at + 1,
        records=records,
        log_start=log_start,
    )


def two_sent() -> Story:
    """Two values of one process, acknowledged and read."""
    return Story().send("a", 0, at=1).send("b", 1, at=3)


Case = tuple[str, Callable[[], Story], Callable[[], Story]]
CASES: list[Case] = [
    (
        "inconsistent-offsets",
        lambda: two_sent().poll((0, "b")).final((0, "a"), (1, "b")),
        lambda: two_sent().poll((0, "a")).final((0, "a"), (1, "b")),
    ),
    (
        "inconsistent-offsets",  # an acknowledgement says what stands there as well as a poll does
        lambda: Story().send("a", 0, at=1).send("b", 0, at=1, process=2).final((0, "a"), (1, "b")),
        lambda: (
            Story()
            .send("a", 0, at=1)
            .send("b", 0, at=1, process=2, partition=1)
            .final((0, "a"))
            .final((0, "b"), partition=1)
        ),
    ),
    (
        "duplicate",
        lambda: Story().send("a", 0, at=1).final((0, "a"), (1, "a")),
        lambda: Story().send("a", 0, at=1).poll((0, "a")).final((0, "a")),  # read twice, written once
    ),
    (
        "duplicate",  # the acknowledgement names one place, the read another
        lambda: Story().send("a", 0, at=1).final((1, "a")),
        lambda: Story().send("a", None, at=1, outcome=UNKNOWN).final((1, "a")),
    ),
    (
        "unseen",
        lambda: two_sent().final((0, "a")),
        lambda: Story().send("a", 0, at=1).send("b", None, at=3, outcome=UNKNOWN).final((0, "a")),
    ),
    (
        "unseen",  # what lies at the log start is not deleted
        lambda: two_sent().final(log_start=1),
        lambda: two_sent().final((1, "b"), log_start=1),
    ),
    (
        "lost-write",  # deleted in another partition
        lambda: two_sent().final((1, "b")).final(log_start=1, partition=1),
        lambda: two_sent().final((1, "b"), log_start=1).final(partition=1),
    ),
    (
        "read-and-lost",
        lambda: two_sent().poll((0, "a"), (1, "b")).final(log_start=1),
        lambda: two_sent().poll((0, "a"), (1, "b")).final((1, "b"), log_start=1),
    ),
    (
        "read-and-lost",
        lambda: Story().send("a", None, at=1, outcome=UNKNOWN).poll((0, "a")).final(),
        lambda: Story().send("a", None, at=1, outcome=UNKNOWN).poll((0, "a")).final((0, "a")),
    ),
    (
        "G1a",
        lambda: Story().send("a", None, at=1, outcome=FAILED).final((0, "a")),
        lambda: Story().send("a", None, at=1, outcome=FAILED).final(),
    ),
    (
        "invented-value",
        lambda: Story().send("a", 0, at=1).final((0, "a"), (1, "b")),
        lambda: (
            Story()
            .send("a", 0, at=1)
            .send("b", None, at=1, process=2, outcome=UNKNOWN)
            .final((0, "a"), (1, "b"))
        ),
    ),
    (
        "invented-value",  # sent, but elsewhere
        lambda: (
            Story().send("a", 0, at=1, partition=1).final((0, "a"), partition=0).final((0, "a"), partition=1)
        ),
        lambda: Story().send("a", 0, at=1, partition=1).final(partition=0).final((0, "a"), partition=1),
    ),
    (
        "int-nonmonotonic-poll",  # inside one poll
        lambda: two_sent().poll((1, "b"), (0, "a")).final((0, "a"), (1, "b")),
        lambda: two_sent().poll((0, "a"), (1, "b")).final((0, "a"), (1, "b")),
    ),
    (
        "nonmonotonic-poll",  # from one poll of a process to its next
        lambda: two_sent().poll((0, "a")).poll((0, "a"), (1, "b")).final((0, "a"), (1, "b")),
        lambda: two_sent().poll((0, "a")).poll((0, "a"), (1, "b"), process=7).final((0, "a"), (1, "b")),
    ),
    (
        "int-poll-skip",  # inside one poll
        lambda: two_sent().send("c", 2, at=5).poll((0, "a"), (2, "c")).final((0, "a"), (1, "b"), (2, "c")),
        # offset 1 is nobody's record: a leader's own
        lambda: (
            Story().send("a", 0, at=1).send("c", 2, at=5).poll((0, "a"), (2, "c")).final((0, "a"), (2, "c"))
        ),
    ),
    (
        "poll-skip",  # from one poll to the next
        lambda: (
            two_sent().send("c", 2, at=5).poll((0, "a")).poll((2, "c")).final((0, "a"), (1, "b"), (2, "c"))
        ),
        # another process may begin where it likes
        lambda: (
            two_sent()
            .send("c", 2, at=5)
            .poll((0, "a"))
            .poll((2, "c"), process=7)
            .final((0, "a"), (1, "b"), (2, "c"))
        ),
    ),
    (
        "poll-skip",  # one was deleted, as its reader was told, and another was not
        lambda: (
            Story()
            .poll((0, "a"))
            .poll(log_start=2)
            .poll((3, "d"))
            .final((0, "a"), (1, "b"), (2, "c"), (3, "d"))
        ),
        lambda: (
            two_sent()
            .send("c", 2, at=5)
            .send("d", 3, at=7)
            .poll((0, "a"))
            .poll(log_start=2)
            .poll((2, "c"), (3, "d"))
            .final((0, "a"), (1, "b"), (2, "c"), (3, "d"))
        ),
    ),
    (
        "nonmonotonic-send",  # one process: sent later, stands before
        lambda: (
            Story()
            .send("a", None, at=1, outcome=UNKNOWN)
            .send("b", None, at=3, outcome=UNKNOWN)
            .final((0, "b"), (1, "a"))
        ),
        # who does not know what became of a send goes on as another process
        lambda: (
            Story()
            .send("a", None, at=1, outcome=UNKNOWN)
            .send("b", 0, at=3, process=2)
            .final((0, "b"), (1, "a"))
        ),
    ),
    (
        "realtime-nonmonotonic-send",  # real time: acknowledged before the other began
        lambda: Story().send("a", 1, at=1).send("b", 0, at=3, process=2).final((0, "b"), (1, "a")),
        lambda: Story().send("a", 1, at=1, lasts=3).send("b", 0, at=3, process=2).final((0, "b"), (1, "a")),
    ),
    (
        "stale-read",  # below what had been acknowledged
        lambda: two_sent().look(1, at=10).final((0, "a"), (1, "b")),
        lambda: two_sent().look(1, at=3.5).final((0, "a"), (1, "b")),  # it began before that
    ),
    (
        "stale-read",  # below what had been read
        lambda: (
            Story().send("a", None, at=1, outcome=UNKNOWN).poll((0, "a"), at=5).look(0, at=7).final((0, "a"))
        ),
        lambda: (
            Story().send("a", None, at=1, outcome=UNKNOWN).poll((0, "a"), at=5).look(1, at=7).final((0, "a"))
        ),
    ),
    (
        "stale-read",  # below an end that had been seen
        lambda: Story().look(5, at=1).look(4, at=3),
        lambda: Story().look(5, at=1).look(4, at=1.5),
    ),
    (
        "read-from-the-future",
        lambda: Story().send("a", 0, at=60).poll((0, "a"), at=50).final((0, "a")),
        lambda: Story().send("a", 0, at=50.5).poll((0, "a"), at=50).final((0, "a")),
    ),
]


@pytest.mark.parametrize(
    ("kind", "flagged", "innocent"), CASES, ids=[f"{n}-{c[0]}" for n, c in enumerate(CASES)]
)
def test_each_anomaly_is_flagged_and_its_near_miss_is_not(
    kind: str, flagged: Callable[[], Story], innocent: Callable[[], Story]
) -> None:
    assert kind in {anomaly.kind for anomaly in check(flagged().history)}
    assert check(innocent().history) == []


def innocent_history(seed: int, sends: int) -> History:
    """What a correct log shows to clients with every outcome, seen through pages of every size."""
    rng = random.Random(seed)
    story, logs = Story(), {0: [], 1: []}  # type: ignore[var-annotated]
    now = 0.0
    for number in range(sends):
        partition, process = rng.randrange(2), rng.randrange(4)
        log = logs[partition]
        outcome = rng.choices((ACKNOWLEDGED, UNKNOWN, FAILED), (18, 1, 1))[0]
        now += 1
        if rng.random() < 0.01:
            log.append(None)  # a record of the log's own
        value = f"v{number}"
        if outcome is ACKNOWLEDGED or (outcome is UNKNOWN and rng.random() < 0.5):
            log.append(value)
        offset = len(log) - 1 if outcome is ACKNOWLEDGED else None
        # A send in doubt is its process's last.
        process = process if outcome is not UNKNOWN else 1000 + number
        story.send(value, offset, at=now, lasts=0.5, outcome=outcome, process=process, partition=partition)
    for partition, log in logs.items():
        rows = [(offset, value) for offset, value in enumerate(log) if value is not None]
        for reader in range(2):
            at = 0
            while at < len(rows):
                size = rng.randint(1, 20)
                story.poll(*rows[at : at + size], at=now + at, process=100 + reader, partition=partition)
                at += size
        story.final(*rows, at=2 * now, process=200 + partition, partition=partition)
    return story.history


@pytest.mark.parametrize("seed", range(20))
def test_a_correct_log_is_never_accused(seed: int) -> None:
    assert check(innocent_history(seed, 60)) == []


def test_the_cost_of_a_judgement_grows_with_the_operations_only() -> None:
    def instructions(records: int) -> float:
        history = innocent_history(1, records)
        operations = len(history.sends) + len(history.polls) + len(history.final)
        return opcodes_of(lambda: check(history)) / operations

    assert instructions(4_000) < 1.5 * instructions(400)


def test_the_longest_silence_is_what_a_client_of_one_partition_saw() -> None:
    story = Story()
    for at in (1, 2, 8, 9):
        story.send(f"a{at}", at, at=at, lasts=0)
    for at in range(10):
        story.send(f"b{at}", at, at=at, lasts=0, partition=1)
    assert story.history.longest_silence_s(3, 9.5) == 6
    assert story.history.longest_silence_s(8.1, 9) == 1
    assert story.history.longest_silence_s(8.1, 12) == 3  # nothing more came before the window ended
