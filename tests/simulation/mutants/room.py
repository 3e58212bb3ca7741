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
    Mutant(
        "a log that cannot be read for want of a descriptor counts as damaged",
        "raftlog.node.reading:check_descriptors",
        "is_short_of_descriptors(error)",
        "False",
        script="tests/scenarios/partitions/test_reads_of_files.py",
    ),
    Mutant(
        "a leader ends the process when it finds no descriptor to read a member's entries",
        "raftlog.node.group.replication:Replication._send_from_disk",
        "(LogChanged, OffsetOutOfRange, Overloaded)",
        "(LogChanged, OffsetOutOfRange)",
        script="tests/scenarios/node/test_catch_up.py",
    ),
    Mutant(
        "a backlog that found no descriptor is not tried again",
        "raftlog.node.group.raft_group:RaftGroup._apply_slice",
        "self._has_backlog = self._is_short = True",
        "self._has_backlog = True",
        script="tests/scenarios/node/test_backlogs.py",
    ),
)
