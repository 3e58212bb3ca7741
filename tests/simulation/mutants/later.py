"""Bugs in what is tried again: dead letters of queues, unreadable batches, coordinators with defects."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

MOVES = "tests/unit/delayed/test_coordinator_moves.py"
PENDING = "tests/unit/delayed/test_pending.py"
UNIT = "tests/unit/groups/test_redriven_jobs.py"
HTTP = "tests/unit/api/test_queues_over_http.py"
COORDINATOR = "raftlog.hosting.coordinator:Coordinator"

LATER = (
    Mutant(
        "a defect ends the work of a coordinator beside its decisions",
        f"{COORDINATOR}._done_beside",
        "self._broken(error)",
        "pass",
        script=MOVES,
    ),
    Mutant(
        "a coordinator begins again before it knows what is stored",
        f"{COORDINATOR}._broken",
        "outcome.add_done_callback(ended)",
        "self._begin_later()",
        script=MOVES,
    ),
    Mutant(
        "a new leader changes the committed pending messages",
        "delayed.pending:Pending._own",
        "if not self._is_own[shard]:",
        "if False:",
        script=PENDING,
    ),
    Mutant(
        "targets without pending messages stay in a snapshot",
        "delayed.pending:Pending._count_out",
        "if not self._counts[digest]:",
        "if False:",
        script=PENDING,
    ),
    Mutant(
        "a batch of a queue that cannot be read is stepped over",
        "api.broker_jobs:_jobs_of",
        'found.append(Found(Offset(unread), problem=f"the batch cannot be read as records: {error}"))',
        "pass",
        script=HTTP,
    ),
    Mutant(
        "a dead letter that is redriven before its job is closed is lost",
        "groups.work_queue:WorkQueue.reopen",
        '(job is None or job.state == "dead")',
        "job is None",
        script=UNIT,
    ),
    Mutant(
        "a redriven job overtakes the one of its key that a worker has",
        "groups.open_jobs:_by_turn",
        "not job.deliveries, job.redrives",
        "False, 0",
        script=UNIT,
    ),
    Mutant(
        "the second dead letter of a job has the id of the first",
        "groups.work_queue:WorkQueue._bury",
        "job.reason, job.redrives",
        "job.reason, 0",
        script=UNIT,
    ),
    Mutant(
        "a dead letter whose record is gone is settled as redriven",
        "api.resources.redriven_jobs:RedrivenJobs.found",
        "[letter for letter in letters if await self._is_there(letter.record)]",
        "list(letters)",
        script=HTTP,
    ),
)
