"""Handles queues: leases jobs, and settles them. Any broker serves any request.

Decides: what happens to leases whose jobs do not reach the client. Leaves to others: leases (``queues``),
records (``job_records``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal, TypeVar

from aiohttp import web

from api.http import parameters
from api.http.bodies import read_json
from api.http.disconnects import has_client
from api.http.requests import client_of
from api.http.routes import TOPIC, Call, Parameter, Route, json_response
from api.resources.group_bodies import GROUP, milliseconds, name_of, selection_of
from api.resources.job_records import FORMATS, bodies_of
from partitions.metadata.image import TopicInfo
from queues.receipts import LEASE_BYTES, token_of
from queues.requests import (
    Abandon,
    DeleteQueue,
    QueueRequest,
    QueueView,
    ReadQueue,
    Receive,
    Received,
    Settle,
    Settled,
    Token,
)
from raftlog import errors
from raftlog.errors import InvalidRequest, LeaseLost
from raftlog.records.failures import dead_letter_topic
from raftlog.records.tags import tag_fields
from raftlog.wire import queues as wire
from raftlog.wire.limits import NAME_CHARACTERS_MAX

WAIT_GRACE_MS = 5_000  # a coordinator answers within this time, unless it is deposed
LOST = "the lease has ended: another worker has or had the job"
Expected = TypeVar("Expected")
How = Literal["ack", "nack", "extend", "dead", "release"]


async def receive(call: Call) -> web.StreamResponse:
    """Lease jobs and return their records."""
    wanted = await read_json(call, wire.ReceiveJobs)
    shape, limits = parameters.one_of(call.query, "format", FORMATS), call.services.limits
    topic, group = await _worked_off(call), name_of(call, "group")
    wait_ms = min(milliseconds(wanted.wait, "wait", (0, limits.wait_ms_max)), limits.wait_ms_max)
    request = Receive(
        group=group,
        topic=topic.name,
        topic_id=topic.topic_id,
        lease=call.services.rng.randbytes(LEASE_BYTES),
        count_max=wanted.limit,
        wait_ms=wait_ms,
        lease_ms=milliseconds(wanted.lease, "lease", wire.LEASE_MS),
        deliveries_max=wanted.max_deliveries,
        is_ordered=wanted.ordered_by_key,
        client=client_of(call.request),
        **tag_fields(selection_of(wanted)),
    )
    with call.admission.parked.hold(client_of(call.request), 1):
        try:
            asking = _asked(call, request, Received, wait_ms + WAIT_GRACE_MS)
            received = await call.disconnect_watcher.park(call.request, asking)
            found = await bodies_of(call, request, shape, received)
            if not has_client(call.request):
                raise ConnectionResetError("the client has disconnected")
        except (errors.RaftlogError, ConnectionResetError):
            await _given_back(call, request)
            raise
    await _settle(call, request, "ack", found.gone)
    await _settle(call, request, "release", found.left)
    return json_response(wire.ReceivedJobs(found.bodies))


async def ack(call: Call) -> web.StreamResponse:
    """Settle jobs that are done."""
    wanted = await read_json(call, wire.AckJobs)
    return await _answered(call, wanted.receipts, "ack")


async def nack(call: Call) -> web.StreamResponse:
    """Return jobs to the queue, which delivers them again."""
    wanted = await read_json(call, wire.NackJobs)
    delay_ms = milliseconds(wanted.delay, "delay", (0, wire.PAUSE_MS_MAX))
    if wanted.undelivered and (delay_ms or wanted.reason):
        raise InvalidRequest(
            "undelivered: such jobs can be received at once and have not failed; omit delay and reason",
            field="undelivered",
        )
    how: How = "release" if wanted.undelivered else "nack"
    return await _answered(call, wanted.receipts, how, delay_ms, wanted.reason)


async def extend(call: Call) -> web.StreamResponse:
    """Extend the leases of jobs."""
    wanted = await read_json(call, wire.ExtendJobs)
    lease_ms = milliseconds(wanted.lease, "lease", wire.LEASE_MS)
    return await _answered(call, wanted.receipts, "extend", lease_ms)


async def dead_letter(call: Call) -> web.StreamResponse:
    """Move jobs to the dead letters."""
    wanted = await read_json(call, wire.DeadLetterJobs)
    return await _answered(call, wanted.receipts, "dead", reason=wanted.reason)


async def describe(call: Call) -> web.StreamResponse:
    """Describe the progress of a queue."""
    topic, group = await _worked_off(call), name_of(call, "group")
    view = await _asked(call, ReadQueue(group=group, topic=topic.name), QueueView)
    return json_response(
        wire.QueueDescription(
            topic=topic.name,
            group=group,
            ordered_by_key=view.is_ordered,
            receivers=view.receivers,
            tags=[*view.tags],
            tags_all=[*view.tags_all],
            tags_none=[*view.tags_none],
            partitions=[
                wire.QueuePartition(
                    partition=part.partition,
                    start_offset=part.start_offset,
                    next_offset=part.next_offset,
                    leased=part.leased,
                    waiting=part.waiting,
                    dead=part.dead,
                )
                for part in view.parts
            ],
        )
    )


async def delete_queue(call: Call) -> web.StreamResponse:
    """Delete a queue: the group no longer uses this topic as a queue."""
    request = DeleteQueue(group=name_of(call, "group"), topic=name_of(call, "topic"))
    await _asked(call, request, Settled)
    return web.Response(status=204)


async def _worked_off(call: Call) -> TopicInfo:
    """Return the topic of the path. Raises ``InvalidRequest`` for a topic that cannot be a queue."""
    await call.hear_of_path()
    topic, group = call.topic(), name_of(call, "group")
    if topic.is_internal:
        raise InvalidRequest(
            f"{topic.name} is an internal topic; use another topic as a queue", field="topic"
        )
    if len(dead_letter_topic(topic.name, group)) > NAME_CHARACTERS_MAX:
        raise InvalidRequest(
            f"group: the name of its dead-letter topic {dead_letter_topic('…', '…')} would have more than "
            f"{NAME_CHARACTERS_MAX} characters; choose a shorter one",
            field="group",
        )
    return topic


async def _asked(
    call: Call, request: QueueRequest, expected: type[Expected], timeout_ms: int | None = None
) -> Expected:
    limit_ms = call.services.limits.control_timeout_ms if timeout_ms is None else timeout_ms
    creates = isinstance(request, Receive)
    try:
        reply = await call.services.groups.ask(request, timeout_ms=limit_ms, creates=creates)
    except errors.GroupNotFound as error:
        raise errors.QueueNotFound(str(error)) from error
    assert isinstance(reply, expected), reply
    return reply


async def _given_back(call: Call, request: Receive) -> None:
    """Release jobs that were leased for this request and that the client did not get.

    If the release fails, the leases end when their time has passed.
    """
    with contextlib.suppress(errors.RaftlogError):
        await _asked(call, Abandon(group=request.group, topic=request.topic, lease=request.lease), Settled)


async def _settle(call: Call, request: Receive, how: How, places: Sequence[tuple[int, int]]) -> None:
    """Settle jobs that one request has leased. If this fails, their leases end when their time has passed."""
    if places:
        tokens = tuple(Token(*place, request.lease) for place in places)
        settle = Settle(group=request.group, topic=request.topic, tokens=tokens, how=how)
        with contextlib.suppress(errors.RaftlogError):
            await _asked(call, settle, Settled)


async def _answered(
    call: Call, receipts: Sequence[str], how: How, time_ms: int = 0, reason: str = ""
) -> web.StreamResponse:
    """Settle jobs and respond: 200 if all receipts are valid, 207 if some are.

    Raises ``LeaseLost`` if no receipt is valid.
    """
    topic, group = name_of(call, "topic"), name_of(call, "group")
    tokens = tuple(token_of(topic, group, receipt) for receipt in receipts)
    request = Settle(group=group, topic=topic, tokens=tokens, how=how, time_ms=time_ms, reason=reason)
    settled = await _asked(call, request, Settled)
    if len(settled.lost) == len(receipts):
        raise LeaseLost(f"{LOST}; nothing was changed")
    body = wire.SettledJobs(
        settled=len(receipts) - len(settled.lost),
        failed=[wire.LostReceipt(receipts[index], LeaseLost.code, LOST) for index in settled.lost],
        lease_until=settled.until_ms if how == "extend" else 0,
    )
    return json_response(body, 207 if settled.lost else 200)


ROUTES = (
    Route(
        wire.RECEIVE,
        receive,
        (
            TOPIC,
            GROUP,
            Parameter(
                "format",
                "representation of values, as in a fetch",
                {"type": "string", "enum": list(FORMATS), "default": FORMATS[0]},
            ),
        ),
    ),
    Route(wire.ACK, ack, (TOPIC, GROUP)),
    Route(wire.NACK, nack, (TOPIC, GROUP)),
    Route(wire.EXTEND, extend, (TOPIC, GROUP)),
    Route(wire.DEAD_LETTER, dead_letter, (TOPIC, GROUP)),
    Route(wire.DESCRIBE, describe, (TOPIC, GROUP)),
    Route(wire.DELETE, delete_queue, (TOPIC, GROUP)),
)
