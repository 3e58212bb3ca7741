"""Planted bugs of leaders whose disk has no room."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

SCRIPT = "tests/scenarios/node/test_leaders_without_room.py"

ROOM = (
    Mutant(
        "a leader without room keeps its leaderships",
        "raftlog.node.group_host:GroupHost._look_for_room",
        "self._room.hands_over and self._hand_over()",
        "False",
        script=SCRIPT,
    ),
    Mutant(
        "a broker without room declines no leadership",
        "raftlog.node.group_host:GroupHost.declines",
        "self._is_stopping or self._room.declines",
        "self._is_stopping",
        script=SCRIPT,
    ),
    Mutant(
        "leaderships move at the first look without room",
        "raftlog.node.room_watch:RoomWatch.hands_over",
        "self._without_room > 0 and self._without_room % LOOKS_MIN == 0",
        "self._without_room > 0",
        script=SCRIPT,
    ),
    Mutant(
        "entries that wait for room do not count",
        "raftlog.node.group_host:GroupHost._look_for_room",
        "self.has_room() and not is_waiting",
        "self.has_room()",
        script=SCRIPT,
    ),
    Mutant(
        "a broker that has room again is never chosen",
        "raftlog.node.room_watch:RoomWatch.look",
        "self._with_room + 1 if has_room else 0",
        "0",
        script=SCRIPT,
    ),
)
