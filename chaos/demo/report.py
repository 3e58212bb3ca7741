"""Prints the output of the demo."""

from __future__ import annotations


def say(text: str) -> None:
    """Print one line without delay."""
    print(text, flush=True)


def compare(what: str, wanted: int, found: int) -> bool:
    """Print a count beside the expected count; return whether they are equal."""
    say(f"{what:<34}{found:>10,} of {wanted:,}{'' if found == wanted else '   <-- WRONG'}")
    return found == wanted
