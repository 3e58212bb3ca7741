"""The terms of a log and the index where each term begins: all that the core knows about entries.

Terms never fall along a log, so the entries of one term form a *run*, and a log of any length is a short list
of runs. The term of an entry is found by binary search.

A leader compares two logs only at the end of a run of its own log, or at a follower's newest entry if its own
log holds that entry, too. So a leader never probes the middle of a batch, although the core does not know
where batches end.
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
        """Start with a log that ends with ``last``. ``terms``: its first entry of each term, oldest first."""
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
        """The term of an entry of the log, or of the entry just before the log."""
        firsts = self._firsts
        if firsts and firsts[-1] <= index <= self.last_index:
            return self.last_term
        require_index_known(index, self.snapshot.index, self.last_index)
        run = bisect_right(firsts, index) - 1
        return self._terms[run] if run >= 0 else self.snapshot.term

    def entry_at(self, index: Index) -> EntryId:
        """The id of the entry at ``index``, at most the last index; ``snapshot`` if it is before the log."""
        return EntryId(self.term_at(index), index) if index > self.snapshot.index else self.snapshot

    def holds(self, entry: EntryId) -> bool:
        """Whether the log holds the entry, or begins just after it."""
        return (
            self.snapshot.index <= entry.index <= self.last_index and self.term_at(entry.index) == entry.term
        )

    def held_from(self, term: Term, first: Index) -> Index:
        """The last index of the run that contains ``first``, if the run has ``term``; else ``first - 1``."""
        run = bisect_right(self._firsts, first) - 1
        if run < 0 or first > self.last_index or self._terms[run] != term:
            return Index(first - 1)
        return self._run_last(run)

    def append(self, term: Term, first: Index, last: Index) -> None:
        """Add the entries ``first..last`` of ``term`` at the end of the log."""
        require_follows(first, last, self.last_index)
        if term != self.last_term or not self._terms:
            require_terms_in_order(term, self.last_term)
            self._firsts.append(first)
            self._terms.append(term)
            self.last_term = term
        self.last_index = last

    def truncate(self, first_removed: Index) -> None:
        """Remove the entry at ``first_removed`` and all entries after it."""
        require_index_known(Index(first_removed - 1), self.snapshot.index, self.last_index)
        kept = bisect_left(self._firsts, first_removed)
        del self._firsts[kept:]
        del self._terms[kept:]
        self.last_index = Index(first_removed - 1)
        self.last_term = self._terms[-1] if kept else self.snapshot.term

    def truncate_prefix(self, snapshot: EntryId) -> None:
        """Remove the entries up to ``snapshot``, which this log holds."""
        require_held(snapshot, self.term_at(snapshot.index))
        first_kept = Index(snapshot.index + 1)
        run = bisect_right(self._firsts, first_kept) - 1  # the run that has ``first_kept``, or the last run
        if snapshot.index == self.last_index:
            run += 1
        del self._firsts[:run]
        del self._terms[:run]
        if self._firsts:
            self._firsts[0] = first_kept
        self.snapshot = snapshot

    def newest_at_most(self, limit: EntryId) -> EntryId:
        """The newest entry whose index and term are at most the index and the term of ``limit``.

        A follower sends it as its conflict hint: the log of a leader that holds ``limit`` can hold no newer
        entry of the follower, so the leader skips whole terms at once.
        """
        run = min(bisect_right(self._firsts, limit.index), bisect_right(self._terms, limit.term)) - 1
        if run < 0:
            return self.snapshot
        return EntryId(self._terms[run], min(limit.index, self._run_last(run)))

    def compare_next(self, hint: EntryId) -> Index:
        """The index at which a leader probes next, after a conflict hint.

        If this log holds the hinted entry, the result is that entry's index. Otherwise it is the end of the
        newest run whose term is at most the hint's term, even if that end is after the hint: the follower
        then replies with its newest entry of that run.
        """
        run = bisect_right(self._terms, hint.term) - 1
        if run < 0:
            return self.snapshot.index
        end = self._run_last(run)
        return min(end, hint.index) if self._terms[run] == hint.term else end

    def _run_last(self, run: int) -> Index:
        return Index(self._firsts[run + 1] - 1) if run + 1 < len(self._firsts) else self.last_index
