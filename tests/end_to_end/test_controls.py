"""Controls of the chaos harness: systems that lose acknowledged writes, and must be found guilty."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.harness.controls import pysyncobj_log

pytestmark = pytest.mark.e2e


def test_log_on_pysyncobj_is_found_guilty(directory: Path) -> None:
    result = pysyncobj_log.run(seed=1, directory=directory)
    print(result)
    assert result.is_guilty, result
    assert 0 < result.lost < result.acknowledged


def test_the_same_log_is_innocent_while_its_links_are_good(directory: Path) -> None:
    result = pysyncobj_log.run(seed=1, directory=directory, has_slow_links=False)
    print(result)
    assert not result.is_guilty, result
    assert result.acknowledged > pysyncobj_log.BACKLOG
