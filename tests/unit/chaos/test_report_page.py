"""The page of a run: complete in itself, escaped, and of a bounded size."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest

from chaos.harness.record import Leadership, RunRecord, ShownAnomaly
from chaos.harness.report.page import page, why
from chaos.history import History, Send
from tests.helpers import chaos_runs
from tests.helpers.parsed_page import ParsedPage

BYTES_MAX = 3_000_000


class Counted(list[Send]):
    """Counts how often it is read from its start to its end."""

    passes = 0

    def __iter__(self) -> Iterator[Send]:
        self.passes += 1
        return super().__iter__()


def test_the_page_requests_nothing_and_has_no_script() -> None:
    content = page(*chaos_runs.run(seconds=60, faults=12))
    parsed = ParsedPage(content)
    assert not parsed.named(
        "script", "link", "img", "iframe", "object", "embed", "base", "form", "image", "use"
    )
    for element in parsed.elements:
        for name, value in element.attributes.items():
            assert not name.startswith("on"), f"{element.name} has a script: {name}"
            assert name not in ("src", "srcset", "action", "data", "xlink:href", "background", "poster")
            assert name != "href" or value.startswith("#"), f"{element.name} refers to {value}"
            assert not re.search(r"(url\((?!#)|https?:|//)", value), f"{element.name} {name}={value}"
    (style,) = parsed.named("style")
    assert not re.search(r"url\((?!#)|@import|https?:", style.text)
    policies = [
        meta.attributes["content"] for meta in parsed.named("meta") if "http-equiv" in meta.attributes
    ]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


@pytest.mark.parametrize(
    "words",
    [
        "<script>alert(1)</script>",
        "\"><img src=x onerror='alert(1)'>",
        "</title></style></svg><b>&amp;",
        "'`\x00]]>",
    ],
)
def test_hostile_texts_are_escaped(words: str) -> None:
    content = page(*chaos_runs.hostile(words))
    parsed = ParsedPage(content)
    harmless = ParsedPage(page(*chaos_runs.hostile("w" * len(words))))
    assert [element.name for element in parsed.elements] == [element.name for element in harmless.elements]
    assert not any(name.startswith("on") for element in parsed.elements for name in element.attributes)
    (article,) = parsed.named("article")
    assert words.replace("\x00", "\ufffd") in article.text.replace("\x00", "\ufffd")


def test_links_lead_to_sections_and_names_are_unique() -> None:
    parsed = ParsedPage(page(*chaos_runs.hostile("x")))
    ids = [element.attributes["id"] for element in parsed.elements if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    assert {link.attributes["href"][1:] for link in parsed.named("a")} == {"anomalies", "problems"} & set(ids)


def test_drawings_have_titles_and_tables_have_headings() -> None:
    parsed = ParsedPage(page(*chaos_runs.run(seconds=60, faults=12)))
    drawings = [svg for svg in parsed.named("svg") if svg.attributes.get("role") == "img"]
    assert len(drawings) == 5
    ids = {element.attributes["id"]: element for element in parsed.elements if "id" in element.attributes}
    for drawing in drawings:
        for name in drawing.attributes["aria-labelledby"].split():
            assert ids[name].text
    for heading in parsed.named("th"):
        assert heading.attributes["scope"] in ("row", "col")
    assert len(parsed.named("table")) == len(parsed.named("caption"))
    assert len(parsed.named("h1")) == 1


def test_the_verdict_has_its_reason() -> None:
    record, _ = chaos_runs.run(seconds=10, faults=3)
    anomalies = tuple(
        ShownAnomaly(kind=kind, partition=0, detail="", operations=()) for kind in ("a", "b", "a")
    )
    acknowledged = f"{record.counts.acknowledged:,}"
    assert why(record) == f"No anomaly: {acknowledged} values acknowledged and 0 lost, during 3 faults."
    assert why(msgspec.structs.replace(record, verdict="invalid", anomalies=anomalies)) == (
        f"The history breaks the guarantees: 3 anomalies (a: 2, b: 1) in {acknowledged} values acknowledged."
    )
    assert why(msgspec.structs.replace(record, verdict="unknown", problems=("broker 2 is not ready",))) == (
        "The run is incomplete, so nothing is proven: broker 2 is not ready"
    )


def test_a_run_in_which_nothing_happened_has_a_page() -> None:
    record, _ = chaos_runs.run(seconds=10, faults=0)
    empty = msgspec.structs.replace(record, phases=(), leaderships=(), abilities=(), problems=("no broker",))
    assert "no broker" in page(empty, History())


def test_the_size_depends_on_the_length_of_a_run_and_not_on_its_load() -> None:
    record, small = chaos_runs.run(seconds=3600, faults=600, partitions=12, brokers=5, sends_per_s=1)
    _, large = chaos_runs.run(seconds=3600, faults=600, partitions=12, brokers=5, sends_per_s=8)
    sends = Counted(large.sends)
    large.sends = sends
    size = len(page(record, large))
    assert size < 1.5 * len(page(record, small))
    assert size < BYTES_MAX / 3
    assert sends.passes == 2


def test_a_run_in_which_everything_goes_wrong_has_a_page_of_bounded_size() -> None:
    record, history = chaos_runs.run(seconds=3600, faults=600, partitions=12, brokers=5, sends_per_s=1)
    assert len(page(_all_wrong(record), history).encode()) < BYTES_MAX


def _all_wrong(record: RunRecord) -> RunRecord:
    leaderships = tuple(
        Leadership(at_s=n / 2, topic="chaos", partition=partition, leader=n % 5 + 1, term=n)
        for partition in range(12)
        for n in range(2000)
    )
    anomaly = ShownAnomaly(
        kind="lost write", partition=0, detail="d" * 10_000, operations=("o" * 10_000,) * 12
    )
    return msgspec.structs.replace(
        record,
        verdict="invalid",
        leaderships=leaderships,
        anomalies=(anomaly,) * 5000,
        problems=("p" * 10_000,) * 5000,
    )
