"""One planted bug: an edit of the production code that breaks a promise, and the test that must see it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.helpers.planted_bugs import Edit


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """An edit in one place, and ``more`` where a bug takes several edits.

    ``promise``: the number of an invariant (``docs/invariants.md``), the section of a format, or the row of a
    promise to users (``docs/promises.md``). ``seen_by``: a test as pytest names it, or a fixed seed
    (``core:0``). Each is deterministic and takes less than 5 s of CPU.
    """

    name: str
    promise: str
    place: str
    text: str
    planted: str
    seen_by: str
    more: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits of the bug."""
        return Edit(self.place, self.text, self.planted), *self.more

    @property
    def files(self) -> set[str]:
        """Paths of the files that the bug and its test depend on, from the root of the checkout."""
        modules = {edit.place.partition(":")[0].replace(".", "/") for edit in self.edits}
        return {f"{module}.py" for module in modules} | {self.seen_by.partition("::")[0]}
