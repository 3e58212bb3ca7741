"""The operations on brokers: list, describe, drain, decommission and forget."""

from __future__ import annotations

from raftlog import errors
from raftlog.wire import bodies
from raftlog.wire.operation import Leader, Operation

LIST = Operation(
    name="brokers.list",
    request="GET /v1/brokers",
    summary="List brokers",
    text="By id.",
    leader=Leader.METADATA,
    answer=bodies.BrokerList,
    success={200: "a page"},
)

DESCRIBE = Operation(
    name="brokers.describe",
    request="GET /v1/brokers/{broker}",
    summary="Describe a broker",
    leader=Leader.METADATA,
    answer=bodies.BrokerDescription,
    success={200: "the broker"},
    errors=(errors.BrokerNotFound,),
)

DRAIN = Operation(
    name="brokers.drain",
    request="POST /v1/brokers/{broker}:drain",
    summary="Drain a broker",
    text=(
        "The broker gets no new replicas and hands its leaderships over; its replicas stay. "
        "`:recommission` ends it. Refused if another broker is drained or down, and the remaining "
        "brokers could not hold every topic."
    ),
    leader=Leader.CONTROLLER,
    answer=bodies.BrokerDescription,
    success={200: "the broker"},
    errors=(
        errors.BrokerNotFound,
        errors.Conflict,
    ),
    may_repeat=False,
)

DECOMMISSION = Operation(
    name="brokers.decommission",
    request="POST /v1/brokers/{broker}:decommission",
    summary="Decommission a broker",
    text=(
        "Its replicas move to other brokers, which must be enough to hold them, and the broker loses its "
        "vote on metadata. Once `replicas` is 0 and `metadata_voter` is false, stop its process permanently. "
        "`:recommission` ends it at any time."
    ),
    leader=Leader.CONTROLLER,
    answer=bodies.BrokerDescription,
    success={200: "the broker"},
    errors=(
        errors.BrokerNotFound,
        errors.Conflict,
    ),
    may_repeat=False,
)

RECOMMISSION = Operation(
    name="brokers.recommission",
    request="POST /v1/brokers/{broker}:recommission",
    summary="Recommission a broker",
    text="Ends draining and decommissioning. Replicas that have moved do not move back.",
    leader=Leader.CONTROLLER,
    answer=bodies.BrokerDescription,
    success={200: "the broker"},
    errors=(
        errors.BrokerNotFound,
        errors.Conflict,
    ),
    may_repeat=False,
)

FORGET = Operation(
    name="brokers.forget",
    request="POST /v1/brokers/{broker}:forget",
    summary="Remove a broker permanently",
    text=(
        "For a broker that is stopped, holds no replica and has no vote on metadata: decommissioned, dead "
        "for `timing.restore_after_ms`, or never started. All lists omit it, its id is not used again, "
        "and its process is refused if it starts again. Safe to repeat."
    ),
    leader=Leader.CONTROLLER,
    answer=bodies.BrokerForgotten,
    success={200: "the broker is removed"},
    errors=(
        errors.BrokerNotFound,
        errors.Conflict,
        errors.PreconditionFailed,
    ),
)
