"""Bugs in queues: leases that end too early, too late or never, and jobs that are lost or done twice."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

UNIT = "tests/unit/groups/test_queues.py"
RANDOM = "tests/properties/test_queues.py"
HTTP = "tests/unit/api/test_queues_over_http.py"
QUEUE = "groups.work_queue:WorkQueue"
JOBS = "groups.open_jobs:OpenJobs"

QUEUES = (
    Mutant(
        "a lease of a queue never ends",
        f"{JOBS}.ended",
        "if each is not None and each.until_ms == at_ms:",
        "if False:",
        script=UNIT,
    ),
    Mutant(
        "the end of a lease before its extension counts",
        f"{JOBS}.ended",
        "and each.until_ms == at_ms:",
        "and each.until_ms is not None:",
        script=UNIT,
    ),
    Mutant(
        "an old receipt acknowledges the job of another worker",
        f"{QUEUE}._settled",
        "if job.lease != token.lease:",
        "if not token.lease:",
        script=UNIT,
    ),
    Mutant(
        "a lease that has ended is extended",
        f"{QUEUE}._settled",
        "if not self._jobs.is_held(place):",
        "if False:",
        script=UNIT,
    ),
    Mutant(
        "a repeated acknowledgement of a job is refused",
        f"{QUEUE}._settled",
        'return ask.how in ("ack", "dead") and given is not None and token.offset < given',
        "return False",
        script=UNIT,
    ),
    Mutant(
        "a job that nobody has had can be acknowledged",
        f"{QUEUE}._settled",
        "and token.offset < given",
        "and token.offset >= 0",
        script=UNIT,
    ),
    Mutant(
        "a next coordinator gives each lease its whole length again",
        f"{JOBS}.__init__",
        "min(max(0, each.job.due_ms - wall_ms), each.job.term_ms)",
        "each.job.term_ms",
        script=UNIT,
    ),
    Mutant(
        "a clock that is behind holds a lease for longer than its length",
        f"{JOBS}.__init__",
        "min(max(0, each.job.due_ms - wall_ms), each.job.term_ms)",
        "max(0, each.job.due_ms - wall_ms)",
        script=UNIT,
    ),
    Mutant(
        "a job is delivered for ever",
        f"{QUEUE}.tick",
        "if job.deliveries >= job.deliveries_max:",
        "if False:",
        script=UNIT,
    ),
    Mutant(
        "a job that is given back after its last delivery is delivered again",
        f"{QUEUE}._settled",
        'elif ask.how == "dead" or job.deliveries >= job.deliveries_max:',
        'elif ask.how == "dead":',
        script=UNIT,
    ),
    Mutant(
        "a dead letter is stored before it is decided for good",
        f"{QUEUE}._write",
        "    self._rows.write(rows, wall_ms)\n    for burial in self._burials:\n"
        "        self._outputs.perform(burial)\n",
        "    for burial in self._burials:\n        self._outputs.perform(burial)\n"
        "    self._rows.write(rows, wall_ms)\n",
        script=UNIT,
    ),
    Mutant(
        "a next coordinator forgets dead letters on their way",
        f"{QUEUE}.take_over",
        "for place in self._jobs.dead():",
        "for place in ():",
        script=UNIT,
    ),
    Mutant(
        "a dead job is delivered while its dead letter is on its way",
        f"{JOBS}._is_ready",
        'or each.job.state == "dead"',
        "",
        script=UNIT,
    ),
    Mutant(
        "the delay of a job that was given back is ignored",
        f"{QUEUE}._settled",
        "now_ms + ask.time_ms if ask.time_ms else None",
        "None",
        script=UNIT,
    ),
    Mutant(
        "the committed offset of a queue passes an open job",
        f"{QUEUE}._write",
        "start = self._jobs.start(partition, end)",
        "start = end",
        script=UNIT,
    ),
    Mutant(
        "a queue forgets which jobs it has handed out",
        "groups.queue_rows:QueueRows.progress",
        "if queue != before:",
        "if before is None:",
        script=UNIT,
    ),
    Mutant(
        "a receive that is repeated leases other jobs",
        f"{QUEUE}.receive",
        "if held:",
        "if False:",
        script=UNIT,
    ),
    Mutant(
        "what a client that has gone was given stays leased",
        f"{QUEUE}.abandon",
        "for place in self._jobs.held_under(ask.lease)",
        "for place in ()",
        script=UNIT,
    ),
    Mutant(
        "a delivery that never left counts",
        "groups.job_steps:released",
        "deliveries=job.deliveries - 1",
        "deliveries=job.deliveries",
        script=UNIT,
    ),
    Mutant(
        "two jobs of a key are delivered at the same time",
        f"{JOBS}.is_blocked",
        "return line is not None and self._lines[line][0] != place[1]",
        "return False",
        script=UNIT,
    ),
    Mutant(
        "the next job of a key is not delivered when the first is done",
        f"{JOBS}.close",
        "self._offer((place[0], self._lines[line][0]))",
        "pass",
        script=UNIT,
    ),
    Mutant(
        "open jobs of a queue have no limit",
        f"{QUEUE}._is_full",
        "len(self._jobs) >= self._room.queue_max or self._room.open >= self._room.total_max",
        "False",
        script=UNIT,
    ),
    Mutant(
        "the jobs of a topic that was deleted count for the next one of its name",
        f"{QUEUE}._set_up",
        'if self._topic_id not in ("", ask.topic_id):',
        "if False:",
        script=UNIT,
    ),
    Mutant(
        "each job has a key of its own in the topic of offsets",
        "groups.open_jobs:_Slots.take",
        "if self.free:",
        "if False:",
        script=UNIT,
    ),
    Mutant(
        "leases that were acknowledged stay in memory until their end",
        f"{JOBS}._place",
        "if len(self._until) > 2 * len(self._open) + STALE_MIN:",
        "if False:",
        script=RANDOM,
    ),
    Mutant(
        "a slot of an open job is given away by the next coordinator",
        "groups.open_jobs:_Slots.without",
        "sorted(set(range(end)).difference(taken))",
        "[*range(end)]",
        script=RANDOM,
    ),
    Mutant(
        "members commit offsets of a topic that their group works off",
        "groups.coordination:Coordination._commit",
        "self.queues.check_free(ask.group, {commit.topic for commit in ask.offsets})",
        "pass",
        script=UNIT,
    ),
    Mutant(
        "a broker that was deposed says that a lease is over",
        "groups.coordinator:GroupCoordinator.ask",
        "and reply.lost and",
        "and False and",
        script="tests/unit/groups/test_queue_coordinator.py",
    ),
    Mutant(
        "a dead letter is given up at the first failure",
        "groups.coordinator:GroupCoordinator._bury",
        "await asyncio.sleep(pause_s)",
        "break",
        script="tests/unit/groups/test_queue_coordinator.py",
    ),
    Mutant(
        "a queue expires between two requests of its workers",
        "groups.queues:Queues.in_use",
        "for group, _ in self._queues",
        "for (group, _), queue in self._queues.items() if queue._waiters",
        script=UNIT,
    ),
    Mutant(
        "a receipt of another queue is accepted",
        "groups.receipts:token_of",
        "check != _CHECK.pack(_sum(topic, group, fields))",
        "False",
        script=HTTP,
    ),
    Mutant(
        "a job whose record was deleted is delivered for ever",
        "api.resources.queues:receive",
        'await _settle(call, request, "ack", found.gone)',
        "pass",
        script=HTTP,
    ),
    Mutant(
        "what a response has no room for stays leased",
        "api.resources.queues:receive",
        'await _settle(call, request, "release", found.left)',
        "pass",
        script=HTTP,
    ),
)
