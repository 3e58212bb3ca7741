"""The page of a chaos run in a real browser: it is drawn, and nothing is reported as an error."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from chaos.harness.report import write_report
from raftlog.testing.waits import LIMIT_S
from tests.helpers import chaos_runs
from tests.helpers.parsed_page import ParsedPage

pytestmark = pytest.mark.e2e


@pytest.fixture
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no browser here: chromium is missing")
    return found


def _browse(browser: str, profile: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    logged = ["--enable-logging=stderr", "--log-level=0"]
    return subprocess.run(
        [*command, *logged, *options], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )


def test_a_browser_shows_the_verdict_and_the_lanes(tmp_path: Path, browser: str) -> None:
    record, history = chaos_runs.run(seconds=60, faults=12)
    url = write_report(tmp_path, record, history).as_uri()
    dumped = _browse(browser, tmp_path / "profile", "--dump-dom", url)
    parsed = ParsedPage(re.sub(r"<meta ([^>]*[^/])>", r"<meta \1/>", dumped.stdout))
    (verdict,) = (element for element in parsed.elements if element.attributes.get("id") == "verdict")
    assert verdict.text == "✓ VALID"
    bars = [rect.attributes["class"] for rect in parsed.named("rect") if "class" in rect.attributes]
    assert bars.count("fault") + bars.count("no-effect") == len(record.injected)
    lanes = [element.text for element in parsed.named("div") if "top:" in element.attributes.get("style", "")]
    for kind in {fault.fault for fault in record.injected}:
        assert any(lane.startswith(kind) for lane in lanes)
    assert not re.findall(r".*CONSOLE.*", dumped.stderr)


@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_draws_the_page(tmp_path: Path, browser: str, width: int) -> None:
    url = write_report(tmp_path, *chaos_runs.run(seconds=60, faults=12)).as_uri()
    picture = tmp_path / "page.png"
    done = _browse(
        browser, tmp_path / "profile", f"--window-size={width},1200", f"--screenshot={picture}", url
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000  # a blank page has less
    assert not re.findall(r".*CONSOLE.*", done.stderr)
