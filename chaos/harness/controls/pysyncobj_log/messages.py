"""Defines the requests of clients and the responses of a node: one JSON object per line."""

from __future__ import annotations

import msgspec


class Append(msgspec.Struct, frozen=True, tag=True):
    """Request to append a value; only a node that believes to lead accepts it."""

    value: str
    padding: str


class Read(msgspec.Struct, frozen=True, tag=True):
    """Request for all values that this node has applied."""


class Describe(msgspec.Struct, frozen=True, tag=True):
    """Request for the state of this node."""


class Appended(msgspec.Struct, frozen=True, tag=True):
    """Response: the library has reported that the value is committed and applied."""

    offset: int


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Response: the value was not appended, because this node does not lead."""


class Uncertain(msgspec.Struct, frozen=True, tag=True):
    """Response: the library has reported a failure after it had accepted the value, so the outcome is
    unknown.
    """

    reason: int  # one of ``pysyncobj.FAIL_REASON``


class Values(msgspec.Struct, frozen=True, tag=True):
    """Response: the applied values in the order of their offsets, which begin with 0."""

    values: list[str]


class State(msgspec.Struct, frozen=True, tag=True):
    """Response: the state of the node."""

    is_leader: bool
    term: int
    committed: int  # index of an entry
    entries: int  # number of entries in the log


Request = Append | Read | Describe
Answer = Appended | Refused | Uncertain | Values | State
LINE_BYTES_MAX = 1 << 24
