"""Feature levels: what all brokers of a cluster understand.

Decides: which level a feature needs, when the level of the cluster rises, and that a broker below it is
refused. Pure; the level in force is in the metadata, so every broker switches at the same entry of the log.

A release that writes something that the one before cannot read, a new command of the metadata log or a field
of the snapshot, gives it the next level. Until the level is in force nobody writes it, and the brokers may go
back to the release before. It comes into force when every broker in use has answered that it has it.
"""

from __future__ import annotations

from typing import Final

from partitions.metadata.image import MetadataImage
from raftlog.errors import Conflict, InvalidRequest
from raftlog.types import NodeId

FIRST: Final = 1
PLANS: Final = 2
"""Plans in the metadata (``plans``)."""
DECOMMISSIONED_PARTITIONS: Final = 2
"""Partitions that take no records and are removed (``shrink_planner``)."""

FORGETTING: Final = 4
"""Brokers that are removed from the metadata (``forgetting``), and targets that are remembered until a later
one is reached, whose brokers an unsafe recovery may choose. Level 3, which was in no release, removed brokers
without them.
"""

NEWEST: Final = 4
"""The level of this release."""


def check_feature(image: MetadataImage, level: int) -> None:
    """Raise ``Conflict`` while a feature of this level is not in force."""
    if image.feature_level < level:
        raise Conflict(
            f"this needs feature level {level}, and the cluster has {image.feature_level}: it rises once all "
            "brokers run a release that has it and do not hold it back with feature_level_max",
            feature_level=image.feature_level,
        )


def check_broker(image: MetadataImage, broker_id: NodeId, level: int) -> None:
    """Raise ``InvalidRequest`` for a broker that does not understand what is in force."""
    if level < image.feature_level:
        raise InvalidRequest(
            f"broker {broker_id} has feature level {level}, and the cluster has {image.feature_level}: "
            "install the release of the other brokers, or raise feature_level_max",
            field="feature_level",
        )
