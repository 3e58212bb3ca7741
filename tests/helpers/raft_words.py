"""Events of a Raft group in the words of the transcripts."""

from __future__ import annotations

from msgspec.structs import fields

from raftlog.core import ready
from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.membership import Membership
from raftlog.core.messages import Message
from raftlog.types import EntryId, NodeId


def numbers(text: str | None) -> frozenset[NodeId]:
    """For example ``1,2,3``."""
    return frozenset(NodeId(int(number)) for number in (text or "").split(",") if number)


def describe_membership(membership: Membership) -> str:
    """For example ``voters 1,2,4 and 1,2,3, learners 5``."""

    def listed(nodes: frozenset[NodeId]) -> str:
        return ",".join(str(node) for node in sorted(nodes)) or "nobody"

    joint = f" and {listed(membership.outgoing)}" if membership.outgoing else ""
    learners = f", learners {listed(membership.learners)}" if membership.learners else ""
    return f"voters {listed(membership.voters)}{joint}{learners}"


def describe_span(span: EntrySpan) -> str:
    """For example ``4..6 of term 2``."""
    kind = " (leader change)" if span.kind is EntryKind.LEADER_CHANGE else ""
    if span.membership is not None:
        kind = f" ({describe_membership(span.membership)})"
    return f"{span.first}..{span.last} of term {span.term}{kind}"


def describe_settled(settled: ready.Settled) -> str:
    """For example ``2: appended at 1/4``."""
    match settled:
        case ready.Appended(token, entry):
            return f"{token}: appended at {describe_value(entry)}"
        case ready.ReadConfirmed(token, index):
            return f"{token}: read at {index}"
        case ready.Refused(token, leader, reason):
            why = "" if reason is ready.RefusalReason.NOT_LEADER else f": {reason.value}"
            return f"{token}: refused, ask {leader}{why}"


def describe_message(sender: NodeId, to: NodeId, message: Message) -> str:
    """The type and every field with information."""
    shown = [
        f"{field.name}={describe_value(value)}"
        for field in fields(message)
        if (value := getattr(message, field.name)) not in (False, None, ())
        or (field.name in ("accepted", "granted") or (value == 0 and value is not False))
        if field.name not in ("asked", "rejoining")
    ]
    if getattr(message, "asked", message.term) != message.term:
        shown.append(f"asked={getattr(message, 'asked', None)}")
    if getattr(message, "rejoining", 0):
        shown.append("rejoining=yes")
    return f"{sender} -> {to} {type(message).__name__} {' '.join(shown)}"


def describe_value(value: object) -> str:
    """Entry ids as term/index, spans in words."""
    if isinstance(value, EntryId):
        return f"{value.term}/{value.index}"
    if isinstance(value, Membership):
        return f"({describe_membership(value)})"
    if isinstance(value, tuple):
        return "[" + ", ".join(describe_span(span) for span in value) + "]"
    return "yes" if value is True else "no" if value is False else str(value)
