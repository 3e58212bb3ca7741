"""How Spark finds the format."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIND = "import {0}; print(hasattr({0}, 'DefaultSource'))"


@pytest.mark.parametrize("package", ["pyspark_raftlog", "pyspark_raftlog_archive"])
@pytest.mark.parametrize(
    ("missing", "is_found"), [("nothing", True), ("pyarrow", False), ("pyspark.sql.datasource", False)]
)
def test_a_format_that_cannot_be_used_hides_no_other(package: str, missing: str, is_found: bool) -> None:
    script = f"import sys; sys.modules[{missing!r}] = None; {FIND.format(package)}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(is_found)
    assert ("pip install 'raftlog[spark]'" in done.stderr) is not is_found
