"""Bugs in the driver of groups."""

from __future__ import annotations

from tests.simulation.mutants.plant import Edit, Mutant

DRIVER = (
    Mutant(
        "promises leave with the write, not after it",
        "raftlog.node.raft_group:RaftGroup._carry_out",
        "self._environment.request_sync(self)",
        "[self._environment.send(self.group_id, e.to, e.message) for e in ready.write.send_after]; "
        "self._environment.request_sync(self)",
    ),
    Mutant(
        "a vote waits for entries that wait for room",
        "raftlog.node.log_writer:LogWriter.begin_sync",
        "self._saving = self._hard_state",
        "self._saving = self._hard_state if self._syncing else None",
        script="tests/scenarios/node/test_full_disks.py",
    ),
    Mutant(
        "entries are acknowledged to a leader of an earlier term",
        "raftlog.node.raft_group:RaftGroup._keep",
        "envelope.message.term == self._core.term",
        "True",
        script="tests/scenarios/node/test_full_disks.py",
    ),
    Mutant(
        "a hard state releases the promises of entries that wait",
        "raftlog.node.log_writer:LogWriter.end_sync",
        "waiting.write_id <= saved and not waiting.has_entries",
        "waiting.write_id <= saved",
        script="tests/unit/node/test_log_writer.py",
    ),
    Mutant(
        "a log is synced, and its writes counted, before it is cut",
        "raftlog.node.log_changer:LogChanger.begin",
        "change = self._log.cut_change()\n    if change is not None:",
        "change = None\n    if change is not None:",
    ),
    Mutant(
        "the event loop cuts the log itself",
        "raftlog.node.log_writer:LogWriter._truncate",
        "self._log.cut(first_removed)",
        "self._log.truncate_suffix(first_removed)",
    ),
    Mutant(
        "the event loop closes logs itself",
        "raftlog.node.raft_group:RaftGroup._close_change",
        "return self.log.close_change(checkpoint)",
        "return self.log.close()",
    ),
    Mutant(
        "a core takes in votes while its log is replaced",
        "raftlog.node.raft_group:RaftGroup._step",
        "not (self._is_installing and self._may_write(event))",
        "True",
        script="tests/scenarios/node/test_disk_waits.py",
    ),
    Mutant(
        "a long change keeps all syncs waiting",
        "raftlog.node.flusher:Flusher._is_set_aside",
        "not (isinstance(work, LogChange) and work.is_long)",
        "True",
        script="tests/unit/node/test_flusher.py",
    ),
    Mutant(
        "a log is synced while it is changed",
        "raftlog.node.flusher:Flusher._run",
        "if owner in self._beside:",
        "if False:",
        script="tests/unit/node/test_flusher.py",
    ),
    Mutant(
        "a sync finishes writes that came after it began",
        "raftlog.node.log_writer:LogWriter.end_sync",
        "range(self._syncing)",
        "range(len(self._writes))",
    ),
    Mutant(
        "a full disk's batches are forgotten",
        "raftlog.node.log_writer:LogWriter.try_append",
        "            raise\n",
        "            raise\n        self._unwritten.clear()\n",
    ),
    Mutant(
        "the commit hint passes what is durable here",
        "raftlog.node.raft_group:RaftGroup._note_commit_index",
        "Index(min(self._core.commit_index, durable_index))",
        "self._core.commit_index",
        more=(
            Edit(
                "raftlog.storage.durable_state:DurableState.raise_promise",
                "min(commit_index, self.state.promised)",
                "commit_index",
            ),
        ),
        equivalent="a sync writes the hint as it was when it was taken, and covers the log as it was then",
    ),
    Mutant(
        "a failed sync is forgiven",
        "raftlog.node.raft_group:RaftGroup.end_sync",
        "if error is not None:",
        "if False:",
    ),
    Mutant(
        "truncation leaves batches in memory",
        "raftlog.node.applier:Applier.truncated",
        "self._tail_bytes -= len(self._tail.pop().data)",
        "break",
    ),
    Mutant(
        "a batch that is committed is not applied now and then",
        "raftlog.node.applier:Applier.apply_up_to",
        "reply = self._machine.apply(batch)",
        "reply = None if header.base_offset % 7 == 3 and hasattr(self._machine, 'producers') "
        "else self._machine.apply(batch)",
    ),
    Mutant(
        "a broken connection is nobody's news",
        "raftlog.node.group_host:GroupHost.peer_lost",
        "group.peer_unreachable(peer)",
        "pass",
        script="tests/scenarios/node",
    ),
    Mutant(
        "the state where a segment begins is kept one batch early",
        "raftlog.node.applier:Applier._keep_at_boundary",
        "following = Index(self.applied_index + 1)",
        "following = Index(self.applied_index + 2)",
        more=(
            Edit(
                "raftlog.node.applier:Applier._keep_at_boundary",
                "states.keep(self._applied,",
                "states.keep(EntryId(self._applied.term, Index(following - 1)),",
            ),
        ),
        needs=lambda odds: odds.deletes_records,
    ),
    Mutant(
        "bytes that are not committed stay counted when an office ends",
        "raftlog.node.proposals:Waits.leadership_lost",
        "self._count(-sum(proposal.size_bytes for proposal in self._in_log))",
        "pass",
    ),
    Mutant(
        "bytes of a replica that has ended stay counted against its broker's bound",
        "raftlog.node.raft_group:RaftGroup._end",
        "self._waits.ended()",
        "self._waits.leadership_lost()",
        script="tests/scenarios/node/test_offices.py",
    ),
    Mutant(
        "bytes that are not committed are bounded by group only",
        "raftlog.node.proposals:Waits.check_room",
        "(self._shared.total, self._shared.bytes_max,",
        "(0, self._shared.bytes_max,",
        script="tests/scenarios/node/test_offices.py",
    ),
    Mutant(
        "questions that are answered stay counted",
        "raftlog.node.calls:Calls._forget",
        "self._running.pop(task)",
        "self._running[task]",
    ),
    Mutant(
        "who has nothing to sync hears of another's error",
        "raftlog.node.flusher:Flusher._run",
        "None if sync is None else next(errors)",
        "next(errors, None)",
        script="tests/unit/node/test_flusher.py",
    ),
    Mutant(
        "an error of one thread's sync is another's",
        "raftlog.node.flusher:_Round.run",
        "self._errors[number] = ",
        "self._errors[-1 - number] = ",
        script="tests/unit/node/test_flusher.py",
    ),
    Mutant(
        "a snapshot is of where the log began before",
        "raftlog.node.snapshot_transfer:SnapshotService._state",
        "self._newest[:2] != (ask.group_id, start)",
        "self._newest[0] != ask.group_id",
        script="tests/unit/node/test_snapshot_service.py",
    ),
    Mutant(
        "what is written behind entries that wait for room counts as durable",
        "raftlog.node.log_writer:LogWriter.write",
        "if self.is_blocked and not was_blocked:",
        "if self.is_blocked:",
    ),
    Mutant(
        "a vote that is given while another is saved is never saved",
        "raftlog.node.log_writer:LogWriter.end_sync",
        "if self._hard_state == saved:",
        "if True:",
        script="tests/unit/node/test_log_writer.py",
    ),
    Mutant(
        "a log that had no room for a change of it takes no more entries",
        "raftlog.node.log_changer:LogChanger.end",
        "change.give_up()",
        "pass",
        script="tests/scenarios/node/test_full_disks.py",
    ),
    Mutant(
        "a replica that had no room for a snapshot takes no more messages",
        "raftlog.node.raft_group:RaftGroup._changed",
        "self._is_installing = False",
        "pass",
        script="tests/scenarios/node/test_full_disks.py",
    ),
    Mutant(
        "waits for all replicas that have timed out are kept",
        "raftlog.node.proposals:Waits.replicated",
        "elif not future.done():",
        "else:",
        script="tests/unit/node/test_proposals.py",
    ),
)
