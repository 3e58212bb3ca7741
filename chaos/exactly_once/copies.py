"""Defines the copied data: the topics, and the output record of an input."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

SOURCE: Final = "raw"
OUTPUTS: Final = ("clean-a", "clean-b", "clean-c")
GROUP: Final = "copiers"
RECORDS_PER_TRANSACTION: Final = 10
TRANSACTION_HEADER: Final = "transaction"  # its number, which the copier chooses for each attempt
OF_HEADER: Final = "of"  # the number of records of this transaction


@dataclass(frozen=True, slots=True)
class Input:
    """The place of one record in the source topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Input:
        """Parse the text that ``str`` has written. Raises ``ValueError``."""
        partition, _, offset = text.partition("/")
        return cls(int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class Copy:
    """One record of an output topic, as a reader of committed records sees it."""

    of: Input
    transaction: str
    transaction_records: int


def new_transaction() -> str:
    """Return a new number for one attempt of a transaction. No two attempts have equal numbers."""
    return os.urandom(8).hex()


def output_of(number: int) -> str:
    """Return the output topic for the record at this place in its transaction."""
    return OUTPUTS[number % len(OUTPUTS)]
