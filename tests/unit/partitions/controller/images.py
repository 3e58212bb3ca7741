"""Images and commands in few words, for the tests of the controller."""

from __future__ import annotations

from collections.abc import Sequence

from partitions.controller.commands import (
    Command,
    CreateTopic,
    RecoveredUnsafely,
    RegisterBroker,
    ReplicasChanged,
    SetReplicas,
    UnknownCommand,
)
from partitions.controller.image import MetadataImage
from partitions.controller.machine import Reply, apply_command
from raftlog.types import GroupId, NodeId, TopicId


def topic_id(number: int) -> TopicId:
    """A topic id that says which one it is."""
    return TopicId(f"{number:032x}")


def register(
    broker_id: int, *, rack: str | None = None, incarnation: str = "first", disk_id: str = ""
) -> RegisterBroker:
    """A broker comes to life."""
    return RegisterBroker(
        NodeId(broker_id),
        incarnation,
        f"http://127.0.0.1:{7000 + broker_id}",
        "127.0.0.1",
        9000 + broker_id,
        rack,
        disk_id,
    )


def create(name: str, *rows: Sequence[int], number: int = 1, **config: int | str) -> CreateTopic:
    """A topic with these rows of brokers."""
    placement = tuple(tuple(NodeId(broker) for broker in row) for row in rows)
    return CreateTopic(
        name, topic_id(number), placement, {key.replace("_", "."): config[key] for key in config}
    )


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    """Brokers' ids."""
    return tuple(NodeId(number) for number in numbers)


def set_replicas(name: str, wanted: Sequence[int], expected: Sequence[int], number: int = 1) -> SetReplicas:
    """A target for partition 0 of a topic."""
    return SetReplicas(name, topic_id(number), 0, nodes(*wanted), nodes(*expected))


def reported(name: str, voters: Sequence[int], index: int, group: int = 1) -> ReplicasChanged:
    """A leader of partition 0 says who votes."""
    return ReplicasChanged(name, topic_id(1), 0, GroupId(group), nodes(*voters), index)


def recovered(name: str, survivor: int, *lost: int, group: int = 1) -> RecoveredUnsafely:
    """Partition 0 is recovered from one broker."""
    return RecoveredUnsafely(
        name, topic_id(1), 0, GroupId(group), NodeId(survivor), nodes(*lost), 3, 20, 18, 1_000
    )


def applied(
    *commands: Command | UnknownCommand, to: MetadataImage | None = None
) -> tuple[MetadataImage, Reply]:
    """The image after some commands, and the last reply."""
    image = to or MetadataImage()
    reply: Reply = 0
    for version, command in enumerate(commands, image.version + 1):
        image, reply = apply_command(image, command, version)
    return image, reply


def cluster(*racks: str | None, brokers: int = 3) -> MetadataImage:
    """Brokers 1, 2, 3, ... with these racks, or that many without."""
    labels: Sequence[str | None] = racks or [None] * brokers
    image, _ = applied(*(register(number, rack=rack) for number, rack in enumerate(labels, 1)))
    return image
