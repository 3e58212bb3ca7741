"""Handles joins, syncs, heartbeats and leaves of group members. Each request may be repeated, at any broker.

Leaves to others: generations and assignments (``groups``).
"""

from __future__ import annotations

from typing import TypeVar

from aiohttp import web
from msgspec import Raw

from api.http.bodies import read_json
from api.http.requests import client_of
from api.http.routes import Call, Route, duration, json_response
from api.resources.group_bodies import (
    GROUP,
    HEARTBEATS_PER_SESSION,
    MEMBER,
    REBALANCE_MS,
    SESSION_MS,
    listed,
    metadata_of,
    milliseconds,
    name_of,
    new_member_id,
    partitions_of,
    selection_of,
)
from groups.requests import Beat, Heartbeat, Join, Joined, Leave, MemberInfo, Request, Sync, Synced
from raftlog.records.tags import tag_fields
from raftlog.wire import groups as wire
from raftlog.wire import members

Expected = TypeVar("Expected")


async def join(call: Call) -> web.StreamResponse:
    """Let a member join its group, or join it again."""
    wanted = await read_json(call, wire.JoinGroup)
    session_ms = milliseconds(wanted.session_timeout, "session_timeout", SESSION_MS)
    request = Join(
        group=name_of(call, "group"),
        member_id=wanted.member_id or new_member_id(call.services.rng),
        topics=tuple(dict.fromkeys(wanted.topics)),
        strategies=tuple(dict.fromkeys(wanted.strategies)),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=milliseconds(wanted.rebalance_timeout, "rebalance_timeout", REBALANCE_MS),
        metadata=metadata_of(wanted.metadata),
        instance_id=wanted.instance_id or "",
        client=call.request.remote or "",
        generation=wanted.generation,
        owned=None if wanted.owned is None else partitions_of(wanted.owned),
        **tag_fields(selection_of(wanted)),
    )
    joined = await asked(call, request, Joined, call.services.limits.wait_ms_max)
    return json_response(
        wire.JoinedGroup(
            member_id=joined.member_id,
            generation=joined.generation,
            role="leader" if joined.leader == joined.member_id else "follower",
            leader=joined.leader,
            strategy=joined.strategy,
            heartbeat_interval_ms=session_ms // HEARTBEATS_PER_SESSION,
            members=[_member(info) for info in joined.members],
            partition_counts=joined.partition_counts,
        )
    )


async def sync(call: Call) -> web.StreamResponse:
    """Return the partitions of a member, once the leader of the group has sent the assignments."""
    wanted = await read_json(call, wire.SyncGroup)
    plan = wanted.assignments if isinstance(wanted.assignments, dict) else None
    request = Sync(
        group=name_of(call, "group"),
        member_id=name_of(call, "member"),
        generation=wanted.generation,
        plan=None if plan is None else {member: partitions_of(given) for member, given in plan.items()},
        is_auto=wanted.assignments == "auto",
    )
    synced = await asked(call, request, Synced, call.services.limits.wait_ms_max)
    return json_response(wire.SyncedGroup(synced.generation, listed(synced.assignment)))


async def heartbeat(call: Call) -> web.StreamResponse:
    """Report to a member whether it must join again."""
    wanted = await read_json(call, wire.HeartbeatGroup)
    wait_ms = call.wait_ms()
    request = Heartbeat(
        group=name_of(call, "group"),
        member_id=name_of(call, "member"),
        generation=wanted.generation,
        wait_ms=wait_ms,
    )
    beat = await asked(call, request, Beat, wait_ms + call.services.limits.control_timeout_ms)
    return json_response(wire.GroupHeartbeat("rejoin" if beat.must_rejoin else "continue"))


async def leave(call: Call) -> web.StreamResponse:
    """Remove a member from its group. The request also succeeds if the member has left already."""
    request = Leave(group=name_of(call, "group"), member_id=name_of(call, "member"))
    await call.services.groups.ask(request, timeout_ms=call.services.limits.control_timeout_ms)
    return web.Response(status=204)


async def asked(call: Call, request: Request, kind: type[Expected], timeout_ms: int) -> Expected:
    """Send a request to the coordinator, which may wait for other members.

    The request is counted as waiting, and cancelled if its client disconnects.
    """
    with call.admission.parked.hold(client_of(call.request), 1):
        asking = call.services.groups.ask(request, timeout_ms=timeout_ms, creates=isinstance(request, Join))
        reply = await call.disconnect_watcher.park(call.request, asking)
    assert isinstance(reply, kind), reply
    return reply


def _member(info: MemberInfo) -> wire.GroupMemberInfo:
    return wire.GroupMemberInfo(
        member_id=info.member_id,
        topics=list(info.topics),
        metadata=Raw(info.metadata or b"null"),
        owned=listed(info.owned),
        owned_generation=info.owned_generation,
        instance_id=info.instance_id,
    )


ROUTES = (
    Route(members.JOIN, join, (GROUP,)),
    Route(members.SYNC, sync, (GROUP, MEMBER)),
    Route(
        members.HEARTBEAT,
        heartbeat,
        (GROUP, MEMBER, duration("wait", "longest wait for a rebalance, such as `3s`", lambda _: 0)),
    ),
    Route(members.LEAVE, leave, (GROUP, MEMBER)),
)
