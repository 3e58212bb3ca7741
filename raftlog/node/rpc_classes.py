"""Classes of calls between brokers, each with a bound of its own.

A call may wait for long: for records, for a commit, for a disk. A class that is full refuses further calls
of its own and takes nothing from another: brokers that park thousands of long polls go on with appends, with
changes of the metadata and with repairs.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    GROUPS = "groups"


CALLS_MAX: Final[Mapping[CallClass, int]] = {
    CallClass.METADATA: 1024,
    CallClass.REPLICAS: 1024,  # how replicas move, lead, and lose their beginnings
    CallClass.REPAIR: 256,  # of logs, and the states of snapshots
    CallClass.PRODUCE: 4096,  # waits for commits
    CallClass.READ: 1024,  # answered at once
    CallClass.FETCH: 4096,  # mostly long polls, which wait for records
    CallClass.GROUPS: 4096,  # joins and heartbeats, which wait for other members
}
"""How many calls of a class one broker has open with its peers, and how many of theirs it works on."""


@dataclass(frozen=True, slots=True)
class Service:
    """A service that a broker offers to its peers: its name on the wire, and its class of calls."""

    name: str
    kind: CallClass
