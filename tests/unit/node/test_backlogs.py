"""Groups with a backlog take turns."""

from __future__ import annotations

import asyncio

from raftlog.node.backlogs import Backlogs
from raftlog.types import GroupId
from tests.helpers.async_tests import in_virtual_time
from tests.helpers.virtual_time import VirtualLoop


# requirement: ST4
@in_virtual_time
async def test_groups_take_turns_one_in_each_turn_of_the_loop() -> None:
    left = {GroupId(1): 3, GroupId(2): 1, GroupId(3): 2}
    applied: list[tuple[int, GroupId]] = []
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    def apply_more(group: GroupId) -> None:
        applied.append((loop.turns, group))
        left[group] -= 1
        if left[group]:
            backlogs.add(group)

    backlogs = Backlogs(apply_more)
    for group in left:
        backlogs.add(group)
        backlogs.add(group)  # it has its turn once all the same
    await asyncio.sleep(1)
    assert [group for _, group in applied] == [1, 2, 3, 1, 3, 1]
    assert len({turn for turn, _ in applied}) == len(applied)
    backlogs.add(GroupId(2))
    left[GroupId(2)] = 1
    await asyncio.sleep(1)
    assert applied[-1][1] == 2
