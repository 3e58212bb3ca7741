"""The operations on brokers: look at one, drain, decommission and forget it."""

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
        "It gets no new replicas and hands its leaderships over; the replicas that it has stay. "
        "`:recommission` ends it. Refused where another broker is drained or down, and the brokers that are "
        "left could not hold every topic."
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
        "Its replicas move to other brokers, which must be enough to hold them, and it loses its vote on "
        "metadata. Once `replicas` is 0 and `metadata_voter` false its process can be stopped for good. "
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
    summary="Use a broker again",
    text="Ends draining and decommissioning. Replicas that have moved stay where they are.",
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
    summary="Remove a broker for good",
    text=(
        "For a broker that is stopped, holds no replica and has no vote on metadata: decommissioned, dead "
        "for `timing.restore_after_ms`, or never started. It leaves all lists, its id is not given again, "
        "and its process is refused if it starts again. Safe to repeat."
    ),
    leader=Leader.CONTROLLER,
    answer=bodies.BrokerForgotten,
    success={200: "it is removed"},
    errors=(
        errors.BrokerNotFound,
        errors.Conflict,
        errors.PreconditionFailed,
    ),
)
