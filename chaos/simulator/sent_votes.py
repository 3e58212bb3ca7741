"""Terms and votes that a replica has named to others: durable when they leave (I7), and kept for ever.

Decides nothing about when that is looked at (``checker``). A vote is of its term only: a later term takes
its place.
"""

from __future__ import annotations

from chaos.simulator.log_view import durable_vote
from raftlog.testing.fake_filesystem import FakeFilesystem


class SentVotes:
    """One replica's, as its disk must hold them whatever a power loss takes."""

    def __init__(self, disk: FakeFilesystem, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self.term = 0  # the newest that it has named
        self._voted_for: int | None = None

    def name(self, term: int, voted_for: int | None) -> str:
        """Another one leaves; what is wrong with that, if anything."""
        if term > self.term:
            self.term, self._voted_for = term, voted_for
        elif term == self.term and voted_for is not None:
            self._voted_for = voted_for
        return self._missing(term, voted_for)

    def forgotten(self) -> str:
        """What the disk no longer holds of the newest one, if anything."""
        return self._missing(self.term, self._voted_for)

    def _missing(self, term: int, voted_for: int | None) -> str:
        vote = durable_vote(self._disk, self._directory)
        is_held = vote.term > term or (vote.term == term and voted_for in (None, vote.voted_for))
        return "" if is_held else f"term {term}, vote {voted_for} of {self._directory}; durable is {vote}"
