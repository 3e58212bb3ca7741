"""Whatever a producer and its network do, each batch stands in the log once and in order."""

from __future__ import annotations

import random
from collections import Counter, OrderedDict
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from partitions.replica.producer_table import ProducerTable
from partitions.replica.producers import Begun, InFlight, Known
from raftlog.errors import InvalidRequest, OutOfOrderSequence, ProducerFenced, RaftlogError
from raftlog.records.batch import CONTROL_BIT, SEQUENCE_MAX, BatchHeader
from raftlog.types import Index, Term
from raftlog.wire.limits import PRODUCER_BATCHES_MAX

PRODUCERS_MAX = 3
Tail = tuple[int, int]


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


class Rules:
    """What a partition's log says of its producers, read from its beginning each time."""

    def __init__(self) -> None:
        self.log: list[BatchHeader] = []
        self.proposals: list[int] = []  # of each entry
        self.applied = 0
        self.known_from: OrderedDict[int, int] = OrderedDict()  # by producer; who wrote last is at the end

    def commit(self) -> BatchHeader:
        """Apply the oldest entry in flight; of more than three producers one is forgotten."""
        entry = self.log[self.applied]
        if entry.is_control or entry.is_sequenced:
            since = self.known_from.pop(entry.producer_id, self.applied)
            self.known_from[entry.producer_id] = since
            if len(self.known_from) > PRODUCERS_MAX:
                self.known_from.popitem(last=False)
        self.applied += 1
        return entry

    def of(self, producer: int, last: int) -> list[int]:
        """The entries that say something of a producer, unless they are forgotten."""
        first = self.known_from.get(producer, self.applied)
        mine = [n for n in range(first, last) if self.log[n].producer_id == producer]
        return [n for n in mine if self.log[n].is_control or self.log[n].is_sequenced]

    def tail(self, producer: int, last: int | None = None) -> Tail | None:
        """The epoch and the last sequence of a producer, as the log says up to an entry."""
        found: Tail | None = None
        for entry in [self.log[n] for n in self.of(producer, len(self.log) if last is None else last)]:
            if not entry.is_control:
                found = entry.producer_epoch, entry.last_sequence
            elif found is None or found[0] <= entry.producer_epoch:
                found = entry.producer_epoch + 1, -1
        return found

    def repeatable(self, producer: int, epoch: int) -> list[int]:
        """Batches of the newest epoch of a producer: all that are in flight, of the others the last five."""
        if (self.tail(producer) or (-1, -1))[0] != epoch:
            return []
        same = [n for n in self.of(producer, len(self.log)) if self.log[n].producer_epoch == epoch]
        batches = [n for n in same if not self.log[n].is_control]
        applied = [n for n in batches if n < self.applied]
        return [*applied[-PRODUCER_BATCHES_MAX:], *batches[len(applied) :]]

    def judge(self, headers: list[BatchHeader]) -> object:
        """The verdict about a request."""
        found: list[int] = []
        new: dict[int, Tail] = {}
        is_new = False
        for at, header in enumerate(headers):
            tail, known = self.tail(header.producer_id), list[int]()
            if header.is_sequenced:
                same = [
                    h for h in headers[: at + 1] if h.is_sequenced and h.producer_id == header.producer_id
                ]
                if len(same) > PRODUCER_BATCHES_MAX:
                    return refused(InvalidRequest, field="batches")
                tail = new.get(header.producer_id, tail)
                known = [
                    n
                    for n in self.repeatable(header.producer_id, header.producer_epoch)
                    if sequences(self.log[n]) == sequences(header)
                ]
            if known and is_new:
                return refused(InvalidRequest, field="batches")
            if known:
                found.append(known[-1])
                continue
            if tail is not None and header.producer_epoch < tail[0]:
                return refused(ProducerFenced, current_epoch=tail[0])
            expected = next_sequence(header, tail)
            if header.is_sequenced and tail is not None and header.base_sequence != expected:
                return refused(OutOfOrderSequence, expected_sequence=expected)
            if header.is_sequenced:
                new[header.producer_id] = header.producer_epoch, header.last_sequence
            is_new = True
        if not found or not is_new:
            return self.known(found) if found else None
        if not all(header.is_sequenced for header in headers):
            return refused(InvalidRequest, field="batches")
        return Begun(len(found))

    def known(self, numbers: list[int]) -> Known[int]:
        first, last = self.log[numbers[0]], self.log[numbers[-1]]
        ends = [self.log[n].last_offset + 1 for n in numbers[:-1]]
        return Known(
            first.base_offset,  # type: ignore[arg-type]
            last.last_offset,  # type: ignore[arg-type]
            last.max_timestamp,
            Term(first.leader_epoch),
            None if numbers[-1] < self.applied else self.proposals[numbers[-1]],
            in_one_run=ends == [self.log[n].base_offset for n in numbers[1:]],
        )

    def mark(self, producer: int, epoch: int) -> object:
        """What fences a transaction: its offset and its handle; None if nothing does."""
        for n in self.of(producer, len(self.log))[len(self.of(producer, self.applied)) :]:
            if self.log[n].producer_epoch + self.log[n].is_control > epoch:
                return self.log[n].last_offset, self.proposals[n]
        tail = self.tail(producer, self.applied)
        return None if tail is None or tail[0] <= epoch else (-1, None)


