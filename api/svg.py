"""Draws panels with a shared time axis: lanes with bars, and lines.

A panel is as wide as the page. Its bars and texts are placed in percent, so that texts keep their size;
its lines are in a drawing of 1000 units that is stretched. Labels of lanes and axes are beside the drawing.

Decides: the place and size of each element. Leaves to others: colours and fonts (the page's style sheet).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from api.markup import NOTHING, Html, join, tag, text

STEPS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
ROW: Final = 18  # pixels of a row of bars
_BAR: Final = 14
_AXIS: Final = 22
_CHART: Final = 120
_TOP: Final = 8  # pixels above the highest value of a chart
_CHARACTER: Final = 6.2  # maximum width of a character, in pixels
# Least width of a drawing: on small screens, and where the class ``wide`` is shown (of the style sheet).
_NARROW: Final = 190
_WIDE: Final = 880


def ticks(seconds: float, count_max: int = 8) -> list[int]:
    """Return the times in seconds at which the time axis has labels, in round steps."""
    step = next((step for step in STEPS_S if seconds / step <= count_max), math.ceil(seconds / count_max))
    return list(range(0, math.floor(seconds) + 1, step))


def moment(seconds: float) -> str:
    """Format a time since the start of the axis: 0:30, 12:05, 1:02:05."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a lane. ``style`` is a class of the page's style sheet; the label is shown if it fits."""

    begun_s: float
    ended_s: float
    style: str
    label: str = ""
    title: str = ""
    row: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of a panel: a name, a note, and bars in one or more rows."""

    name: str
    note: str
    bars: Sequence[Bar]

    @property
    def rows(self) -> int:
        """The number of rows that the bars need."""
        return 1 + max((bar.row for bar in self.bars), default=0)


@dataclass(frozen=True, slots=True)
class Line:
    """Values of a line in the middle of each bucket; None is a gap. Drawn as an area if ``is_area``."""

    style: str
    heights: Sequence[float | None]  # 0 at the axis, 1 at the top
    is_area: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """The texts and the time span of a figure. ``description`` is for people who do not see the figure."""

    slug: str
    title: str
    description: str
    seconds: float
    legend: Html = field(default=NOTHING)

    def lanes(self, lanes: Sequence[Lane]) -> Html:
        """Draw the lanes, one below the other."""
        labels, bars, top = [], [], 0
        for lane in lanes:
            note = tag("span", text(lane.note), class_="note") if lane.note else NOTHING
            labels.append(_label(top + ROW / 2, tag("span", text(lane.name)), note))
            bars.append(tag("line", x1=0, x2="100%", y1=top, y2=top, class_="rule"))
            free_until = _free_until(lane.bars, self.seconds)
            for bar, until_s in zip(lane.bars, free_until, strict=True):
                y = top + ROW * bar.row + 2
                bars += [self._bar(bar, y), self._bar_label(bar, y, until_s)]
            top += ROW * lane.rows
        return self._figure(top, labels, join(bars))

    def chart(self, lines: Sequence[Line], levels: Sequence[tuple[float, str]], bucket_s: int) -> Html:
        """Draw lines, and horizontal levels with their labels. The value 0 is at the axis, the value 1 at the
        top.
        """
        labels = [_label(_y(height), tag("span", text(name))) for height, name in levels]
        rules = [
            tag("line", x1=0, x2="100%", y1=_y(height), y2=_y(height), class_="rule") for height, _ in levels
        ]
        paths = [tag("path", d=self._path(line, bucket_s), class_=line.style) for line in lines]
        stretched = tag(
            "svg",
            *paths,
            viewBox=f"0 0 1000 {_CHART}",
            preserveAspectRatio="none",
            width="100%",
            height=_CHART,
        )
        return self._figure(_CHART, labels, join([*rules, stretched]), "axis")

    def _figure(self, height: int, labels: Sequence[Html], body: Html, kind: str = "names") -> Html:
        title_id, description_id = f"{self.slug}-title", f"{self.slug}-description"
        drawing = tag(
            "svg",
            tag("title", text(self.title), id=title_id),
            tag("desc", text(self.description), id=description_id),
            self._grid(height),
            body,
            role="img",
            aria_labelledby=f"{title_id} {description_id}",
            width="100%",
            height=height + _AXIS,
        )
        beside = tag("div", *labels, class_=f"beside {kind}", style=f"height:{height}px")
        return tag(
            "figure",
            tag("figcaption", tag("h3", text(self.title)), tag("p", text(self.description)), self.legend),
            tag("div", beside, drawing, class_="panel"),
            id=self.slug,
        )

    def _grid(self, height: int) -> Html:
        parts = []
        for number, at_s in enumerate(ticks(self.seconds)):
            at = self._at(at_s)
            anchor = "start" if at_s == 0 else "end" if at_s > 0.97 * self.seconds else "middle"
            parts.append(tag("line", x1=at, x2=at, y1=0, y2=height, class_="grid"))
            class_ = "odd" if number % 2 else "even"  # small screens show every second label
            parts.append(
                tag("text", text(moment(at_s)), x=at, y=height + 15, text_anchor=anchor, class_=class_)
            )
        return join(parts)

    def _bar(self, bar: Bar, top: int) -> Html:
        share = (bar.ended_s - bar.begun_s) / self.seconds
        title = tag("title", text(bar.title)) if bar.title else NOTHING
        rect = tag(
            "rect",
            x=self._at(bar.begun_s),
            y=top,
            width=f"{100 * share:.3f}%",
            height=_BAR,
            class_=bar.style,
        )
        return tag("g", title, rect) if bar.title else rect

    def _bar_label(self, bar: Bar, top: int, free_until_s: float) -> Html:
        """Draw a bar's label: inside the bar if it fits, else after the bar if there is room, else not at
        all.
        """
        share = (bar.ended_s - bar.begun_s) / self.seconds
        width = _CHARACTER * len(bar.label) + 4
        if bar.label and share * _WIDE >= width:
            middle = self._at((bar.begun_s + bar.ended_s) / 2)
            class_ = "on-bar" if share * _NARROW >= width else "on-bar wide"
            return tag("text", text(bar.label), x=middle, y=top + 11, class_=class_)
        if bar.label and (free_until_s - bar.ended_s) / self.seconds * _WIDE >= width + 4:
            return tag("text", text(bar.label), x=self._at(bar.ended_s), y=top + 11, dx=4, class_="wide")
        return NOTHING

    def _path(self, line: Line, bucket_s: int) -> str:
        """Return an SVG path with the unbroken parts of a line; a single value becomes a short stroke."""
        parts: list[str] = []
        for begin, end in _unbroken(line.heights):
            points = [
                (1000 * min(1.0, (number + 0.5) * bucket_s / self.seconds), _y(line.heights[number] or 0))
                for number in range(begin, end)
            ]
            if len(points) == 1:
                points.append((points[0][0] + 1, points[0][1]))
            path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            if line.is_area:
                path += f"L{points[-1][0]:.1f} {_CHART}L{points[0][0]:.1f} {_CHART}Z"
            parts.append(path)
        return "".join(parts)

    def _at(self, moment_s: float) -> str:
        return f"{100 * moment_s / self.seconds:.3f}%"


def _free_until(bars: Sequence[Bar], seconds: float) -> list[float]:
    """Return for each bar the time at which the next bar in its row begins."""
    begins = [seconds] * (1 + max((bar.row for bar in bars), default=0))
    found = []
    for bar in reversed(bars):  # bars are ordered by start
        found.append(begins[bar.row])
        begins[bar.row] = bar.begun_s
    return found[::-1]


def _unbroken(heights: Sequence[float | None]) -> list[tuple[int, int]]:
    edges = [-1, *(number for number, height in enumerate(heights) if height is None), len(heights)]
    return [(before + 1, after) for before, after in pairwise(edges) if after > before + 1]


def _y(height: float) -> float:
    return _CHART - (_CHART - _TOP) * height


def _label(middle: float, *content: Html) -> Html:
    return tag("div", *content, style=f"top:{middle:g}px")
