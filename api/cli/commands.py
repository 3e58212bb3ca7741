"""All commands and their names."""

from __future__ import annotations

import typer

from api.cli import local

app = typer.Typer(
    no_args_is_help=True,
    help="raftlog: a distributed log.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
cluster = typer.Typer(no_args_is_help=True, help="The cluster as a whole, and its brokers.")

app.add_typer(cluster, name="cluster")
app.command("dev")(local.dev)
app.command("serve")(local.serve)
cluster.command("init")(local.init)
