"""All commands and their names.

A command's module is imported when the command is called: help for all of them needs only the names and
texts here, so no command pays for the imports of another.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

if TYPE_CHECKING:
    from typer._click import Command, Context


_COMMANDS: Final[Mapping[str, tuple[str, str, str]]] = {  # module, function and the first line of its help
    "dev": (
        "api.cli.local",
        "dev",
        "Run a whole cluster on this machine, a process per broker, until Ctrl-C or SIGTERM.",
    ),
    "serve": ("api.cli.local", "serve", "Run one broker until SIGTERM or Ctrl-C."),
    "produce": (
        "api.cli.produce",
        "produce",
        "Send each line of a file or of standard input as a record.",
    ),
    "consume": (
        "api.cli.consume",
        "consume",
        "Print the messages of topics, with --follow also new ones.",
    ),
    "verify": (
        "api.cli.verify",
        "verify",
        "Verify all files of a stopped broker; ends with 1 after damage.",
    ),
    "cluster init": (
        "api.cli.local",
        "init",
        "Create a cluster's secret and one settings file per broker; print how to start each.",
    ),
    "cluster info": ("api.cli.cluster", "info", "Show the cluster's id, its controller and its size."),
    "cluster brokers": ("api.cli.cluster", "brokers", "List all brokers and whether they are alive."),
    "cluster health": (
        "api.cli.cluster",
        "health",
        "Show the problems of a cluster; ends with 1 if there are any.",
    ),
    "topic create": ("api.cli.topics", "create", "Create a topic."),
    "topic list": ("api.cli.topics", "list_all", "List all topics, or those whose names match a pattern."),
    "topic describe": (
        "api.cli.topics",
        "describe",
        "Show a topic's partitions (leaders, replicas, offsets) and its settings.",
    ),
    "topic alter": ("api.cli.topics", "alter", "Change a topic's settings and show the result."),
    "topic delete": (
        "api.cli.topics",
        "delete",
        "Delete a topic and all its records. Asks for its name as confirmation.",
    ),
    "partition list": (
        "api.cli.partitions",
        "list_all",
        "List a topic's partitions with leaders, replicas and moves.",
    ),
    "partition transfer-leadership": (
        "api.cli.partitions",
        "transfer_leadership",
        "Transfer a partition's leadership, and wait until the new leader leads.",
    ),
    "partition add-replica": (
        "api.cli.partitions",
        "add_replica",
        "Add a replica of a partition. It votes when it has caught up.",
    ),
    "partition remove-replica": (
        "api.cli.partitions",
        "remove_replica",
        "Remove a replica of a partition. Its files are deleted when the removal is committed.",
    ),
    "partition set-replicas": (
        "api.cli.partitions",
        "set_replicas",
        "Set all replicas of a partition. Replaces an incomplete move.",
    ),
    "partition unsafe-recover": (
        "api.cli.partitions",
        "unsafe_recover",
        "Recover a partition whose majority is permanently lost. Shows an estimate and asks for its phrase.",
    ),
    "group list": ("api.cli.groups", "list_all", "List the consumer groups."),
    "group describe": (
        "api.cli.groups",
        "describe",
        "Show a group's members, their partitions, and how far it is behind.",
    ),
    "group rebalances": (
        "api.cli.groups",
        "rebalances",
        "Show a group's newest rebalances: when, why and how long.",
    ),
    "group reset": (
        "api.cli.groups",
        "reset",
        "Move the committed offsets of a group; --dry-run only shows what would change.",
    ),
    "group delete": (
        "api.cli.groups",
        "delete",
        "Delete a group without members, and its committed offsets.",
    ),
    "inspect segment": (
        "api.cli.inspect",
        "segment",
        "Show the batches of a segment file and verify checksums; ends with 1 if one is damaged.",
    ),
    "bench produce": (
        "api.cli.bench",
        "produce",
        "Produce batches to all partitions of a topic, as fast as they are acknowledged.",
    ),
    "bench consume": (
        "api.cli.bench",
        "consume",
        "Read all partitions of a topic in binary batches, until their end.",
    ),
    "bench latency": (
        "api.cli.bench",
        "latency",
        "Produce one record at a time to the first partition, and wait for each.",
    ),
}
_GROUPS = {
    "topic": "Create, show, change and delete topics.",
    "partition": "Leaders and replicas of partitions.",
    "cluster": "The cluster as a whole, and its brokers.",
    "group": "Consumer groups: members, committed offsets, lag.",
    "bench": "Load a running cluster and measure it.",
    "inspect": "Show files of a broker, without a broker.",
}


class _Group(TyperGroup):
    """Commands that are known by name and imported when called."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """The called command."""
        name, command, rest = super().resolve_command(ctx, args)
        full_name = f"{self.name} {name}".strip()
        return name, _imported(full_name) if full_name in _COMMANDS else command, rest


def _imported(full_name: str) -> Command:
    module, function, _ = _COMMANDS[full_name]
    single = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    single.command(full_name.split()[-1])(getattr(import_module(module), function))
    return get_command(single)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"raftlog {version('raftlog')}")
        raise typer.Exit


@app.callback()
def raftlog(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """raftlog: a distributed log.

    \b
    Try it:
      raftlog dev
      raftlog topic create orders
      echo hello | raftlog produce orders
      raftlog consume orders
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a command was given, which runs itself


def _stub() -> None:
    """A placeholder for a command until it is called."""


_groups = {"": app}
for _name, _help in _GROUPS.items():
    _groups[_name] = typer.Typer(cls=_Group, no_args_is_help=True, help=_help)
    app.add_typer(_groups[_name], name=_name)
for _full_name, (_, _, _summary) in _COMMANDS.items():
    _group, _, _name = _full_name.rpartition(" ")
    _groups[_group].command(_name, help=_summary)(_stub)
