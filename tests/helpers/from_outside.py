"""raftlog as somebody has it who has its wheel alone: built, and installed into an environment of its own.

Every folder of pages and of tests from outside has packages of our names: what is imported from there, or
because it is there, fails.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from raftlog.__main__ import OURS

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = Path(tempfile.gettempdir()) / f"raftlog-outside-{os.getuid()}-{crc32(str(ROOT).encode()):08x}"
"""Not below the checkout: pytest takes settings from the folders above."""
EXTRAS: Final = "server,testing,chaos,archive,otel"
BESIDE: Final = "opentelemetry-sdk"
"""A package that applications bring."""
BUILD: Final = (sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", str(ROOT))
"""A source distribution of the checkout, and from it the wheel."""


@dataclass(frozen=True, slots=True)
class Outside:
    """The folder with the wheel and with the environment where it is installed."""

    home: Path

    @property
    def wheel(self) -> Path:
        """The wheel."""
        return next((self.home / "dist").glob("*.whl"))

    @property
    def programs(self) -> Path:
        """The directory with the programs of the environment."""
        return self.home / "environment" / "bin"

    def add(self, extras: str, *beside: str) -> None:
        """Install the wheel with these extras, and packages beside it."""
        pip = str(self.programs / "pip")
        _run([pip, "install", "--no-compile", f"{self.wheel}[{extras}]", *beside])

    def environment(self, *programs: Path) -> dict[str, str]:
        """Variables of a shell that finds these programs, and of this checkout its proxy server alone."""
        ours = {"PYTHONPATH", "VIRTUAL_ENV"}
        path = [part for part in os.environ["PATH"].split(os.pathsep) if not part.startswith(str(ROOT))]
        return {
            **{name: value for name, value in os.environ.items() if name not in ours},
            "PATH": os.pathsep.join([*map(str, programs), *path]),
            "PIP_NO_COMPILE": "1",
            "TOXIPROXY_SERVER": str(ROOT / ".cache" / "toxiproxy-server"),
        }

    def folder(self, name: str) -> Path:
        """An empty folder but for the wheel and packages of our names."""
        folder = self.home / name
        shutil.rmtree(folder, ignore_errors=True)
        for package in OURS:
            (folder / package).mkdir(parents=True)
            (folder / package / "__init__.py").touch()
        (folder / self.wheel.name).symlink_to(self.wheel)
        return folder


def install(run: str) -> Outside:
    """Build and install, once for all processes of this run of tests. Raises ``CalledProcessError``."""
    with _locked(HOME.with_suffix(".lock")):
        done = HOME / "run"
        if not done.exists() or done.read_text() != run:
            shutil.rmtree(HOME, ignore_errors=True)
            HOME.mkdir()
            _run(BUILD)
            _run([_python(), "-m", "venv", "environment"])
            found = Outside(HOME)
            found.add(EXTRAS, BESIDE)
            done.write_text(run)
    return Outside(HOME)


def remove() -> None:
    """Delete what was built and installed."""
    shutil.rmtree(HOME, ignore_errors=True)


def _python() -> str:
    """The interpreter that the environment of the tests was made with."""
    return getattr(sys, "_base_executable", sys.executable)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
