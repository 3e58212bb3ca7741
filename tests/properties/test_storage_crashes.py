"""Random work on a segmented log, a power loss anywhere, and what must be back afterwards.

Syncs may fail, too: the disk then lacks what the page cache shows, and a process that is started anew on the
same machine reads it there.

The model is a list of batches. At every moment it knows which logs a crash may leave: any prefix of
what was there that holds all that was durable; while a truncation is under way, the log before it too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.core.membership import Membership
from raftlog.core.ready import HardState
from raftlog.records.batch import Batch
from raftlog.storage.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.storage.log_storage import Sync
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.types import Index, NodeId, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

SETTINGS = LogSettings(segment_bytes=700, segment_ms=1000, index_interval_bytes=150)
DIRECTORY = "/data/topic/Partition-0"


@dataclass
class Model:
    """What the log should hold, and what a crash may do to it."""

    batches: list[Batch] = field(default_factory=list)
    durable: int = -1
    allowed: list[list[Batch]] = field(default_factory=list)  # other logs a crash may leave a prefix of
    hard_states: list[HardState] = field(default_factory=lambda: [HardState(Term(0), None)])
    first: int = 0
    firsts_possible: set[int] = field(default_factory=lambda: {0})

    @property
    def last(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1


class Machine:
    """A log, its model, and the power switch."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.filesystem = FakeFilesystem()
        self.clock = ManualWallClock()
        self.model = Model()
        self.pending: list[tuple[Sync, HardState]] = []
        self.term = 0
        self.log = self.open()

    def open(self) -> SegmentedLog:
        return SegmentedLog.open(self.filesystem, DIRECTORY, SETTINGS, self.clock)

    def step(self) -> None:
        """One random thing; the model learns first what may come of it."""
        action = self.rng.choices(
            (
                self.append,
                self.truncate,
                self.take,
                self.finish,
                self.vote,
                self.retain,
                self.look,
                self.wait,
            ),
            weights=(10, 2, 6, 6, 1, 1, 2, 1),
        )[0]
        action()

    def append(self) -> None:
        if not self.term or self.rng.random() < 0.05:
            self.vote()
        base, batches = self.model.last + 1, []
        epoch = self.rng.randint(max(1, self.log.term_at(self.log.last_index)), self.term)
        for _ in range(self.rng.randint(1, 4)):
            count = self.rng.randint(1, 5)
            body = self.rng.randbytes(self.rng.choice((0, 10, 100, 600)))
            batches.append(storage_batch(base, count, epoch=epoch, timestamp_ms=base, body=body))
            base += count
        self.model.batches = self.model.batches + batches
        self.log.append(batches)

    def truncate(self) -> None:
        firsts = [batch.base_offset for batch in self.model.batches if batch.base_offset >= self.model.first]
        if not firsts:
            return
        cut = self.rng.choice(firsts[-6:] if self.rng.random() < 0.7 else firsts)
        self.model.allowed.append(self.model.batches)
        self.model.batches = [batch for batch in self.model.batches if batch.base_offset < cut]
        self.model.durable = min(self.model.durable, cut - 1)
        self.log.truncate_suffix(Index(cut))
        self.model.allowed.clear()

    def take(self) -> None:
        self.log.note_commit_index(self.log.durable_index)
        flush = self.log.take_sync()
        if flush is not None:
            self.pending.append((flush, self.model.hard_states[-1]))

    def finish(self) -> None:
        if self.pending:
            flush, hard_state = self.pending.pop(0)
            flush.run()
            self.log.sync_finished(flush)
            self.model.durable = int(self.log.durable_index)
            at = max(i for i, saved in enumerate(self.model.hard_states) if saved == hard_state)
            del self.model.hard_states[:at]

    def vote(self) -> None:
        self.term += 1
        hard_state = HardState(Term(self.term), NodeId(self.rng.randint(1, 3)))
        self.model.hard_states.append(hard_state)
        self.log.save_hard_state(hard_state)

    def retain(self) -> None:
        wanted = self.rng.randint(self.model.first, max(self.model.first, self.model.durable + 1))
        limit = min(wanted, self.model.durable)
        closed = [segment for segment in self.log.closed_segments if segment.last < limit]
        self.model.firsts_possible = {self.model.first, *(segment.last + 1 for segment in closed)}
        self.model.first = int(self.log.truncate_prefix(Index(wanted)))
        self.model.firsts_possible = {self.model.first}

    def look(self) -> None:
        assert self.log.last_index == max(self.model.last, self.log.first_index - 1)
        assert self.log.durable_index == max(self.model.durable, self.log.first_index - 1)
        if self.log.last_index >= self.log.first_index:
            first = self.rng.randint(self.log.first_index, self.log.last_index)
            last = self.rng.randint(first, self.log.last_index)
            found = self.log.read(Index(first), Index(last), bytes_max=self.rng.choice((1, 500, 10_000)))
            wanted = [b for b in self.model.batches if found.first <= b.base_offset <= found.last]
            assert found.read() == b"".join(bytes(batch.data) for batch in wanted)
            assert found.first <= first <= found.last

    def wait(self) -> None:
        self.clock.now_ms += self.rng.choice((10, 2000))

    def crash_and_check(self, power_odds: float = 0.8) -> None:
        """Lose power (or the process only), open again, compare; the model then is what was found."""
        self.stop(power_odds)
        while True:
            try:
                self.log, self.pending = self.open(), []
                break
            except OSError:
                self.stop(power_odds)
        first, last = int(self.log.first_index), int(self.log.last_index)
        assert first in self.model.firsts_possible
        assert last >= self.model.durable
        found = self.log.read(Index(first), Index(last), bytes_max=1 << 30).read() if last >= first else b""
        matches = [
            candidate
            for candidate in (self.model.batches, *self.model.allowed)
            if found == b"".join(bytes(b.data) for b in candidate if first <= b.base_offset <= last)
            and (last < first or any(b.last_offset == last for b in candidate))
        ]
        assert matches, "something was invented, or lost in the middle"
        restored = self.log.restored(Membership(frozenset()))
        assert restored.hard_state in self.model.hard_states
        assert restored.commit_hint <= last
        self.check_terms(matches[0], first, last)
        self.model.batches = [batch for batch in matches[0] if batch.last_offset <= last]
        self.model.durable, self.model.first = last, first
        self.model.firsts_possible = {first}
        self.model.allowed.clear()
        self.model.hard_states = [restored.hard_state]
        self.term = restored.hard_state.term
        assert self.log.durable_index == last

    def stop(self, power_odds: float) -> None:
        """The process ends, with or without the machine."""
        if self.rng.random() < power_odds:
            self.filesystem.lose_power(self.rng)
        else:
            self.filesystem.restart()

    def check_terms(self, batches: list[Batch], first: int, last: int) -> None:
        terms: dict[int, int] = {}
        for batch in batches:
            if batch.base_offset <= last:
                assert batch.last_offset < first - 1 or self.log.term_at(
                    Index(max(batch.last_offset, first - 1))
                ) == (batch.leader_epoch)
                if batch.base_offset >= first:
                    terms.setdefault(batch.leader_epoch, batch.base_offset)
        assert {int(entry.term): int(entry.index) for entry in self.log.terms()} == terms


