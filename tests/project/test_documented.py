"""What the code offers is written down: every setting, every metric, every public name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

import raftlog
from api.settings import BrokerSettings

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def _settings(model: type[BaseModel], prefix: str = "") -> list[str]:
    names: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names += _settings(inner, f"{prefix}{name}.")
        elif name != "peers":
            names.append(prefix + name)
    return names


@pytest.mark.parametrize("setting", _settings(BrokerSettings))
def test_every_setting_is_documented(setting: str) -> None:
    assert f"`{setting}`" in OPERATIONS


def test_every_metric_is_documented() -> None:
    sources = [ROOT / "api" / "resources" / "metrics.py", *(ROOT / "api").glob("*_metrics.py")]
    metrics = {name for path in sources for name in re.findall(r'"(raftlog_[a-z_]+)"', path.read_text())}
    assert metrics
    assert not {name for name in metrics if f"`{name}`" not in OPERATIONS}


def test_public_names_are_sorted_whole_and_documented() -> None:
    assert list(raftlog.__all__) == sorted(raftlog.__all__)
    assert all(hasattr(raftlog, name) for name in raftlog.__all__)
    client = (ROOT / "docs" / "client.md").read_text()
    assert not [name for name in raftlog.__all__ if not re.search(rf"\b{name}\b", client)]
