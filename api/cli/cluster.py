"""Commands about the cluster as a whole: ``cluster info`` and ``cluster brokers``."""

from __future__ import annotations

from api.cli.connection import connected
from api.cli.output import DEFAULT_SERVER, Format, OutputOption, ServerOption, errors_reported, show


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
    """List all brokers, and which of them are alive.

    \b
    Example:
      raftlog cluster brokers -o json
    """
    with errors_reported(), connected(server) as client:
        import msgspec

        show([msgspec.structs.asdict(broker) for broker in client.cluster.brokers()], output)
