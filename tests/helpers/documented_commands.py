"""The commands that a document shows, with what they print: blocks marked ``console``.

A line that begins with ``$`` is a command; what follows up to the next one is its output. Numbers
and ids differ from run to run, so outputs are compared with those masked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Shown:
    """One command of a document and what it is said to print."""

    command: str
    output: str


def shown_commands(document: Path) -> list[Shown]:
    """All commands of a document, in order."""
    found: list[Shown] = []
    for block in re.findall(r"^```console\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Shown(command, output.strip()))
    return found


def python_blocks(document: Path) -> list[str]:
    """All blocks of Python in a document."""
    return re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)


def masked(output: str) -> str:
    """The output without what no two runs have in common."""
    without_ids = re.sub(r"[0-9a-f]{32}", "ID", output.strip())
    return re.sub(r"[0-9]+(\.[0-9]+)?", "N", without_ids)
