"""The memory of unread responses and of large pages: who waits, and who gives way."""

from __future__ import annotations

import asyncio

import pytest

from broker.listeners.answers_in_flight import LARGE_PAGE_BYTES, LARGE_PAGES_MAX, AnswersInFlight


async def test_nothing_long_is_made_for_a_client_that_has_gone() -> None:
    answers, clients, made = AnswersInFlight(1), {"one"}, []
    with answers.turn(lambda: "one" in clients) as turn:
        await turn.computed(lambda: made.append(1), is_short=False)
        clients.clear()
        await turn.computed(lambda: made.append(2), is_short=True)
        with pytest.raises(ConnectionResetError):
            await turn.computed(lambda: made.append(3), is_short=False)
    assert made == [1, 2]


async def test_long_work_waits_for_its_turn_and_short_work_does_not() -> None:
    answers = AnswersInFlight(1)
    turns = [answers.turn(lambda: True) for _ in range(LARGE_PAGES_MAX)]
    for turn in turns:
        assert await turn.computed(lambda: 1, is_short=False) == 1
        assert await turn.computed(lambda: 2, is_short=False) == 2  # in the same place
    late = answers.turn(lambda: True)
    assert await late.computed(lambda: 3, is_short=True) == 3
    waiting = asyncio.create_task(late.computed(lambda: 4, is_short=False))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    with turns[0]:
        pass
    assert await waiting == 4


async def test_a_large_page_takes_its_memory_from_answers_that_are_not_taken() -> None:
    answers, ended = AnswersInFlight(LARGE_PAGE_BYTES), []
    answers.wait("one", 1, lambda: ended.append("one"))
    with answers.turn(lambda: True) as turn:
        turn.wait(2, lambda: ended.append("its own"))
        await turn.computed(lambda: 1, is_short=True)
        assert (answers.untaken_bytes, ended) == (3, [])
        await turn.computed(lambda: 2, is_short=False)
        assert (answers.untaken_bytes, ended) == (0, ["one"])
    answers.wait("two", LARGE_PAGE_BYTES, lambda: ended.append("two"))
    assert ended == ["one"]
