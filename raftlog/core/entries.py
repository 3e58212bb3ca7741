"""Log entries as the core knows them: ids and spans, never bytes."""

from __future__ import annotations

import enum

from msgspec import Struct

from raftlog.core.membership import Membership
from raftlog.types import Index, Term


class EntryKind(enum.Enum):
    """The kind of a log entry: data, leader change record, or membership."""

    DATA = 1
    LEADER_CHANGE = 2  # commits entries of earlier leaders; only if there are any
    MEMBERSHIP = 3  # one index; in force as soon as it is in a log


class EntrySpan(Struct, frozen=True):
    """The indexes ``first..last`` (both included) of entries of one term and kind.

    A batch of n records spans n indexes; several batches of one term may share a span.
    """

    term: Term
    first: Index
    last: Index
    kind: EntryKind = EntryKind.DATA
    membership: Membership | None = None  # of an entry of kind MEMBERSHIP, which has its own span
