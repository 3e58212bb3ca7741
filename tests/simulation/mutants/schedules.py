"""Bugs in schedules, and in what bounds the memory and the time of a coordinator of delayed messages."""

from __future__ import annotations

from tests.helpers.planted_bugs import Edit, Mutant

SCHEDULING = "tests/unit/delayed/test_scheduling.py"
CRON = "tests/unit/delayed/test_cron.py"
BACKLOGS = "tests/unit/delayed/test_large_backlogs.py"
HTTP = "tests/unit/api/test_schedules_over_http.py"
SCHEDULES = "delayed.scheduling:Scheduling"

SCHEDULED = (
    Mutant(
        "a schedule fires a minute early",
        f"{SCHEDULES}._fire",
        "first_ms > self._draft.wall_ms",
        "first_ms > self._draft.wall_ms + 60_000",
        script=SCHEDULING,
        more=(
            Edit(
                f"{SCHEDULES}.collect",
                "self._due[0][0] > self._draft.wall_ms",
                "self._due[0][0] > self._draft.wall_ms + 60_000",
            ),
            Edit(
                f"{SCHEDULES}._instants",
                "wall_ms = self._draft.wall_ms",
                "wall_ms = self._draft.wall_ms + 60_000",
            ),
        ),
    ),
    Mutant(
        "all instants of a schedule have the same message",
        "delayed.scheduling:_id_of",
        "instant_ms.to_bytes(",
        "(0).to_bytes(",
        script=SCHEDULING,
    ),
    Mutant(
        "a schedule forgets that it has fired",
        f"{SCHEDULES}._fire",
        "replace(schedule, after_ms=last_ms, fired_ms=fired_ms)",
        "replace(schedule, fired_ms=fired_ms)",
        script=SCHEDULING,
    ),
    Mutant(
        "a new leader does not look at its schedules",
        f"{SCHEDULES}.__init__",
        "self._look_at(name, schedule.after_ms)",
        "pass",
        script=SCHEDULING,
    ),
    Mutant(
        "missed instants fire although the schedule skips them",
        f"{SCHEDULES}._instants",
        "Missed.SKIP: [],",
        "Missed.SKIP: missed[-1:],",
        script=SCHEDULING,
    ),
    Mutant(
        "an instant that is a little late is missed",
        f"{SCHEDULES}._instants",
        "in_time = [instant for instant in due if instant > wall_ms - LATE_MS_MAX]",
        "in_time = [instant for instant in due if instant > wall_ms - 5_000]",
        script=SCHEDULING,
    ),
    Mutant(
        "any number of missed instants fires",
        f"{SCHEDULES}._instants",
        "MISSED_MAX + 1",
        "5_000",
        more=(Edit(f"{SCHEDULES}._instants", "missed[-MISSED_MAX:]", "missed"),),
        script=SCHEDULING,
    ),
    Mutant(
        "what passes in a pause fires when it ends",
        f"{SCHEDULES}._pause",
        "after_ms=after_ms",
        "after_ms=schedule.after_ms",
        script=SCHEDULING,
    ),
    Mutant(
        "a pause repeats instants when a clock goes back",
        f"{SCHEDULES}._pause",
        "max(self._draft.wall_ms, schedule.fired_ms)",
        "self._draft.wall_ms",
        more=(Edit(f"{SCHEDULES}._fire", "not in self._state.recent", "not in {}"),),
        script=SCHEDULING,
    ),
    Mutant(
        "a paused schedule fires",
        "delayed.scheduling:_next_ms",
        "if not schedule.is_active:",
        "if schedule.failed:",
        script=SCHEDULING,
    ),
    Mutant(
        "a schedule goes on although its topic is gone",
        f"{SCHEDULES}.failed",
        "failed=reason",
        "failed=''",
        script=SCHEDULING,
    ),
    Mutant(
        "a failed message ends all schedules",
        f"{SCHEDULES}.failed",
        "dict.fromkeys(self._names.get(id_[:_PREFIX_BYTES]) for id_ in ids)",
        "list(self._names.values())",
        script=SCHEDULING,
    ),
    Mutant(
        "another schedule of the same id is taken for the same",
        f"{SCHEDULES}._create",
        "if _contents(before) != _contents(wanted):",
        "if False:",
        script=SCHEDULING,
    ),
    Mutant(
        "a deletion of a schedule cannot be repeated",
        f"{SCHEDULES}._delete",
        "left_as(name) in self._state.recent",
        "False",
        script=SCHEDULING,
    ),
    Mutant(
        "a schedule fires where there is no room for its message",
        f"{SCHEDULES}._fire",
        "if not self._has_room():",
        "if False:",
        script=SCHEDULING,
    ),
    Mutant(
        "the schedules of a partition have no limit",
        f"{SCHEDULES}._create",
        "if len(self._state.schedules) >= SCHEDULES_MAX:",
        "if False:",
        script=SCHEDULING,
    ),
    Mutant(
        "a snapshot has no schedules",
        "delayed.state:DelayedState.restore",
        "self.schedules = dict(found.schedules)",
        "pass",
        script=SCHEDULING,
    ),
    Mutant(
        "an instant of a repeated hour is before the time asked for",
        "delayed.cron:_instants",
        "if instant_ms > newest_ms:",
        "if True:",
        script=CRON,
    ),
    Mutant(
        "an expression that never fires is accepted",
        "delayed.cron:check",
        "if next_ms(cron, time_zone, now_ms) is None:",
        "if False:",
        script=CRON,
    ),
    Mutant(
        "the newest instants are looked for in the last hours only",
        "delayed.cron:newest",
        "if begin_ms == after_ms or len(found) == count_max:",
        "if True:",
        script=CRON,
    ),
    Mutant(
        "the zone of the machine is accepted as a time zone",
        "delayed.cron:_zone",
        "name in _LOCAL or",
        "",
        script=CRON,
    ),
    Mutant(
        "the record of a schedule has no limit",
        "api.resources.schedules:_placed",
        "if size_bytes > SCHEDULE_BYTES_MAX:",
        "if False:",
        script=HTTP,
    ),
    Mutant(
        "failed messages use up the room of pending ones",
        "delayed.decisions:Decisions._has_room",
        "len(self.state.waiting) - failed + count",
        "len(self.state.waiting) + count",
        script=BACKLOGS,
    ),
    Mutant(
        "failed messages have no limit",
        "delayed.decisions:Decisions._has_room",
        "and failed <= self._pending_max",
        "",
        script=BACKLOGS,
    ),
    Mutant(
        "a lane that was used since a sweep is removed",
        "delayed.lanes:Lanes.gone",
        "if self._state.lanes.get(key) is sweep.lanes[key]",
        "",
        script=BACKLOGS,
    ),
    Mutant(
        "a lane with the same numbers as in a sweep is removed",
        "delayed.lanes:Lanes.gone",
        "self._state.lanes.get(key) is sweep.lanes[key]",
        "self._state.lanes.get(key) == sweep.lanes[key]",
        script=BACKLOGS,
    ),
    Mutant(
        "a new leader delivers before it knows all messages",
        "delayed.lanes:Lanes.collect",
        "    if not self._due.is_complete:\n        return\n",
        "",
        script=BACKLOGS,
    ),
    Mutant(
        "batches that were refused hold back all others",
        "delayed.room:MoveRoom.held",
        "self._again if is_repeated else self._first",
        "self._first",
        script=BACKLOGS,
    ),
    Mutant(
        "an unexpected error in a lane begins all of them again",
        "delayed.coordinator:DelayedCoordinator._try",
        "except Exception:",
        "except ZeroDivisionError:",
        script="tests/unit/delayed/test_coordinator_moves.py",
    ),
)
