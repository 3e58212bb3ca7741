"""The blocks of a page of documentation, and which of them a reader can run.

``console``: a line that begins with ``$`` is a command, lines after it that begin with ``>`` continue it, and
the others are its output. ``python``: a program; a block ``text`` directly after it is its output. A program
whose first line is a comment with the name of a file is this file, and is not run by itself. Blocks of all
other languages are shown, not run. In an output ``...`` stands for any text.

A command with ``--watch`` runs until its output is the one shown, and ends with Ctrl-C. A command that only
looks is repeated until then: a reader who is faster than the brokers looks again, too. A comment
``<!-- not run: REASON -->`` above a block leaves it out, ``<!-- until Ctrl-C -->`` marks a program
that does not end by itself, ``<!-- goes on -->`` appends a program to the one above it, and
``<!-- file: NAME -->`` makes a file of any block.
``python -m tests.helpers.documented_commands`` lists the blocks that are not run.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
INDEX: Final = ROOT / "docs" / "index.md"
RUN: Final = ("console", "python")
SHOWN: Final = ("text", "toml", "ini", "cron", "json", "http", "mermaid", "yaml")

_BLOCK: Final = re.compile(
    r"^(?:<!-- (?:(?P<endless>until Ctrl-C)|(?P<next>goes on)|file: (?P<file>.+?)|not run: (?P<reason>.+?))"
    r" -->\n)?"
    r"```(?P<language>[a-z]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_FILE: Final = re.compile(r"# ([\w./-]+\.\w+)\n")
_ID: Final = re.compile(r'\b[0-9a-f]{28,32}\b|(?<="receipt":")[^"]+')
_REFUSED: Final = re.compile(r"^(error|unhealthy|verdict=invalid|DAMAGED)\b", re.MULTILINE)
_LOOK: Final = re.compile(r"raftlog (?:[a-z]+ )?(?:list|describe|info|health|show|plan|inspect)\b[^|>&;]*")
_LONG_TESTS: Final = re.compile(r"(?<=s) \(\d+:\d\d:\d\d\)$", re.MULTILINE)  # of pytest, from a minute on
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:(?:ms|s|[KMGT]iB|B)\b)?")  # 999 ms may be 1.2 s elsewhere
_HEADING: Final = re.compile(r"[a-z_]+(?: {2,}[a-z_]+)+")


@dataclass(frozen=True, slots=True)
class Shown:
    """One command of a document and its documented output."""

    command: str
    output: str

    @property
    def is_refused(self) -> bool:
        """Whether the output says that the command fails."""
        return _REFUSED.search(self.output) is not None

    @property
    def is_watched(self) -> bool:
        """Whether the command repeats its output until Ctrl-C, which is pressed once the page's is there.

        Behind a pipe it ends with the reader of its output.
        """
        return "--watch" in self.command and "|" not in self.command

    @property
    def is_look(self) -> bool:
        """Whether the command changes nothing, so that it can be repeated until its output is there."""
        is_alone = _LOOK.fullmatch(self.command) is not None and not self.is_watched
        return is_alone and bool(self.output) and "--apply" not in self.command


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page."""

    page: str
    line: int
    language: str
    text: str
    output: str = ""  # of a program in Python
    reason: str = ""  # why it is not run
    file: str = ""  # that the block is
    is_endless: bool = False
    goes_on: bool = False  # from the program above it

    @property
    def is_run(self) -> bool:
        """Whether a reader can paste it."""
        return not self.reason and (self.language in RUN or bool(self.file))

    @property
    def commands(self) -> list[Shown]:
        """The commands of a block marked ``console``."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:] if self.language == "console" else []
        return [_shown(part) for part in parts]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def _shown(part: str) -> Shown:
    first, *rest = part.splitlines()
    command = [first]
    while rest and rest[0].startswith("> "):
        command.append(rest.pop(0).removeprefix("> "))
    return Shown("\n".join(command), "\n".join(rest).strip())


def pages() -> list[Path]:
    """The README, then the pages of docs/ in the order of their index."""
    listed = [INDEX.parent / name for name in re.findall(r"\]\(([\w-]+\.md)\)", INDEX.read_text())]
    return [ROOT / "README.md", INDEX, *dict.fromkeys(listed)]


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    text, found = page.read_text(), list[Block]()
    matches = list(_BLOCK.finditer(text))
    for match, after in zip(matches, [*matches[1:], None], strict=False):
        named = _FILE.match(match["text"]) if match["language"] == "python" else None
        is_output = after and after["language"] == "text" and not text[match.end() : after.start()].strip()
        found.append(
            Block(
                page=str(page.relative_to(ROOT)),
                line=text.count("\n", 0, match.start("language")) + 1,
                language=match["language"],
                text=match["text"],
                output=after["text"].strip() if after and is_output and match["language"] == "python" else "",
                reason=match["reason"] or "",
                file=match["file"] or (named[1] if named else ""),
                is_endless=match["endless"] is not None,
                goes_on=match["next"] is not None,
            )
        )
    return found


def pasted_blocks(page: Path) -> list[Block]:
    """The blocks that a reader pastes, in order. A program has all blocks that go on from it."""
    found: list[Block] = []
    for block in blocks_of(page):
        if block.goes_on:
            at = max(number for number, one in enumerate(found) if one.language == "python")
            output = f"{found[at].output}\n{block.output}".strip()
            found[at] = replace(found[at], text=f"{found[at].text}\n\n{block.text}", output=output)
        elif block.is_run:
            found.append(block)
    return found


def heading(output: str) -> str:
    """The heading of a table, with its columns one space apart; empty for other outputs."""
    first = output.partition("\n")[0].strip()
    return " ".join(first.split()) if _HEADING.fullmatch(first) else ""


def ids(output: str) -> list[str]:
    """The ids in an output, which a later command of the page can name."""
    return _ID.findall(output)


def masked(output: str) -> str:
    """The output with everything that differs between runs masked."""
    lines = [" ".join(line.split()) for line in _LONG_TESTS.sub("", _ID.sub("ID", output)).splitlines()]
    return _NUMBER.sub("N", "\n".join(line for line in lines if line))


def is_as_shown(shown: str, output: str) -> bool:
    """Whether an output is the one that a page shows, in which ``...`` stands for any text."""
    pattern = ".*".join(map(re.escape, masked(shown).split("...")))
    return re.fullmatch(pattern, masked(output), re.DOTALL) is not None


def _listed() -> Iterator[str]:
    blocks = [block for page in pages() for block in blocks_of(page)]
    for block in blocks:
        if block.language in RUN and not block.is_run:
            yield f"{block}: {block.language} is not run: {block.reason}"
    count = sum(block.is_run for block in blocks)
    yield f"{count} of {len(blocks)} blocks are run; the others without a reason are formats and diagrams"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in _listed())
