"""A leader that changes its membership, driven by a test: see ``raft_member``."""

from __future__ import annotations

from raftlog.core.entries import EntryKind
from raftlog.core.inputs import ChangeMembership
from raftlog.core.membership import Membership
from raftlog.types import NodeId, Token
from tests.helpers.raft_member import THREE, TWO, MemberUnderTest, members

FOUR = NodeId(4)
FIVE = NodeId(5)


def leader(membership: Membership, *, commit: int = 0, entries: int = 1) -> MemberUnderTest:
    """A leader of term 2 whose log holds ``entries`` of term 1; its peers 2 and 3 have all of them."""
    member = MemberUnderTest(membership=membership, term=1, runs=[(1, entries)], commit=commit)
    member.become_leader()
    return member


def change(member: MemberUnderTest, target: Membership, token: int = 1) -> None:
    """Request a membership."""
    member.feed(ChangeMembership(Token(token), target))


def learn(member: MemberUnderTest, *learners: int) -> None:
    """Make them learners that hold everything."""
    change(member, Membership(member.core.membership.voters, members(learners=learners).learners))
    for peer in (TWO, THREE, *[NodeId(number) for number in learners]):
        member.acknowledge(peer, member.core.last.index)
    member.forget()


def written(member: MemberUnderTest) -> list[Membership | None]:
    """The memberships that it has appended, oldest first."""
    return [
        part.membership
        for write in member.writes
        for part in write.spans
        if part.kind is EntryKind.MEMBERSHIP
    ]
