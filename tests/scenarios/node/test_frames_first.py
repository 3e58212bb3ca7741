"""A leader's followers begin with a batch while the leader itself appends it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from raftlog.core.messages import AppendRequest, Message
from raftlog.node.group_host import GroupHost
from raftlog.records.batch import split_batches
from raftlog.storage.filesystem import Buffer
from raftlog.types import GroupId, NodeId
from tests.helpers.async_tests import in_virtual_time_with
from tests.helpers.node_cluster import FIRST_GROUP, NodeCluster
from tests.helpers.orders import batch_of


# requirement: RP2
@in_virtual_time_with(lambda: NodeCluster(3))
async def test_a_batch_is_on_its_way_before_the_leader_appends_it(
    cluster: NodeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = cluster.leading()
    group, sent, send = leader.groups[FIRST_GROUP], [], GroupHost.send

    def noted(
        host: GroupHost, group_id: GroupId, to: NodeId, message: Message, payload: Sequence[Buffer] = ()
    ) -> bool:
        if isinstance(message, AppendRequest) and payload:
            sent.append((to, group.log.last_index))
        return send(host, group_id, to, message, payload)

    monkeypatch.setattr(GroupHost, "send", noted)
    before = group.log.last_index
    proposal = group.propose(split_batches(batch_of(b"v")))
    group.drain()
    assert sorted(sent) == [(broker.node_id, before) for broker in cluster.followers()]
    assert group.log.last_index == before
    await asyncio.sleep(0)
    assert group.log.last_index == proposal.last
    await cluster.settled()
