"""The types of ids, indexes, terms and offsets, used by every other module.

Each is an ``int`` or ``str`` at run time and a distinct type to mypy, so that a
generation can never be passed in place of a term.
"""

from __future__ import annotations

from typing import NewType

from msgspec import Struct

NodeId = NewType("NodeId", int)  # a broker; >= 1
GroupId = NewType("GroupId", int)  # a Raft group; 0 is the metadata group, never used twice in a cluster
TopicId = NewType("TopicId", str)  # 32 hexadecimal digits, never used twice
Term = NewType("Term", int)  # 0 before the first election
Index = NewType("Index", int)  # position in a Raft log; -1 means "before the log"
Offset = NewType("Offset", int)  # an Index, as clients see it; 0 is the first record
Token = NewType("Token", int)  # names one request to a Raft core until the core has answered it
WriteId = NewType("WriteId", int)  # rises by one with every Write
ProducerId = NewType("ProducerId", int)  # -1 for a producer without deduplication

METADATA_GROUP = GroupId(0)
FIRST_INDEX = Index(0)
"""The first index of a log from which no prefix has been deleted."""


class EntryId(Struct, frozen=True, order=True, array_like=True):
    """The index of an entry, and the term of the leader that appended it.

    If two logs both hold an entry with this id, the logs are equal up to that entry.
    """

    term: Term
    index: Index


BEFORE_LOG = EntryId(Term(0), Index(-1))
"""The id before the first entry of a log from which no prefix has been deleted."""


class TopicPartition(Struct, frozen=True, order=True, cache_hash=True):
    """One partition of one topic, by name. Many mappings have it as their key, so compiled code hashes it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
