"""Bugs in the source and the sink of Spark."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_STAGING = "tests/unit/spark/test_staging.py"
_PROGRESS = "tests/unit/spark/test_stream_progress.py"
_PLANNING = "tests/unit/spark/test_planning.py"
_DISCOVERY = "tests/unit/spark/test_discovery.py"
_OPTIONS = "tests/unit/spark/test_options.py"
_PACKAGE = "spark_io."


def _mutant(name: str, place: str, text: str, planted: str, script: str) -> Mutant:
    return Mutant(name, _PACKAGE + place, text, planted, script=script)


SPARK = (
    _mutant(
        "a batch that was committed before fails its query for ever",
        "commits:commit",
        "if not isinstance(newest, int):",
        "if True:",
        _STAGING,
    ),
    _mutant(
        "what a repeated batch has staged holds back readers",
        "commits:commit",
        "_abort(client, key, handles, run)\n        if newest == sequence and run is None:",
        "if False:",
        _STAGING,
    ),
    _mutant(
        "an attempt that lost is left open",
        "commits:_sweep",
        "one.state in _OPEN",
        "False",
        _STAGING,
    ),
    _mutant(
        "the driver of an old checkpoint is told that its batch is committed",
        "commits:commit",
        "return newest",
        "return sequence",
        _STAGING,
    ),
    _mutant(
        "two attempts of a task use one transaction",
        "staging:stage",
        'name = f"{key}~{task}"',
        'name = f"{key}~{task[0]}"',
        _STAGING,
    ),
    _mutant(
        "a task waits for what a dead run has prepared under its id",
        "commits:begun",
        "client.transactions.abort_batch(name.partition(KEY_END)[0], [prepared])",
        "pass",
        _STAGING,
    ),
    _mutant(
        "a new partition is read in a batch whose start the checkpoint does not have",
        "stream_progress:stream_ranges",
        "if one in start and end[one] > start[one]",
        "if end[one] > start.setdefault(one, 0)",
        _PROGRESS,
    ),
    _mutant(
        "a new partition enters at its end",
        "stream_progress:next_end",
        "{one: found.start for",
        "{one: found.end for",
        _PROGRESS,
    ),
    _mutant(
        "a leader that knows less takes a stream back",
        "stream_progress:next_end",
        "end[one] = max(at, available)",
        "end[one] = available",
        _PROGRESS,
    ),
    _mutant(
        "available now reads what comes meanwhile",
        "stream_progress:next_end",
        "available = min(available, target.get(one, at))",
        "pass",
        _PROGRESS,
    ),
    _mutant(
        "a deleted partition is left out without an error",
        "stream_progress:_check_present",
        "if fails:",
        "if False:",
        _PROGRESS,
    ),
    _mutant(
        "a partition with few records waits while others have many",
        "planning:limited",
        "1 + left * (size - 1) // others",
        "left * (size - 1) // others",
        _PLANNING,
    ),
    _mutant(
        "an offset is missing for a partition, and nobody says so",
        "positions:Positions.of",
        "if missing:",
        "if False:",
        _OPTIONS,
    ),
    _mutant(
        "a read of all begins with records that readers do not get",
        "discovery:_resolved",
        "if bounds.start else 0",
        "if False else bounds.start",
        _DISCOVERY,
    ),
    _mutant(
        "an offset beyond the end waits for records that may never come",
        "discovery:_resolved",
        "if offset > bounds.end:",
        "if False:",
        _DISCOVERY,
    ),
    _mutant(
        "a read goes on behind deleted records without an error",
        "discovery:surviving",
        "if fails:",
        "if False:",
        _DISCOVERY,
    ),
)
