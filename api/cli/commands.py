"""All commands and their names.

A command's module is imported when the command is called: help for all of them needs their names and what
stands here only, and none pays for what another one imports.
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
        "Send the lines of a file or of standard input, a record each.",
    ),
    "consume": (
        "api.cli.consume",
        "consume",
        "Print the messages of topics: what is there, or with --follow also what comes.",
    ),
    "verify": (
        "api.cli.verify",
        "verify",
        "Read all files of a stopped broker and compare them; ends with 1 when something is damaged.",
    ),
    "cluster init": (
        "api.cli.local",
        "init",
        "Make a cluster's secret and one settings file per broker; print how to start each.",
    ),
    "cluster info": ("api.cli.cluster", "info", "Show the cluster's id, its controller and its size."),
    "cluster brokers": ("api.cli.cluster", "brokers", "List all brokers, and which of them are alive."),
    "cluster health": (
        "api.cli.cluster",
        "health",
        "Show what is wrong in a cluster; ends with 1 when something is.",
    ),
    "topic create": ("api.cli.topics", "create", "Create a topic."),
    "topic list": ("api.cli.topics", "list_all", "List all topics, or those whose names match a pattern."),
    "topic describe": (
        "api.cli.topics",
        "describe",
        "Show a topic's partitions (leaders, replicas, offsets) and its settings.",
    ),
    "topic alter": ("api.cli.topics", "alter", "Change a topic's settings and show what holds now."),
    "topic delete": (
        "api.cli.topics",
        "delete",
        "Delete a topic and all its records. Asks to type the name first.",
    ),
    "partition list": (
        "api.cli.partitions",
        "list_all",
        "List a topic's partitions: who leads, who holds, who moves.",
    ),
    "partition transfer-leadership": (
        "api.cli.partitions",
        "transfer_leadership",
        "Let another broker lead a partition, and wait until it does.",
    ),
    "partition add-replica": (
        "api.cli.partitions",
        "add_replica",
        "Have one more broker hold a partition. It votes when it has caught up.",
    ),
    "partition remove-replica": (
        "api.cli.partitions",
        "remove_replica",
        "Have one broker less hold a partition. Its files go when the others have agreed.",
    ),
    "partition set-replicas": (
        "api.cli.partitions",
        "set_replicas",
        "Have exactly these brokers hold a partition. It replaces a move that is under way.",
    ),
    "partition unsafe-recover": (
        "api.cli.partitions",
        "unsafe_recover",
        "Recover a partition whose majority is lost for good. Shows an estimate and asks for its phrase.",
    ),
    "inspect segment": (
        "api.cli.inspect",
        "segment",
        "Show the batches of a segment file with their checksums verified; ends with 1 when one is damaged.",
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
    "topic": "Topics: made, looked at, changed and deleted.",
    "partition": "Partitions: who leads and who holds them.",
    "cluster": "The cluster as a whole, and its brokers.",
    "bench": "Load on a running cluster, and what came of it.",
    "inspect": "Files of a broker, without a broker.",
}


class _Group(TyperGroup):
    """Commands that are known by name and imported when they are called."""

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """The command that is called."""
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
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a command begins, and decides itself


def _stub() -> None:
    """Stands for a command until it is called."""


_groups = {"": app}
for _name, _help in _GROUPS.items():
    _groups[_name] = typer.Typer(cls=_Group, no_args_is_help=True, help=_help)
    app.add_typer(_groups[_name], name=_name)
for _full_name, (_, _, _summary) in _COMMANDS.items():
    _group, _, _name = _full_name.rpartition(" ")
    _groups[_group].command(_name, help=_summary)(_stub)
