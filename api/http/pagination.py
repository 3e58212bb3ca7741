"""Pages lists: turns ``limit`` and ``page_token`` into a slice and the token of the next page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from api.http.parameters import WholeNumber
from raftlog.errors import InvalidRequest
from raftlog.wire.limits import NAME_PATTERN

LIMIT: Final = WholeNumber(1, 1000, 1000)
NAMES: Final = re.compile(NAME_PATTERN)
NUMBERS: Final = re.compile("^[0-9]{10}$")

Item = TypeVar("Item")


def asked_page(query: Mapping[str, str], keys: re.Pattern[str]) -> tuple[str, int]:
    """Return the key after which a page begins, and the number of items to look for: one more than the limit.

    Used for lists of which only one page is fetched. Raises ``InvalidRequest`` like ``page``.
    """
    return _after(query, keys) or "", LIMIT.of(query, "limit") + 1


def page(
    items: Sequence[tuple[str, Item]], query: Mapping[str, str], keys: re.Pattern[str]
) -> tuple[list[Item], str | None]:
    """Return a page of items and the token of the next page; the items are ordered by their ``keys``, such as
    ``NAMES``.

    The token is the last key of the page, so that paging is correct despite additions and deletions. Raises
    ``InvalidRequest`` for a token that is not a key.
    """
    limit = LIMIT.of(query, "limit")
    after = _after(query, keys)
    rest = items if after is None else [item for item in items if item[0] > after]
    shown = rest[:limit]
    return [item for _, item in shown], shown[-1][0] if len(rest) > limit else None


def _after(query: Mapping[str, str], keys: re.Pattern[str]) -> str | None:
    after = query.get("page_token")
    if after is not None and not keys.fullmatch(after):
        raise InvalidRequest(
            f"page_token is {after[:64]!r}; send the next_page_token of the previous page unchanged",
            field="page_token",
        )
    return after


def number_key(number: int) -> str:
    """Return the text for a number that sorts like the number: a key of ``NUMBERS``."""
    return f"{number:010d}"
