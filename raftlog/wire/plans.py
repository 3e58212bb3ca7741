"""The operations on plans that balance the brokers, with their bodies."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from raftlog import errors
from raftlog.wire import limits
from raftlog.wire.bodies import Answer, BrokerId, Count, Request, matching
from raftlog.wire.operation import Leader, Operation

Replicas = Annotated[list[BrokerId], msgspec.Meta(min_length=1, max_length=limits.REPLICAS_MAX)]
MoveStateName = Literal["proposed", "pending", "moving", "done", "dropped"]


class MoveRequest(Request):
    """The move of one partition, copied from the plan of a dry run.

    Brokers ignore ``size_bytes`` and ``state``.
    """

    topic: Annotated[str, msgspec.Meta(max_length=limits.NAME_CHARACTERS_MAX)]
    topic_id: Annotated[str, matching("^[0-9a-f]{32}$")]
    partition: Annotated[int, msgspec.Meta(ge=0, le=limits.PARTITIONS_MAX - 1)]
    replicas: Replicas
    target: Replicas
    size_bytes: Count = 0
    state: MoveStateName = "proposed"


class StartPlan(Request):
    """Body of ``POST /v1/cluster/plan:start``: the plan of a dry run, to be carried out unchanged.

    Without ``moves`` the controller makes a plan and carries it out at once.
    """

    moves: Annotated[list[MoveRequest], msgspec.Meta(max_length=limits.PLAN_MOVES_MAX)] | None = None
    metadata_version: Count = 0
    size_bytes: Count = 0
    expected_ms: Count = 0
    plan: Count | None = None
    automatic: bool = False
    waits_for: Annotated[list[BrokerId], msgspec.Meta(max_length=limits.PLAN_MOVES_MAX)] = msgspec.field(
        default_factory=list
    )


class PlanMove(Answer):
    """One partition of a plan: its replicas before and after, preferred leader first.

    ``size_bytes`` is the number of bytes to copy: 0 for a move that changes only the preferred leader. A move
    is ``dropped`` if another request has changed the partition meanwhile.
    """

    topic: str
    topic_id: str
    partition: int
    replicas: list[int]
    target: list[int]
    size_bytes: int
    state: MoveStateName


class PlanDescription(Answer):
    """A plan. ``plan`` is its number while it is carried out, and else ``None``.

    ``metadata_version`` is the version of the metadata from which the plan was computed. ``expected_ms`` is
    the estimated time to copy at ``limits.catch_up_bytes_per_s``; ``expected_ms`` and ``size_bytes`` are 0
    once the plan is carried out. ``waits_for`` are missing or draining brokers: no replica moves until they
    return.
    """

    moves: list[PlanMove]
    metadata_version: int
    size_bytes: int = 0
    expected_ms: int = 0
    plan: int | None = None
    automatic: bool = False
    waits_for: list[int] = msgspec.field(default_factory=list)


DESCRIBE = Operation(
    name="plan.describe",
    request="GET /v1/cluster/plan",
    summary="Show the plan that is being carried out",
    text="Without one, `plan` is null and `moves` is empty.",
    leader=Leader.METADATA,
    answer=PlanDescription,
    success={200: "the plan"},
)

START = Operation(
    name="plan.start",
    request="POST /v1/cluster/plan:start",
    summary="Balance replicas and leaders",
    text=(
        "With `dry_run` nothing moves: the response is a plan, with the bytes to copy. If the plan is sent "
        "as the body without `dry_run`, exactly that plan is carried out: 412 if a partition of it has "
        "changed since, 409 while another plan is carried out. Without a body a plan is made and carried "
        "out; 200 if all brokers are balanced already."
    ),
    leader=Leader.CONTROLLER,
    body=StartPlan,
    body_required=False,
    answer=PlanDescription,
    success={200: "a plan that has not begun", 202: "the plan has begun"},
    errors=(
        errors.PreconditionFailed,
        errors.Conflict,
    ),
    may_repeat=False,
)

CANCEL = Operation(
    name="plan.cancel",
    request="POST /v1/cluster/plan:cancel",
    summary="Cancel the plan",
    text=(
        "No further move begins. Moves that have begun continue to their end. The response is the cancelled "
        "plan."
    ),
    leader=Leader.CONTROLLER,
    answer=PlanDescription,
    success={200: "the plan"},
    errors=(
        errors.PreconditionFailed,
        errors.Conflict,
    ),
    may_repeat=False,
)
