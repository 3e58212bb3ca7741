"""Stores contexts, which are names for clusters, in the user's configuration folder.

The file ``contexts.json`` has the address of each cluster, and the name of the context in use. Each context
is a JSON object; its other fields, for example credentials, are kept unchanged. Only the owner of the file
may read it.

Decides: which cluster a command uses. The first of these sources that is set decides: the option
``--server``, the option ``--context``, ``RAFTLOG_URL``, ``RAFTLOG_CONTEXT``, the context in use, and this
machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raftlog.wire.limits import NAME_CHARACTERS_MAX, NAME_PATTERN

FILE_MODE = 0o600
FOLDER_MODE = 0o700


class InvalidContexts(ValueError):
    """The file of contexts, or the name of a context, is not valid. The message has the remedy."""


class NoFolder(InvalidContexts):
    """There is no directory for the file: the user has no home directory, as in some containers."""


@dataclass(slots=True)
class Contexts:
    """All contexts by name; ``current`` is the name of the context in use."""

    current: str | None = None
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)

    def url(self, name: str) -> str:
        """Return the address of a cluster. Raises ``InvalidContexts``."""
        found = self.by_name.get(name)
        if found is None:
            known = (
                ", ".join(sorted(self.by_name)) or "none; add one with `raftlog context add NAME --url URL`"
            )
            raise InvalidContexts(f"there is no context {name!r}; known contexts: {known}")
        return str(found["url"])

    def add(self, name: str, url: str) -> None:
        """Store the address of a cluster.

        Raises ``InvalidContexts`` for a name that is not a valid topic name.
        """
        if not re.fullmatch(NAME_PATTERN, name):
            characters = f"1 to {NAME_CHARACTERS_MAX} of the characters A-Z a-z 0-9 . _ -"
            raise InvalidContexts(f"{name!r} cannot be the name of a context; use {characters}")
        self.by_name[name] = {**self.by_name.get(name, {}), "url": url}


def contexts_path() -> Path:
    """Return the path of the file of contexts. Raises ``NoFolder``."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    home = os.path.expanduser("~")
    if not os.path.isabs(configured) and not os.path.isabs(home):
        raise NoFolder("this user has no home directory; set XDG_CONFIG_HOME to a directory")
    folder = Path(configured) if os.path.isabs(configured) else Path(home) / ".config"
    return folder / "raftlog" / "contexts.json"


def address_of_context(name: str | None) -> str | None:
    """Return the address of a context, or of the current context if ``name`` is None.

    Returns ``None`` if there is no current context. Raises ``InvalidContexts``.
    """
    contexts = read_contexts()
    chosen = contexts.current if name is None else name
    return None if chosen is None else contexts.url(chosen)


def read_contexts() -> Contexts:
    """Read the contexts; if the file does not exist, there are none. Raises ``InvalidContexts``."""
    import json

    try:
        path = contexts_path()
    except NoFolder:
        return Contexts()
    try:
        content = json.loads(path.read_bytes())
        current, by_name = content.get("current"), {**content["contexts"]}
        if isinstance(current, str | None) and all(each["url"] + "" for each in by_name.values()):
            return Contexts(current, by_name)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    raise InvalidContexts(f"{path} is not a valid file of contexts; correct or remove it")


@contextmanager
def changed_contexts() -> Iterator[Contexts]:
    """Read the contexts for a block, and write them after the block. Other processes that change them
    wait.
    """
    import fcntl

    path = Path(os.path.realpath(contexts_path()))  # if the file is a link, its target is replaced
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        contexts = read_contexts()
        yield contexts
        _write(path, contexts)
    finally:
        os.close(folder)


def _write(path: Path, contexts: Contexts) -> None:
    """Replace the file atomically: readers see the old or the new file."""
    import json

    new = path.with_name(f"{path.name}.{os.getpid()}")
    content = {"current": contexts.current, "contexts": contexts.by_name}
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, FILE_MODE)
        json.dump(content, file, indent=2)
        file.write("\n")
    os.replace(new, path)
