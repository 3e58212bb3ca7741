"""Classes of calls between brokers, each with its own bound.

A call may wait for long: for records, for a commit, for a disk. A class that is full refuses further calls of
this class and does not affect other classes: brokers with thousands of waiting long polls continue with
appends, metadata changes and repairs. Calls that wait as long as a client specifies are in other classes than
calls that are answered at once, even within one service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class CallClass(StrEnum):
    """The class of a call. The calls of one class share a bound, and are independent of other classes."""

    METADATA = "metadata"
    REPLICAS = "replicas"
    REPAIR = "repair"
    PRODUCE = "produce"
    READ = "read"
    FETCH = "fetch"
    LONG_POLL = "long_poll"
    GROUPS = "groups"
    GROUP_WAIT = "group_wait"


CALLS_MAX: Final[Mapping[CallClass, int]] = {
    CallClass.METADATA: 1024,
    CallClass.REPLICAS: 1024,  # moves, leadership and log starts of replicas
    CallClass.REPAIR: 256,  # of logs, and the states of snapshots
    CallClass.PRODUCE: 4096,  # waits for commits
    CallClass.READ: 1024,  # answered at once
    CallClass.FETCH: 4096,  # answered at once
    CallClass.LONG_POLL: 40_000,  # fetches that wait for records
    CallClass.GROUPS: 4096,  # coordinators answer at once, or after a commit
    CallClass.GROUP_WAIT: 40_000,  # joins, heartbeats and receives that wait for members or for jobs
}
"""The number of calls of each class that one broker may have open, and the number that it handles at once.

A waiting call takes some 2 KiB on each side. The bounds of the two waiting classes equal the number of
waiting clients of two peers, and four times the number of one address (``parked_max`` in ``broker.ports``).
"""


_AT_ONCE_MS: Final = 100
_WAITS_MS: Final = 1_000  # of a full class, hundreds of calls of at most 55 s end in this time
RETRY_AFTER_MS: Final[Mapping[CallClass, int]] = {
    kind: _WAITS_MS if kind in (CallClass.LONG_POLL, CallClass.GROUP_WAIT) else _AT_ONCE_MS
    for kind in CallClass
}
"""For each class, the milliseconds after which a call may be repeated that a full class has refused."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service that a broker offers to its peers: its name on the wire, and the class of its calls.

    ``kind_of`` returns the class of one call by its head, for a service of which some calls may wait. It
    raises msgspec's errors for a malformed head.
    """

    name: str
    kind: CallClass
    kind_of: Callable[[bytes], CallClass] | None = None
