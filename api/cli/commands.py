"""Names all commands, and imports the module of a command when the command is called.

Help for all commands needs only the names and texts in this module, so no command waits for the imports of
another command.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

import click

from api.cli.common_options import with_common_options
from api.cli.parameters import command_of
from api.stop_signals import interruption_code

_COMMANDS: Final[Mapping[str, tuple[str, str, str]]] = {  # module, function, and the first line of the help
    "dev": (
        "api.cli.local",
        "dev",
        "Run a whole cluster on this machine, a process per broker, until Ctrl-C or SIGTERM.",
    ),
    "serve": (
        "api.cli.local",
        "serve",
        "Run one broker until SIGTERM or Ctrl-C, or until its terminal is closed.",
    ),
    "produce": (
        "api.cli.produce",
        "produce",
        "Send each line of a file or of standard input as a record.",
    ),
    "import": (
        "api.cli.kafka_import",
        "import_topic",
        "Copy a topic of Kafka, each record once. Continues where an earlier run ended.",
    ),
    "consume": (
        "api.cli.consume",
        "consume",
        "Print the messages of topics; with --follow also new messages.",
    ),
    "verify": (
        "api.cli.verify",
        "verify",
        "Verify all files of a stopped broker; ends with 1 if it finds damage.",
    ),
    "cluster init": (
        "api.cli.local",
        "init",
        "Create a cluster's secret and one settings file per broker; print the commands that start them.",
    ),
    "cluster token": (
        "api.cli.joining",
        "token",
        "Print a token with which a broker can join within an hour.",
    ),
    "cluster join": (
        "api.cli.joining",
        "join",
        "Let a new broker into a cluster and write its settings; print the command that starts it.",
    ),
    "cluster describe": (
        "api.cli.cluster",
        "describe",
        "Show the cluster's id, its controller and its size.",
    ),
    "cluster health": (
        "api.cli.cluster",
        "health",
        "Show the problems of a cluster; ends with 1 if it has problems.",
    ),
    "cluster plan": (
        "api.cli.plans",
        "plan",
        "Show the moves that balance the brokers, and carry them out.",
    ),
    "cluster restart": (
        "api.cli.restarts",
        "restart",
        "Restart one broker after another, as for an upgrade.",
    ),
    "broker list": ("api.cli.cluster", "brokers", "List all brokers and whether they are alive."),
    "broker drain": (
        "api.cli.brokers",
        "drain",
        "Give a broker no new replicas, and move its leaderships to others; its replicas stay.",
    ),
    "broker decommission": (
        "api.cli.brokers",
        "decommission",
        "Move all replicas of a broker to others, so that it can be removed.",
    ),
    "broker recommission": (
        "api.cli.brokers",
        "recommission",
        "Use a broker again: end draining and decommissioning. Moved replicas do not return.",
    ),
    "broker forget": (
        "api.cli.brokers",
        "forget",
        "Remove a stopped broker from the cluster permanently; its id is never used again.",
    ),
    "topic create": ("api.cli.topics", "create", "Create a topic."),
    "topic list": ("api.cli.topics", "list_all", "List all topics, or those whose names match a pattern."),
    "topic describe": (
        "api.cli.topics",
        "describe",
        "Show a topic's partitions (leaders, replicas, offsets) and its settings.",
    ),
    "topic alter": ("api.cli.topics", "alter", "Change a topic's settings and show the result."),
    "topic add-partitions": (
        "api.cli.topics",
        "add_partitions",
        "Add partitions to a topic. Existing records stay in their partitions.",
    ),
    "topic decommission-partitions": (
        "api.cli.topics",
        "decommission_partitions",
        "Stop producing to the last partitions of a topic, and remove them once their records are deleted.",
    ),
    "topic recommission-partitions": (
        "api.cli.topics",
        "recommission_partitions",
        "Let decommissioned partitions of a topic take records again.",
    ),
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
    "partition delete-before": (
        "api.cli.partitions",
        "delete_before",
        "Delete the records of a partition below an offset.",
    ),
    "partition set-archived": (
        "api.cli.partitions",
        "set_archived",
        "Set up to which offset a partition is archived.",
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
        "Show a group's members, their partitions, and its lag.",
    ),
    "group rebalances": (
        "api.cli.groups",
        "rebalances",
        "Show a group's newest rebalances: their times, reasons and durations.",
    ),
    "group reset": (
        "api.cli.groups",
        "reset",
        "Move the committed offsets of a group; --dry-run only shows the changes.",
    ),
    "group delete": (
        "api.cli.groups",
        "delete",
        "Delete a group without members, and its committed offsets.",
    ),
    "transaction list": ("api.cli.transactions", "list_all", "List the open transactions."),
    "transaction describe": (
        "api.cli.transactions",
        "describe",
        "Show a transaction, its state and its partitions.",
    ),
    "transaction abort": (
        "api.cli.transactions",
        "abort",
        "Abort the open or prepared transaction of a transactional id.",
    ),
    "delayed send": (
        "api.cli.delayed",
        "send",
        "Send one record that is stored in its topic at a later time.",
    ),
    "delayed list": ("api.cli.delayed", "list_all", "List the messages that are not in their topics yet."),
    "delayed describe": ("api.cli.delayed", "describe", "Show one delayed message with its record."),
    "delayed reschedule": ("api.cli.delayed", "reschedule", "Give a delayed message another time."),
    "delayed cancel": ("api.cli.delayed", "cancel", "Cancel a delayed message."),
    "queue receive": ("api.cli.queues", "receive", "Lease jobs of a queue and print them."),
    "queue ack": ("api.cli.queues", "ack", "Acknowledge jobs: they are done."),
    "queue nack": ("api.cli.queues", "nack", "Return jobs to the queue: they are delivered again."),
    "queue extend": ("api.cli.queues", "extend", "Extend the leases of jobs, counted from now."),
    "queue dead-letter": (
        "api.cli.queues",
        "dead_letter",
        "Move jobs to the dead letters: they are not delivered again.",
    ),
    "queue describe": ("api.cli.queues", "describe", "Show the progress of a queue, and its open jobs."),
    "queue delete": ("api.cli.queues", "delete", "Delete a queue: open jobs are forgotten."),
    "schedule create": (
        "api.cli.schedules",
        "create",
        "Store one record at each instant of a cron expression.",
    ),
    "schedule list": ("api.cli.schedules", "list_all", "List the schedules."),
    "schedule describe": ("api.cli.schedules", "describe", "Show one schedule with its record."),
    "schedule pause": ("api.cli.schedules", "pause", "Stop a schedule until it is resumed."),
    "schedule resume": ("api.cli.schedules", "resume", "Resume a schedule from now on."),
    "schedule delete": ("api.cli.schedules", "delete", "Delete a schedule."),
    "dead-letter list": (
        "api.cli.dead_letters",
        "list_all",
        "List the open dead letters of a group: neither redriven nor discarded.",
    ),
    "dead-letter describe": (
        "api.cli.dead_letters",
        "describe",
        "Show one dead letter: the reason and time of the failure, its headers and its value.",
    ),
    "dead-letter redrive": (
        "api.cli.dead_letters",
        "redrive",
        "Try dead letters again: the workers of the group get them from its retry topic.",
    ),
    "dead-letter discard": (
        "api.cli.dead_letters",
        "discard",
        "Discard dead letters: they are not tried again.",
    ),
    "archive write": (
        "api.cli.archive",
        "write",
        "Archive the committed records of topics as Parquet files, each offset once.",
    ),
    "archive list": (
        "api.cli.archive",
        "list_all",
        "List the partitions of an archive with their archived offsets.",
    ),
    "archive verify": (
        "api.cli.archive",
        "verify",
        "Verify every file of an archive and its offsets; ends with 1 after a problem.",
    ),
    "archive replay": (
        "api.cli.archive",
        "replay",
        "Send archived records of a topic to a topic, each once. A repeated job continues where it ended.",
    ),
    "archive compact": (
        "api.cli.archive",
        "compact",
        "Join small files of an archive; readers see the same records.",
    ),
    "archive report": (
        "api.cli.archive",
        "report",
        "Report to brokers up to which offset partitions are archived.",
    ),
    "context list": ("api.cli.context_commands", "list_all", "List the contexts."),
    "context add": (
        "api.cli.context_commands",
        "add",
        "Store the address of a cluster under a name.",
    ),
    "context use": (
        "api.cli.context_commands",
        "use",
        "Use a cluster for all commands without an address.",
    ),
    "context show": (
        "api.cli.context_commands",
        "show_one",
        "Show a context, or the cluster that commands use and the source of this choice.",
    ),
    "context remove": ("api.cli.context_commands", "remove", "Forget the address of a cluster."),
    "completion": (
        "api.cli.completion",
        "completion",
        "Print the script that completes commands, options and names in a shell.",
    ),
    "man": ("api.cli.manual", "man", "Write the manual pages of all commands to a directory."),
    "inspect segment": (
        "api.cli.inspect",
        "segment",
        "Show the batches of a segment file and verify checksums; ends with 1 if a batch is damaged.",
    ),
    "bench produce": (
        "api.cli.bench",
        "produce",
        "Produce batches to all partitions of a topic, as fast as they are acknowledged.",
    ),
    "bench consume": (
        "api.cli.bench",
        "consume",
        "Read all partitions of a topic in binary batches, up to their ends.",
    ),
    "bench latency": (
        "api.cli.bench",
        "latency",
        "Produce single records to the first partition, each after the receipt of the one before.",
    ),
    "chaos run": (
        "chaos.commands",
        "run",
        "Inject faults into a loaded cluster on this machine, and check what its clients saw.",
    ),
    "chaos replay": (
        "chaos.commands",
        "replay",
        "Inject the faults of an earlier run again, at their times and with their seeds.",
    ),
    "chaos faults": (
        "chaos.commands",
        "faults",
        "List the faults, and whether this machine can inject them.",
    ),
    "chaos control": (
        "chaos.commands",
        "control",
        "Check the checkers: run a system that loses acknowledged writes.",
    ),
    "chaos check": (
        "chaos.commands",
        "check",
        "Check a history of sends and polls for anomalies; ends with 1 if it finds any that are not "
        "permitted.",
    ),
}
_GROUPS = {
    "broker": "Brokers: list them, remove one from use, or use it again.",
    "topic": "Create, show, change and delete topics.",
    "partition": "Leaders and replicas of partitions.",
    "cluster": "The cluster as a whole, and its brokers.",
    "group": "Consumer groups: members, committed offsets, lag.",
    "delayed": "Delayed messages.",
    "queue": "Queues: workers lease the records of a topic as jobs.",
    "schedule": "Records at the instants of cron expressions.",
    "transaction": "Transactions over several partitions.",
    "dead-letter": "Dead letters: records that a consumer group has given up.",
    "archive": "Archives of topics in directories and object stores.",
    "context": "Names for clusters: the addresses that commands use.",
    "bench": "Load a running cluster and measure it.",
    "inspect": "Show files of a broker, without a broker.",
    "chaos": "Inject faults, and check what clients saw.",
}


class _Group(click.Group):
    """A group of commands that are known by name and imported when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of ``_COMMANDS``."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Import and return the called command."""
        name, command, rest = super().resolve_command(ctx, args)
        full_name = f"{self.name} {name}".strip()
        return name, _imported(full_name) if full_name in _COMMANDS else command, rest

    def invoke(self, ctx: click.Context) -> object:
        """Run the called command. If a signal ends the command, exit with the code that shells report for the
        signal.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise click.exceptions.Exit(interruption_code()) from None
        except click.Abort as ended:  # raised at a prompt, by a signal or the end of the input
            if isinstance(ended.__context__, KeyboardInterrupt):
                raise click.exceptions.Exit(interruption_code()) from None
            raise


def _imported(full_name: str) -> click.Command:
    module, function, _ = _COMMANDS[full_name]
    command = command_of(full_name.split()[-1], getattr(import_module(module), function))
    return with_common_options(full_name, command)


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its full name, such as ``topic list``."""
    for full_name in _COMMANDS:
        yield full_name, _imported(full_name)


def _show_version(ctx: click.Context, _option: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        click.echo(f"raftlog {version('raftlog')}")
        ctx.exit()


@click.group("", cls=_Group)
@click.option(
    "--version",
    is_flag=True,
    callback=_show_version,
    is_eager=True,
    expose_value=False,
    help="Show the version.",
)
def app() -> None:
    """raftlog: a distributed log.

    \b
    Try it:
      raftlog dev
      raftlog topic create orders
      echo hello | raftlog produce orders
      raftlog consume orders
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # the called command handles the signal itself


def _all_commands() -> None:
    """Add every command as a name and a line of help; a call imports the real command."""
    groups: dict[str, click.Group] = {"": app}
    for name, (_, _, summary) in _COMMANDS.items():
        group, _, last = name.rpartition(" ")
        if group not in groups:
            groups[group] = _Group(group, help=_GROUPS[group])
            app.add_command(groups[group])
        groups[group].add_command(click.Command(last, help=summary))


_all_commands()
