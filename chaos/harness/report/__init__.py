"""Reports a run: three files after its end, and a summary on the terminal while it runs.

``report.json`` is the record of the run, and ``history.jsonl`` has the operations of the clients.
``report.html`` shows both files to people: one file without scripts or requests, whose size does not depend
on the load.

Decides: the contents of the report. Leaves to others: the verdict and all counts (``chaos.harness.run``).

Read ``page`` first; ``timeline`` lists the panels, ``series`` computes their data, ``api.svg`` draws them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from chaos.harness.record import RunRecord
from chaos.harness.report.live import LiveSummary
from chaos.harness.report.page import page
from chaos.harness.report.surroundings import shown, surroundings
from chaos.history import History
from chaos.history_files import write_history

__all__ = ["InvalidRecord", "LiveSummary", "read_record", "shown", "surroundings", "write_report"]

RECORD: Final = "report.json"
HISTORY: Final = "history.jsonl"
PAGE: Final = "report.html"


class InvalidRecord(Exception):
    """A file is not the record of a run. The message names the invalid field."""


def write_report(directory: Path, record: RunRecord, history: History) -> Path:
    """Write all files of a run's report, and replace older files; return the path of the page."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    write_history(directory / HISTORY, history)
    path = directory / PAGE
    path.write_text(page(record, history), encoding="utf-8", errors="backslashreplace")
    return path


def read_record(path: Path) -> RunRecord:
    """Read the record of a run. Raises ``InvalidRecord``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidRecord(f"{path}: {error}; give the report.json of a run") from error
