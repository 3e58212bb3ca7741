"""Draws the timeline of a report: faults, throughput, latency, unavailability and leaders over one time
axis.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from api.markup import Html, join, tag, text
from api.svg import Bar, Lane, Line, Panel
from chaos.harness.record import Injected, RunRecord
from chaos.harness.report import series
from chaos.harness.report.numbers import axis, duration, exact_moment, several
from chaos.harness.report.series import Load, Span

_COLOURS: Final = 7  # number of colours of brokers in page.css
_DECADES: Final = {0.001: "1 ms", 0.01: "10 ms", 0.1: "100 ms", 1.0: "1 s", 10.0: "10 s", 100.0: "100 s"}
_LATENCY_MIN_S: Final = 0.001


def timeline(record: RunRecord, load: Load, outages: Mapping[int, Sequence[Span]]) -> Html:
    """Draw all panels, one below the other."""
    seconds = series.run_seconds(record)
    return join(
        [
            _faults(record, seconds),
            _throughput(load, seconds),
            _latency(load, seconds),
            _unavailability(outages, seconds),
            _leaders(record, seconds),
        ]
    )


def _faults(record: RunRecord, seconds: float) -> Html:
    kinds: dict[str, list[Injected]] = defaultdict(list)
    for fault in sorted(record.injected, key=lambda fault: fault.begun_s):
        kinds[fault.fault].append(fault)
    phases = [
        Bar(
            phase.begun_s,
            phase.ended_s,
            "phase",
            phase.name,
            f"{phase.name}: {duration(phase.ended_s - phase.begun_s)} from {exact_moment(phase.begun_s)}",
        )
        for phase in record.phases
    ]
    lanes = [Lane("phase", "", phases)]
    lanes += [
        Lane(kind, f"{len(found)}×", [*_fault_bars(found)])  # noqa: RUF001 (a count is a multiplication)
        for kind, found in sorted(kinds.items(), key=lambda item: item[1][0].begun_s)
    ]
    title = f"Faults: {len(record.injected):,} of {several(len(kinds), 'kind')}"
    words = "Each bar is a fault, from its start to its end. A dashed bar had no effect."
    return Panel("faults-over-time", title, words, seconds).lanes(lanes)


def _fault_bars(faults: Sequence[Injected]) -> Iterator[Bar]:
    places = series.rows([(fault.begun_s, fault.ended_s) for fault in faults])
    for fault, row in zip(faults, places, strict=True):
        words = (
            f"{fault.fault}, {fault.target}: {duration(fault.ended_s - fault.begun_s)} "
            f"from {exact_moment(fault.begun_s)}, {fault.effects:,} {fault.effect}"
        )
        style = "fault" if fault.effects else "no-effect"
        yield Bar(fault.begun_s, fault.ended_s, style, fault.target, words, row)


def _throughput(load: Load, seconds: float) -> Html:
    highest = max(load.per_second, default=0.0)
    top = series.round_up(highest)
    line = Line("area", [rate / top for rate in load.per_second], is_area=True)
    levels = [(share, f"{axis(top * share)}/s") for share in (0, 0.5, 1)]
    words = f"Acknowledged values per second, {_each(load)}; at most {highest:,.0f}/s."
    return Panel("throughput", "Throughput", words, seconds).chart([line], levels, load.bucket_s)


def _latency(load: Load, seconds: float) -> Html:
    known = [value for value in (*load.p50_s, *load.p99_s) if value is not None]
    lowest, highest = min(known, default=0.01), max(known, default=0.1)
    low = min(0.1, 10 ** math.floor(math.log10(max(lowest, _LATENCY_MIN_S)) + 1e-9))
    decades = max(1, math.ceil(math.log10(max(highest, low) / low) - 1e-9))

    def height(value: float | None) -> float | None:
        return None if value is None else max(0.0, math.log10(max(value, low) / low) / decades)

    levels = [(h, name) for value, name in _DECADES.items() if 0 <= (h := _height(value, low, decades)) <= 1]
    lines = [
        Line("line", [height(value) for value in load.p50_s]),
        Line("line-high", [height(value) for value in load.p99_s]),
    ]
    words = (
        f"Time until a value was acknowledged, {_each(load)}: 99th percentile (upper line) and "
        f"median (lower line); at most {duration(highest)}. The scale is logarithmic."
    )
    panel = Panel("latency", "Latency", words, seconds, _legend([("line-high", "p99"), ("line", "p50")]))
    return panel.chart(lines, levels, load.bucket_s)


def _each(load: Load) -> str:
    return "in each second" if load.bucket_s == 1 else f"in each {load.bucket_s} s"


def _height(value: float, low: float, decades: int) -> float:
    return round(math.log10(value / low) / decades, 6)


def _unavailability(outages: Mapping[int, Sequence[Span]], seconds: float) -> Html:
    lanes = []
    for partition, spans in outages.items():
        bars = [
            Bar(
                span.begun_s,
                span.ended_s,
                "outage",
                duration(span.seconds),
                f"partition {partition}: {duration(span.seconds)} from {exact_moment(span.begun_s)}",
            )
            for span in series.thinned(spans, seconds / 1000)
        ]
        total_s = sum(span.seconds for span in spans)
        lanes.append(Lane(f"partition {partition}", duration(total_s) if spans else "none", bars))
    words = (
        f"Spans of more than {duration(series.UNAVAILABLE_MIN_S)} with sends under way and none of them "
        "acknowledged, with their length, and the sum for each partition."
    )
    return Panel("unavailability", "Unavailability", words, seconds).lanes(lanes)


def _leaders(record: RunRecord, seconds: float) -> Html:
    found = series.leaders(record.leaderships, seconds)
    topics = {topic for topic, _ in found}
    lanes = []
    for (topic, partition), spans in found.items():
        name = f"partition {partition}" if len(topics) == 1 else f"{topic}/{partition}"
        bars = [
            Bar(span.begun_s, span.ended_s, _leader_style(span.leader), _leader_label(span.leader))
            for span in series.coarsened(spans, seconds)
        ]
        lanes.append(Lane(name, several(len(spans) - 1, "change"), bars))
    brokers = sorted({span.leader for spans in found.values() for span in spans if span.leader is not None})
    keys = [(_leader_style(broker), f"broker {broker}") for broker in brokers]
    legend = _legend([*keys, ("nobody", "no leader known")])
    words = (
        "Which broker led each partition, as sampled during the run. "
        "The number and the height of the stripe in a bar name the broker."
    )
    return join([_patterns(), Panel("leaders", "Leaders", words, seconds, legend).lanes(lanes)])


def _leader_style(leader: int | None) -> str:
    return "nobody" if leader is None else f"leader-{leader % _COLOURS}"


def _leader_label(leader: int | None) -> str:
    return "-" if leader is None else str(leader)


def _patterns() -> Html:
    """Define the fill pattern for the bars of each broker: a tint, and a stripe at a height that only this
    broker has.
    """
    found = []
    for number in range(_COLOURS):
        colour = f"fill:var(--leader-{number})"
        tint = tag("rect", width=18, height=18, style=f"{colour};opacity:var(--tint)")
        stripe = tag("rect", width=18, height=3, y=2 + 2 * ((number - 1) % _COLOURS), style=colour)
        found.append(
            tag(
                "pattern",
                tint,
                stripe,
                id=f"leader-{number}",
                width=18,
                height=18,
                patternUnits="userSpaceOnUse",
            )
        )
    return tag("svg", tag("defs", *found), class_="patterns", aria_hidden="true")


def _legend(keys: Sequence[tuple[str, str]]) -> Html:
    items = []
    for style, name in keys:
        is_line = style.startswith("line")
        mark = (
            tag("path", d="M0 9L26 9", class_=style)
            if is_line
            else tag("rect", x=1, y=2, width=24, height=14, class_=style)
        )
        key = tag("svg", mark, width=26, height=18, aria_hidden="true")
        items.append(tag("li", key, tag("span", text(name))))
    return tag("ul", *items, class_="legend")


def longest(
    record: RunRecord, outages: Mapping[int, Sequence[Span]], count: int = 10
) -> list[tuple[int, Span, list[str]]]:
    """Return the longest spans of unavailability, each with its partition and with the faults in effect."""
    found = [(partition, span) for partition, spans in outages.items() for span in spans]
    found.sort(key=lambda item: (-item[1].seconds, item[1].begun_s, item[0]))
    return [(partition, span, _meanwhile(record.injected, span)) for partition, span in found[:count]]


def _meanwhile(injected: Sequence[Injected], span: Span) -> list[str]:
    return [
        f"{fault.fault} ({fault.target})"
        for fault in injected
        if fault.begun_s < span.ended_s and span.begun_s < fault.ended_s
    ]
