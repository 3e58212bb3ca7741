"""Counters of one coordinator for its metrics: rebalances, commits, expired members.

Decides: the kinds of reasons, since the text of a reason has member ids and topics, which labels must not
have. The counters count decisions of the coordination; after a failed append some decisions may count twice.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import queues.tally
from groups.records import CommittedOffset, Group, GroupKey, Key, Value

OTHER: Final = "other"
REASONS: Final = {
    "replaced": re.compile(r"member .* took the place of .*", re.DOTALL),
    "subscription": re.compile(r"member .* changed its subscription", re.DOTALL),
    "requested": re.compile(r"member .* asked for a rebalance", re.DOTALL),
    "joined": re.compile(r"member .* joined", re.DOTALL),
    "left": re.compile(r"member .* left", re.DOTALL),
    "expired": re.compile(r"the session of member .* expired", re.DOTALL),
    "no_plan": re.compile(r"leader .* sent no plan", re.DOTALL),
    "partitions": re.compile(r"the partitions of topic .* changed", re.DOTALL),
    "created_again": re.compile(r"topic .* was created again", re.DOTALL),
    "withheld": re.compile(r"withheld partitions were not revoked"),
    "coordinator": re.compile(r"the coordinator changed"),
}


def kind_of(reason: str) -> str:
    """The kind of a reason in the journal of rebalances."""
    return next((kind for kind, text in REASONS.items() if text.fullmatch(reason)), OTHER)


@dataclass(slots=True)
class Tally(queues.tally.Tally):
    """Counters of one partition of ``__offsets``.

    Counters by group begin at 0 when this broker becomes coordinator.
    """

    offsets_committed: int = 0
    members_expired: int = 0
    groups_expired: int = 0
    rebalances: dict[str, Counter[str]] = field(default_factory=dict)  # by group and kind of reason

    def written(self, key: Key, before: Group | None, value: Value | None) -> None:
        """Count one written record. ``before`` is the record's group before the record was applied."""
        if isinstance(value, CommittedOffset):
            self.offsets_committed += 1
        elif isinstance(key, GroupKey):
            if not isinstance(value, Group):
                self.rebalances.pop(key.group, None)
            elif value.rebalances and (before is None or value.rebalances[-1] != _newest(before)):
                kind = kind_of(value.rebalances[-1].reason)
                self.rebalances.setdefault(key.group, Counter())[kind] += 1

    def expired(self, before: Group, after: Group) -> None:
        """Count members that were removed because their sessions ended."""
        self.members_expired += len(before.members.keys() - after.members.keys())


def _newest(group: Group) -> object:
    return group.rebalances[-1] if group.rebalances else None
