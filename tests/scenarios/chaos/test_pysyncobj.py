"""pysyncobj loses acknowledged writes: links deliver everything in order, and one leader crashes.

The table in ``docs/decisions/0018-pysyncobj-is-a-control.md`` has the steps of this schedule. All settings
of the library are its defaults, except for the election timeouts, which are fixed, and the journal, which
is on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from chaos.checkers import check
from chaos.history import History, Outcome, Poll, Send
from tests.helpers.stepped_pysyncobj import SteppedCluster

# Messages have at least 64 KiB of entries if there are so many, and then end: six values fill one.
PADDING = "x" * 11_000
NEVER_S = 1_000.0


class Client:
    """It sends values and notes when they are acknowledged. Its clock counts its operations."""

    def __init__(self, cluster: SteppedCluster) -> None:
        self.acknowledged: list[str] = []
        self.history = History()
        self._cluster = cluster
        self._now = count()

    def append(self, node: str, *values: str) -> None:
        """Send values to a node."""
        for value in values:
            self._append(node, value)

    def _append(self, node: str, value: str) -> None:
        invoked_s = float(next(self._now))

        def acknowledged(offset: int) -> None:
            self.acknowledged.append(value)
            self.history.sends.append(
                Send(
                    process=1,
                    partition=0,
                    value=value,
                    invoked_s=invoked_s,
                    completed_s=float(next(self._now)),
                    outcome=Outcome.ACKNOWLEDGED,
                    offset=offset,
                )
            )

        self._cluster.append(node, value, PADDING, acknowledged)

    def read(self, node: str) -> list[str]:
        """The final read, from one node."""
        values = self._cluster.values(node)
        self.history.final.append(
            Poll(
                process=2 + len(self.history.final),
                partition=0,
                invoked_s=float(next(self._now)),
                completed_s=float(next(self._now)),
                records=tuple(enumerate(values)),
            )
        )
        return values


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SteppedCluster]:
    """C campaigns first, then A, and B never."""
    cluster = SteppedCluster(tmp_path, monkeypatch, {"A": 2.0, "B": NEVER_S, "C": 1.0})
    yield cluster
    cluster.close()


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of the library's journal
def test_one_crash_of_a_leader_loses_three_of_nine_acknowledged_writes(cluster: SteppedCluster) -> None:
    client, links = Client(cluster), cluster.links
    first, last = [f"v{number}" for number in range(1, 7)], ["v7", "v8", "v9"]

    # C leads in term 1. What it sends to B is slow: nothing arrives yet. C and A are the majority.
    _lead_and_commit(cluster, client, first)
    assert client.acknowledged == first

    # A does not hear C in time, and leads in term 2 by the vote of B, whose log is empty.
    cluster.campaign("A")
    links.deliver("A", "C", 1)  # the request for a vote; all that A sends to C after it is slow
    links.deliver("A", "B")
    links.deliver("B", "A")
    assert cluster.leaders == ["A"]

    # Two messages are on their way to B, which lacks the entries before theirs and answers both.
    client.append("A", *last)
    cluster.tick("A")
    links.deliver("A", "B")
    assert links.waiting("B", "A") == 2

    # By the first answer A sends everything that B lacks, in two messages. B stores all of it.
    links.deliver("B", "A", 1)
    cluster.tick("A")
    links.deliver("A", "B")
    assert cluster.log_length("B") == cluster.log_length("A")

    # By the second answer A sends all of it again. Then it hears that B has it, and acknowledges.
    links.deliver("B", "A", 1)
    cluster.tick("A")
    links.deliver("B", "A")
    cluster.tick("A")
    assert client.acknowledged == first + last

    # The first message of the two arrives once more. B deletes all entries after its last one, the
    # acknowledged ones among them; the second message would bring them back, but is slow. A crashes.
    before = cluster.log_length("B")
    links.deliver("A", "B", 1)
    assert cluster.log_length("B") == before - 1 - len(last)  # the first entry of term 2, too
    cluster.crash("A")

    # C leads in term 3: its log is as long as that of B. Whatever was slow arrives, and is too old.
    cluster.campaign("C")
    links.deliver("C", "B")
    links.deliver("B", "C")
    links.deliver("A", "B")
    links.deliver("A", "C")
    assert cluster.leaders == ["C"]
    cluster.start("A")
    client.append("C", "v10")
    cluster.settle("C")  # A overwrites its log with that of C
    assert client.acknowledged == [*first, *last, "v10"]

    for node in ("A", "B", "C"):
        assert client.read(node) == [*first, "v10"]
    lost = {anomaly.detail for anomaly in check(client.history) if anomaly.kind == "unseen"}
    assert len(lost) == 3
    assert all(any(repr(value) in detail for detail in lost) for value in last)


def _lead_and_commit(cluster: SteppedCluster, client: Client, values: Sequence[str]) -> None:
    cluster.campaign("C")
    cluster.exchange("C", "A")
    client.append("C", *values)
    cluster.tick("C")  # appends them
    cluster.tick("C")  # sends them
    cluster.exchange("C", "A")
    cluster.tick("C")
