"""Commands about queues: ``queue receive``, ``ack``, ``nack``, ``extend``, ``describe`` and others."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import click

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    done,
    errors_reported,
    note,
    options_checked,
    show,
)
from api.cli.parameters import Argument, Option
from api.cli.tables import Row, time_text
from api.cli.tag_options import TagsAllOption, TagsNoneOption, TagsOption, selection_of
from raftlog.records.tags import TagSelection, tag_fields
from raftlog.units import counted

if TYPE_CHECKING:
    from raftlog import Job

_COLUMNS = ("receipt", "partition", "offset", "key", "value")
TopicArgument = Annotated[str, Argument(help="The topic whose records are the jobs.", completes="topics")]
ReceiptsArgument = Annotated[
    list[str], Argument(metavar="RECEIPT...", help="Receipts of jobs, from `queue receive`.")
]
GroupOption = Annotated[
    str | None,
    Option("--group", "-g", help="The group.  [default: the name of the topic]", completes="groups"),
]
ReasonOption = Annotated[str, Option("--reason", help="The reason; dead letters include it.")]
LeaseOption = Annotated[str, Option("--lease", help="The length of the leases: 1s to 12h.")]


def receive(
    topic: TopicArgument,
    group: GroupOption = None,
    limit: Annotated[int, Option("--limit", "-n", min=1, help="Maximum number of jobs.")] = 1,
    wait: Annotated[str, Option("--wait", help="Longest wait for the first job.")] = "0s",
    lease: LeaseOption = "30s",
    ordered_by_key: Annotated[
        bool, Option("--ordered-by-key", help="Deliver one job of a key at a time, in order.")
    ] = False,
    max_deliveries: Annotated[
        int, Option("--max-deliveries", min=1, help="Deliveries after which a job becomes a dead letter.")
    ] = 10,
    tags: TagsOption = None,
    tags_all: TagsAllOption = None,
    tags_none: TagsNoneOption = None,
    ack: Annotated[bool, Option("--ack", help="Acknowledge the jobs once they are printed.")] = False,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Lease jobs of a queue and print them; ends with 1 if there are no jobs.

    All receives of a queue must have equal order and tags.

    \b
    Examples:
      raftlog queue receive mail --wait 20s
      raftlog queue receive mail --limit 10 --ack -o json
      raftlog queue receive orders -g refunds --tags refunded --tags-none test
    """
    selection = selection_of(tags, tags_all, tags_none)
    with errors_reported(changing=True), connected(server) as client, options_checked():
        queue = client.queue(topic, group=group)
        jobs = queue.receive(
            limit=limit,
            wait=wait,
            lease=lease,
            ordered_by_key=ordered_by_key,
            max_deliveries=max_deliveries,
            **tag_fields(selection),
        )
        show([_row(job) for job in jobs], _COLUMNS, empty="there are no jobs")
        sys.stdout.flush()  # print the jobs before they are acknowledged
        if jobs and ack:
            queue.ack(*(job.receipt for job in jobs))
    if not jobs:
        raise click.exceptions.Exit(REFUSED)


def ack(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    group: GroupOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Acknowledge jobs: they are done.

    \b
    Example:
      raftlog queue ack mail AAAAAAAAAAAAAAAqI7Hk2bG1cX0gq5Zt
    """
    with errors_reported(changing=True), connected(server) as client:
        client.queue(topic, group=group).ack(*receipts)
        done(f"done: {counted(len(receipts), 'job')}", acknowledged=len(receipts))


def nack(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    group: GroupOption = None,
    delay: Annotated[str, Option("--delay", help="Delay before the next delivery, up to 12h.")] = "0s",
    reason: ReasonOption = "",
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Return jobs to the queue: they are delivered again.

    \b
    Example:
      raftlog queue nack mail AAAAAAAAAAAAAAAqI7Hk2bG1cX0gq5Zt --delay 5m
    """
    with errors_reported(changing=True), connected(server) as client, options_checked():
        client.queue(topic, group=group).nack(*receipts, delay=delay, reason=reason)
        done(f"returned: {counted(len(receipts), 'job')}", given_back=len(receipts))


def extend(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    group: GroupOption = None,
    lease: LeaseOption = "30s",
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Extend the leases of jobs, counted from now.

    \b
    Example:
      raftlog queue extend mail AAAAAAAAAAAAAAAqI7Hk2bG1cX0gq5Zt --lease 10m
    """
    with errors_reported(changing=True), connected(server) as client, options_checked():
        until_ms = client.queue(topic, group=group).extend(*receipts, lease=lease)
        done(f"leased until {time_text(until_ms)}", leased_until=until_ms)


def dead_letter(
    topic: TopicArgument,
    receipts: ReceiptsArgument,
    group: GroupOption = None,
    reason: ReasonOption = "",
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Move jobs to the dead letters: they are not delivered again. See raftlog dead-letter list.

    \b
    Example:
      raftlog queue dead-letter mail AAAAAAAAAAAAAAAqI7Hk2bG1cX0gq5Zt --reason "no such address"
    """
    with errors_reported(changing=True), connected(server) as client:
        client.queue(topic, group=group).dead_letter(*receipts, reason=reason)
        done(f"moved to the dead letters: {counted(len(receipts), 'job')}", given_up=len(receipts))


def describe(
    topic: TopicArgument,
    group: GroupOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Show the progress of a queue, and its open jobs, by partition.

    \b
    Example:
      raftlog queue describe mail
    """
    with errors_reported(), connected(server) as client:
        found = client.queue(topic, group=group).describe()
        order = "ordered by key" if found.ordered_by_key else "not ordered"
        records = "all records" if (tags := TagSelection.in_fields(found)) is None else f"records with {tags}"
        note(f"group {found.group}, {records}, {order}, {counted(found.receivers, 'receiver')} waiting")
        show([{name: getattr(part, name) for name in part.__struct_fields__} for part in found.partitions])


def delete(
    topic: TopicArgument,
    group: GroupOption = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Delete a queue: open jobs are forgotten. The committed offsets of the group are kept.

    \b
    Example:
      raftlog queue delete mail
    """
    with errors_reported(changing=True), connected(server) as client:
        client.queue(topic, group=group).delete()
        text = "deleted; the next receive begins at the committed offsets"
        done(text, topic=topic, group=group or topic)


def _row(job: Job) -> Row:
    return {
        "receipt": job.receipt,
        "partition": job.message.partition,
        "offset": job.message.offset,
        "deliveries": job.deliveries,
        "lease_until": time_text(job.lease_until_ms),
        "key": None if job.key is None else job.key.decode(errors="backslashreplace"),
        "value": None if job.value is None else job.value.decode(errors="backslashreplace"),
    }
