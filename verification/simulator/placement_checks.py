"""Checks the final places of replicas: they must be on the disks that the metadata names, and on no other
disk.

Decides: which replicas are missing or left over. The check uses files on the disks, not reports of brokers,
and the voters of groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from broker.broker import Broker
from partitions.hosting.directories import folder_name
from partitions.metadata.image import PartitionInfo
from verification.simulator.machine import Machine

_REPLICA: Final = re.compile(r"/data/([^/]+-[0-9a-f]{32}/Partition-\d+)/")


def misplaced(machine: Machine) -> list[str]:
    """Return replicas that are left over or missing, and groups whose voters differ from the metadata."""
    broker = machine.broker
    if broker is None:
        return []
    there = {found[1] for path in machine.disk.paths() if (found := _REPLICA.match(path))}
    wanted = {folder for folder, partition in _partitions(broker) if machine.node in partition.all_replicas}
    trouble = [f"{folder} is left over" for folder in sorted(there - wanted)]
    trouble += [f"{folder} is missing" for folder in sorted(wanted - there)]
    return [f"{machine.name}: {what}" for what in (*trouble, *_strange_voters(broker))]


def _partitions(broker: Broker) -> Iterator[tuple[str, PartitionInfo]]:
    for topic in broker.controller.image.topics.values():
        for partition in topic.partitions:
            yield f"{folder_name(topic)}/Partition-{partition.partition}", partition


def _strange_voters(broker: Broker) -> Iterator[str]:
    for folder, partition in _partitions(broker):
        group = broker.host.groups.get(partition.group_id)
        if group is None or partition.target:
            continue
        membership = group.membership
        if membership.members != set(partition.replicas) or membership.voters != membership.members:
            yield f"{folder} is of {list(partition.replicas)}, and its log says {membership}"
