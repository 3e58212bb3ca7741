"""Completes commands in shells: prints the scripts for shells, and finds the names of topics, groups and
contexts.

Decides: that completion is fast and silent. It asks the first broker that answers, for at most a second, and
completes nothing after an error. Leaves to others: commands and options (click), and the choice of the
cluster (``common_options``).
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Final

from api.cli import VARIABLE
from api.cli.contexts import read_contexts
from api.cli.parameters import Argument

if TYPE_CHECKING:
    import click

_LIMIT_S: Final = 1.0
_NAMES_MAX: Final = 1000


class Shell(enum.StrEnum):
    """The shells for which completion is available."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, Argument(help="The shell.")]) -> None:
    """Print the script that completes commands, options and names in a shell.

    It completes names of topics, groups and contexts.

    \b
    Examples:
      eval "$(raftlog completion bash)"
      raftlog completion zsh > ~/.zfunc/_raftlog
      raftlog completion fish > ~/.config/fish/completions/raftlog.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from api.cli.commands import app
    from api.cli.output import printed

    kind = get_completion_class(shell.value)
    assert kind is not None
    script = ShellComplete.source(
        kind(app, {}, "raftlog", VARIABLE)
    )  # without a call of bash, which ``get_source`` makes to find its version
    printed(script, shell=shell.value, script=script)


def names(kind: str, context: click.Context, incomplete: str) -> list[str]:
    """Return the names of a ``kind`` (such as topics) that begin with ``incomplete``; empty if no broker
    answers in time.
    """
    found: list[str] = []
    thread = threading.Thread(target=_collect, args=(kind, context.params.get("server"), found), daemon=True)
    thread.start()
    thread.join(_LIMIT_S)
    return [name for name in [*found] if name.startswith(incomplete)]


def _collect(kind: str, server: object, found: list[str]) -> None:
    try:
        found += sorted(read_contexts().by_name) if kind == "contexts" else _listed(kind, str(server))
    except Exception:
        return


def _listed(kind: str, server: str) -> Sequence[str]:
    """Return the first names in a list of the cluster, from the first broker at its addresses that
    answers.
    """
    from raftlog.client.options import broker_urls
    from raftlog.wire import groups, topics

    lists = {"topics": (topics.LIST.path, "name"), "groups": (groups.LIST.path, "group")}
    for url in broker_urls(server):
        with suppress(OSError):
            return _names_at(url, *lists[kind])
    return ()


def _names_at(url: str, path: str, field: str) -> Sequence[str]:
    import json

    from api.cli.reading import answer_of, opened

    with closing(opened(url, _LIMIT_S)) as connection:
        answer = answer_of(connection, f"{path}?limit={_NAMES_MAX}", _LIMIT_S)
        return [item[field] for item in json.loads(answer.body)["items"]]
