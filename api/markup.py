"""Builds elements of HTML and SVG. A text of type ``Html`` is escaped: all parts of a page must have this
type.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Final, NewType

Html = NewType("Html", str)

NOTHING: Final = Html("")
_VOID: Final = frozenset({"meta", "rect", "line", "path"})


def text(content: str) -> Html:
    """Escape a text for HTML."""
    return Html(html.escape(content))


def tag(name: str, /, *children: Html, **attributes: str | float) -> Html:
    """Build an element. The keyword ``class_`` becomes the attribute class, and ``stroke_width`` becomes
    stroke-width.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items()
    )
    if name in _VOID:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{''.join(children)}</{name}>")


def join(parts: Iterable[Html]) -> Html:
    """Concatenate parts of a page."""
    return Html("".join(parts))


def table(caption: str, headings: Iterable[str], rows: Iterable[Iterable[Html]], class_: str = "") -> Html:
    """Build a table with row headings in the first column. A heading that ends with ``#`` marks a column of
    numbers.
    """
    names = list(headings)
    kinds = ["number" if name.endswith("#") else "words" for name in names]
    head = join(
        tag("th", text(name.rstrip("#")), scope="col", class_=kind)
        for name, kind in zip(names, kinds, strict=True)
    )
    body = join(tag("tr", *_cells(kinds, row)) for row in rows)
    parts = tag("caption", text(caption)), tag("thead", tag("tr", head)), tag("tbody", body)
    # A table that is wider than the page can be scrolled, also with the keyboard.
    return tag(
        "div",
        tag("table", *parts, class_=class_),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def _cells(kinds: list[str], row: Iterable[Html]) -> Iterable[Html]:
    for number, (kind, cell) in enumerate(zip(kinds, row, strict=True)):
        if number == 0:
            yield tag("th", cell, scope="row", class_=kind)
        else:
            yield tag("td", cell, class_=kind)


def _value(value: str | float) -> str:
    return html.escape(value) if isinstance(value, str) else f"{value:g}"