def run(seed: int, steps: int, lives: int, *, failing_syncs: float = 0.0) -> None:
    machine = Machine(seed)
    machine.filesystem.fails_sync = lambda path: machine.rng.random() < failing_syncs
    for _ in range(lives):
        power_odds = 0.8
        # Half of the crashes come between two steps, half in the middle of one.
        if machine.rng.random() < 0.5:
            machine.filesystem.crash_after_changes = machine.rng.randint(0, 3 * steps)
        try:
            for _ in range(machine.rng.randint(1, steps)):
                machine.step()
        except PowerLost:
            pass
        except OSError:
            power_odds = 0.2  # or else what the cache shows and the disk lacks would rarely be relied upon
        machine.crash_and_check(power_odds)
        for _ in range(3):
            machine.look()
    machine.filesystem.fails_sync = lambda path: False
    machine.log.close()
    assert machine.open().recovery.torn_tail is None


# requirement: L9, N4
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_after_a_power_loss_all_that_was_durable_is_back_and_nothing_is_invented(seed: int) -> None:
    run(seed, steps=40, lives=6)


# requirement: L9, N4
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_a_failed_sync_left_in_the_cache_alone_is_not_relied_upon(seed: int) -> None:
    run(seed, steps=40, lives=8, failing_syncs=0.05)


@pytest.mark.slow
def test_thousands_of_power_losses() -> None:
    for seed in range(3000):
        run(seed, steps=60, lives=8, failing_syncs=0.05 if seed % 2 else 0.0)


# requirement: L9
def test_a_log_on_a_disk_that_lies_about_syncs_is_found_out() -> None:
    """The control: when syncs do nothing, the check above must fail for most seeds."""
    caught = 0
    for seed in range(20):
        machine = Machine(seed)
        machine.filesystem.lies_about_syncs = True
        for _ in range(40):
            machine.step()
        try:
            machine.crash_and_check()
        except (AssertionError, Exception):
            caught += 1
    assert caught >= 15
