"""Whatever a producer and its network do, each batch stands in the log once and in order."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from partitions.replica.producer_table import ProducerTable
from partitions.replica.producers import InFlight
from raftlog.errors import OutOfOrderSequence
from raftlog.records.batch import BatchHeader
from raftlog.types import Index, Term


def header_of(number: int, *, base: int = 0, first: int = 0) -> BatchHeader:
    """Batch ``number`` of the one producer: three records each, from sequence ``first`` on."""
    sequence = (first + 3 * number) & 0x7FFFFFFF
    return BatchHeader(base, 100, 1, 2, 0, 0, 2, 0, 0, 7, 0, sequence, 3)


@dataclass
class Partition:
    """A partition's log with its committed prefix, and the tables of its leader."""

    first: int
    log: list[int] = field(default_factory=list)
    committed: int = 0
    table: ProducerTable = field(default_factory=ProducerTable)
    in_flight: InFlight[int] = field(init=False)

    def __post_init__(self) -> None:
        self.in_flight = InFlight(self.table)

    def append(self, number: int) -> None:
        header = header_of(number, first=self.first)
        if self.in_flight.check([header]) is None:
            self.in_flight.add([header], Index(3 * len(self.log)), Term(1), None, number)
            self.log.append(number)

    def commit(self, count: int) -> None:
        for number in self.log[self.committed : self.committed + count]:
            self.table.apply(header_of(number, base=3 * self.committed, first=self.first))
            self.committed += 1
        self.in_flight.applied(Index(3 * self.committed - 1))

    def change_leader(self, kept: int) -> None:
        """The new leader has the committed prefix and some of the rest, and applies it before it judges."""
        del self.log[self.committed + kept :]
        self.in_flight.clear()
        self.commit(len(self.log))


@given(
    seed=st.integers(0, 1 << 32),
    steps=st.integers(1, 300),
    first=st.sampled_from([0, 17, 0x7FFFFFFF - 8, 0x7FFFFFFF]),
)
def test_every_batch_stands_in_the_log_once_and_in_order(seed: int, steps: int, first: int) -> None:
    # requirement: D3
    rng = random.Random(seed)
    partition = Partition(first)
    partition.append(0)
    partition.commit(1)
    oldest_open = 0  # the client has the outcome of every batch before this one
    for _ in range(steps):
        match rng.randrange(6):
            case 0:
                partition.commit(rng.randrange(4))
            case 1:
                partition.change_leader(rng.randrange(3))
            case 2:  # answers arrive
                oldest_open = max(oldest_open, partition.committed - rng.randrange(3))
            case _:  # one of the five batches in flight is sent, for the first or the tenth time
                try:
                    partition.append(oldest_open + rng.randrange(5))
                except OutOfOrderSequence:
                    continue
    partition.commit(len(partition.log))
    assert partition.log == list(range(len(partition.log)))


@given(
    batches=st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3), st.integers(0, 200)), max_size=60),
    cut=st.integers(0, 60),
)
def test_a_snapshot_and_the_rest_of_the_log_give_the_same_table(
    batches: list[tuple[int, int, int]], cut: int
) -> None:
    headers = [
        BatchHeader(n, 100, 1, 2, 0, 8, 0, time, time, producer, epoch, n, 1)
        for n, (producer, epoch, time) in enumerate(batches)
    ]
    whole = ProducerTable(expiration_ms=100, producers_max=4)
    first = ProducerTable(expiration_ms=100, producers_max=4)
    second = ProducerTable(expiration_ms=100, producers_max=4)
    for header in headers:
        whole.apply(header)
    for header in headers[:cut]:
        first.apply(header)
    second.restore(first.snapshot())
    for header in headers[cut:]:
        second.apply(header)
    assert second.snapshot() == whole.snapshot()
