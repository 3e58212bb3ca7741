"""The groups, or queues, that depend on each topic: a change of a topic looks at these alone."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

Name = TypeVar("Name")


class ByTopic(Generic[Name]):
    """Names by topic, in a fixed order."""

    def __init__(self) -> None:
        self._names: dict[str, dict[Name, None]] = {}

    def change(self, name: Name, before: AbstractSet[str], after: AbstractSet[str]) -> None:
        """Note that the name depends on the topics of ``after`` from now on, instead of ``before``."""
        for topic in before - after:
            del self._names[topic][name]
            if not self._names[topic]:
                del self._names[topic]
        for topic in after - before:
            self._names.setdefault(topic, {})[name] = None

    def of(self, topic: str) -> list[Name]:
        """The names that depend on a topic."""
        return [*self._names.get(topic, ())]
