"""Random work on a segmented log, a power loss anywhere, and what must be back afterwards.

Syncs may fail, too: the disk then lacks what the page cache shows, and a process that is started anew on the
same machine reads it there.

The model is a line of batches, and who took part where it begins. At every moment it
knows which logs a crash may leave: any prefix of what was there that holds all that was durable; while a
truncation or a snapshot's install is under way, the log before it, too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from raftlog.core.membership import NOBODY, Membership, MembershipEntry
from raftlog.core.ready import HardState
from raftlog.records.batch import Batch
from raftlog.storage import members
from raftlog.storage.fake_filesystem import FakeFilesystem, PowerLost
from raftlog.storage.log_storage import Sync
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.storage.verify import examine
from raftlog.types import BEFORE_LOG, EntryId, Index, NodeId, Term
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import storage_batch

SETTINGS = LogSettings(segment_bytes=700, segment_ms=1000, index_interval_bytes=150)
DIRECTORY = "/data/topic/Partition-0"
BIRTH = Membership(frozenset({NodeId(1), NodeId(2), NodeId(3)}))
AT_BIRTH = MembershipEntry(Index(-1), BIRTH)


@dataclass(frozen=True)
class Line:
    """A log as it should be: where it begins, who took part there, all since."""

    origin: EntryId = BEFORE_LOG
    membership: MembershipEntry = AT_BIRTH
    batches: tuple[Batch, ...] = ()

    @property
    def last(self) -> int:
        return self.batches[-1].last_offset if self.batches else self.origin.index

    def cut(self, first_removed: int) -> Line:
        """Without this entry and what follows it, which begins a batch."""
        return self.with_batches([batch for batch in self.batches if batch.base_offset < first_removed])

    def with_batches(self, batches: list[Batch]) -> Line:
        return Line(self.origin, self.membership, tuple(batches))

    def bytes_in(self, first: int, last: int) -> bytes:
        return b"".join(bytes(batch.data) for batch in self.batches if first <= batch.base_offset <= last)

    def term_at(self, index: int) -> int:
        """Of an entry not before the origin."""
        term = self.origin.term
        for batch in self.batches:
            term = Term(batch.leader_epoch) if batch.base_offset <= index else term
        return term

    def memberships(self, first: int, last: int) -> list[MembershipEntry]:
        """Those that stand in the log between these."""
        return [
            MembershipEntry(Index(batch.base_offset), membership)
            for batch in self.batches
            if first <= batch.base_offset <= last and (membership := members.membership_in(batch)) is not None
        ]


def state_below(index: int) -> bytes:
    """What the state machine has come to before this entry. What is committed there is equal everywhere."""
    return b"all below %d" % index


@dataclass
class Model:
    """What the log should hold, and what a crash may do to it."""

    line: Line = Line()
    durable: int = -1
    applied: int = -1  # what is committed here: never cut, as far as this life knows
    allowed: list[Line] = field(default_factory=list)  # other logs a crash may leave a prefix of
    hard_states: list[HardState] = field(default_factory=lambda: [HardState(Term(0), None)])
    first: int = 0
    firsts_possible: set[int] = field(default_factory=lambda: {0})


class StorageLife:
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
        log = SegmentedLog.open(self.filesystem, DIRECTORY, SETTINGS, self.clock)
        log.keep_birth(BIRTH)
        return log

    def step(self) -> None:
        """One random thing; the model learns first what may come of it."""
        works = {
            self.append: 10,
            self.truncate: 2,
            self.take: 6,
            self.finish: 6,
            self.vote: 1,
            self.apply: 4,
            self.retain: 1,
            self.install: 0.3,
            self.look: 2,
            self.wait: 1,
        }
        self.rng.choices(list(works), weights=list(works.values()))[0]()

    def append(self) -> None:
        if not self.term or self.rng.random() < 0.05:
            self.vote()
        line = self.model.line
        base, batches = line.last + 1, list[Batch]()
        epoch = self.rng.randint(max(1, self.log.term_at(self.log.last_index)), self.term)
        for _ in range(self.rng.randint(1, 4)):
            batch = self.batch(base, epoch)
            batches.append(batch)
            base = batch.last_offset + 1
        self.model.line = line.with_batches([*line.batches, *batches])
        self.log.append(batches)

    def batch(self, base: int, epoch: int) -> Batch:
        if self.rng.random() < 0.1:
            voters = Membership(frozenset(map(NodeId, self.rng.sample(range(1, 6), 3))))
            return members.batch_of(voters, index=Index(base), term=Term(epoch), timestamp_ms=base)
        body = self.rng.randbytes(self.rng.choice((0, 10, 100, 600)))
        return storage_batch(base, self.rng.randint(1, 5), epoch=epoch, timestamp_ms=base, body=body)

    def truncate(self) -> None:
        model = self.model
        lowest = max(model.first, model.applied + 1)
        firsts = [batch.base_offset for batch in model.line.batches if batch.base_offset >= lowest]
        if firsts:
            self.cut(self.rng.choice(firsts[-6:] if self.rng.random() < 0.7 else firsts))

    def cut(self, first_removed: int) -> None:
        model = self.model
        model.allowed.append(model.line)
        model.line = model.line.cut(first_removed)
        model.durable = min(model.durable, first_removed - 1)
        self.log.truncate_suffix(Index(first_removed))
        model.allowed.clear()

    def take(self) -> None:
        self.log.note_commit_index(self.log.durable_index)
        sync = self.log.take_sync()
        if sync is not None:
            self.pending.append((sync, self.model.hard_states[-1]))

    def finish(self) -> None:
        """Syncs that overlap end in any order."""
        if self.pending:
            sync, hard_state = self.pending.pop(self.rng.randrange(len(self.pending)))
            sync.run()
            self.log.sync_finished(sync)
            self.model.durable = int(self.log.durable_index)
            saved = self.model.hard_states
            del saved[: max((i for i, each in enumerate(saved) if each == hard_state), default=0)]

    def vote(self) -> None:
        self.term += 1
        hard_state = HardState(Term(self.term), NodeId(self.rng.randint(1, 3)))
        self.model.hard_states.append(hard_state)
        self.log.save_hard_state(hard_state)

    def apply(self) -> None:
        """Some of what is durable; its state is kept where a segment begins, or as a checkpoint."""
        model, states = self.model, self.log.states
        ends = [b.last_offset for b in model.line.batches if model.applied < b.last_offset <= model.durable]
        if not ends:
            return
        until = self.rng.choice(ends)
        base = self.log.base_from(Index(model.applied + 2))
        while base is not None and base <= until + 1:
            if base > model.first:
                states.keep(base, state_below(base))
            base = self.log.base_from(Index(base + 1))
        model.applied = until
        if self.rng.random() < 0.1:
            self.log.save_checkpoint(Index(until), state_below(until + 1))

    def retain(self) -> None:
        """A log begins where its state stands, or at its first entry."""
        model, log = self.model, self.log
        bases = [base for base in log.states.standing if model.first < base <= model.durable]
        wanted = self.rng.choice([model.first, *(base for base in bases if log.base_from(base) == base)])
        limit = min(wanted, model.durable)
        closed = [segment for segment in log.closed_segments if segment.last < limit]
        model.firsts_possible = {model.first, *(segment.last + 1 for segment in closed)}
        model.first = int(log.truncate_prefix(Index(wanted)))
        model.firsts_possible = {model.first}

    def install(self) -> None:
        """A snapshot takes the log's place: of what lies ahead, or of what conflicts with this log."""
        self.vote()
        self.take()
        while self.pending:
            self.finish()
        model = self.model
        old = model.line
        index = self.rng.randint(model.applied + 1, old.last + 5)
        kept = next((b.base_offset for b in old.batches if b.base_offset <= index <= b.last_offset), None)
        if kept is not None and kept < max(model.first, model.applied + 1):
            return
        membership = Membership(frozenset(map(NodeId, self.rng.sample(range(1, 6), 3))))
        origin = EntryId(Term(self.term), Index(index))
        model.allowed.append(old)
        model.durable = min(model.durable, index - 1 if kept is None else kept - 1)
        model.line = Line(origin, MembershipEntry(Index(index), membership))
        model.firsts_possible = {model.first, index + 1}
        self.log.install(origin, membership, state_below(index + 1))
        model.allowed.clear()
        model.durable = model.applied = index
        model.first = index + 1
        model.firsts_possible = {model.first}

    def look(self) -> None:
        log, line = self.log, self.model.line
        assert log.last_index == max(line.last, log.first_index - 1)
        assert log.durable_index == max(self.model.durable, log.first_index - 1)
        if log.last_index >= log.first_index:
            first = self.rng.randint(log.first_index, log.last_index)
            last = self.rng.randint(first, log.last_index)
            found = log.read(Index(first), Index(last), bytes_max=self.rng.choice((1, 500, 10_000)))
            assert found.read() == line.bytes_in(found.first, found.last)
            assert found.first <= first <= found.last

    def wait(self) -> None:
        self.clock.now_ms += self.rng.choice((10, 2000))

    def live(self, steps: int, *, lives: int, failing_syncs: float = 0.0) -> None:
        """So many lives, each ended between two steps or in the midst of one, and judged."""
        self.filesystem.fails_sync = lambda path: self.rng.random() < failing_syncs
        for _ in range(lives):
            power_odds = 0.8
            if self.rng.random() < 0.5:
                self.filesystem.crash_after_changes = self.rng.randint(0, 3 * steps)
            try:
                for _ in range(self.rng.randint(1, steps)):
                    self.step()
            except PowerLost:
                pass
            except OSError:
                power_odds = (
                    0.2  # or else what the cache shows and the disk lacks would rarely be relied upon
                )
            self.crash_and_check(power_odds)
            for _ in range(3):
                self.look()
        self.filesystem.fails_sync = lambda path: False
        self.log.close()
        assert self.open().recovery.torn_tail is None

    def crash_and_check(self, power_odds: float = 0.8) -> None:
        """Lose power (or the process only), open again, compare; the model then is what was found."""
        self.stop(power_odds)
        while True:
            seen = examine(self.filesystem, DIRECTORY)
            assert seen.is_clean, f"a crash passes for damage: {seen}"
            try:
                self.log, self.pending = self.open(), []
                break
            except OSError:
                self.stop(power_odds)
        model, first, last = self.model, int(self.log.first_index), int(self.log.last_index)
        assert first in model.firsts_possible
        assert last >= model.durable
        found = self.log.read(Index(first), Index(last), bytes_max=1 << 30).read() if last >= first else b""
        matches = [line for line in (model.line, *model.allowed) if self.is_found(line, found, first, last)]
        assert matches, "something was invented, or lost in the middle"
        restored = self.log.restored(NOBODY)
        assert restored.hard_state in model.hard_states
        assert restored.commit_hint <= last
        line = matches[0].cut(last + 1)
        self.check_terms(line, first, last)
        base = [line.membership, *line.memberships(0, first - 1)][-1]
        assert restored.membership == base.membership
        assert list(restored.memberships) == line.memberships(first, last)
        self.model = Model(
            line,
            last,
            self.check_states(first, last),
            hard_states=[restored.hard_state],
            first=first,
            firsts_possible={first},
        )
        self.term = restored.hard_state.term
        assert self.log.durable_index == last

    def is_found(self, line: Line, found: bytes, first: int, last: int) -> bool:
        """Whether the log holds this line from ``first`` on, and ends where one of its batches does."""
        ends = {line.origin.index, *(batch.last_offset for batch in line.batches)}
        return first > line.origin.index and last in ends and found == line.bytes_in(first, last)

    def stop(self, power_odds: float) -> None:
        """The process ends, with or without the machine."""
        if self.rng.random() < power_odds:
            self.filesystem.lose_power(self.rng)
        else:
            self.filesystem.restart()

    def check_terms(self, line: Line, first: int, last: int) -> None:
        for index in range(first - 1, last + 1):
            assert self.log.term_at(Index(index)) == line.term_at(index)
        terms: dict[int, int] = {}
        for batch in line.batches:
            if first <= batch.base_offset:
                terms.setdefault(batch.leader_epoch, batch.base_offset)
        assert {int(entry.term): int(entry.index) for entry in self.log.terms()} == terms

    def check_states(self, first: int, last: int) -> int:
        """How far the newest state goes. A log that has lost its beginning has one that leads up to it."""
        newest = self.log.load_checkpoint()
        for base in self.log.states.standing:
            assert self.log.states.load(base) == state_below(base)
        if first > 0:
            assert self.log.states.load(Index(first)) == state_below(first)
        if newest is None:
            assert first == 0
            return -1
        assert first - 1 <= newest[0] <= last
        assert newest[1] == state_below(newest[0] + 1)
        return int(newest[0])
