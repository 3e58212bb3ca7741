"""Checks a log after any crash; invariants are numbered and titled as in ``docs/invariants.md``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from raftlog.core.membership import NOBODY
from raftlog.core.ready import Restored
from raftlog.errors import InvariantViolated, LogCorrupt
from raftlog.repair.verify import examine
from raftlog.storage.filesystem import Filesystem
from raftlog.storage.segmented_log import SegmentedLog
from raftlog.types import Index
from verification.simulator.result import Broken
from verification.simulator.storage_level.line import Line, Model, state_below

D1 = "D1 a log opens after any crash"
D2 = "D2 durable entries are restored"
D3 = "D3 votes and terms are restored"
D4 = "D4 members are those of the log"
D5 = "D5 a log begins where it has a state"
D6 = "D6 a log holds what was written"
D7 = "D7 compaction keeps the newest record of each key"


def require(holds: bool, invariant: str, detail: object) -> None:
    """Raise ``Broken`` with the invariant and the detail if ``holds`` is false."""
    if not holds:
        raise Broken(invariant, str(detail))


@contextmanager
def in_order(invariant: str) -> Iterator[None]:
    """Report an exception in the ``with`` block as a violation: no crash and no valid request may stop the
    log.
    """
    try:
        yield
    except (LogCorrupt, InvariantViolated) as error:
        raise Broken(invariant, f"{type(error).__name__}: {error}") from error


def check_files(filesystem: Filesystem, directory: str) -> None:
    """Check that a verification of the log's files finds no damage after a crash."""
    seen = examine(filesystem, directory)
    require(seen.is_clean, D1, f"a crash passes for damage: {seen.damages} {seen.holes} {seen.doubt}")


def check_names(filesystem: Filesystem, directory: str) -> None:
    """Check that no file of an unfinished compaction is left: a later start could take it in place of newer
    records.
    """
    left = [n for n in filesystem.list_directory(directory) if n.endswith((".compacted", ".joining"))]
    require(not left, D1, f"an opening leaves {left}")


def check_restart(log: SegmentedLog, model: Model) -> Model:
    """Check a log that was opened after a crash; return the model for the next process."""
    first, last = int(log.first_index), int(log.last_index)
    require(first in model.firsts_possible, D2, f"begins at {first}, not at one of {model.firsts_possible}")
    require(last >= model.durable, D2, f"ends at {last}, {model.durable} was durable")
    require(log.durable_index == last, D2, f"ends at {last}, counts as durable up to {log.durable_index}")
    line = _found_line(log, model, first, last)
    _check_terms(log, line, first, last)
    restored = log.restored(NOBODY)
    _check_restored(restored, model)
    base, inside = line.membership_before(first), line.memberships(first, last)
    is_young = not model.is_created_durably and first == 0
    require(restored.membership == base or is_young, D4, f"{restored.membership} at {first}, not {base}")
    require(list(restored.memberships) == inside, D4, f"{restored.memberships} in the log, not {inside}")
    return Model(
        line,
        durable=last,
        applied=_check_states(log, first, last),
        committed=max(model.committed, line.origin.index),
        hard_states=[restored.hard_state],
        first=first,
        firsts_possible={first},
        is_created_durably=model.is_created_durably or first > 0,
        offered=None if model.offered is None or line.origin == model.offered[0] else model.offered,
    )


def check_now(log: SegmentedLog, model: Model, first: int, last: int, bytes_max: int) -> None:
    """Check the first and last index of the log and the results of reads, while its process runs."""
    line = model.line
    ends = (int(log.last_index), int(log.durable_index))
    expected = (max(line.last, model.first - 1), max(model.durable, model.first - 1))
    require(ends == expected, D6, f"last and durable are {ends}, not {expected}")
    if first <= last:
        found = log.read(Index(first), Index(last), bytes_max=bytes_max)
        equal = found.read() == line.bytes_in(found.first, found.last)
        holds = equal and found.first <= first <= found.last
        require(holds, D6, f"a read of {first}..{last} gives other bytes")


def check_compacted(old: Line, new: Line, end: int) -> None:
    """Check a segment that a compaction round up to ``end`` has rewritten: it may lack only superseded
    records.
    """
    before, after = old.records(), new.records()
    newest = {record.key: record.offset for record in before.values() if record.offset < end}
    for offset, record in before.items():
        is_superseded = record.key is not None and offset < newest.get(record.key, -1)
        require(offset in after or is_superseded, D7, f"{record} is removed, its key's newest: {newest}")
    require(all(before.get(at) == one for at, one in after.items()), D7, "there are other records")
    whole, left = old.memberships(0, old.last), new.memberships(0, new.last)
    require(whole == left, D7, f"memberships {left}, not {whole}")
    require(new.ends <= old.ends and new.last == old.last, D7, "batches end at other offsets")


def _found_line(log: SegmentedLog, model: Model, first: int, last: int) -> Line:
    found = log.read(Index(first), Index(last), bytes_max=1 << 30).read() if last >= first else b""
    for line in (model.line, *model.allowed):
        if first > line.origin.index and last in line.ends and found == line.bytes_in(first, last):
            return line.cut(last + 1)
    raise Broken(D2, f"{first}..{last} is not a part of the written batches")


def _check_terms(log: SegmentedLog, line: Line, first: int, last: int) -> None:
    for index in range(first - 1, last + 1):
        found, expected = log.term_at(Index(index)), line.term_at(index)
        require(found == expected, D3, f"entry {index} is of term {found}, not {expected}")
    begins: dict[int, int] = {}
    for batch in line.batches:
        if first <= batch.base_offset:
            begins.setdefault(batch.leader_epoch, batch.base_offset)
    found_begins = {int(entry.term): int(entry.index) for entry in log.terms()}
    require(found_begins == begins, D3, f"terms begin at {found_begins}, not {begins}")


def _check_restored(restored: Restored, model: Model) -> None:
    votes, hint = model.hard_states, restored.commit_hint
    require(restored.hard_state in votes, D3, f"{restored.hard_state} is none of {votes}")
    require(hint <= max(model.committed, *model.firsts_possible), D3, f"{hint} passes {model.committed}")


def _check_states(log: SegmentedLog, first: int, last: int) -> int:
    """Check which index the newest stored state has."""
    for base in log.states.standing:
        require(first <= base <= last + 1, D5, f"a state at {base} stands, the log is {first}..{last}")
        require(log.states.load(base) == state_below(base), D5, f"the state at {base} is another one's")
    if first > 0:
        require(log.states.load(Index(first)) is not None, D5, f"begins at {first} without its state")
    newest = log.load_checkpoint()
    if newest is None:
        return -1
    index, state = newest
    require(first - 1 <= index <= last, D5, f"the newest state is of {index}, the log is {first}..{last}")
    require(state == state_below(index + 1), D5, f"the state at {index} is {state!r}")
    return int(index)
