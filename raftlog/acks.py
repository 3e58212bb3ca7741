"""How ``acks`` is written, by people and by tools of other systems."""

from __future__ import annotations

_SYNONYMS = {"all": "quorum", "-1": "quorum"}


def acks_word(text: str) -> str | None:
    """``quorum``, ``every`` or a number of at most three digits; ``None`` for a text that is none of them.

    ``all`` and ``-1``, Kafka's names for what is committed, mean ``quorum``.
    """
    word = text.strip().lower()
    word = _SYNONYMS.get(word, word)
    if word in ("quorum", "every"):
        return word
    return str(int(word)) if word.isascii() and word.isdigit() and len(word) <= 3 else None
