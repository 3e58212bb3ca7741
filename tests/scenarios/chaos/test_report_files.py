"""The files of a chaos run: what is written comes back, and a file that is no record is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.harness.report import InvalidRecord, read_record, write_report
from chaos.history_files import read_history
from tests.helpers import chaos_runs


def test_record_and_history_come_back(tmp_path: Path) -> None:
    record, history = chaos_runs.run(seconds=10, faults=3)
    path = write_report(tmp_path / "new", record, history)
    assert path == tmp_path / "new/report.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert read_record(tmp_path / "new/report.json") == record
    assert read_history(tmp_path / "new/history.jsonl") == history


def test_a_file_that_is_no_record_is_named_with_its_mistake(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    with pytest.raises(InvalidRecord, match=r"report\.json: .*name the report\.json of a run"):
        read_record(path)
    path.write_text('{"verdict": 3}')
    with pytest.raises(InvalidRecord, match=r"Expected `str`, got `int` - at `\$\.verdict`"):
        read_record(path)
