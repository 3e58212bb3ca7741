"""The wheel that ``pyproject.toml`` describes, and wheels that are built in tests."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL: dict[str, Any] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]


def expected_names() -> set[str]:
    """The names of the files of the packages in a wheel."""
    places = {**{name: name for name in WHEEL["only-include"]}, **WHEEL["sources"], **WHEEL["force-include"]}
    files = (path for name in places for path in (ROOT / name).rglob("*") if path.is_file())
    names = (str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts)
    return {re.sub(r"^[^/]+", lambda top: places[top[0]], name) for name in names}


def module_of(name: str) -> str:
    """The module of a file in a wheel, as its programs import the module."""
    plain = name.removeprefix("raftlog/_packages/").removesuffix(".py").removesuffix("/__init__")
    return plain.replace("/", ".")


def built(source: Path, folder: Path) -> Path:
    """Build a wheel from a folder, without network and without compiling."""
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*build, "--wheel-dir", folder, source], check=True)
    (made,) = folder.glob("*.whl")
    return made


def names_of(wheel: Path) -> set[str]:
    """The names of the files of a wheel without those of its metadata."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
