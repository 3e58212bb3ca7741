"""All commands and their names."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from api.cli import bench, cluster, consume, inspect, local, partitions, produce, topics, verify

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cluster_commands = typer.Typer(no_args_is_help=True, help="The cluster as a whole, and its brokers.")
topic_commands = typer.Typer(no_args_is_help=True, help="Topics: made, looked at, changed and deleted.")
partition_commands = typer.Typer(no_args_is_help=True, help="Partitions: who leads and who holds them.")
bench_commands = typer.Typer(no_args_is_help=True, help="Load on a running cluster, and what came of it.")
inspect_commands = typer.Typer(no_args_is_help=True, help="Files of a broker, without a broker.")


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


app.command("dev")(local.dev)
app.command("serve")(local.serve)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("verify")(verify.verify)
app.add_typer(topic_commands, name="topic")
app.add_typer(partition_commands, name="partition")
app.add_typer(cluster_commands, name="cluster")
app.add_typer(bench_commands, name="bench")
app.add_typer(inspect_commands, name="inspect")
cluster_commands.command("init")(local.init)
cluster_commands.command("info")(cluster.info)
cluster_commands.command("brokers")(cluster.brokers)
topic_commands.command("create")(topics.create)
topic_commands.command("list")(topics.list_all)
topic_commands.command("describe")(topics.describe)
topic_commands.command("alter")(topics.alter)
topic_commands.command("delete")(topics.delete)
partition_commands.command("list")(partitions.list_all)
partition_commands.command("transfer-leadership")(partitions.transfer_leadership)
partition_commands.command("add-replica")(partitions.add_replica)
partition_commands.command("remove-replica")(partitions.remove_replica)
partition_commands.command("set-replicas")(partitions.set_replicas)
partition_commands.command("unsafe-recover")(partitions.unsafe_recover)
inspect_commands.command("segment")(inspect.segment)
bench_commands.command("produce")(bench.produce)
bench_commands.command("consume")(bench.consume)
bench_commands.command("latency")(bench.latency)
