"""Builds ``report.html``: one file without scripts, which refers to no other files."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from api.markup import NOTHING, Html, join, tag, text
from api.markup import table as table_of
from chaos.harness.record import Injected, RunRecord, ShownAnomaly
from chaos.harness.report import series
from chaos.harness.report.numbers import count, duration, exact_moment, percent, several
from chaos.harness.report.series import Span
from chaos.harness.report.timeline import longest, timeline
from chaos.history import History

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_SIGNS: Final = {"valid": "✓", "invalid": "✗", "unknown": "?"}
_SHOWN_OF_A_KIND: Final = 10  # anomalies of each kind; all of them are in report.json
_PROBLEMS_MAX: Final = 100
_CHARACTERS_MAX: Final = 2000  # of a problem, such as a traceback
_FAULTS_MAX: Final = 5000


def page(record: RunRecord, history: History) -> str:
    """Build the whole HTML document of a report."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", text(f"{record.verdict}: raftlog chaos run, seed {record.scenario.seed}")),
        tag("style", Html(style)),
    )
    return "<!doctype html>\n" + tag(
        "html", head, tag("body", tag("main", _content(record, history))), lang="en"
    )


def _content(record: RunRecord, history: History) -> Html:
    seconds, start_s = series.run_seconds(record), record.history_offset_s
    load = series.load(history.sends, start_s, seconds)
    outages = series.unavailability(history.sends, start_s, seconds)
    return join(
        [
            _summary(record),
            _counts(record, outages),
            _section("timeline", "Timeline", _time_note(), timeline(record, load, outages)),
            _section("outages", "Longest unavailability", _longest(record, outages)),
            _section("faults", "Injected faults", _fault_kinds(record), _all_faults(record)),
            _section("anomalies", "Anomalies", _anomalies(record.anomalies)),
            _section("problems", "Problems", _problems(record.problems)),
            _section("abilities", "Abilities of the machine", _abilities(record)),
            _section("replay", "Replay", _replay(record)),
        ]
    )


def why(record: RunRecord) -> str:
    """Return the reason for the verdict as a sentence."""
    values = several(record.counts.acknowledged, "value")
    if record.verdict == "invalid":
        kinds = Counter(anomaly.kind for anomaly in record.anomalies)
        named = ", ".join(f"{kind}: {number:,}" for kind, number in kinds.most_common(6))
        rest = f" and {several(len(kinds) - 6, 'other kind')}" if len(kinds) > 6 else ""
        return (
            f"The history breaks the guarantees: {several(len(record.anomalies), 'anomaly')} "
            f"({named}{rest}) in {values} acknowledged."
        )
    if record.verdict == "valid":
        faults = f"during {several(len(record.injected), 'fault')}" if record.injected else "without faults"
        return f"No anomaly: {values} acknowledged and {count(record.counts.lost)} lost, {faults}."
    if record.problems:
        return f"The run is incomplete, so nothing is proven: {_shortened(record.problems[0], 300)}"
    return "The run is incomplete, so nothing is proven."


def _summary(record: RunRecord) -> Html:
    scenario = record.scenario
    length = duration(series.run_seconds(record))
    about = (
        f"{record.started_at} · {length} · {several(scenario.brokers, 'broker')} · seed {scenario.seed} · "
        f"raftlog {record.version} · {record.machine}"
    )
    sign = tag("span", text(_SIGNS.get(record.verdict, "?")), aria_hidden="true")
    style = record.verdict if record.verdict in _SIGNS else "unknown"
    verdict = tag("p", sign, text(f" {record.verdict.upper()}"), class_=f"verdict {style}", id="verdict")
    links = [
        tag("a", text(several(len(found), noun)), href=f"#{noun}s" if noun == "problem" else "#anomalies")
        for noun, found in (("anomaly", record.anomalies), ("problem", record.problems))
        if found
    ]
    see = tag("p", text("See "), Html(" and ".join(links)), text(".")) if links else NOTHING
    parts = tag("h1", text("raftlog chaos run")), verdict, tag("p", text(why(record)), class_="why"), see
    return tag("header", *parts, tag("p", text(about), class_="soft"))


def _counts(record: RunRecord, outages: Mapping[int, Sequence[Span]]) -> Html:
    counts = record.counts
    longest_s = max((span.seconds for spans in outages.values() for span in spans), default=0.0)
    tiles = [
        ("values acknowledged", count(counts.acknowledged), False),
        ("lost", count(counts.lost), counts.lost > 0),
        ("duplicated", count(counts.duplicated), counts.duplicated > 0),
        ("anomalies", count(len(record.anomalies)), bool(record.anomalies)),
        ("outcome unknown", count(counts.unknown), False),
        ("refused", count(counts.failed), False),
        ("offsets committed", count(counts.commits), False),
        ("committed offsets read", count(counts.committed_reads), False),
        ("transactions committed", count(counts.transactions_committed), False),
        ("transactions aborted", count(counts.transactions_aborted), False),
        ("transactions unknown", count(counts.transactions_unknown), False),
        ("of sends acknowledged", percent(counts.ok_rate), False),
        ("acknowledged without faults", percent(counts.ok_rate_quiet), False),
        ("faults injected", count(len(record.injected)), False),
        ("kinds of faults", count(len({fault.fault for fault in record.injected})), False),
        ("longest unavailability", duration(longest_s), False),
        ("problems", count(len(record.problems)), bool(record.problems)),
    ]
    return tag(
        "dl",
        *(
            tag("div", tag("dt", text(name)), tag("dd", text(value)), class_="wrong" if wrong else "right")
            for name, value, wrong in tiles
        ),
        class_="counts",
    )


