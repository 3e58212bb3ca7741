"""Reads the records of leased jobs for a response.

Decides: how many bytes a response has, and which jobs have no record any more: queues read the log only, not
an archive. Leaves to others: the choice of jobs (``queues``), the representation of a record
(``json_answers``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from api.http.disconnects import has_client
from api.http.routes import Call
from api.resources.json_answers import View
from api.resources.reading import read_at_once, read_in_turn
from broker.listeners.answers_in_flight import Turn
from partitions.values import FetchRequest
from queues.receipts import receipt_of
from queues.requests import Delivered, Receive, Received, Token
from raftlog.errors import NoLeader, OffsetOutOfRange
from raftlog.records.tags import TagSelection, tag_fields
from raftlog.types import Offset, TopicPartition
from raftlog.wire import bodies
from raftlog.wire import queues as wire

FORMATS = ("auto", "base64")  # other formats refuse some values, whose jobs would be delivered forever
BYTES_PER_READ = 1 << 20
BYTES_MAX = 4 << 20  # bytes of records in one response; one more may exceed it


@dataclass(slots=True)
class JobBodies:
    """The jobs of a response. Jobs in ``gone`` have no record any more; jobs in ``left`` did not fit into the
    response.
    """

    bodies: list[wire.LeasedJob] = field(default_factory=list)
    gone: list[tuple[int, int]] = field(default_factory=list)
    left: list[tuple[int, int]] = field(default_factory=list)
    size_bytes: int = 0


async def bodies_of(call: Call, request: Receive, shape: str, received: Received) -> JobBodies:
    """Return the records of leased jobs in a format, partition by partition.

    Raises ``RaftlogError`` if a record cannot be read, and ``NoLeader`` if no leader has any of these records
    now.
    """
    found, selection = JobBodies(), TagSelection.in_fields(request)
    jobs: dict[int, dict[int, Delivered]] = {}
    for job in received.jobs:
        jobs.setdefault(job.partition, {})[job.offset] = job
    with call.admission.answers.turn(partial(has_client, call.request)) as turn:
        for partition, wanted in jobs.items():
            target = TopicPartition(request.topic, partition)
            view = View(target=target, format=shape, limit=len(wanted), wanted=selection)
            records = await _read(call, turn, view, sorted(wanted), found)
            for record in records:
                job = wanted[record.offset]
                receipt = receipt_of(
                    request.topic, request.group, Token(partition, job.offset, request.lease)
                )
                found.bodies.append(_body(target, record, job, receipt))
    if found.left and not found.bodies:
        raise NoLeader(f"the leaders of {request.topic} do not have the next jobs; retry", retry_after_ms=200)
    return found


async def _read(
    call: Call, turn: Turn, view: View, offsets: list[int], found: JobBodies
) -> list[bodies.FetchedRecord]:
    """Read the records at these offsets, until the response is full or the leader does not have the next
    record.
    """
    records: list[bodies.FetchedRecord] = []
    target, missing = view.target, offsets
    while missing and found.size_bytes < BYTES_MAX:
        first = missing[0]
        request = FetchRequest(position=Offset(first), bytes_max=BYTES_PER_READ, **tag_fields(view.wanted))
        have: dict[int, bodies.FetchedRecord] = {}
        try:
            read_log = partial(read_at_once, call, target, gateway=call.services.log)
            result = await read_in_turn(read_log, request, turn)
            page = await view.page(result, turn)
            wanted = set(missing)
            have = {record.offset: record for record in page.records if record.offset in wanted}
        except OffsetOutOfRange as error:
            is_behind = error.nearest(first) <= first
        else:
            is_behind = result.next_offset <= first
        if is_behind:  # the leader was deposed and does not know it yet
            break
        if first not in have:
            found.gone.append((target.partition, first))
        records += have.values()
        found.size_bytes += sum(record.size_bytes for record in have.values())
        missing = [offset for offset in missing if offset != first and offset not in have]
    found.left += ((target.partition, offset) for offset in missing)
    return records


def _body(
    target: TopicPartition, record: bodies.FetchedRecord, job: Delivered, receipt: str
) -> wire.LeasedJob:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return wire.LeasedJob(
        **fields,
        topic=target.topic,
        partition=target.partition,
        receipt=receipt,
        deliveries=job.deliveries,
        lease_until=job.until_ms,
    )
