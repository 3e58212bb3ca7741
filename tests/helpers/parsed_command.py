"""Command lines that the real parser of arguments reads, and that are not run."""

from __future__ import annotations

from collections.abc import Sequence

import click

from api.cli.commands import app


def options_of(arguments: Sequence[str]) -> dict[str, object]:
    """The options of the command that ``raftlog`` with these arguments runs. Raises ``UsageError``."""
    context = app.make_context("raftlog", list(arguments))
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, rest, parent=context)
    return context.params
