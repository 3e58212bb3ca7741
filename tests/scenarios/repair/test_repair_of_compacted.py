"""Repair of logs that were compacted, from logs that were compacted at another time or not at all."""

from __future__ import annotations

import random

import pytest

from raftlog.core.ready import HardState
from raftlog.records.batch import Batch, Codec, stamp
from raftlog.records.builder import Record, build_batch
from raftlog.repair.verify import examine
from raftlog.testing.fake_filesystem import FakeFilesystem
from raftlog.types import NodeId, Term
from tests.helpers.compacting import compact, records_in, stored, survivors
from tests.helpers.log_files import DIRECTORY, open_log, sync
from tests.helpers.repair_cluster import Cluster, leads

KEYS = [b"a", b"b", b"c", None]


def batches(seed: int, count: int = 40) -> list[Batch]:
    """Small batches of two terms; few keys, so that much is superseded."""
    rng = random.Random(seed)
    found: list[Batch] = []
    for number in range(count):
        records = [Record(b"value %d" % number, rng.choice(KEYS)) for _ in range(rng.randint(1, 3))]
        data = build_batch(records, codec=Codec.NONE, timestamp_ms=number)
        base = found[-1].last_offset + 1 if found else 0
        term = 1 if number < count // 2 else 2
        found.append(stamp(data, base_offset=base, leader_epoch=term, append_time_ms=number))
    return found


def log_of(entries: list[Batch], rounds: list[int]) -> FakeFilesystem:
    """A closed log, compacted whenever it had so many batches."""
    filesystem = FakeFilesystem()
    log = open_log(filesystem)
    log.save_hard_state(HardState(Term(2), NodeId(1)))
    for number, batch in enumerate(entries):
        log.append([batch])
        if number in rounds:
            sync(log)
            log.note_commit_index(log.last_index)
            compact(filesystem, log)
    sync(log)
    log.close()
    filesystem.restart()
    return filesystem


@pytest.mark.parametrize("seed", range(30))
def test_every_newest_record_is_there_after_a_repair(seed: int) -> None:
    rng = random.Random(seed)
    entries = batches(seed)

    def some_log() -> FakeFilesystem:
        return log_of(entries, sorted(rng.sample(range(5, 39), rng.randint(0, 2))))

    one, other = some_log(), some_log()
    names = [name for name in one.list_directory(DIRECTORY) if name.endswith(".log")]
    for name in rng.sample(names, rng.randint(1, len(names))):
        path = f"{DIRECTORY}/{name}"
        if rng.random() < 0.3:
            one.overwrite(path, None)
        else:
            one.flip_bit(path, rng.randrange(len(one.read_file(path))))
    if examine(one, DIRECTORY).is_clean:
        return
    is_led = rng.random() < 0.5
    log = Cluster(one, broker_2=leads(other, 2) if is_led else other).repair()
    found = records_in(stored(log))
    assert [record for record in survivors(entries, entries[-1].last_offset + 1) if record not in found] == []
    assert [record for record in found if record not in records_in(entries)] == []
    assert log.last_index == entries[-1].last_offset
