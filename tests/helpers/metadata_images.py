"""Images and commands in few words, for the tests of the controller."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from partitions.metadata.commands import (
    AddPartitions,
    Command,
    CreateTopic,
    RecoveredUnsafely,
    RegisterBroker,
    ReplicasChanged,
    SetReplicas,
    UnknownCommand,
)
from partitions.metadata.image import MetadataImage
from partitions.metadata.machine import Reply, apply_command
from raftlog.types import GroupId, NodeId, TopicId

NOW: Final = "now"
"""In place of an id or a version: the one that the metadata has when the command is applied."""

THIS_TOPIC: Final = TopicId(NOW)
THIS_TARGET: Final = -1


def creation_id(number: int) -> str:
    """A creation id that says which one it is."""
    return f"{number:032x}"


def register(
    broker_id: int,
    *,
    rack: str | None = None,
    incarnation: str = "first",
    disk_id: str = "",
    replaces: str = NOW,
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
        replaces,
    )


def create(name: str, *rows: Sequence[int], number: int = 1, **config: int | str) -> CreateTopic:
    """A topic with these rows of brokers."""
    placement = tuple(tuple(NodeId(broker) for broker in row) for row in rows)
    return CreateTopic(
        name, creation_id(number), placement, {key.replace("_", "."): config[key] for key in config}
    )


def add_partitions(
    name: str, expected: int, *rows: Sequence[int], version: int | None = None, topic_id: TopicId = THIS_TOPIC
) -> AddPartitions:
    """More partitions for a topic."""
    placement = tuple(nodes(*row) for row in rows)
    return AddPartitions(name, topic_id, expected, placement, version)


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    """Brokers' ids."""
    return tuple(NodeId(number) for number in numbers)


def set_replicas(
    name: str, wanted: Sequence[int], expected: Sequence[int], topic_id: TopicId = THIS_TOPIC
) -> SetReplicas:
    """A target for partition 0 of a topic."""
    return SetReplicas(name, topic_id, 0, nodes(*wanted), nodes(*expected))


def reported(
    name: str, voters: Sequence[int], index: int, group: int = 1, target_version: int = THIS_TARGET
) -> ReplicasChanged:
    """A leader of partition 0 says who votes."""
    return ReplicasChanged(name, THIS_TOPIC, 0, GroupId(group), nodes(*voters), index, target_version)


def recovered(
    name: str, survivor: int, *lost: int, group: int = 1, topic_id: TopicId = THIS_TOPIC
) -> RecoveredUnsafely:
    """Partition 0 is recovered from one broker."""
    return RecoveredUnsafely(
        name, topic_id, 0, GroupId(group), NodeId(survivor), nodes(*lost), 3, 20, 18, 1_000
    )


def meant(command: Command | UnknownCommand, image: MetadataImage) -> Command | UnknownCommand:
    """The command with the ids and versions that this image has."""
    if isinstance(command, RegisterBroker) and command.replaces == NOW:
        known = image.brokers.get(command.broker_id)
        return structs.replace(command, replaces="" if known is None else known.incarnation)
    if (
        isinstance(command, AddPartitions | SetReplicas | ReplicasChanged | RecoveredUnsafely)
        and command.name in image.topics
    ):
        topic = image.topics[command.name]
        if command.topic_id == THIS_TOPIC:
            command = structs.replace(command, topic_id=topic.topic_id)
        if isinstance(command, ReplicasChanged) and command.target_version == THIS_TARGET:
            command = structs.replace(command, target_version=topic.partitions[0].version)
    return command


def applied(
    *commands: Command | UnknownCommand, to: MetadataImage | None = None
) -> tuple[MetadataImage, Reply]:
    """The image after some commands, and the last reply."""
    image = to or MetadataImage()
    reply: Reply = 0
    for version, command in enumerate(commands, image.version + 1):
        image, reply = apply_command(image, meant(command, image), version)
    return image, reply


def cluster(*racks: str | None, brokers: int = 3) -> MetadataImage:
    """Brokers 1, 2, 3, ... with these racks, or that many without."""
    labels: Sequence[str | None] = racks or [None] * brokers
    image, _ = applied(*(register(number, rack=rack) for number, rack in enumerate(labels, 1)))
    return image
