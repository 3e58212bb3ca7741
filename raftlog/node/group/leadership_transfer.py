"""Giving leadership to another replica, and waiting until one has it.

Decides: which member may get it, and that it is asked for again while the time lasts. Leaves to others:
when the successor is told to campaign (``core``).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from raftlog.errors import InvalidRequest, LeadershipNotMoved
from raftlog.node.group.view import GroupView
from raftlog.types import NodeId

ASK_AGAIN_S: Final = 0.75  # about how long the core tries


async def transfer_and_wait(
    group: GroupView,
    to: NodeId,
    ask: Callable[[], None],
    role_changes: Callable[[], asyncio.Future[None]],
    timeout_ms: int,
) -> None:
    """Return once another replica leads, ``to`` unless it loses the election.

    Raises ``InvalidRequest`` with nothing done, ``LeadershipNotMoved`` when the time runs out first, or this
    replica stops.
    """
    others = sorted(group.membership.voters - {group.node_id})
    if to not in others:
        raise InvalidRequest(f"to: broker {to} is no other voter of this group; choose one of {others}")
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while group.stopped is None and group.leader in (None, group.node_id):
                if group.is_leader:
                    ask()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ASK_AGAIN_S):
                        await role_changes()
    except TimeoutError:
        raise LeadershipNotMoved(f"no other broker led within {timeout_ms} ms; retry") from None
    if group.leader is None:  # it has stopped: another replica may lead, also because of this request
        raise LeadershipNotMoved("the replica that led has stopped; read who leads before you retry")
