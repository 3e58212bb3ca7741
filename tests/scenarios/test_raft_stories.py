"""Stories of Raft groups as transcripts: see ``tests/helpers/raft_story.py`` for the commands."""

import os
from pathlib import Path

import pytest

from tests.helpers.raft_story import retell

STORIES = sorted((Path(__file__).parent / "raft").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_is_told_as_it_happened(path: Path) -> None:
    told = retell(path)
    if os.environ.get("RAFT_STORIES_REWRITE"):
        path.write_text(told)
    assert told == path.read_text()


def test_there_are_stories() -> None:
    assert len(STORIES) >= 10
