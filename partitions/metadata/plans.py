"""The plan of moves in the metadata, from its beginning to its end. Pure.

Decides: which plans are refused, which moves of a plan are done, and which begin next. Leaves to others:
making a plan (``balancing``), and carrying out moves (``partitions.reassignment``).

The metadata version at which a plan began is its name. The state of each move follows from its partition, so
a new controller continues a plan. At most one plan is in progress. A plan waits while a broker in use is
missing or draining. A move is dropped when healing or an operator has changed its partition.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from partitions.metadata.commands import EndPlan, StartPlan
from partitions.metadata.features import PLANS, check_feature
from partitions.metadata.image import MetadataImage, PlannedMove
from partitions.metadata.move_planner import MoveReplicas, find, plan_move
from raftlog.errors import Conflict, InvalidRequest, PreconditionFailed, RaftlogError
from raftlog.types import NodeId


class MoveState(enum.Enum):
    """The state of one move of a plan."""

    PENDING = "pending"
    MOVING = "moving"
    DONE = "done"
    DROPPED = "dropped"


def missing_brokers(image: MetadataImage, heard: Collection[NodeId] | None = None) -> list[NodeId]:
    """The brokers in use that are not alive, not heard, or draining.

    A plan waits while this list is not empty.
    """
    return [
        node
        for node, broker in sorted(image.brokers.items())
        if image.is_in_use(node)
        and (not broker.alive or broker.draining or (heard is not None and node not in heard))
    ]


def check_plan(request: StartPlan, image: MetadataImage) -> StartPlan:
    """Return the command that begins a plan.

    Raises ``PreconditionFailed`` for a plan of earlier placements, ``Conflict`` while another plan is in
    progress, and the errors of ``plan_move``.
    """
    check_feature(image, PLANS)
    if image.plan is not None:
        raise Conflict(
            f"plan {image.plan.version} is in progress; wait for its end, or cancel it",
            plan=image.plan.version,
        )
    if not request.moves:
        raise InvalidRequest("the plan has no moves; send at least one", field="moves")
    for move in request.moves:
        _check_current(move, request.made_at, image)
        if len(move.target) != len(move.replicas):
            raise InvalidRequest(
                f"{move.name}/{move.partition} would have {len(move.target)} replicas in place of "
                f"{len(move.replicas)}; a plan keeps the number of replicas: change it with set-replicas",
                field="moves",
            )
        plan_move(as_request(move), image)
    if len({(move.name, move.partition) for move in request.moves}) != len(request.moves):
        raise InvalidRequest("the plan names a partition twice; name each once", field="moves")
    return request


def _check_current(move: PlannedMove, made_at: int, image: MetadataImage) -> None:
    """Raise ``PreconditionFailed`` unless the partition has the replicas that the plan expects."""
    try:
        topic, partition = find(image, move.name, move.partition, move.topic_id)
    except RaftlogError as error:
        raise PreconditionFailed(
            f"the plan of metadata version {made_at} is out of date: {error}; make a new plan", plan=made_at
        ) from None
    if partition.target or partition.replicas != move.replicas or partition.version > made_at:
        raise PreconditionFailed(
            f"the plan of metadata version {made_at} is out of date: {move.name}/{move.partition} is on "
            f"{list(partition.replicas)} since version {max(partition.version, topic.version)}; make a new "
            "plan",
            plan=made_at,
        )


def as_request(move: PlannedMove) -> MoveReplicas:
    """Convert one move of a plan to a request."""
    return MoveReplicas(
        move.name, move.partition, move.target, topic_id=move.topic_id, expected=move.replicas
    )


def state_of(image: MetadataImage, move: PlannedMove) -> MoveState:
    """The state of a move, derived from the state of its partition."""
    topic = image.topics.get(move.name)
    if topic is None or topic.topic_id != move.topic_id or move.partition >= len(topic.partitions):
        return MoveState.DROPPED
    partition = topic.partitions[move.partition]
    if partition.target:
        return MoveState.MOVING if partition.target == move.target else MoveState.DROPPED
    if partition.replicas == move.target:
        return MoveState.DONE
    is_possible = partition.replicas == move.replicas and all(map(image.is_in_use, move.target))
    return MoveState.PENDING if is_possible else MoveState.DROPPED


def next_of_plan(
    image: MetadataImage, heard: Collection[NodeId], moves_max: int
) -> list[MoveReplicas | EndPlan]:
    """The moves of the plan to begin now, or the command that ends the plan; empty while the plan waits."""
    if image.plan is None:
        return []
    states = [(move, state_of(image, move)) for move in image.plan.moves]
    if all(state in (MoveState.DONE, MoveState.DROPPED) for _, state in states):
        return [EndPlan(image.plan.version)]
    if missing_brokers(image, heard):
        return []
    room = moves_max - _moving(image)
    pending = [move for move, state in states if state is MoveState.PENDING]
    reorders = [move for move in pending if {*move.target} == {*move.replicas}]  # they copy nothing
    copies = [move for move in pending if {*move.target} != {*move.replicas}]
    return [*map(as_request, reorders), *map(as_request, copies[: max(room, 0)])]


def is_moving(image: MetadataImage) -> bool:
    """Whether any partition moves now, by a plan or by another request."""
    return any(_targets(image))


def _moving(image: MetadataImage) -> int:
    return sum(map(bool, _targets(image)))


def _targets(image: MetadataImage) -> Iterable[tuple[NodeId, ...]]:
    return (partition.target for topic in image.topics.values() for partition in topic.partitions)
