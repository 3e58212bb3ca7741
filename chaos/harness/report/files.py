"""The files of a run: the record, the history and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from chaos.harness.record import RunRecord
from chaos.harness.report.page import page
from chaos.history import History
from chaos.history_files import write_history

RECORD: Final = "report.json"
HISTORY: Final = "history.jsonl"
PAGE: Final = "report.html"


class InvalidRecord(Exception):
    """A file is no record of a run; the message names the field."""


def write_report(directory: Path, record: RunRecord, history: History) -> Path:
    """Write all files of a run, or replace them; returns the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    write_history(directory / HISTORY, history)
    path = directory / PAGE
    path.write_text(page(record, history), encoding="utf-8", errors="backslashreplace")
    return path


def read_record(path: Path) -> RunRecord:
    """The record of a run. Raises ``InvalidRecord``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidRecord(f"{path}: {error}; name the report.json of a run") from error
