"""One planted bug for each promise, which the test in the table of promises must detect.

The rows are those of ``docs/promises.md``.
"""

from __future__ import annotations

from tests.planted_bugs.promises_of_clusters import PROMISES_OF_CLUSTERS
from tests.planted_bugs.promises_of_records import PROMISES_OF_RECORDS

PROMISES = (*PROMISES_OF_RECORDS, *PROMISES_OF_CLUSTERS)
