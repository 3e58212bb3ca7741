"""Handles plans that balance replicas and leaders: dry run, execution, progress and cancellation."""

from __future__ import annotations

from aiohttp import web

from api.http import parameters
from api.http.bodies import read_json
from api.http.routes import Call, Parameter, Route, json_response
from partitions.metadata.balancing import PlanProposal
from partitions.metadata.commands import EndPlan, StartPlan
from partitions.metadata.image import MetadataImage, PlannedMove
from partitions.metadata.plans import missing_brokers, state_of
from raftlog.errors import Conflict
from raftlog.types import NodeId, TopicId
from raftlog.wire import plans
from raftlog.wire.plans import PlanDescription, PlanMove


async def get_plan(call: Call) -> web.StreamResponse:
    """Describe the plan that is being carried out."""
    return json_response(_running(await call.metadata()))


async def rebalance(call: Call) -> web.StreamResponse:
    """Create a plan, or take the plan in the body; carry it out unless ``dry_run``."""
    is_dry = parameters.one_of(call.query, "dry_run", ("false", "true")) == "true"
    controller, timeout_ms = call.services.controller, call.services.limits.control_timeout_ms
    wanted = await read_json(call, plans.StartPlan)
    if wanted.moves is not None and not is_dry:
        moves = tuple(map(_planned, wanted.moves))
        image = await controller.change_plan(StartPlan(moves, wanted.metadata_version), timeout_ms)
        return json_response(_running(image), 202)
    proposal = await controller.propose_plan(timeout_ms)
    if is_dry:
        return json_response(_proposed(proposal))
    if not proposal.moves:
        return json_response(_running(controller.image))
    image = await controller.change_plan(StartPlan(proposal.moves, proposal.made_at), timeout_ms)
    return json_response(_running(image), 202)


async def cancel_plan(call: Call) -> web.StreamResponse:
    """Cancel the plan: no further move begins, and moves that have begun are completed."""
    image = await call.services.controller.current_image(call.services.limits.control_timeout_ms)
    if image.plan is None:
        raise Conflict("no plan is being carried out, so there is nothing to cancel")
    ended = _running(image)
    await call.services.controller.change_plan(
        EndPlan(image.plan.version), call.services.limits.control_timeout_ms
    )
    return json_response(ended)


def _planned(move: plans.MoveRequest) -> PlannedMove:
    return PlannedMove(
        move.topic,
        TopicId(move.topic_id),
        move.partition,
        tuple(map(NodeId, move.replicas)),
        tuple(map(NodeId, move.target)),
    )


def _proposed(proposal: PlanProposal) -> PlanDescription:
    moves = [
        _move(move, copied, "proposed")
        for move, copied in zip(proposal.moves, proposal.bytes_of, strict=True)
    ]
    return PlanDescription(moves, proposal.made_at, sum(proposal.bytes_of), proposal.copy_ms)


def _running(image: MetadataImage) -> PlanDescription:
    plan = image.plan
    if plan is None:
        return PlanDescription([], image.version)
    return PlanDescription(
        [_move(move, 0, state_of(image, move).value) for move in plan.moves],
        image.version,
        plan=plan.version,
        automatic=plan.is_automatic,
        waits_for=list(missing_brokers(image)),
    )


def _move(move: PlannedMove, copied: int, state: plans.MoveStateName) -> PlanMove:
    return PlanMove(move.name, move.topic_id, move.partition, [*move.replicas], [*move.target], copied, state)


ROUTES = (
    Route(plans.DESCRIBE, get_plan),
    Route(
        plans.START,
        rebalance,
        (
            Parameter(
                "dry_run",
                "only show the moves",
                {"type": "string", "enum": ["false", "true"], "default": "false"},
            ),
        ),
    ),
    Route(plans.CANCEL, cancel_plan),
)