def _section(slug: str, title: str, *content: Html) -> Html:
    return tag("section", tag("h2", text(title)), *content, id=slug)


def _time_note() -> Html:
    return tag("p", text("All times are minutes and seconds since the run began."), class_="soft")


def _longest(record: RunRecord, outages: Mapping[int, Sequence[Span]]) -> Html:
    found = longest(record, outages)
    if not found:
        return tag("p", text("No partition was unavailable for longer than 500 ms."))
    rows = [
        _texts(
            f"partition {partition}", exact_moment(span.begun_s), duration(span.seconds), _faults_text(faults)
        )
        for partition, span, faults in found
    ]
    caption = "The longest spans without an acknowledgement, and the faults in effect during them"
    return table_of(caption, ["partition", "from#", "length#", "faults"], rows)


def _faults_text(faults: Sequence[str]) -> str:
    more = f" and {several(len(faults) - 4, 'other')}" if len(faults) > 4 else ""
    return ", ".join(faults[:4]) + more if faults else "none"


def _texts(*cells: str) -> list[Html]:
    return [text(cell) for cell in cells]


def _fault_kinds(record: RunRecord) -> Html:
    kinds: dict[tuple[str, str], list[Injected]] = defaultdict(list)
    for fault in record.injected:
        kinds[fault.fault, fault.effect].append(fault)
    if not kinds:
        return tag("p", text("No fault was injected."))
    rows = []
    for (kind, effect), found in sorted(kinds.items()):
        total = sum(fault.effects for fault in found)
        mark = tag("strong", text("no effect"), class_="invalid") if not total else text(count(total))
        lengths = [fault.ended_s - fault.begun_s for fault in found]
        times, longest_ = count(len(found)), duration(max(lengths))
        rows.append([text(kind), text(times), mark, text(effect), *_texts(duration(sum(lengths)), longest_)])
    headings = ["fault", "times#", "effects#", "counted effect", "in effect#", "longest#"]
    return table_of("Faults by kind, with their counted effects", headings, rows)


def _all_faults(record: RunRecord) -> Html:
    if not record.injected:
        return NOTHING
    rows = [
        _texts(
            exact_moment(fault.begun_s),
            fault.fault,
            fault.target,
            duration(fault.ended_s - fault.begun_s),
            count(fault.effects),
            fault.effect,
        )
        for fault in record.injected[:_FAULTS_MAX]
    ]
    headings = ["start#", "fault", "target", "length#", "effects#", "counted effect"]
    table = table_of("Faults by time", headings, rows)
    return tag("details", tag("summary", text(f"All {several(len(record.injected), 'fault')}")), table)


def _anomalies(anomalies: Sequence[ShownAnomaly]) -> Html:
    if not anomalies:
        return tag("p", text("None."))
    kinds: dict[str, list[ShownAnomaly]] = defaultdict(list)
    for anomaly in anomalies:
        kinds[anomaly.kind].append(anomaly)
    return join(_kind_of_anomaly(kind, found) for kind, found in kinds.items())


def _kind_of_anomaly(kind: str, found: Sequence[ShownAnomaly]) -> Html:
    more = len(found) - _SHOWN_OF_A_KIND
    rest = tag("p", text(f"{count(more)} more are in report.json.")) if more > 0 else NOTHING
    shown = join(_anomaly(anomaly) for anomaly in found[:_SHOWN_OF_A_KIND])
    return join([tag("h3", text(f"{kind}: {count(len(found))}")), shown, rest])


def _anomaly(anomaly: ShownAnomaly) -> Html:
    lines = "\n".join(_shortened(line, _CHARACTERS_MAX) for line in anomaly.operations)
    operations = tag("pre", text(lines), tabindex=0) if lines else NOTHING
    detail = _shortened(anomaly.detail, _CHARACTERS_MAX)
    return tag(
        "article", tag("p", text(f"Partition {anomaly.partition}: {detail}")), operations, class_="anomaly"
    )


def _problems(problems: Sequence[str]) -> Html:
    if not problems:
        return tag("p", text("None."))
    items = [tag("li", text(_shortened(problem, _CHARACTERS_MAX))) for problem in problems[:_PROBLEMS_MAX]]
    more = len(problems) - _PROBLEMS_MAX
    rest = tag("p", text(f"{count(more)} more are in report.json.")) if more > 0 else NOTHING
    return join([tag("p", text("Of the harness or of brokers:")), tag("ul", *items, class_="problems"), rest])


def _shortened(words: str, characters_max: int) -> str:
    return words if len(words) <= characters_max else f"{words[:characters_max]} …"


def _abilities(record: RunRecord) -> Html:
    rows: Iterable[list[Html]] = [
        _texts(ability.name, "yes" if ability.is_there else "no", ability.detail)
        for ability in record.abilities
    ]
    return table_of("What faults need, and what this machine has", ["ability", "here", "detail"], rows)


def _replay(record: RunRecord) -> Html:
    words = "Repeat the faults, at the same times with the same seeds:"
    run = tag("pre", tag("code", text("raftlog chaos replay report.json")), tabindex=0)
    check = tag("pre", tag("code", text("raftlog chaos check history.jsonl")), tabindex=0)
    original = tag(
        "p", text("This run was started by "), tag("code", text(_command(record.command))), text(".")
    )
    return join(
        [tag("p", text(words)), run, tag("p", text("Repeat the checks, without a cluster:")), check, original]
    )


def _command(command: str) -> str:
    """Return a command line, but without the path of its program."""
    try:
        program, *rest = shlex.split(command)
    except ValueError:
        return command
    return shlex.join([Path(program).name, *rest])
