"""What is owed before anything goes: by a repair that a death cuts short, and to who finds a torn tail."""

from __future__ import annotations

from dataclasses import replace

from raftlog.core.ready import HardState
from raftlog.repair.donor import owed
from raftlog.repair.segment_writer import forget_from
from raftlog.repair.service import Told
from raftlog.repair.verify import examine
from raftlog.storage.durable_state import DurableState
from raftlog.storage.slots import UNKNOWN_TERMS, DurableEnd
from raftlog.types import EntryId, Index, Term
from tests.helpers.log_files import DIRECTORY, segment
from tests.helpers.repair_cluster import log_of


# requirement: M3
def test_what_is_to_come_is_promised_before_anything_goes() -> None:
    """A power loss has put the slots' promise back; what was sound behind it may have been acknowledged."""
    log = log_of(*[1] * 12)
    state = examine(log, DIRECTORY).state
    lower = replace(state, durable_end=DurableEnd(EntryId(Term(1), Index(3)), UNKNOWN_TERMS))
    DurableState.replace(log, DIRECTORY, lower)
    seen = examine(log, DIRECTORY)
    assert (seen.is_clean, seen.state.durable_index, seen.last) == (True, 3, 11)
    forget_from(log, seen, 0, HardState(Term(2), None), 11)
    log.restart()
    assert [(hole.first, hole.last) for hole in examine(log, DIRECTORY).holes] == [(8, 11)]


# requirement: M3
def test_who_has_a_torn_tail_may_have_acknowledged_what_stood_there() -> None:
    log = log_of(*[1] * 12)
    leader = Told(term=Term(2), is_sure=True, is_leader=True, first=Index(0), last=Index(20))
    assert owed(examine(log, DIRECTORY), leader) == 11
    log.open(segment(8)).append([bytes(30)])
    seen = examine(log, DIRECTORY)
    assert seen.torn
    assert owed(seen, leader) == 20
