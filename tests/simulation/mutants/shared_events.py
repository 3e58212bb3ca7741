"""Bugs in what readers of one event stream share."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_SCRIPT = "tests/unit/api/test_shared_events.py"

SHARED_EVENTS = (
    Mutant(
        "a reader that leaves ends the read of others",
        "api.http.shared_reads:_SharedRead._left",
        "if not self._readers:",
        "if self._readers:",
        script=_SCRIPT,
    ),
    Mutant(
        "a reader joins a read that all others have left",
        "api.http.shared_reads:_SharedRead._left",
        "self._on_end()\n",
        "self._task.add_done_callback(lambda _: self._on_end())\n",
        script=_SCRIPT,
    ),
    Mutant(
        "readers of other offsets share a read",
        "api.http.shared_reads:SharedReads.join",
        "shared = self._under_way.get(asked)",
        "shared = next((each for key, each in self._under_way.items() if key[0] == asked[0]), None)",
        script=_SCRIPT,
    ),
    Mutant(
        "each reader reads on its own",
        "api.http.shared_reads:SharedReads.join",
        "shared = self._under_way.get(asked)",
        "shared = None",
        script=_SCRIPT,
    ),
    Mutant(
        "readers that come while a page is built build it, too",
        "api.http.recent_events:RecentPage.found",
        "(building := recent.under_construction(key)) is not None",
        "(building := None) is not None",
        script=_SCRIPT,
    ),
    Mutant(
        "a page that its builder does not finish is never built",
        "api.http.recent_events:RecentPage.__exit__",
        "self._end(None)",
        "pass",
        script=_SCRIPT,
    ),
)
