"""The shape of a log: which terms it holds and where each begins. All the core knows of entries.

Terms never decrease along a log, so the entries of one term form a *run*, and a log of any
length is a short list of runs. Questions about single entries are binary searches in it.

Every index that this map gives out as a place to compare two logs ends a run here, or is the
newest entry of a follower that this log holds too: so a leader never asks a follower about the
middle of a batch, though neither knows where batches end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from raftlog.core.invariants import (
    require_follows,
    require_held,
    require_index_known,
    require_terms_in_order,
)
from raftlog.types import EntryId, Index, Term


class TermMap:
    """The runs of one log, oldest first, and the entry just before them."""

    __slots__ = ("_firsts", "_terms", "last_index", "last_term", "snapshot")

    def __init__(self, snapshot: EntryId, terms: Sequence[EntryId], last: EntryId) -> None:
        """``terms``: the first entry of each term in the log, oldest first."""
        self.snapshot = snapshot
        self.last_index = last.index
        self.last_term = last.term
        self._firsts = [entry.index for entry in terms]
        self._terms = [entry.term for entry in terms]

    @property
    def last(self) -> EntryId:
        """The newest entry."""
        return EntryId(self.last_term, self.last_index)

    def term_at(self, index: Index) -> Term:
        """The term of an entry of the log, or of the one just before it."""
        firsts = self._firsts
        if firsts and firsts[-1] <= index <= self.last_index:
            return self.last_term
        require_index_known(index, self.snapshot.index, self.last_index)
        run = bisect_right(firsts, index) - 1
        return self._terms[run] if run >= 0 else self.snapshot.term

    def holds(self, entry: EntryId) -> bool:
        """Whether the log holds it, the entry just before the log included."""
        return (
            self.snapshot.index <= entry.index <= self.last_index and self.term_at(entry.index) == entry.term
        )

    def held_from(self, term: Term, first: Index) -> Index:
        """The end of the run that ``first`` lies in, if that is a run of ``term``; else ``first - 1``."""
        run = bisect_right(self._firsts, first) - 1
        if run < 0 or first > self.last_index or self._terms[run] != term:
            return Index(first - 1)
        return self._run_last(run)

    def append(self, term: Term, first: Index, last: Index) -> None:
        """Add entries at the end."""
        require_follows(first, last, self.last_index)
        if term != self.last_term or not self._terms:
            require_terms_in_order(term, self.last_term)
            self._firsts.append(first)
            self._terms.append(term)
            self.last_term = term
        self.last_index = last

    def truncate(self, first_removed: Index) -> None:
        """Forget this entry and all after it."""
        require_index_known(Index(first_removed - 1), self.snapshot.index, self.last_index)
        kept = bisect_left(self._firsts, first_removed)
        del self._firsts[kept:]
        del self._terms[kept:]
        self.last_index = Index(first_removed - 1)
        self.last_term = self._terms[-1] if kept else self.snapshot.term

    def truncate_prefix(self, snapshot: EntryId) -> None:
        """Forget everything up to ``snapshot``, which this log holds."""
        require_held(snapshot, self.term_at(snapshot.index))
        first_kept = Index(snapshot.index + 1)
        run = bisect_right(self._firsts, first_kept) - 1  # the one that ``first_kept`` lies in, or the last
        if snapshot.index == self.last_index:
            run += 1
        del self._firsts[:run]
        del self._terms[:run]
        if self._firsts:
            self._firsts[0] = first_kept
        self.snapshot = snapshot

    def newest_at_most(self, limit: EntryId) -> EntryId:
        """The newest entry whose index and term both do not pass ``limit``'s.

        A follower's conflict hint: nothing newer of it can be in the log of a leader that has
        ``limit``, so whole terms are skipped at once.
        """
        run = min(bisect_right(self._firsts, limit.index), bisect_right(self._terms, limit.term)) - 1
        if run < 0:
            return self.snapshot
        return EntryId(self._terms[run], min(limit.index, self._run_last(run)))

    def compare_next(self, hint: EntryId) -> Index:
        """Where a leader compares next with a follower whose conflict hint is ``hint``.

        The hint itself when this log holds it; otherwise the end of the newest run whose term
        does not pass the hint's, even where that lies after the hint: the follower will then
        name its own newest entry of that run.
        """
        run = bisect_right(self._terms, hint.term) - 1
        if run < 0:
            return self.snapshot.index
        end = self._run_last(run)
        return min(end, hint.index) if self._terms[run] == hint.term else end

    def _run_last(self, run: int) -> Index:
        return Index(self._firsts[run + 1] - 1) if run + 1 < len(self._firsts) else self.last_index
