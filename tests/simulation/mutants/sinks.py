"""Bugs in deciding which driver may commit the next batch of a sink."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_TESTS = "tests/unit/transactions/test_sinks.py"
_STAGING = "tests/unit/spark/test_staging.py"


def _mutant(name: str, place: str, text: str, planted: str, script: str = _TESTS) -> Mutant:
    return Mutant(name, place, text, planted, script=script)


SINKS = (
    _mutant(
        "a retired run of a sink commits again",
        "transactions.sinks:check_driver",
        "if ask.run in before.retired or not ask.run:",
        "if not ask.run:",
    ),
    _mutant(
        "a driver without a run commits into a sink with an owner",
        "transactions.sinks:check_driver",
        "if ask.run in before.retired or not ask.run:",
        "if ask.run in before.retired:",
    ),
    _mutant(
        "another query commits into a sink unasked",
        "transactions.sinks:check_driver",
        "if ask.owner != before.owner and not ask.is_takeover:",
        "if False:",
    ),
    _mutant(
        "a batch behind a gap is committed",
        "transactions.sinks:is_new_batch",
        "ask.sequence > before.sequence + 1",
        "False",
    ),
    _mutant(
        "the first batches of a query that has taken a sink over are dropped",
        "transactions.sinks:_changes_owner",
        "return bool(before.owner) and ask.owner != before.owner",
        "return False",
    ),
    _mutant(
        "a run with an old checkpoint fences the one that is at work",
        "transactions.sinks:with_run",
        "if ask.run == before.run or ask.sequence < before.sequence:",
        "if ask.run == before.run:",
    ),
    _mutant(
        "a run that repeats the newest batch fences nobody",
        "transactions.decisions:Decisions._commit_batch",
        "if successor is not None:",
        "if False:",
    ),
    _mutant(
        "the run before is not retired by the next batch",
        "transactions.sinks:after",
        "retired=_retired(ask, before),",
        "retired=(),",
    ),
    _mutant(
        "a streaming batch without rows is not counted",
        "spark_io.commits:commit",
        "if not handles and driver is None:",
        "if not handles:",
        _STAGING,
    ),
    _mutant(
        "an abort ends what another query has staged in the sink",
        "spark_io.commits:abandon",
        'f"{key}{KEY_END}{tasks}"',
        'f"{key}{KEY_END}"',
        _STAGING,
    ),
)
