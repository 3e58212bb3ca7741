"""Commands about the cluster as a whole: ``cluster describe``, ``brokers`` and ``health``."""

from __future__ import annotations

import click

from api.cli.connection import reading
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    errors_reported,
    is_json,
    note,
    problem,
    show,
    show_brokers,
)
from raftlog.units import counted

_HEALTH = ("broker_id", "http", "alive", "draining", "decommissioned", "disk_free_bytes")


def describe(server: ServerOption = DEFAULT_SERVER) -> None:
    """Show the cluster's id, its controller and its size.

    \b
    Example:
      raftlog cluster describe --server http://127.0.0.1:7071
    """
    with errors_reported(), reading(server) as ask:
        import msgspec

        found = msgspec.structs.asdict(ask(ask.cluster.describe()))
        show([found], ("cluster_id", "controller", "metadata_version", "brokers", "version"), single=True)


def brokers(server: ServerOption = DEFAULT_SERVER) -> None:
    """List all brokers and whether they are alive.

    \b
    Examples:
      raftlog broker list -o json
      raftlog broker list --watch
    """
    with errors_reported(), reading(server) as ask:
        show_brokers(ask(ask.brokers.list()))


def health(server: ServerOption = DEFAULT_SERVER) -> None:
    """Show the problems of a cluster; ends with 1 if it has problems.

    Problems are brokers that are down, have no room for records or have closed replicas, and
    partitions without a leader or with replicas that are offline or not in sync.

    \b
    Example:
      raftlog cluster health || echo 'something is wrong'
    """
    with errors_reported(), reading(server) as ask:
        from api.cli.health import examine

        found = examine(ask)
        show(found.brokers, _HEALTH, value=found.as_json())
        if not is_json():
            for each in found.problems:
                problem(each)
            note("healthy" if found.is_healthy else f"unhealthy: {counted(len(found.problems), 'problem')}")
    if not found.is_healthy:
        raise click.exceptions.Exit(REFUSED)
