"""Feature levels: the features that all brokers of a cluster support.

Decides: which level a feature needs, and that a broker below the cluster's level is refused. Pure; the level
in force is in the metadata, so all brokers switch at one entry of the log.

A release with data that the previous release cannot read (a new command of the metadata log, a new field of
the snapshot) gives that feature the next level. Until the level is in force no broker writes such data, and
the brokers may return to the previous release. The level comes into force when all brokers in use support it.
"""

from __future__ import annotations

from typing import Final

from partitions.metadata.image import MetadataImage
from raftlog.errors import Conflict, InvalidRequest
from raftlog.types import NodeId

FIRST: Final = 1
PLANS: Final = 2
"""Feature level that plans in the metadata need (``plans``)."""
DECOMMISSIONED_PARTITIONS: Final = 2
"""Feature level that decommissioned partitions need (``shrink_planner``)."""

FORGETTING: Final = 4
"""Feature level that two features need: brokers are removed from the metadata (``forgetting``), and replaced
targets are kept until a later target is reached, so that an unsafe recovery may choose their brokers.

Level 3 removed brokers without keeping targets; no release had level 3.
"""

HTTPS: Final = 5
"""Feature level that URLs of TLS listeners in the metadata need (``registration``)."""

NEWEST: Final = 5
"""Highest feature level that this release supports."""


def check_feature(image: MetadataImage, level: int) -> None:
    """Raise ``Conflict`` if the cluster's feature level is below ``level``, which a feature needs."""
    if image.feature_level < level:
        raise Conflict(
            f"this needs feature level {level}, but the cluster has {image.feature_level}: run a newer "
            f"release on all brokers, and set feature_level_max to at least {level}, or unset it",
            feature_level=image.feature_level,
        )


def check_broker(image: MetadataImage, broker_id: NodeId, level: int) -> None:
    """Raise ``InvalidRequest`` if ``level``, the broker's highest, is below the cluster's feature level."""
    if level < image.feature_level:
        raise InvalidRequest(
            f"broker {broker_id} has feature level {level}, but the cluster has {image.feature_level}: "
            "install the release of the other brokers, or raise feature_level_max",
            field="feature_level",
        )
