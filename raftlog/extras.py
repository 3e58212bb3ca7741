"""The packages that parts of raftlog need in addition, and the command that installs them."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_CHECKOUT: Final = Path(__file__).resolve().parents[1]


def install_command(*extras: str) -> str:
    """The command that adds extras to this installation, from the wheel or checkout that it came from."""
    return f"pip install {shlex.quote(_requirement(','.join(extras)))}"


def _requirement(extras: str) -> str:
    try:
        source = _source(distribution("raftlog"))
    except PackageNotFoundError:
        source = str(_CHECKOUT)  # found on a path, not installed
    return f"raftlog[{extras}] @ {source}" if "://" in source else f"{source}[{extras}]"


def _source(installed: Distribution) -> str:
    """A file, a directory or an address; the name of the package if it came from an index of packages."""
    recorded = installed.read_text("direct_url.json")  # PEP 610: missing after installation from an index
    if recorded is None:
        return "raftlog"
    url = urlsplit(json.loads(recorded)["url"])
    return unquote(url.path) if url.scheme == "file" else url.geturl()
