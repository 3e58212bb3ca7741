"""Bugs in the client's workers: the order of calls, what is committed, and what becomes of failed records."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

PARTS = "tests/unit/client/test_worker.py"
CORE = "tests/unit/client/test_worker_rebalances.py"

WORKERS = (
    Mutant(
        "two records of a key are handled at a time",
        "raftlog.client.worker.lanes:Lanes.begin",
        "self._busy.add(lane)",
        "self._ready.append(lane) if waiting else None",
        script=PARTS,
    ),
    Mutant(
        "a lane that is free again is forgotten",
        "raftlog.client.worker.lanes:Lanes.end",
        "if lane in self._waiting:",
        "if False:",
        script=PARTS,
    ),
    Mutant(
        "a worker commits behind a record that is not handled",
        "raftlog.client.worker.progress:Progress.handled",
        "while self._begun and self._begun[0].offset in self._handled:",
        "while self._begun and self._begun[0].offset <= offset:",
        script=PARTS,
    ),
    Mutant(
        "records of a lost assignment are handled",
        "raftlog.client.worker.core:WorkerCore._begin_calls",
        "if self._consumer.epoch != self._epoch:",
        "if False:",
        script=CORE,
    ),
    Mutant(
        "a rebalance does not wait for the calls of a worker",
        "raftlog.client.worker.core:WorkerCore._begin_calls",
        "self._consumer.is_handling = bool(self._calls)",
        "self._consumer.is_handling = False",
        script=CORE,
    ),
    Mutant(
        "a late call acknowledges records of another assignment",
        "raftlog.client.worker.core:WorkerCore._handle",
        "if self._progress.get(target, job.progress) is job.progress:",
        "if True:",
        script=CORE,
    ),
    Mutant(
        "a failed record is acknowledged before it is stored",
        "raftlog.client.worker.failures:Failures._store",
        "attempts += 1",
        "return None",
        script=CORE,
    ),
    Mutant(
        "a retry does not wait for its time",
        "raftlog.client.worker.failures:Failures.put_aside",
        "failed.as_retry(), pause_ms)",
        "failed.as_retry(), 0)",
        script=CORE,
    ),
    Mutant(
        "a record that finds no room among the delayed messages is tried again at once",
        "raftlog.client.worker.failures:Failures._store",
        "except RecordTooLarge:",
        "except RaftlogError:",
        script=CORE,
    ),
    Mutant(
        "attempts are counted anew after each retry",
        "raftlog.client.worker.core:WorkerCore._attempt",
        "attempts=job.record.attempts + 1,",
        "attempts=1,",
        script=CORE,
    ),
    Mutant(
        "a producer's own header is taken for ours",
        "raftlog.records.failures:_split",
        "begin = len(names) - 1 - names[::-1].index(ORIGIN)",
        "begin = names.index(ORIGIN)",
        script="tests/unit/records/test_failures.py",
    ),
    Mutant(
        "a failed record without a value is a tombstone",
        "raftlog.records.failures:FailedRecord.as_dead_letter",
        'return Record(self.value or b"", self.id',
        "return Record(self.value, self.id",
        script="tests/unit/records/test_failures.py",
    ),
)
