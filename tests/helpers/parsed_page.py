"""A page of HTML as its elements: for tests of what it shows and what it requests."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Final

_VOID: Final = frozenset({"meta"})


@dataclass(slots=True)
class Element:
    """A start tag, and the text between it and its end tag."""

    name: str
    attributes: dict[str, str]
    text: str = ""


class ParsedPage(HTMLParser):
    """All elements, in the order of their begin. An end tag without its start fails an assertion."""

    elements: list[Element]

    def __init__(self, content: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements = []
        self._open: list[Element] = []
        self.feed(content)
        self.close()
        assert not self._open, f"{self._open[-1].name} is not closed"

    def named(self, *names: str) -> list[Element]:
        """The elements of these names."""
        return [element for element in self.elements if element.name in names]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Of the parser."""
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.elements.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Of the parser."""
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        """Of the parser."""
        closed = self._open.pop()
        assert closed.name == tag, f"{closed.name} ends with {tag}"

    def handle_data(self, data: str) -> None:
        """Of the parser."""
        for element in self._open:
            element.text += data
