"""Pages of lists: ``limit`` and ``page_token`` in, a slice and the token of the next page out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from api.parameters import whole_number

LIMIT_MAX = 1000

Item = TypeVar("Item")


def page(items: Sequence[tuple[str, Item]], query: Mapping[str, str]) -> tuple[list[Item], str | None]:
    """A page of items that come with their keys and in the order of these.

    The token is the last key shown, so that a page is right whatever was added or deleted meanwhile.
    """
    limit = whole_number(query, "limit", low=1, high=LIMIT_MAX, default=LIMIT_MAX)
    after = query.get("page_token")
    rest = items if after is None else [item for item in items if item[0] > after]
    shown = rest[:limit]
    return [item for _, item in shown], shown[-1][0] if len(rest) > limit else None


def number_key(number: int) -> str:
    """A key that sorts as its number does."""
    return f"{number:010d}"
