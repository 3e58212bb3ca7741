"""Bugs in what the connector makes of wrong input, and in how it gets to the workers."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_INPUT = "tests/unit/spark/test_bad_input.py"


def _mutant(name: str, place: str, text: str, planted: str, script: str = _INPUT) -> Mutant:
    return Mutant(name, f"spark_io.{place}", text, planted, script=script)


SPARK_INPUT = (
    _mutant(
        "a topic that was created again is waited for in silence",
        "stream_progress:check_ends",
        "if fails:",
        "if False:",
    ),
    _mutant(
        "a partition that is read to its end counts as created again",
        "stream_progress:behind",
        "bounds[one].end < at",
        "bounds[one].end <= at",
    ),
    _mutant(
        "failOnDataLoss=false does not go on with a topic that was created again",
        "stream_progress:check_ends",
        "if fails:",
        "if True:",
    ),
    _mutant(
        "an offset of a partition that is not read is ignored",
        "positions:Positions.of",
        "if extra:",
        "if False:",
    ),
    _mutant(
        "a row without a topic is sent to the topic None",
        "rows:_rows",
        "if None in topics:",
        "if False:",
    ),
    _mutant(
        "a null value is written as an empty text",
        "rows:_rows",
        'values = _bytes(batch.column("value"))',
        'values = [one or b"" for one in _bytes(batch.column("value"))]',
    ),
    _mutant(
        "each task opens clients of its own where the package is pickled by value",
        "connections:client_of",
        "sys.modules.setdefault(_PLACE, ModuleType(_PLACE))",
        "ModuleType(_PLACE)",
        "tests/unit/spark/test_registration.py",
    ),
)
