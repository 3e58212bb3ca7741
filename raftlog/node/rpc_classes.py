"""Classes of calls between brokers, each with a bound of its own.

A call may wait for long: for records, for a commit, for a disk. A class that is full refuses further calls
of its own and takes nothing from another: brokers that park thousands of long polls go on with appends, with
changes of the metadata and with repairs. Calls that wait for what clients do, for as long as clients say, are
in other classes than those that are answered at once, also where they are of one service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class CallClass(StrEnum):
    """Calls of one class share a bound; those of another never wait for them, nor are refused for them."""

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
    CallClass.REPLICAS: 1024,  # how replicas move, lead, and lose their beginnings
    CallClass.REPAIR: 256,  # of logs, and the states of snapshots
    CallClass.PRODUCE: 4096,  # waits for commits
    CallClass.READ: 1024,  # answered at once
    CallClass.FETCH: 4096,  # answered at once
    CallClass.LONG_POLL: 40_000,  # fetches that wait for records
    CallClass.GROUPS: 4096,  # coordinators answer at once, or after a commit
    CallClass.GROUP_WAIT: 40_000,  # joins, heartbeats and receives that wait for members or for jobs
}
"""How many calls of a class one broker has open with its peers, and how many of theirs it works on.

A waiting call takes some 2 KiB at either end. The bounds of the two classes that wait are what the clients of
two peers may have waiting, and four times what one address may (``parked_max`` in ``broker.ports``).
"""


_AT_ONCE_MS: Final = 100
_WAITS_MS: Final = 1_000  # of a full class, hundreds of calls of at most 55 s end in this time
RETRY_AFTER_MS: Final[Mapping[CallClass, int]] = {
    kind: _WAITS_MS if kind in (CallClass.LONG_POLL, CallClass.GROUP_WAIT) else _AT_ONCE_MS
    for kind in CallClass
}
"""After how many milliseconds a call that its full class has refused may be repeated."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service that a broker offers to its peers: its name on the wire, and its class of calls.

    ``kind_of`` gives the class of one call by its head, for a service of which some calls may wait. It raises
    what msgspec raises for a head that it cannot read.
    """

    name: str
    kind: CallClass
    kind_of: Callable[[bytes], CallClass] | None = None
