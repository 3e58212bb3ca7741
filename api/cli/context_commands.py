"""Commands about contexts: ``context add``, ``use``, ``list``, ``show`` and ``remove``."""

from __future__ import annotations

import os
from typing import Annotated

from api.cli.contexts import changed_contexts, contexts_path, read_contexts
from api.cli.output import DEFAULT_SERVER, done, errors_reported, options_checked, show
from api.cli.parameters import Argument, Option
from api.cli.tables import Row

NameArgument = Annotated[str, Argument(help="The name of a context.", completes="contexts")]
_NONE = "there are no contexts; add one with `raftlog context add NAME --url URL`"


def list_all() -> None:
    """List the contexts.

    \b
    Example:
      raftlog context list
    """
    with errors_reported(), options_checked():
        contexts = read_contexts()
        names = sorted(contexts.by_name)
        rows = [
            {"name": name, "url": contexts.url(name), "current": name == contexts.current} for name in names
        ]
        show(rows, empty=_NONE)


def add(
    name: NameArgument,
    url: Annotated[str, Option("--url", help="The address of any broker; several separated by commas.")],
) -> None:
    """Store the address of a cluster under a name. The new address replaces that of an existing context.

    \b
    Examples:
      raftlog context add production --url http://log1.example:7070,http://log2.example:7070
      raftlog topic list --context production
    """
    with errors_reported(), options_checked():
        from raftlog.client.options import broker_urls

        broker_urls(url)
        with changed_contexts() as contexts:
            contexts.add(name, url)
    with errors_reported(changing=True):
        done(f"added {name} to {contexts_path()}", name=name, url=url)


def use(name: NameArgument) -> None:
    """Use a cluster for all commands without an address.

    \b
    Example:
      raftlog context use production
    """
    with errors_reported(), options_checked(), changed_contexts() as contexts:
        url = contexts.url(name)
        contexts.current = name
    with errors_reported(changing=True):
        done(f"commands without --server use {name} ({url})", name=name, url=url)


def show_one(
    name: Annotated[
        str, Argument(help="The name of a context.  [default: the one in use]", completes="contexts")
    ] = "",
) -> None:
    """Show a context, or the cluster that commands use and the source of this choice.

    \b
    Examples:
      raftlog context show
      raftlog context show production
    """
    with errors_reported(), options_checked():
        show([_shown(name) if name else _in_use()], single=True)


def remove(name: NameArgument) -> None:
    """Forget the address of a cluster. If the context was in use, no context is in use afterwards.

    \b
    Example:
      raftlog context remove production
    """
    with errors_reported(), options_checked(), changed_contexts() as contexts:
        contexts.url(name)
        del contexts.by_name[name]
        if contexts.current == name:
            contexts.current = None
    with errors_reported(changing=True):
        done(f"removed {name}", removed=name)


def _shown(name: str) -> Row:
    contexts = read_contexts()
    return {"name": name, "url": contexts.url(name), "current": name == contexts.current}


def _in_use() -> Row:
    """Return the address that a command without options uses."""
    if url := os.environ.get("RAFTLOG_URL"):
        return {"name": None, "url": url, "from": "RAFTLOG_URL"}
    contexts, named = read_contexts(), os.environ.get("RAFTLOG_CONTEXT")
    if chosen := named or contexts.current:
        source = "RAFTLOG_CONTEXT" if named else "context use"
        return {"name": chosen, "url": contexts.url(chosen), "from": source}
    return {"name": None, "url": DEFAULT_SERVER, "from": "default"}
