"""The optional packages of raftlog, and the command that installs them."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

_CHECKOUT: Final = Path(__file__).resolve().parents[1]


def install_command(*extras: str) -> str:
    """The command that installs ``extras``, from the wheel, checkout or index that raftlog came from."""
    return f"pip install {shlex.quote(_requirement(','.join(extras)))}"


def _requirement(extras: str) -> str:
    try:
        source = _source(distribution("raftlog"))
    except PackageNotFoundError:
        source = str(_CHECKOUT)  # found on a path, not installed
    return f"raftlog[{extras}] @ {source}" if "://" in source else f"{source}[{extras}]"


def _source(installed: Distribution) -> str:
    """The file, directory or URL of an installation; the package's name if it came from a package index."""
    recorded = installed.read_text("direct_url.json")  # PEP 610: missing after installation from an index
    if recorded is None:
        return "raftlog"
    url = urlsplit(json.loads(recorded)["url"])
    return unquote(url.path) if url.scheme == "file" else url.geturl()