def refused(kind: type[RaftlogError], **details: object) -> object:
    """A verdict that is an error."""
    return kind, details


def next_sequence(header: BatchHeader, tail: Tail | None) -> int:
    """The sequence that must follow."""
    return 0 if tail is None or header.producer_epoch > tail[0] else (tail[1] + 1) & SEQUENCE_MAX


def sequences(header: BatchHeader) -> Tail:
    """What a repeated batch is recognised by."""
    return header.base_sequence, header.last_sequence


def verdict(judge: Callable[[], object]) -> object:
    try:
        return judge()
    except RaftlogError as error:
        return refused(type(error), **error.details)


class Leader:
    """The tables of a partition's leader beside the rules; both are asked the same."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.rules = rng, Rules()
        self.table = ProducerTable(producers_max=PRODUCERS_MAX)
        self.in_flight: InFlight[int] = InFlight(self.table)
        self.term = 1
        self.seen: Counter[str] = Counter()
        self.producers = rng.choice((PRODUCERS_MAX, PRODUCERS_MAX + 2))  # of more than three one is forgotten

    def request(self) -> None:
        rng, log = self.rng, self.rules.log
        headers: list[BatchHeader] = []
        for _ in range(rng.choice((1, 1, 2, 3, 7))):
            producer = (
                headers[-1].producer_id
                if headers and rng.random() < 0.7
                else rng.randrange(-1, self.producers)
            )
            headers.append(self.header(producer, headers))
        if log and rng.random() < 0.5:  # a repetition, perhaps with more
            first = rng.randrange(max(0, len(log) - 8), len(log))
            again = [h for h in log[first:] if not h.is_control and h.producer_id == log[first].producer_id]
            headers = [*again[: rng.randint(1, 6)], *headers[: rng.randrange(2)]] or headers
        expected = self.rules.judge(headers)
        assert verdict(lambda: self.in_flight.check(headers)) == expected
        known = {h.producer_id for h in headers if self.rules.tail(h.producer_id) or h.producer_id < 0}
        assert self.in_flight.unknown(headers) == {h.producer_id for h in headers} - known
        self.seen[str(expected[0]) if isinstance(expected, tuple) else type(expected).__name__] += 1
        if expected is None or isinstance(expected, Begun):
            self.append(headers[expected.count if expected else 0 :])

    def header(self, producer: int, before: list[BatchHeader]) -> BatchHeader:
        """Mostly the one that must come next."""
        rng, own = self.rng, [h for h in before if h.producer_id == producer and h.is_sequenced]
        tail = (own[-1].producer_epoch, own[-1].last_sequence) if own else self.rules.tail(producer)
        epoch, last = tail or (rng.randrange(2), rng.choice((-1, 5, SEQUENCE_MAX - 2)))
        change = rng.choice((0,) * 12 + (-1, 1))
        sequence = 0 if change > 0 else (last + 1 + rng.choice((0,) * 9 + (-1, 1))) & SEQUENCE_MAX
        if producer < 0 or rng.random() < 0.05:
            sequence = -1
        time, delta = rng.randrange(1_000), rng.randrange(3)
        epoch = max(0, epoch + change)
        return BatchHeader(0, 100, 0, 2, 0, 0, delta, time, time, producer, epoch, sequence, delta + 1)

    def append(self, headers: list[BatchHeader]) -> None:
        """The entries of one proposal."""
        append_time_ms, first, proposal = self.rng.choice((None, 5_000)), self.end, len(self.rules.log)
        for header in headers:
            time = header.max_timestamp if append_time_ms is None else append_time_ms
            entry = header._replace(base_offset=self.end, leader_epoch=self.term, max_timestamp=time)
            self.rules.log.append(entry)
            self.rules.proposals.append(proposal)
        self.in_flight.add(headers, Index(first), Term(self.term), append_time_ms, proposal)

    @property
    def end(self) -> int:
        return self.rules.log[-1].last_offset + 1 if self.rules.log else 0

    def mark(self) -> None:
        producer, rules = self.rng.randrange(self.producers), self.rules
        epoch = max(0, (rules.tail(producer) or (0, 0))[0] - self.rng.randrange(2))
        found, expected = self.in_flight.marked(producer, epoch), rules.mark(producer, epoch)
        assert (None if found is None else (found.last_offset, found.handle)) == expected
        if expected is None:
            end, number = self.end, len(rules.log)
            rules.log.append(
                BatchHeader(end, 100, self.term, 2, 0, CONTROL_BIT, 0, number, number, producer, epoch, -1, 1)
            )
            rules.proposals.append(number)
            self.in_flight.add_marker(producer, epoch, Index(end), number)

    def commit(self, count: int) -> None:
        rules = self.rules
        for _ in range(min(count, len(rules.log) - rules.applied)):
            self.table.apply(rules.commit())
        if rules.applied:
            self.in_flight.applied(Index(rules.log[rules.applied - 1].last_offset))
        in_flight = [h for h in rules.log[rules.applied :] if h.is_control or h.is_sequenced]
        assert len(self.in_flight) == len(in_flight)
        kept = [n for p in rules.known_from for n in self.applied_batches(p)]
        assert self.table.base_offsets() == {rules.log[n].base_offset for n in kept}
        assert list(self.table) == list(rules.known_from)

    def applied_batches(self, producer: int) -> list[int]:
        tail, rules = self.rules.tail(producer, self.rules.applied), self.rules
        numbers = [n for n in rules.of(producer, rules.applied) if not rules.log[n].is_control]
        return [n for n in numbers if tail and rules.log[n].producer_epoch == tail[0]][-PRODUCER_BATCHES_MAX:]

    def check_order(self) -> None:
        """Every batch of a producer stands in the log once and in order."""
        last: dict[int, Tail] = {}
        for entry in self.rules.log:
            if entry.is_sequenced:
                tail = last.get(entry.producer_id)
                assert tail is None or entry.producer_epoch >= tail[0]
                assert tail is None or entry.base_sequence == next_sequence(entry, tail)
                last[entry.producer_id] = entry.producer_epoch, entry.last_sequence

    def change_leader(self) -> None:
        """The next leader has some of what was in flight, applies it, and perhaps was restored."""
        rules = self.rules
        kept = self.rng.randint(rules.applied, len(rules.log))
        del rules.log[kept:], rules.proposals[kept:]
        self.in_flight.clear()
        self.term += 1
        if self.rng.random() < 0.5:
            state = self.table.snapshot()
            self.table.restore(b"")
            assert self.table.snapshot() == ProducerTable().snapshot()
            self.table.restore(state)
            assert self.table.snapshot() == state
        for _ in range(len(rules.log) - rules.applied):
            self.table.apply(rules.commit())
        self.commit(0)


def test_requests_of_producers_are_judged_by_what_the_log_says() -> None:
    # requirement: D3
    seen: Counter[str] = Counter()
    for seed in range(120):
        leader = Leader(random.Random(seed))
        for _ in range(80):
            match leader.rng.randrange(10):
                case 0 | 1:
                    leader.commit(leader.rng.randrange(4))
                case 2:
                    leader.mark()
                case 3:
                    leader.change_leader()
                case _:
                    leader.request()
        if leader.producers == PRODUCERS_MAX:
            leader.check_order()
        seen += leader.seen
    assert len(seen) == 6, seen
    assert min(seen.values()) > 20, seen
