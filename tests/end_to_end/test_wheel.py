"""Wheels have every module that their programs import, from the context of the image and from an sdist."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.helpers.wheel import ROOT, built, expected_names, module_of, names_of

pytestmark = pytest.mark.e2e

FILE_BYTES_MAX = 1_000_000

# Imports all modules of a wheel that is unpacked in a folder, beside the packages of a second folder.
# With -S Python reads no .pth file, and finds no checkout.
IMPORT_ALL = """
import importlib, sys
folder, others, *names = sys.argv[1:]
sys.path += [folder, others]
from raftlog.__main__ import use_our_packages
use_our_packages()
for name in names:
    found = importlib.import_module(name).__file__
    assert found.startswith(folder), (name, found)
"""


def _context(folder: Path) -> Path:
    """A copy of the files that ``.dockerignore`` admits."""
    folder.mkdir()
    for name in re.findall("^!(.*)", (ROOT / ".dockerignore").read_text(), re.MULTILINE):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def test_a_wheel_of_the_images_context_has_all_that_its_modules_import(tmp_path: Path) -> None:
    # requirement: X1
    wheel = built(_context(tmp_path / "context"), tmp_path / "dist")
    assert names_of(wheel) == expected_names()
    modules = sorted(module_of(name) for name in expected_names() if name.endswith(".py"))
    assert {"chaos.commands", "chaos.kit.supervisor", "chaos.harness.controls"} < {*modules}
    folder = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(folder)
    (licence,) = folder.glob("*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()
    others = sysconfig.get_path("purelib")
    subprocess.run(
        [sys.executable, "-IS", "-c", IMPORT_ALL, folder, others, *modules], check=True, cwd=tmp_path
    )


def test_an_sdist_makes_the_same_wheel_and_has_the_docs(tmp_path: Path) -> None:
    # requirement: X1
    build = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", tmp_path]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    (made,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(made) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*") if path.is_file()}
    assert (
        pages | {"README.md", "CHANGELOG.md", "LICENSE", "Dockerfile", "deploy/kubernetes.yaml"}
        <= files.keys()
    )
    assert [name for name, path in files.items() if path.stat().st_size > FILE_BYTES_MAX] == []
    assert names_of(built(folder, tmp_path / "dist")) == expected_names()
