"""The sparse index and the places of a segment against a plain list."""

from __future__ import annotations

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.core.ready import HardState
from raftlog.storage.epochs import EPOCHS_NAME, Epochs, load_epochs
from raftlog.storage.segmented_log import LogSettings, SegmentedLog
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.testing.memory_log import MemoryLog
from raftlog.types import Index, Term
from tests.helpers.log_files import index_at_time
from tests.helpers.manual_wall_clock import ManualWallClock
from tests.helpers.storage_batches import leader_change, storage_batch

BATCHES = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 300), st.integers(0, 50), st.booleans()),
    min_size=1,
    max_size=60,
)


# requirement: L6
@settings(max_examples=32)
@given(
    shapes=BATCHES, interval=st.integers(1, 2000), segment_bytes=st.integers(100, 5000), reopen=st.booleans()
)
def test_every_read_and_every_time_is_found_as_in_a_list(
    shapes: list[tuple[int, int, int, bool]], interval: int, segment_bytes: int, reopen: bool
) -> None:
    filesystem = FakeFilesystem()
    settings = LogSettings(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log = SegmentedLog.open(filesystem, "/log", settings, ManualWallClock())
    twin = MemoryLog()
    for kept in (log, twin):
        kept.save_hard_state(HardState(Term(1), None))
    for count, size, timestamp_ms, is_control in shapes:
        base = log.last_index + 1
        batch = storage_batch(base, count, timestamp_ms=timestamp_ms, body=bytes(size))
        if is_control:
            batch = leader_change(base, timestamp_ms)
        log.append([batch])
        twin.append([batch])
    if reopen:
        log.close()
        log = SegmentedLog.open(filesystem, "/log", settings, ManualWallClock())
    last = int(log.last_index)
    for first in range(0, last + 1, 3):
        for bytes_max in (1, 150, 700, 100_000):
            found = log.read(Index(first), Index(last), bytes_max=bytes_max)
            wanted = twin.read(Index(first), Index(last), bytes_max=bytes_max)
            assert (found.first, found.last) == (wanted.first, wanted.last)
            assert found.read() == wanted.read()
    for timestamp_ms in range(0, 52, 2):
        for start in range(0, last + 2, 3):
            at_or_after = timestamp_ms, Index(start)
            assert index_at_time(log, *at_or_after) == twin.index_at_time(*at_or_after)


@given(
    starts=st.lists(st.integers(0, 200), unique=True, max_size=12).map(sorted),
    covers=st.integers(0, 220),
    damage=st.none() | st.integers(0, 10_000),
)
def test_an_epochs_file_says_what_was_below_its_cover_or_nothing(
    starts: list[int], covers: int, damage: int | None
) -> None:
    epochs = Epochs()
    for term, start in enumerate(starts):
        epochs.note(term, start)
    filesystem = FakeFilesystem()
    filesystem.make_directories("/log")
    filesystem.replace_file(f"/log/{EPOCHS_NAME}", epochs.encode(covers, ()))
    if damage is not None:
        filesystem.flip_bit(f"/log/{EPOCHS_NAME}", damage % len(epochs.encode(covers, ())), damage % 8)
    found, _, found_covers = load_epochs(filesystem, "/log")
    assert found_covers == (covers if damage is None else -1)
    for index in range(covers if damage is None else 0):
        assert found.term_at(index) == epochs.term_at(index)


@given(
    steps=st.lists(st.tuples(st.sampled_from(["note", "cut", "trim"]), st.integers(0, 60)), max_size=20),
    lasts=st.lists(st.integers(-1, 80), min_size=1, max_size=4),
)
def test_a_promise_says_what_a_log_of_the_same_terms_would_say(
    steps: list[tuple[str, int]], lasts: list[int]
) -> None:
    epochs, first = Epochs(), 0
    for term, (step, index) in enumerate(steps):
        if step == "note" and index > (epochs._starts or [-1])[-1]:
            epochs.note(term, index)
        elif step == "cut" and index >= first:
            epochs.truncate_suffix(index)
        elif step == "trim" and index >= first:
            epochs.truncate_prefix(index)
            first = index
        fresh = Epochs()
        fresh._starts, fresh._terms = [*epochs._starts], [*epochs._terms]
        for last in lasts:
            terms = [entry for entry in fresh.entries(first) if entry.index <= last]
            packed = b"".join(
                entry.term.to_bytes(8, "big") + entry.index.to_bytes(8, "big") for entry in terms
            )
            durable_end = epochs.durable_end(first, 0, last)
            assert (durable_end.index, durable_end.terms) == (last, crc32c(packed))
            assert durable_end.last.term == (terms[-1].term if terms else 0)
