"""The command ``cluster restart``: restarts one broker after another, so that clients see no errors.

Decides: the conditions that must hold before, between and after the restarts. Leaves to others: restarting a
process (a command of the operator, or the operator), and retries of requests to a broker that transfers its
leaderships (the client).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

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
    problem,
)
from api.cli.parameters import Option
from raftlog.errors import RaftlogError

if TYPE_CHECKING:
    from raftlog.client import Client
    from raftlog.wire.bodies import BrokerDescription, PartitionDescription

LOOK_S: Final = 0.3
SHOWN_MAX: Final = 3  # partitions shown in a message


class RestartStopped(Exception):
    """The restart of the cluster has stopped. The message names the broker and the condition that was not
    met.
    """


def restart(
    broker: Annotated[
        list[int] | None, Option(metavar="BROKER", min=1, help="Restart only this broker; repeatable.")
    ] = None,
    command: Annotated[
        str | None,
        Option(
            metavar="COMMAND",
            help="A shell command that restarts a broker; {broker} becomes its id. Without it the command "
            "asks for each restart, and waits.",
        ),
    ] = None,
    timeout: Annotated[
        str, Option(metavar="DURATION", help="Longest wait for a broker, and for replicas to be in sync.")
    ] = "10m",
    server: ServerOption = DEFAULT_SERVER,
) -> None:
    """Restart one broker after another, as for an upgrade.

    For each broker, the command waits until all replicas are in sync, drains the broker, runs or requests the
    restart of its process, waits until it has registered, ends the draining, and waits for the replicas
    again. It stops at the first broker that does not return.

    \b
    Example:
      raftlog cluster restart --command 'ssh log{broker}.example systemctl restart raftlog'
    """
    with errors_reported(changing=True), connected(server) as client, options_checked():
        from raftlog.client.options import seconds

        restarts = RollingRestart(client, _asker(command), seconds("timeout", timeout), note)
        try:
            restarted = restarts.run(list(broker or ()))
        except RestartStopped as stopped:
            problem(f"error: {stopped}")
            raise click.exceptions.Exit(REFUSED) from None
        done(f"restarted: {', '.join(map(str, restarted))}", restarted=restarted)


def _asker(command: str | None) -> Callable[[int], None]:
    """Return the function that restarts a broker: it runs the operator's command, or asks the operator."""
    if command is None:
        return lambda broker: note(f"broker {broker} is drained: restart it now")

    def run(broker: int) -> None:
        status = subprocess.call(command.replace("{broker}", str(broker)), shell=True, stdout=2)
        if status:
            raise RestartStopped(
                f"the command for broker {broker} ended with {status}; the broker's draining was ended"
            )

    return run


class RollingRestart:
    """Restarts the brokers of one cluster, one after another."""

    def __init__(
        self,
        client: Client,
        restart: Callable[[int], None],
        timeout_s: float,
        say: Callable[[str], None],
    ) -> None:
        """``restart`` restarts the process of a broker, or asks the operator for the restart; it may return
        before the broker has started.
        """
        self._client = client
        self._restart = restart
        self._timeout_s = timeout_s
        self._say = say

    def run(self, chosen: list[int]) -> list[int]:
        """Restart the chosen brokers, or all brokers in use; return their ids. Raises ``RestartStopped``."""
        known = {each.broker_id: each for each in self._client.brokers.list()}
        unknown = sorted(set(chosen) - known.keys())
        if unknown:
            raise RestartStopped(f"there is no broker {unknown[0]}; known brokers: {sorted(known)}")
        order = chosen or [number for number, each in known.items() if not each.decommissioned]
        for number in order:
            self._await(number, "all replicas in sync before it", self._troubles)
            self._one(known[number])
        return order

    def _one(self, broker: BrokerDescription) -> None:
        number = broker.broker_id
        before = self._client.brokers.drain(number)
        try:
            self._await(number, "other leaders", lambda: self._led_by(number))
            self._restart(number)
            self._await(number, "its new process", lambda: self._not_back(number, before.incarnation))
        finally:
            if not broker.draining:
                self._client.brokers.recommission(number)
        self._await(number, "all replicas in sync after it", self._troubles)
        self._say(f"broker {number} is back and in sync")

    def _await(self, number: int, what: str, left: Callable[[], list[str]]) -> None:
        """Wait until ``left``, which lists unmet conditions, returns none. Raises ``RestartStopped``."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                found = left()
            except RaftlogError as error:  # for example while a leader is elected
                found = [str(error)]
            if not found:
                return
            if time.monotonic() > deadline:
                more = f" and {len(found) - SHOWN_MAX} more" if len(found) > SHOWN_MAX else ""
                raise RestartStopped(
                    f"broker {number}: waited {self._timeout_s:g} s for {what}: "
                    f"{'; '.join(found[:SHOWN_MAX])}{more}; no further broker is restarted"
                )
            time.sleep(LOOK_S)

    def _troubles(self) -> list[str]:
        """List the brokers in use that are down, and the partitions with a replica that is not in sync."""
        down = [
            f"broker {each.broker_id} is not alive"
            for each in self._client.brokers.list()
            if not each.alive and not each.decommissioned
        ]
        return down + [
            f"{name} has in-sync replicas {one.in_sync} of {one.replicas}"
            for name, one in self._partitions()
            if one.leader is None or {*one.in_sync} != {*one.replicas} or one.reassignment is not None
        ]

    def _led_by(self, number: int) -> list[str]:
        """List the partitions that a broker leads, except partitions that no other broker holds."""
        led = [
            f"the broker still leads {name}"
            for name, one in self._partitions()
            if one.leader in (None, number) and one.replicas != [number]
        ]
        return led + (
            ["the broker is still the controller"]
            if self._client.cluster.describe().controller == number
            else []
        )

    def _partitions(self) -> list[tuple[str, PartitionDescription]]:
        return [
            (f"{topic.name}/{one.partition}", one)
            for topic in self._client.topics.list()
            for one in self._client.topics.partitions(topic.name)
        ]

    def _not_back(self, number: int, incarnation: str) -> list[str]:
        found = self._client.brokers.describe(number)
        is_back = found.alive and found.incarnation not in ("", incarnation)
        return [] if is_back else [f"broker {number} has not registered again"]
