"""Commands about one broker: ``broker drain``, ``decommission``, ``recommission``, and ``broker forget``."""

from __future__ import annotations

from typing import Annotated

import click

from api.cli.connection import connected
from api.cli.output import (
    DEFAULT_SERVER,
    REFUSED,
    ServerOption,
    errors_reported,
    note,
    options_checked,
    show,
    show_brokers,
)
from api.cli.parameters import Argument, Option
from raftlog.units import counted

BrokerArgument = Annotated[int, Argument(metavar="BROKER", min=1, help="The id of a broker.")]


def drain(broker: BrokerArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Give a broker no new replicas, and move its leaderships to others; its replicas stay.

    \b
    Example:
      raftlog broker drain 3
    """
    with errors_reported(changing=True), connected(server) as client:
        show_brokers([client.brokers.drain(broker)], single=True)


def decommission(
    broker: BrokerArgument,
    wait: Annotated[
        str | None, Option(metavar="DURATION", help="Longest wait until no replica is left, such as 10m.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Move all replicas of a broker to others, so that it can be removed.

    With --wait the command ends with 1 if the broker still has replicas or its vote on metadata after this
    time; the moves continue. The broker may be dead, or die during the moves.

    \b
    Example:
      raftlog broker decommission 3 --wait 10m
    """
    with errors_reported(changing=True), connected(server) as client, options_checked():
        shown = client.brokers.decommission(broker, wait=wait)
        show_brokers([shown], single=True)
    left = "its vote on metadata"
    if shown.replicas:
        left = f"{counted(shown.replicas, 'replica')}; the moves continue"
    is_done = not shown.replicas and not shown.metadata_voter
    if wait is not None and not is_done:
        note(f"broker {broker} still has {left}")
        raise click.exceptions.Exit(REFUSED)
    if is_done:
        note(f"broker {broker} has no replicas; its process can be stopped")


def recommission(broker: BrokerArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Use a broker again: end draining and decommissioning. Moved replicas do not return.

    \b
    Example:
      raftlog broker recommission 3
    """
    with errors_reported(changing=True), connected(server) as client:
        show_brokers([client.brokers.recommission(broker)], single=True)


def forget(broker: BrokerArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Remove a stopped broker from the cluster permanently; its id is never used again.

    The broker must have no replica and no vote on metadata: decommission it first, or wait until its replicas
    are restored on others. If its process starts again, the cluster refuses it. Repeating the command changes
    nothing.

    \b
    Example:
      raftlog broker forget 3
    """
    with errors_reported(changing=True), connected(server) as client:
        forgotten = client.brokers.forget(broker)
        row = {"broker_id": forgotten.broker_id, "metadata_version": forgotten.metadata_version}
        show([row], single=True)
    note(f"broker {broker} was removed permanently; its data directory can be deleted")
