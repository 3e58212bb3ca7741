"""docs/import.md is true: its commands print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.cluster import Cluster
from tests.helpers.documented_commands import check_shown, shown_commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "import.md"

pytestmark = pytest.mark.e2e


# requirement: A12
def test_files_are_imported_as_the_page_shows(cluster: Cluster, tmp_path: Path) -> None:
    shown = [step for step in shown_commands(PAGE) if "payments" not in step.command]
    assert len(shown) >= 8
    check_shown(shown, cluster, tmp_path, {})
