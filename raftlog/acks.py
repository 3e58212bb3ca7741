"""Parsing of ``acks`` values: raftlog's words, and the words of other systems."""

from __future__ import annotations

_SYNONYMS = {"all": "quorum", "-1": "quorum"}


def acks_word(text: str) -> str | None:
    """The normal form of an ``acks`` value: ``quorum``, ``every`` or a number of at most three digits.

    ``None`` for any other text. ``all`` and ``-1``, Kafka's names for a committed record, mean ``quorum``.
    """
    word = text.strip().lower()
    word = _SYNONYMS.get(word, word)
    if word in ("quorum", "every"):
        return word
    return str(int(word)) if word.isascii() and word.isdigit() and len(word) <= 3 else None
