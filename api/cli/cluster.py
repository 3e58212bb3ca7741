"""Commands about the cluster as a whole: ``cluster info``, ``brokers`` and ``health``."""

from __future__ import annotations

import click

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    Format,
    OutputOption,
    ServerOption,
    broker_row,
    errors_reported,
    note,
    show,
    write_json,
)


def info(server: ServerOption = DEFAULT_SERVER, output: OutputOption = Format.TABLE) -> None:
    """Show the cluster's id, its controller and its size.

    \b
    Example:
      raftlog cluster info --server http://127.0.0.1:7071
    """
    with errors_reported(), connected(server) as client:
        import msgspec

        show([msgspec.structs.asdict(client.cluster.info())], output, single=True)


def brokers(server: ServerOption = DEFAULT_SERVER, output: OutputOption = Format.TABLE) -> None:
    """List all brokers and whether they are alive.

    \b
    Example:
      raftlog cluster brokers -o json
    """
    with errors_reported(), connected(server) as client:
        show([broker_row(broker, output) for broker in client.cluster.brokers()], output)


def health(server: ServerOption = DEFAULT_SERVER, output: OutputOption = Format.TABLE) -> None:
    """Show the problems of a cluster; ends with 1 if there are any.

    Problems are brokers that are down, have no room for records or have closed replicas, and
    partitions without a leader or with replicas that are offline or not in sync.

    \b
    Example:
      raftlog cluster health || echo 'something is wrong'
    """
    with errors_reported(), connected(server) as client:
        from api.cli.health import examine

        found = examine(client)
        if output is Format.JSON:
            write_json(found.as_json())
        else:
            show(found.brokers, output)
            for problem in found.problems:
                note(problem)
            note("healthy" if found.is_healthy else f"unhealthy: {len(found.problems)} problems")
    if not found.is_healthy:
        raise click.exceptions.Exit(REFUSED)
