"""Bugs planted in the storage: runs of logs alone must detect each of them."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction

import pytest

from raftlog.storage import durable_state
from raftlog.storage.durable_state import DurableState
from raftlog.storage.filesystem import Buffer, File, Filesystem
from raftlog.storage.log_sync import LogSync
from raftlog.storage.recovery import _Opening
from raftlog.storage.slots import DurableEnd
from raftlog.testing.fake_filesystem import FakeFile
from raftlog.types import Index, Term
from verification.simulator.storage_level.log_run import run_log

SEEDS = 200

original_run = LogSync.run
original_make_durable = _Opening._make_durable
original_make_slot = durable_state._make_durable
original_write_at = FakeFile.write_at
original_cut = FakeFile.truncate


def truncation_not_synced(self: FakeFile, size: int) -> None:
    def next_sync() -> None:
        del self.sync

    original_cut(self, size)
    self.sync = next_sync  # type: ignore[method-assign]


def promise_not_lowered(self: DurableState, durable_end: DurableEnd) -> None:
    self.generation += 1


def truncation_unknown_to_syncs(self: DurableState, durable_end: DurableEnd) -> None:
    self.state.durable_end = min(self.state.durable_end, durable_end, key=lambda each: each.index)
    self.save()


def directory_not_synced(self: LogSync) -> None:
    self.names_changed = False
    original_run(self)


def rolled_segment_not_synced(self: LogSync) -> None:
    self.files = self.files[-1:]
    original_run(self)


def hard_state_not_synced(self: DurableState) -> None:
    with self._lock:
        self._dirty = False
        self._write(sync=False)


def log_start_not_durable(
    self: DurableState, log_start: Index, before: Term, end_up_to: Callable[[Index], DurableEnd]
) -> None:
    self.state.log_start, self.state.before = log_start, before


def found_log_not_synced(self: _Opening, files: list[File]) -> None:
    original_make_durable(self, [])


def found_slot_not_written_again(filesystem: Filesystem, path: str, slot: bytes) -> None:
    if not filesystem.exists(path):  # a birth
        return original_make_slot(filesystem, path, slot)
    file = filesystem.open(path)
    file.sync()
    file.close()
    return None


def nothing_is_written_over(self: FakeFile, position: int, data: Buffer) -> None:
    if not self.path.endswith(".log"):
        original_write_at(self, position, data)


def cut_to_the_same_size_left_out(self: FakeFile, size: int) -> None:
    if size != self.size:
        original_cut(self, size)


RARE = {cut_to_the_same_size_left_out: 240}  # a seed soon before the first that shows it


@pytest.mark.parametrize(
    ("owner", "name", "bug"),
    [
        (FakeFile, "truncate", truncation_not_synced),
        (DurableState, "withdraw", promise_not_lowered),
        (DurableState, "withdraw", truncation_unknown_to_syncs),
        (LogSync, "run", directory_not_synced),
        (LogSync, "run", rolled_segment_not_synced),
        (DurableState, "flush", hard_state_not_synced),
        (DurableState, "set_log_start", log_start_not_durable),
        (_Opening, "_make_durable", found_log_not_synced),
        (durable_state, "_make_durable", found_slot_not_written_again),
        (FakeFile, "write_at", nothing_is_written_over),
        (FakeFile, "truncate", cut_to_the_same_size_left_out),
    ],
    ids=lambda value: getattr(value, "__name__", "") if isfunction(value) else "",
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, bug: Callable[..., None]
) -> None:
    assert hasattr(owner, name), "the bug no longer applies"
    monkeypatch.setattr(owner, name, bug)
    first = RARE.get(bug, 0)
    assert any(run_log(seed).violations for seed in range(first, first + SEEDS))
