"""The operations that describe the cluster and find its controller."""

from __future__ import annotations

from raftlog.wire import bodies
from raftlog.wire.operation import Leader, Operation

DESCRIBE = Operation(
    name="cluster.describe",
    request="GET /v1/cluster",
    summary="Describe the cluster",
    leader=Leader.METADATA,
    answer=bodies.ClusterDescription,
    success={200: "the cluster"},
)

CONTROLLER = Operation(
    name="cluster.controller",
    request="GET /v1/cluster/controller",
    summary="Find the controller",
    text=(
        "`refused_replicas` are new replicas that live brokers could not open in the last minute; `null` "
        "if the controller does not answer in time."
    ),
    leader=Leader.METADATA,
    answer=bodies.ControllerDescription,
    success={200: "the active controller"},
)
