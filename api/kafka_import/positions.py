"""Commits the committed offsets of Kafka's groups in the target topic, and counts the copied records.

Decides: that the committed offset of a group never decreases. Leaves to others: the translation of offsets
(``accounts``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from api.kafka_import.accounts import Copied
from raftlog.client import AsyncClient
from raftlog.errors import Conflict, GroupNotFound


class Moved(NamedTuple):
    """A committed offset of a group in Kafka, and the committed offset of the group in the target topic."""

    group: str
    partition: int
    source: int
    target: int
    state: str


async def move_group(
    client: AsyncClient, copied: Copied, topic: str, group: str, committed: Mapping[int, int]
) -> list[Moved]:
    """Commit the translated offsets of a group, except where the group's committed offset is higher."""
    try:
        shown = {each.partition: each for each in await client.groups.offsets(group) if each.topic == topic}
    except GroupNotFound:
        shown = {}
    before = {partition: each.committed_offset for partition, each in shown.items()}
    found = []
    for partition, source in sorted(committed.items()):
        target = copied.translated(partition, source)
        if target is None:
            target = await client.partition(topic, partition).offset_at("latest")
        here = before.get(partition, -1)
        state = "moved" if target > here else "unchanged" if target == here else "further already"
        found.append(Moved(group, partition, source, max(target, here), state))
    moves = {(topic, each.partition): each.target for each in found if each.state == "moved"}
    if moves:
        try:
            await client.groups.commit(group, moves)
        except Conflict as error:
            raise Conflict(
                f"group {group} has members; stop them and repeat the command ({error})"
            ) from error
    return found


async def count(client: AsyncClient, copied: Copied, topic: str, partition: int) -> int:
    """Count the copied records in a partition that a consumer of the target topic gets."""
    runs = copied.runs[partition]
    if not runs:
        return 0
    reader, number = client.partition(topic, partition), 0
    at = max(runs[0].target, await reader.offset_at("earliest"))
    while at <= runs[-1].target and (chunk := await reader.read(at)):
        number += sum(copied.has(partition, each.offset) for each in chunk)
        at = chunk.next_offset
    return number
