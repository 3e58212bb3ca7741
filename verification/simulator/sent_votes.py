"""Checks the terms and votes that a replica sends: they must be durable before they are sent (I7), and stay
durable.

A vote belongs to its term; a vote in a later term replaces it. ``checker`` decides when to check.
"""

from __future__ import annotations

from raftlog.testing.fake_filesystem import FakeFilesystem
from verification.simulator.log_view import durable_vote


class SentVotes:
    """The newest term and vote that one replica has sent, which its disk must keep after any power loss."""

    def __init__(self, disk: FakeFilesystem, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.term = 0  # the newest that it has sent
        self._voted_for: int | None = None

    def name(self, term: int, voted_for: int | None) -> str:
        """Note a vote that is sent; return the violation as text, or an empty text."""
        if term > self.term:
            self.term, self._voted_for = term, voted_for
        elif term == self.term and voted_for is not None:
            self._voted_for = voted_for
        return self._missing(term, voted_for)

    def forgotten(self) -> str:
        """Return the newest sent vote, as text, if the disk lacks it; otherwise an empty text."""
        return self._missing(self.term, self._voted_for)

    def _missing(self, term: int, voted_for: int | None) -> str:
        vote = durable_vote(self._disk, self._directory)
        is_held = vote.term > term or (vote.term == term and voted_for in (None, vote.voted_for))
        return "" if is_held else f"term {term}, vote {voted_for} of {self._directory}; durable is {vote}"
