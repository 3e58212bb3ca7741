"""Last words of a leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from raftlog.core.messages import Heartbeat, Message, TimeoutNow
from raftlog.node.group_ports import GroupEnvironment
from raftlog.node.replication import EntryBytes, Replication
from raftlog.storage.filesystem import Buffer
from raftlog.types import GroupId, Index, NodeId, Term

ME, FURTHEST, BEHIND = NodeId(1), NodeId(2), NodeId(3)


class Links:
    """Whatever is sent to whom."""

    node_id = ME

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, type[Message]]] = []

    def send(self, group: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()) -> bool:
        """It leaves."""
        self.sent.append((to, type(message)))
        return True


@pytest.mark.parametrize("mine", [{ME: Index(9)}, {}], ids=["a voter", "on its way out"])
def test_a_leader_that_ends_calls_the_furthest_of_the_others(mine: dict[NodeId, Index]) -> None:
    links = Links()
    environment, entries = cast("GroupEnvironment", links), cast("EntryBytes", None)
    replication = Replication(GroupId(1), entries, environment)
    replication.call_election(Term(3), {**mine, BEHIND: Index(5), FURTHEST: Index(8)})
    assert links.sent == [(FURTHEST, Heartbeat), (BEHIND, Heartbeat), (FURTHEST, TimeoutNow)]
