"""The pages are true: whoever has the wheel pastes their blocks and sees what they show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path

import pytest

from tests.end_to_end.conftest import PATIENT
from tests.end_to_end.spark.vocabulary import MACHINE, why_no_spark
from tests.helpers.documented_commands import ROOT, pages, pasted_blocks
from tests.helpers.from_outside import Outside
from tests.helpers.pasted_pages import Reader

pytestmark = [pytest.mark.e2e, pytest.mark.outside]

README = ROOT / "README.md"
SPARK = ROOT / "docs" / "spark.md"
LONGEST = ("command-line.md", "operations.md", "chaos.md", "client.md")


def in_order(found: Sequence[Path]) -> list[Path]:
    """The longest pages first, with a short page behind each: a process of the tests holds two at a time."""
    longest = sorted(
        (page for page in found if page.name in LONGEST), key=lambda page: LONGEST.index(page.name)
    )
    others = [page for page in found if page.name not in LONGEST]
    rest = others[: -len(longest)]
    return [*chain.from_iterable(zip(longest, others[-len(longest) :], strict=True)), *rest]


PASTED = in_order([page for page in pages() if page != SPARK and pasted_blocks(page)])


def paste(page: Path, outside: Outside, environment: Mapping[str, str]) -> None:
    """Paste all blocks of a page in a folder of its own. Its brokers are those of a busy machine."""
    with Reader(outside.folder(page.stem), {**environment, **PATIENT}) as reader:
        for block in pasted_blocks(page):
            reader.paste(block)


@pytest.mark.parametrize("page", PASTED, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_as_shown(page: Path, outside: Outside) -> None:
    programs = [] if page == README else [outside.programs]  # the README installs the wheel itself
    paste(page, outside, outside.environment(*programs))


# requirement: A8 D3 X1
@pytest.mark.spark
def test_the_pipelines_of_spark_run_as_shown(outside: Outside) -> None:
    if reason := why_no_spark():
        pytest.skip(reason)
    outside.add("spark", f"pyspark=={version('pyspark')}")  # the wheel of this release is in the cache of pip
    paste(SPARK, outside, {**outside.environment(outside.programs), **MACHINE})
