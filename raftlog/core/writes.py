"""The writes handed out to the disk, the durable index, and the messages that wait for writes.

Decides when a vote, a vote request or an accepted append may leave, and up to which index this member's log
is durable. ``ready`` says in which order the driver makes writes durable.

A message that depends on the hard state alone waits for no entries. The number of waiting messages is
bounded: if several replies of one type to one peer wait for the same write, only the newest is kept.

Each write in flight covers the log up to an index. A truncation lowers that index: the end of the write must
not confirm the entries that replace the truncated entries.
"""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from raftlog.core.entries import EntryKind, EntrySpan
from raftlog.core.invariants import require_handed_out
from raftlog.core.membership import Membership
from raftlog.core.messages import Envelope, Message
from raftlog.core.ready import HardState, Write
from raftlog.types import Index, NodeId, Term, WriteId

_Kind = tuple[NodeId, type[Message]]  # the receiver of a message, and its type


class Writes:
    """The next write, the writes in flight, and the messages that wait for them."""

    __slots__ = (
        "_after_hard_state",
        "_handed_out",
        "_hard_state",
        "_hard_state_saved",
        "_hard_state_write",
        "_in_flight",
        "_newest",
        "_send_after",
        "_spans",
        "_truncate_from",
        "_waiting",
        "durable_index",
    )

    def __init__(self, last: Index) -> None:
        """Start with a log that is durable up to its ``last`` index."""
        self.durable_index = last
        self._handed_out = last  # the newest index of the log that some write carries
        self._newest = WriteId(0)
        self._hard_state_write = WriteId(0)  # the newest write that carried a hard state
        self._hard_state_saved = WriteId(0)  # hard states of writes up to this one are durable
        self._in_flight: deque[tuple[WriteId, Index]] = deque()  # with the index each covers
        self._after_hard_state: dict[_Kind, Envelope] = {}  # messages that wait for the hard state alone
        self._waiting: dict[tuple[WriteId, _Kind], Envelope] = {}
        self._hard_state: HardState | None = None
        self._truncate_from: Index | None = None
        self._spans: list[EntrySpan] = []
        self._send_after: list[Envelope] = []

    @property
    def all_finished(self) -> bool:
        """Whether no write is in flight, and no write waits to be handed out."""
        return not (self._in_flight or self._hard_state or self._spans or self._truncate_from is not None)

    @property
    def hard_state_is_durable(self) -> bool:
        """Whether the current term and vote survive a crash."""
        return self._hard_state is None and self._hard_state_write <= self._hard_state_saved

    def save_hard_state(self, hard_state: HardState) -> None:
        """Add the hard state to the next write; drop the waiting messages, which belong to earlier terms."""
        self._hard_state = hard_state
        self._after_hard_state.clear()
        self._waiting.clear()

    def append(
        self, term: Term, first: Index, last: Index, kind: EntryKind, membership: Membership | None = None
    ) -> None:
        """Add entries to the next write, in one span with preceding entries of equal term and kind."""
        spans = self._spans
        if spans and spans[-1].term == term and spans[-1].kind is kind and membership is None:
            first = spans.pop().first
        spans.append(EntrySpan(term, first, last, kind, membership))

    def truncate(self, first_removed: Index) -> None:
        """Add the truncation to the next write; writes in flight then cover at most the kept entries."""
        kept = Index(first_removed - 1)
        self._spans = [replace(span, last=min(span.last, kept)) for span in self._spans if span.first <= kept]
        if first_removed > self._handed_out:
            return
        self._truncate_from = first_removed
        self._handed_out = kept
        self.durable_index = min(self.durable_index, kept)
        self._in_flight = deque((write_id, min(covered, kept)) for write_id, covered in self._in_flight)

    def restart(self, last: Index) -> None:
        """Restart after a snapshot has replaced the log durably; no write is in flight."""
        self.durable_index = self._handed_out = last

    def hold_back(self, envelope: Envelope, index: Index) -> bool:
        """Keep a message until the hard state, and the log up to ``index``, are durable.

        Returns False if both are durable already: the message may be sent at once.
        """
        kind = (envelope.to, type(envelope.message))
        if index > self._handed_out or (index <= self.durable_index and self._hard_state is not None):
            self._send_after.append(envelope)
        elif index > self.durable_index:
            covering = next(write_id for write_id, covered in self._in_flight if covered >= index)
            gathered = WriteId(self._newest + 1)
            hard_state = self._hard_state_write if self._hard_state is None else gathered
            self._waiting[max(covering, hard_state), kind] = envelope
        elif self.hard_state_is_durable:
            return False
        else:
            self._after_hard_state[kind] = envelope
        return True

    def take(self) -> Write | None:
        """Hand out the next write; None if there is nothing to write."""
        spans = self._spans
        if not spans and self._hard_state is None and self._truncate_from is None:
            return None
        self._newest = write_id = WriteId(self._newest + 1)
        if self._hard_state is not None:
            self._hard_state_write = write_id
        if spans:
            self._handed_out = spans[-1].last
        self._in_flight.append((write_id, self._handed_out))
        write = Write(
            write_id=write_id,
            hard_state=self._hard_state,
            truncate_from=self._truncate_from,
            spans=tuple(spans),
            send_after=tuple(self._send_after),
        )
        self._hard_state = None
        self._truncate_from = None
        self._spans = []
        self._send_after = []
        return write

    def finish(self, write_id: WriteId) -> list[Envelope]:
        """Mark this write and all earlier writes durable; return the messages that waited for them."""
        require_handed_out(write_id, self._newest)
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= write_id:
            covered = in_flight.popleft()[1]
            if covered > self.durable_index:
                self.durable_index = covered
        released = [self._waiting.pop(key) for key in list(self._waiting) if key[0] <= write_id]
        return released + self._hard_state_saved_by(write_id)

    def hard_state_saved(self, write_id: WriteId) -> list[Envelope]:
        """Mark the hard states up to this write durable; return the messages that waited for them."""
        require_handed_out(write_id, self._newest)
        return self._hard_state_saved_by(write_id)

    def _hard_state_saved_by(self, write_id: WriteId) -> list[Envelope]:
        self._hard_state_saved = max(self._hard_state_saved, write_id)
        if not self._after_hard_state or not self.hard_state_is_durable:
            return []
        released = [*self._after_hard_state.values()]
        self._after_hard_state.clear()
        return released
