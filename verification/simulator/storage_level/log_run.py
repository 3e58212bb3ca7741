"""Runs a log alone: processes work on it at random, one after another, and each is ended by a kill or a power
loss. The next process checks the log when it opens.

Syncs may fail, too: then the disk lacks data that is still in the page cache, where the next process on this
machine reads it. Operations do not overlap, but syncs stay open during later operations and end in any order.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from raftlog.core.membership import Membership, MembershipEntry
from raftlog.core.ready import HardState
from raftlog.errors import InvariantViolated
from raftlog.records.batch import (
    Batch,
    BatchHeader,
    Codec,
    encode_batch,
    parse_header,
    split_batches,
    stamp,
)
from raftlog.records.builder import Record, build_batch
from raftlog.storage import members
from raftlog.storage.compactor import Compactor
from raftlog.storage.filesystem import is_disk_full
from raftlog.storage.log_storage import Sync, carry_out
from raftlog.storage.segment_rewriter import RewrittenSegment
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.testing.log_changes import install, save_checkpoint, truncate_prefix, truncate_suffix
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term
from verification.simulator.disk import run_work
from verification.simulator.gc_off import gc_off
from verification.simulator.result import Broken, Result, Violation
from verification.simulator.storage_level import checker
from verification.simulator.storage_level.line import INITIAL_MEMBERSHIP, Line, Model, state_below
from verification.simulator.storage_level.odds import LogOdds
from verification.simulator.trace import Trace

DIRECTORY: Final = "/data/topic/Partition-0"
SETTINGS: Final = LogSettings(segment_bytes=700, segment_ms=1000, index_interval_bytes=150)
FULL_DISK, FAILING_SYNC, LOSE_POWER, CRASH = "full disk", "failing sync", "lose power", "crash"
COMPACTION: Final = "compaction"
FAULTS: Final = (FULL_DISK, FAILING_SYNC, LOSE_POWER, CRASH, COMPACTION)
"""Kinds of faults and operations that a run counts."""
LOOKS: Final = 3  # after each crash
KEYS: Final = (b"a", b"b", b"c", b"d", None)
AHEAD_ODDS: Final = 0.2  # of a state that becomes durable before its entries


class Clock:
    """A clock that advances only on request."""

    is_known = True

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self.now_ms / 1000

    def wall_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return self.now_ms


class LogRun:
    """A log, its model, and the switch of its machine's power. ``run`` may be called once."""

    def __init__(self, seed: int, odds: LogOdds | None = None, *, keeps_lines: bool = False) -> None:
        self.odds = LogOdds.drawn(random.Random(f"{seed} odds")) if odds is None else odds
        self.rng = random.Random(f"{seed} log")
        self.disk_rng = random.Random(f"{seed} disk")
        self._ahead_rng = random.Random(f"{seed} states ahead")
        self._compact_rng = random.Random(f"{seed} compaction")
        self._join_rng = random.Random(f"{seed} joins")
        self._clean_end = 0  # of the log as this process knows it
        self.clock = Clock()
        self.began_ms = self.clock.now_ms
        self.trace = Trace(self.now_s, keeps_lines=keeps_lines)
        self.faults: Counter[str] = Counter()
        self.written = 0  # entries that became durable
        self.filesystem = FakeFilesystem()
        self.filesystem.lies_about_syncs = self.odds.lies_about_syncs
        self.model = Model()
        self.pending: list[tuple[Sync, HardState]] = []
        self.term = 0
        self._ahead = BEFORE_LOG  # the newest entry whose state was stored before it was durable
        self.log = self._open()
        self.log.store_initial_membership(INITIAL_MEMBERSHIP)

    def now_s(self) -> float:
        """Simulated seconds since the beginning of the run."""
        return (self.clock.now_ms - self.began_ms) / 1000

    def run(self) -> None:
        """Run all processes one after another. Raises ``Broken``."""
        works = {
            "append": self.append,
            "truncate": self.truncate,
            "take sync": self.take_sync,
            "finish sync": self.finish_sync,
            "vote": self.vote,
            "apply": self.apply,
            "retain": self.retain,
            "install": self.install,
            "fill the disk": self.fill_the_disk,
            "look": self.look,
            "wait": self.wait,
        }
        kinds, weights = list(works), [self.odds.works[kind] for kind in works]
        for _ in range(self.odds.incarnations):
            self.filesystem.fails_sync = self._fails_sync
            if self.rng.random() < self.odds.midst:
                self.filesystem.crash_after_changes = self.rng.randint(0, 3 * self.odds.steps)
            power, kind = self.odds.power, ""
            try:
                for _ in range(self.rng.randint(1, self.odds.steps)):
                    kind = "install" if self.model.offered else self.rng.choices(kinds, weights)[0]
                    with checker.in_order(checker.D6):
                        works[kind]()
                        if self.odds.compact and self._compact_rng.random() < self.odds.compact:
                            kind = "compact"
                            self.compact()
                self._keep_a_state_ahead()
            except PowerLost:
                self.trace.note(None, f"dies in the midst of {kind}")
            except OSError as error:
                self.trace.note(None, f"{kind}: {error}")
                power *= 0.25  # otherwise data that the cache has and the disk lacks would rarely be used
            self._die(power)
            self._restart(power)
            for _ in range(LOOKS):
                self.look()
        self._end()

    def append(self) -> None:
        """Append a few batches, sometimes of an earlier term than the replica's current term."""
        if not self.term or self.rng.random() < 0.05:
            self.vote()
        model, old = self.model, self.model.line
        base, batches = old.last + 1, list[Batch]()
        epoch = self.rng.randint(max(1, self.log.term_at(self.log.last_index)), self.term)
        for _ in range(self.rng.randint(1, 4)):
            batches.append(self._batch(base, epoch))
            base = batches[-1].last_offset + 1
        model.line = old.followed_by(batches)
        self.trace.note(None, f"append {old.last + 1}..{base - 1} of term {epoch}")
        try:
            self.log.append(batches)
        except OSError as error:
            if not is_disk_full(error):
                raise
            model.line = model.line.cut(self.log.last_index + 1)  # some of them may have been written
            self.faults[FULL_DISK] += 1

    def truncate(self) -> None:
        """Truncate uncommitted entries, mostly near the end."""
        lowest = max(self.model.first, self.model.committed + 1)
        firsts = [batch.base_offset for batch in self.model.line.batches if batch.base_offset >= lowest]
        if firsts:
            self._cut(self.rng.choice(firsts[-6:] if self.rng.random() < 0.7 else firsts))

    def _cut(self, first_removed: int) -> None:
        model = self.model
        self.trace.note(None, f"truncate from {first_removed}")
        model.allowed.append(model.line)
        model.line = model.line.cut(first_removed)
        model.durable = min(model.durable, first_removed - 1)
        truncate_suffix(self.log, Index(first_removed))
        model.allowed.clear()

    def take_sync(self) -> None:
        """Begin a sync, which covers all entries written before."""
        self.log.note_commit_index(Index(self.model.committed))
        sync = self.log.take_sync()
        if sync is not None:
            self.pending.append((sync, self.model.hard_states[-1]))

    def finish_sync(self) -> None:
        """Finish a random pending sync: overlapping syncs may end in any order."""
        if not self.pending:
            return
        sync, hard_state = self.pending.pop(self.rng.randrange(len(self.pending)))
        run_work(sync)
        self.log.sync_finished(sync)
        model, durable = self.model, int(self.log.durable_index)
        self.written += max(0, durable - model.durable)
        model.durable = durable
        # operations that need space wait for it
        model.is_created_durably |= self.filesystem.capacity_bytes is None
        if hard_state in model.hard_states:
            del model.hard_states[: model.hard_states.index(hard_state)]
        self.trace.note(None, f"durable up to {durable}")

    def vote(self) -> None:
        """Vote in a later term."""
        self.term += 1
        hard_state = HardState(Term(self.term), NodeId(self.rng.randint(1, 3)))
        self.model.hard_states.append(hard_state)
        self.log.save_hard_state(hard_state)

    def apply(self) -> None:
        """Apply some durable entries; the state is stored where a segment begins, or as a checkpoint."""
        model, states = self.model, self.log.states
        ends = [b.last_offset for b in model.line.batches if model.applied < b.last_offset <= model.durable]
        if not ends:
            return
        until = self.rng.choice(ends)
        base = self.log.base_from(Index(model.applied + 2))
        while base is not None and base <= until + 1:
            if base > model.first:
                at = Index(base - 1)
                states.keep(EntryId(self.log.term_at(at), at), state_below(base))
            base = self.log.base_from(Index(base + 1))
        model.applied, model.committed = until, max(model.committed, until)
        self.trace.note(None, f"applied up to {until}")
        if self.rng.random() < 0.1:
            save_checkpoint(self.log, Index(until), state_below(until + 1))

    def _keep_a_state_ahead(self) -> None:
        """Store a state that has applied entries which this disk may lose: a majority holds them, so they
        stay committed.
        """
        last = self.log.last_index
        if self._ahead_rng.random() < AHEAD_ODDS and last > self.log.durable_index:
            at = EntryId(self.log.term_at(last), last)
            self.log.states.save(at, state_below(last + 1))
            self._ahead = at
            self.trace.note(None, f"keeps the state at {at}, ahead of what is durable")

    def retain(self) -> None:
        """Delete the beginning of the log, up to an index with a stored state; see
        ``raftlog.node.group.applier``.
        """
        model, log = self.model, self.log
        bases = [base for base in log.states.standing if model.first < base <= model.durable]
        wanted = self.rng.choice([model.first, *(base for base in bases if log.base_from(base) == base)])
        closed = [segment for segment in log.closed_segments if segment.last < min(wanted, model.durable)]
        model.firsts_possible = {model.first, *(segment.last + 1 for segment in closed)}
        first = int(truncate_prefix(log, Index(wanted)))
        if first != model.first:
            checker.require(
                first == wanted, checker.D6, f"the log begins at {first}; the requested start is {wanted}"
            )
            self.trace.note(None, f"begins at {first}")
            model.committed = max(model.committed, first - 1)  # as the group knew when it stored that state
        model.begin(first)

    def compact(self) -> None:
        """Run a compaction round over the closed segments, sometimes with little memory."""
        model, log = self.model, self.log
        log.note_commit_index(Index(model.committed))
        segments = [segment for segment in log.compactable_segments if segment.last <= model.applied]
        work = Compactor(
            self.filesystem,
            DIRECTORY,
            segments,
            log.terms(),
            Index(max(self._clean_end, model.first)),
            keys_max=self._compact_rng.choice((1, 3, 1000)),
            joined_bytes_max=self._join_rng.choice((0, SETTINGS.segment_bytes, 3 * SETTINGS.segment_bytes)),
            step_bytes=self._compact_rng.choice((1, 300)),
            index_interval_bytes=SETTINGS.index_interval_bytes,
        )
        while (step := work.step()) is not None:
            if isinstance(step, RewrittenSegment):
                old, self.faults[COMPACTION] = model.line, self.faults[COMPACTION] + 1
                model.line = old.compacted(split_batches(self.filesystem.read_file(step.path)))
                checker.check_compacted(old, model.line, segments[-1].last + 1)
                model.allowed.append(old)
                carry_out(log.replace_change(step))
                model.allowed.clear()
                self.trace.note(None, f"compact {step.old[0].base}..{step.last}")
        self._clean_end = int(work.clean_end)

    def install(self) -> None:
        """Install a snapshot in place of the log, which may have later entries, or entries that conflict with
        the snapshot.
        """
        self.vote()
        self.take_sync()
        while self.pending:
            self.finish_sync()
        model, old = self.model, self.model.line
        if model.offered is not None and model.offered[0].index <= model.committed:
            model.offered = None  # a state that was stored ahead shows that more is committed
            return
        if model.offered is None:
            index = self.rng.randint(model.committed + 1, old.last + 5)
            model.offered = EntryId(Term(self.term), Index(index)), self._members()
        origin, members_then = model.offered
        index = origin.index
        cut = next((b.base_offset for b in old.batches if b.base_offset <= index <= b.last_offset), None)
        self.trace.note(None, f"install {origin}")
        model.allowed.append(old)
        model.durable = min(model.durable, index - 1 if cut is None else cut - 1)
        model.line = Line(origin, MembershipEntry(index, members_then))
        model.firsts_possible = {model.first, index + 1}
        try:
            install(self.log, origin, members_then, state_below(index + 1))
        except OSError as error:
            if not is_disk_full(error):
                raise
            model.line = old if cut is None else old.cut(cut)
            model.begin(model.first)
            self.faults[FULL_DISK] += 1
            self.filesystem.capacity_bytes = None
        else:
            model.offered = None
            model.durable = model.applied = model.committed = index
            model.is_created_durably = True
            model.begin(index + 1)
        model.allowed.clear()

    def fill_the_disk(self) -> None:
        """Leave little free space on the disk; if there was little already, free plenty of space."""
        used = self.filesystem.used_bytes
        is_full = self.filesystem.capacity_bytes is not None
        self.filesystem.capacity_bytes = None if is_full else used + self.rng.choice((0, 100, 1000))

    def look(self) -> None:
        """Check the first and last index of the log, and read some bytes."""
        first, last = int(self.log.first_index), int(self.log.last_index)
        if last >= first:
            first = self.rng.randint(first, last)
            last = self.rng.randint(first, last)
        checker.check_now(self.log, self.model, first, last, self.rng.choice((1, 500, 10_000)))

    def wait(self) -> None:
        """Let time pass, so that the active segment grows old."""
        self.clock.now_ms += self.rng.choice((10, 2000))

    def _batch(self, base: int, epoch: int) -> Batch:
        if self.rng.random() < self.odds.members:
            now_ms = self.clock.now_ms
            return members.batch_of(self._members(), index=Index(base), term=Term(epoch), timestamp_ms=now_ms)
        if self.odds.compact:
            return self._keyed_batch(base, epoch)
        body = self.rng.randbytes(self.rng.choice((0, 10, 100, 600)))
        count, at_ms = self.rng.randint(1, 5), self.clock.now_ms
        header = BatchHeader(base, len(body), epoch, 2, 0, 0, count - 1, at_ms, at_ms, -1, -1, -1, count)
        data = encode_batch(header, body)
        return Batch(data, parse_header(data))

    def _keyed_batch(self, base: int, epoch: int) -> Batch:
        rng = self._compact_rng
        records = [
            Record(rng.choice((None, rng.randbytes(rng.choice((0, 10, 100))))), rng.choice(KEYS))
            for _ in range(rng.randint(1, 5))
        ]
        data = build_batch(records, codec=rng.choice(list(Codec)), timestamp_ms=self.clock.now_ms)
        return stamp(data, base_offset=base, leader_epoch=epoch, append_time_ms=None)

    def _members(self) -> Membership:
        return Membership(frozenset(map(NodeId, self.rng.sample(range(1, 6), 3))))

    def _fails_sync(self, path: str) -> bool:
        fails = self.disk_rng.random() < self.odds.failing_syncs
        if fails:
            self.faults[FAILING_SYNC] += 1
        return fails

    def _die(self, power: float) -> None:
        """End the process; with ``power`` its machine loses power, too."""
        kind = LOSE_POWER if self.disk_rng.random() < power else CRASH
        self.faults[kind] += 1
        self.clock.now_ms += 1000
        self.trace.note(None, kind)
        if kind == LOSE_POWER:
            self.filesystem.lose_power(self.disk_rng)
        else:
            self.filesystem.restart()

    def _restart(self, power: float) -> None:
        self.filesystem.capacity_bytes = None
        while True:
            checker.check_files(self.filesystem, DIRECTORY)
            try:
                self.log = self._open()
                break
            except OSError:
                self._die(power)
        self.pending.clear()
        self._clean_end = 0
        self.model = checker.check_restart(self.log, self.model)
        self.term = self.model.hard_states[0].term
        self.log.store_initial_membership(INITIAL_MEMBERSHIP)
        term, ahead = self._ahead.term, self._ahead.index
        if self.model.first <= ahead <= self.model.line.last and self.log.term_at(ahead) == term:
            self.model.committed = max(self.model.committed, ahead)  # a majority holds it
        self.trace.note(None, f"opened {self.model.first}..{self.model.line.last} in term {self.term}")

    def _open(self) -> SegmentedLog:
        with checker.in_order(checker.D1):
            log = SegmentedLog.open(self.filesystem, DIRECTORY, SETTINGS, self.clock)
        checker.check_names(self.filesystem, DIRECTORY)
        return log

    def _end(self) -> None:
        """Stop the log cleanly: all data becomes durable, and the next process begins with the stored state
        and removes no entry.
        """
        self.filesystem.fails_sync = lambda path: False
        self.filesystem.crash_after_changes = None
        for work in (self.append, self.take_sync, self.append):
            work()
        last = self.log.last_index
        with checker.in_order(checker.D6):
            carry_out(self.log.close_change((last, state_below(last + 1))))
        self.filesystem.lose_power(self.disk_rng)
        log = self._open()
        tail, found = log.recovery.torn_tail, log.load_checkpoint()
        checker.require(tail is None, checker.D6, f"a clean stop leaves {tail}")
        checker.require(log.last_index == last, checker.D2, f"a clean stop at {last} leaves {log.last_index}")
        is_there = found == (last, state_below(last + 1))
        checker.require(is_there, checker.D5, f"a clean stop with the state at {last} leaves {found}")


def run_log(seed: int, odds: LogOdds | None = None, *, keeps_lines: bool = False) -> Result:
    """Run one seed, from the first opening of the log to the result."""
    run = LogRun(seed, odds, keeps_lines=keeps_lines)
    violations: tuple[Violation, ...] = ()
    with gc_off():
        try:
            run.run()
        except Broken as broken:
            violations = (Violation(run.now_s(), broken.invariant, broken.detail),)
        except (Exception, InvariantViolated) as error:
            violations = (Violation(run.now_s(), checker.D6, f"{type(error).__name__}: {error}"),)
    for violation in violations:
        run.trace.note(None, f"VIOLATION {violation.invariant}: {violation.detail}")
    return Result(
        name=f"log:{seed}",
        faults=run.faults,
        acknowledged=run.written,
        violations=violations,
        simulated_s=run.now_s(),
        trace=run.trace.hash,
        timeline=run.trace.timeline(),
    )
