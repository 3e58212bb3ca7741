"""Bugs in deciding which run may write into a sink."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_TESTS = "tests/unit/transactions/test_sinks.py"
_STAGING = "tests/unit/spark/test_staging.py"
_SINKS = "transactions.sinks:"
_DECISIONS = "transactions.decisions:Decisions."


def _mutant(name: str, place: str, text: str, planted: str, script: str = _TESTS) -> Mutant:
    return Mutant(name, place, text, planted, script=script)


SINKS = (
    _mutant(
        "runs register as many sinks as they like",
        _DECISIONS + "_begin_run",
        '_check_room(self.state.sinks, "sinks")',
        "pass",
    ),
    _mutant(
        "batches without a run make as many sinks as they like",
        _DECISIONS + "_commit_batch",
        '_check_room(self.state.sinks, "sinks")',
        "pass",
    ),
    _mutant(
        "a run that registers refuses a batch that was committed before",
        _DECISIONS + "completed",
        "isinstance(request, CommitBatch | AbortBatch)",
        "False",
    ),
    _mutant(
        "a retired run of a sink registers again",
        _SINKS + "registered",
        "if ask.run in before.retired:",
        "if False:",
    ),
    _mutant(
        "a driver without a run commits into a sink with an owner",
        _SINKS + "check_driver",
        "elif (ask.run, ask.run_epoch) != (before.run, before.epoch):",
        "elif ask.run and (ask.run, ask.run_epoch) != (before.run, before.epoch):",
    ),
    _mutant(
        "a former run commits the next batch",
        _SINKS + "check_driver",
        "elif (ask.run, ask.run_epoch) != (before.run, before.epoch):",
        "elif not ask.run:",
    ),
    _mutant(
        "another query registers a run unasked",
        _SINKS + "registered",
        "if before.owner and ask.owner != before.owner and not ask.is_takeover:",
        "if False:",
    ),
    _mutant(
        "a batch behind a gap is committed",
        _SINKS + "is_new_batch",
        "if before.owner and ask.sequence > before.sequence + 1:",
        "if False:",
    ),
    _mutant(
        "a run registers with a batch behind a gap",
        _SINKS + "_skipped",
        "if before.owner and not ask.is_takeover:",
        "if False:",
    ),
    _mutant(
        "the first batches of a query that has taken a sink over are dropped",
        _SINKS + "is_new_batch",
        "if before is None or before.owner_before:",
        "if before is None:",
    ),
    _mutant(
        "a takeover without a batch forgets the newest batch of the owner before",
        _SINKS + "_with_run",
        'owner_before="" if newest_of == ask.owner else newest_of,',
        'owner_before="" if newest_of == ask.owner else "nobody",',
    ),
    _mutant(
        "a paused run that repeats the newest batch fences the one at work",
        _SINKS + "registered",
        "if is_committed(ask, before):",
        "if ask.run == before.run and is_committed(ask, before):",
    ),
    _mutant(
        "a run with an old checkpoint is told that its batch is committed",
        _SINKS + "registered",
        "check_repeated(ask.key, ask.sequence, before.handles, before)",
        "pass",
    ),
    _mutant(
        "a new run has the epoch of the run before",
        _SINKS + "_with_run",
        "before.epoch if is_same else before.epoch + 1",
        "before.epoch",
    ),
    _mutant(
        "the run before is not retired by the next one",
        _SINKS + "_with_run",
        "before.retired if is_same or not before.run else _retired(before)",
        "before.retired",
    ),
    _mutant(
        "a task of a former run opens the transaction of the same task of the newest",
        _DECISIONS + "_open",
        "sinks.check_epoch(name, ask.run_epoch, self.state.sinks)",
        "pass",
    ),
    _mutant(
        "a task of a former run takes part with another partition",
        _DECISIONS + "_join",
        "sinks.check_epoch(name, found.run_epoch, self.state.sinks)",
        "pass",
    ),
    _mutant(
        "what former runs have open holds back readers until its time is over",
        _DECISIONS + "_begin_run",
        "if one[1].run_epoch != sink.epoch",
        "if False",
    ),
    _mutant(
        "attempts that do not count stay open when their batch is committed",
        _DECISIONS + "_commit_batch",
        "if ask.run:",
        "if False:",
    ),
    _mutant(
        "the abort of a run ends what a newer run has staged",
        _DECISIONS + "_abort_batch",
        "if one[1].run_epoch == ask.run_epoch",
        "if True",
    ),
    _mutant(
        "the abort of a run leaves what its lost tasks have open",
        _DECISIONS + "_abort_batch",
        "if ask.run_epoch:",
        "if False:",
    ),
    _mutant(
        "a streaming batch without rows is not counted",
        "spark_io.commits:commit",
        "if not handles and run is None:",
        "if not handles:",
        _STAGING,
    ),
    _mutant(
        "the abort of a batch of a stream sweeps the whole sink",
        "spark_io.commits:abandon",
        "if run is None:",
        "if True:",
        _STAGING,
    ),
    _mutant(
        "a repetition of a committed batch is committed again",
        "spark_io.sink:StreamWriter.commit",
        "or staged[0].is_committed",
        "",
        _STAGING,
    ),
)
