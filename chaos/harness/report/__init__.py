"""The report of a run: three files for afterwards, and a summary on the terminal meanwhile.

``report.json`` is the record, ``history.jsonl`` what clients saw, and ``report.html`` shows both to people:
one file without scripts or requests, whose size does not depend on the load.

Decides: what is shown. Leaves to others: the verdict and all counts (``chaos.harness.run``).

Read ``page`` first; ``timeline`` says which panels there are, ``series`` computes them, and ``api.svg`` draws
them.
"""

from __future__ import annotations

from chaos.harness.report.files import InvalidRecord, read_record, write_report
from chaos.harness.report.live import LiveSummary
from chaos.harness.report.surroundings import shown, surroundings

__all__ = ["InvalidRecord", "LiveSummary", "read_record", "shown", "surroundings", "write_report"]
