"""Bugs in queues that whole brokers must see: seeds of ``brokers-queue`` look for them."""

from __future__ import annotations

from chaos.simulator.levels import BROKERS_QUEUE
from tests.helpers.planted_bugs import Mutant

_QUEUE = "groups.work_queue:WorkQueue"
_JOBS = "groups.open_jobs:OpenJobs"


def _mutant(name: str, place: str, text: str, planted: str) -> Mutant:
    return Mutant(f"whole brokers: {name}", place, text, planted, level=BROKERS_QUEUE)


QUEUE_SEEDS = (
    _mutant(
        "jobs are delivered before their leases are stored",
        "raftlog.hosting.coordinator:_is_settled",
        "isinstance(wanted, Answer) and wanted.is_settled",
        "isinstance(wanted, Answer)",
    ),
    _mutant(
        "a new coordinator does not know who has a job",
        f"{_JOBS}.__init__",
        'now_ms + left_ms if left_ms or each.job.state == "leased" else None',
        "None",
    ),
    _mutant(
        "the number of deliveries of a job begins again at one",
        "groups.job_steps:leased",
        "deliveries=job.deliveries + 1,",
        "deliveries=1,",
    ),
    _mutant(
        "an old receipt acknowledges the job of another worker",
        f"{_QUEUE}._settled",
        "if job.lease != token.lease:",
        "if not token.lease:",
    ),
    _mutant(
        "a job is closed and its dead letter is not stored",
        "groups.coordinator:GroupCoordinator._bury",
        "await self._jobs.bury(bury)",
        "pass",
    ),
    _mutant(
        "a new coordinator leaves out dead letters on their way",
        f"{_QUEUE}.take_over",
        "for place in self._jobs.dead():",
        "for place in ():",
    ),
    _mutant(
        "how far a queue has come is not stored",
        "groups.queue_rows:QueueRows.progress",
        "if queue != before:",
        "if before is None:",
    ),
    _mutant(
        "a new coordinator gives a slot twice",
        "groups.open_jobs:_Slots.without",
        "end = max(taken, default=-1) + 1",
        "end = 0",
    ),
    _mutant(
        "jobs of a key are delivered side by side",
        f"{_JOBS}.is_blocked",
        "return line is not None and self._lines[line][0] != place[1]",
        "return False",
    ),
    _mutant(
        "a job that was given back is delivered before its time",
        f"{_QUEUE}._settled",
        "now_ms + ask.time_ms if ask.time_ms else None",
        "None",
    ),
    _mutant(
        "a record is stepped over in the topic",
        "groups.look_ahead:LookAhead.looked",
        "for each in result.found if is_new(each.offset)",
        "for each in result.found[1:] if is_new(each.offset)",
    ),
    _mutant(
        "an acknowledgement is answered and not stored",
        f"{_QUEUE}._settled",
        "rows.append(self._closed(place))",
        "self._closed(place)",
    ),
)
