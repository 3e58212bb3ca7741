"""Contexts: names for clusters, in the user's configuration folder.

The file ``contexts.json`` has the address of each cluster, and the name of the one in use. Each context is an
object, whose other fields are kept as they are: credentials have their place there. Only its owner may read
the file.

Decides: which cluster a command talks to. The option ``--server`` comes first, then the option ``--context``,
``RAFTLOG_URL``, ``RAFTLOG_CONTEXT``, the context in use, and this machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FILE_MODE = 0o600
FOLDER_MODE = 0o700


class InvalidContexts(ValueError):
    """The file, or a name, is not valid. The message says what to do."""


@dataclass(slots=True)
class Contexts:
    """All contexts by name; ``current`` is the one in use."""

    current: str | None = None
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)

    def url(self, name: str) -> str:
        """The address of a cluster. Raises ``InvalidContexts``."""
        found = self.by_name.get(name)
        if found is None:
            known = (
                ", ".join(sorted(self.by_name)) or "none; add one with `raftlog context add NAME --url URL`"
            )
            raise InvalidContexts(f"there is no context {name!r}; there are {known}")
        return str(found.get("url", ""))


def contexts_path() -> Path:
    """Where the contexts are."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    folder = Path(configured) if os.path.isabs(configured) else Path.home() / ".config"
    return folder / "raftlog" / "contexts.json"


def address_of_context(name: str | None) -> str | None:
    """The address of this context, or of the one in use; ``None`` without one. Raises ``InvalidContexts``."""
    contexts = read_contexts()
    chosen = name or contexts.current
    return None if chosen is None else contexts.url(chosen)


def read_contexts() -> Contexts:
    """The contexts; none without a file. Raises ``InvalidContexts``."""
    import json

    path = contexts_path()
    try:
        content = json.loads(path.read_bytes())
        found = Contexts(content.get("current"), dict(content["contexts"]))
        if all(isinstance(each, dict) for each in (content["contexts"], *found.by_name.values())):
            return found
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise InvalidContexts(f"{path} is not a file of contexts; correct or remove it")


def write_contexts(contexts: Contexts) -> None:
    """Replace the file; readers see the old or the new one."""
    import json

    path = contexts_path()
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    content = {"current": contexts.current, "contexts": contexts.by_name}
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, FILE_MODE)
        json.dump(content, file, indent=2)
        file.write("\n")
    os.replace(new, path)
