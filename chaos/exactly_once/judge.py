"""Checks that each input has exactly one visible output, and that all records of a transaction are visible if
one is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass

from chaos.exactly_once.copies import Copy, Input


@dataclass(frozen=True, slots=True)
class Verdict:
    """The counts of a run. For each count that should be zero, ``examples`` has some inputs and
    transactions.
    """

    transactions: int
    records: int
    lost: int  # inputs without an output
    doubled: int  # inputs with more than one output
    foreign: int  # outputs of inputs that do not exist
    torn: int  # transactions of which only a part is visible
    examples: tuple[str, ...]

    @property
    def is_exactly_once(self) -> bool:
        """Whether all counts that should be zero are zero."""
        return not (self.lost or self.doubled or self.foreign or self.torn)


def judged(copies: Iterable[Copy], inputs: Set[Input]) -> Verdict:
    """Compare outputs with ``inputs``, the records of the source that were acknowledged to their producer."""
    outputs: Counter[Input] = Counter()
    visible: Counter[str] = Counter()
    complete: dict[str, int] = {}
    for copy in copies:
        outputs[copy.of] += 1
        visible[copy.transaction] += 1
        complete[copy.transaction] = copy.transaction_records
    lost = inputs - outputs.keys()
    foreign = outputs.keys() - inputs
    doubled = [each for each, number in outputs.items() if number > 1]
    torn = [each for each, number in visible.items() if number != complete[each]]
    return Verdict(
        transactions=len(visible),
        records=outputs.total(),
        lost=len(lost),
        doubled=len(doubled),
        foreign=len(foreign),
        torn=len(torn),
        examples=(
            *(f"lost {each}" for each in sorted(map(str, lost))[:5]),
            *(f"doubled {each}" for each in doubled[:5]),
            *(f"foreign {each}" for each in sorted(map(str, foreign))[:5]),
            *(f"torn {each}: {visible[each]} of {complete[each]}" for each in torn[:5]),
        ),
    )
