"""``python -m tests.fuzz TARGET [options of libFuzzer]``: until something is found, or its time is over."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports():
    from tests.fuzz.targets import TARGETS

CORPUS = Path(".cache/fuzz")


def main() -> None:
    """Fuzz one target; what covers something new is kept for the next time."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"name a target: {', '.join(TARGETS)}")
    name = sys.argv.pop(1)
    corpus = CORPUS / name
    corpus.mkdir(parents=True, exist_ok=True)
    atheris.Setup(
        [sys.argv[0], str(corpus), f"-artifact_prefix={CORPUS}/{name}-", *sys.argv[1:]], TARGETS[name]
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
