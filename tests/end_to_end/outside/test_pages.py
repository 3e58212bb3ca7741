"""The pages are true: whoever has the wheel pastes their blocks and sees what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.documented_commands import ROOT, blocks_of, pages
from tests.helpers.from_outside import Outside
from tests.helpers.pasted_pages import Reader

pytestmark = [pytest.mark.e2e, pytest.mark.outside]

PASTED = [page for page in pages() if any(block.is_run for block in blocks_of(page))]
README = ROOT / "README.md"


@pytest.mark.parametrize("page", PASTED, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run_as_shown(page: Path, outside: Outside) -> None:
    programs = [] if page == README else [outside.programs]  # the README installs the wheel itself
    with Reader(outside.folder(page.stem), outside.environment(*programs)) as reader:
        for block in blocks_of(page):
            if block.is_run:
                reader.paste(block)
