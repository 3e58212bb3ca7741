"""Planted bugs: edits of the production code, each of which a named test or a fixed seed must see.

One or two for each numbered invariant (``docs/invariants.md``), for each format, and for each promise to
users (``docs/promises.md``). ``make planted-bugs`` looks for all of them; the search is no part of
``make test``, because an edit is addressed by source text. Other bugs are generated: ``make mutants``.
"""

from __future__ import annotations

from tests.planted_bugs.files_of_logs import FILES_OF_LOGS
from tests.planted_bugs.formats import FORMATS
from tests.planted_bugs.invariants_of_clients import CLIENTS
from tests.planted_bugs.invariants_of_convergence import CONVERGENCE
from tests.planted_bugs.invariants_of_coordinators import COORDINATORS
from tests.planted_bugs.invariants_of_logs import LOGS
from tests.planted_bugs.invariants_of_storage import STORAGE
from tests.planted_bugs.promises import PROMISES

INVARIANTS = (*LOGS, *STORAGE, *CLIENTS, *CONVERGENCE, *COORDINATORS)
BUGS = (*INVARIANTS, *FILES_OF_LOGS, *FORMATS, *PROMISES)
