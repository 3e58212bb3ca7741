"""Bugs in offsets of consumer groups that are committed with a transaction."""

from __future__ import annotations

from tests.helpers.planted_bugs import Mutant

_WORLD = "tests/properties/test_transaction_decisions.py"
_GROUPS = "tests/unit/groups/test_offsets_in_transactions.py"
_SNAPSHOTS = "tests/unit/groups/test_group_snapshots.py"
_TOLD = "tests/unit/transactions/test_told_groups.py"
_HTTP = "tests/unit/api/test_transaction_offsets.py"
_COMMITS = "groups.commits:"
_COORDINATION = "groups.coordination:Coordination."


def _mutant(name: str, place: str, text: str, planted: str, script: str = _WORLD) -> Mutant:
    return Mutant(name, place, text, planted, script=script)


TRANSACTION_OFFSETS = (
    _mutant(
        "offsets in a transaction are visible before its commit",
        _COORDINATION + "_add_offsets",
        "[commits.added_row(self.state, ask, wall_ms)]",
        "[row := commits.added_row(self.state, ask, wall_ms), "
        "*((OffsetKey(ask.group, t, p), o) for t, p, o in row[1].offsets)]",
    ),
    _mutant(
        "an abort commits the offsets",
        _COMMITS + "ended_rows",
        "before.epoch == ask.epoch and ask.is_commit",
        "before.epoch == ask.epoch",
    ),
    _mutant(
        "the end commits offsets of a transaction whose end was lost",
        _COMMITS + "ended_rows",
        "before.epoch == ask.epoch and ask.is_commit",
        "ask.is_commit",
        _GROUPS,
    ),
    _mutant(
        "a repeated end drops the offsets of the next transaction",
        _COMMITS + "ended_rows",
        "ask.epoch < before.epoch",
        "False",
        _GROUPS,
    ),
    _mutant(
        "a group takes offsets of a transaction that has ended",
        _COMMITS + "added_row",
        "ask.epoch < before.epoch",
        "False",
    ),
    _mutant(
        "an end does not fence offsets that arrive late",
        _COMMITS + "ended_rows",
        "epoch=ask.epoch + 1",
        "epoch=ask.epoch",
    ),
    _mutant(
        "an end without offsets fences nothing",
        _COMMITS + "ended_rows",
        "if before is not None and ask.epoch < before.epoch:",
        "if before is None or ask.epoch < before.epoch:",
    ),
    _mutant(
        "members of earlier generations add offsets",
        _COORDINATION + "_add_offsets",
        "self._check_committer(ask, now_ms)",
        "pass",
        _GROUPS,
    ),
    _mutant(
        "a plain commit is overwritten by an older transaction",
        _COMMITS + "committed_rows",
        "check_free(state, ask.group, (_target(commit) for commit in ask.offsets))",
        "pass",
        _GROUPS,
    ),
    _mutant(
        "two transactions have offsets of the same partition",
        _COMMITS + "added_row",
        ", producer_id=ask.producer_id)",
        " if False else ())",
        _GROUPS,
    ),
    _mutant(
        "a late offset takes back a higher one of the same transaction",
        _COMMITS + "added_row",
        "_is_below(commit, kept[target]) if target in kept",
        "False if target in kept",
    ),
    _mutant(
        "further offsets of a transaction replace those of other partitions",
        _COMMITS + "added_row",
        "if before is not None and before.epoch == ask.epoch:",
        "if False:",
    ),
    _mutant(
        "a next coordinator of a group forgets the offsets that wait",
        "groups.state:GroupsState.copy",
        "copied.transactions = {group: dict(producers) for group, producers in self.transactions.items()}",
        "pass",
    ),
    _mutant(
        "a next coordinator of a group does not know which partitions wait",
        "groups.state:GroupsState.copy",
        "copied.pending = {group: dict(targets) for group, targets in self.pending.items()}",
        "pass",
        _GROUPS,
    ),
    _mutant(
        "the end of one transaction frees the partitions of another",
        "groups.state:GroupsState.take",
        "if pending.get((topic, partition)) == producer_id:",
        "if True:",
        _SNAPSHOTS,
    ),
    _mutant(
        "offsets that wait expire",
        _COORDINATION + "_expire",
        "not added.offsets and added.changed_ms < oldest_ms",
        "added.changed_ms < oldest_ms",
        _GROUPS,
    ),
    _mutant(
        "a group whose offsets wait expires",
        _COORDINATION + "_expire",
        " or name in self.state.pending",
        "",
        _GROUPS,
    ),
    _mutant(
        "a group whose offsets wait is deleted",
        _COORDINATION + "_check_settled",
        "if added.offsets:",
        "if False:",
        _GROUPS,
    ),
    _mutant(
        "a coordinator gives up a group that did not answer",
        "transactions.coordinator:TransactionCoordinator._until_known",
        "pause_s = min(2 * pause_s, PAUSE_MAX_S)",
        "return",
        _TOLD,
    ),
    _mutant(
        "a next coordinator does not tell the groups again",
        "transactions.decisions:Decisions.__init__",
        "if transaction.state in ENDING:",
        "if transaction.state in ENDING and transaction.partitions:",
        _TOLD,
    ),
    _mutant(
        "groups are not told the end",
        "transactions.outputs:Outputs.mark",
        "transaction.groups",
        "()",
    ),
    _mutant(
        "a group that joins later takes the place of the first",
        "transactions.decisions:Decisions._join",
        "groups = tuple(sorted({*found.groups, *ask.groups}))",
        "groups = ask.groups",
    ),
    _mutant(
        "a transaction with groups alone is not open",
        "transactions.decisions:Decisions._join",
        "if found.state in IDLE:",
        "if found.state in IDLE and partitions:",
    ),
    _mutant(
        "an end is answered before the groups know it",
        "transactions.coordinator:TransactionCoordinator._send",
        "await asyncio.gather(*partitions, *groups)",
        "self._beside.update(map(asyncio.ensure_future, groups)); await asyncio.gather(*partitions)",
        _TOLD,
    ),
    _mutant(
        "offsets are added to a transaction that the group has not joined",
        "api.resources.transaction_offsets:add_to",
        "await services.transactions.ask(",
        "id(",
        _HTTP,
    ),
    _mutant(
        "a consumer takes over offsets that wait",
        "groups.offsets:GroupOffsets.check_stable",
        "if (each.topic, each.partition) in targets:",
        "if False:",
        _HTTP,
    ),
    _mutant(
        "a poll begins where a transaction may still commit",
        "groups.offsets:GroupOffsets.positions",
        "self.check_stable(view, wanted)",
        "pass",
        _HTTP,
    ),
)
