"""The groups, or queues, that depend on each topic, so that a change of a topic handles only these."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

Name = TypeVar("Name")


class ByTopic(Generic[Name]):
    """For each topic, the names of the groups or queues that depend on it, in a fixed order."""

    def __init__(self) -> None:
        self._names: dict[str, dict[Name, None]] = {}

    def change(self, name: Name, before: AbstractSet[str], after: AbstractSet[str]) -> None:
        """Change the topics on which a name depends from ``before`` to ``after``."""
        for topic in before - after:
            del self._names[topic][name]
            if not self._names[topic]:
                del self._names[topic]
        for topic in after - before:
            self._names.setdefault(topic, {})[name] = None

    def of(self, topic: str) -> list[Name]:
        """The names that depend on a topic."""
        return [*self._names.get(topic, ())]
