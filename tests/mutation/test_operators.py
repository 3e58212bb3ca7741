"""Changes of functions are those that the operators promise, and none of what is left out."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from tests.mutation.functions import Mutant, Source


def mutants(tmp_path: Path, text: str) -> list[Mutant]:
    (tmp_path / "module.py").write_text(textwrap.dedent(text))
    return list(Source(tmp_path, "module.py").mutants())


def changed(tmp_path: Path, *body: str) -> set[str]:
    """The changed lines of a function with this body."""
    found = mutants(tmp_path, "\n    ".join(["def function(a, b, c, *d):", *body]))
    return {mutant.texts()[1] for mutant in found}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("c = a < b", {"c = a <= b"}),
        ("c = a == b is c", {"c = a != b is c", "c = a == b is not c"}),
        ("c = a not in b", {"c = a in b"}),
        ("c = a and b", {"c = a or b", "c = a", "c = b"}),
        ("c = a or b or c", {"c = a and b and c", "c = b or c", "c = a or c", "c = a or b"}),
        ("c = not a", {"c = a"}),
        ("c = a + 2", {"c = a - 2", "c = a + 3", "c = a + 1"}),
        ("c -= a", {"c += a", "pass"}),
        ("c = True", {"c = False"}),
        ("c = -a", {"c = a"}),
        ("c = min(a, b)", {"c = max(a, b)"}),
        ("c = a[b:]", {"c = a[:]"}),
        ("c = a(b, c=b)", {"c = a(b)"}),
        ("c = a if b else c", {"c = a if True else c", "c = a if False else c"}),
        ("c = [a for a in d if a]", {"c = [a for a in d]"}),
        ("a.c = b", {"pass"}),
        ("a[b] = c", {"pass"}),
        ("a(b)", {"pass"}),
        ("del a[b]", {"pass"}),
        ("raise a(b + 1)", {"pass"}),
        ("return a", {"return None"}),
        ("return None", set()),
        ("c = a", set()),
    ],
)
def test_a_line_is_changed_as_its_operators_say(tmp_path: Path, line: str, expected: set[str]) -> None:
    assert changed(tmp_path, line) == expected


def test_conditions_and_loops_are_changed(tmp_path: Path) -> None:
    assert changed(tmp_path, "if a:", "    b = c") == {"if True:", "if False:"}
    assert changed(tmp_path, "while a:", "    b = c") == {"while False:"}
    assert changed(tmp_path, "for a in b:", "    break") == {"pass"}
    assert changed(tmp_path, "for a in b:", "    continue") == {"pass", "break"}


@pytest.mark.parametrize(
    ("returned", "expected"),
    [("bool", {"return True", "return False"}), ("int", {"return 0"}), ("str", {"return None"})],
)
def test_a_function_returns_another_value_of_its_type(
    tmp_path: Path, returned: str, expected: set[str]
) -> None:
    found = mutants(tmp_path, f"def function(a) -> {returned}:\n    return a")
    assert {mutant.texts()[1] for mutant in found} == expected


@pytest.mark.parametrize(
    "text",
    [
        '''
        def function(a, b=1):
            """Text with 1 + 1."""
            c: list[a < b] = a
            c = f"{a + b}"
        ''',
        """
        def function(a):
            _log.info("%s", a + 1)
            if a:
                self._log.warning("%s", a)
        """,
        """
        def function(a):
            assert a > 1
            require_order(a, a + 1)
            if a < 1:
                raise InvariantViolated(a)
        """,
        """
        class Value:
            number = 1 + 1

            def __repr__(self):
                return self.number + 1
        """,
        """
        @decorated(1 + 1)
        def function(a=1 + 1): ...
        """,
    ],
    ids=["texts", "logs", "assertions", "representations", "definitions"],
)
def test_what_tests_should_not_see_is_left_out(tmp_path: Path, text: str) -> None:
    assert mutants(tmp_path, text) == []


def test_methods_and_functions_inside_functions_are_changed(tmp_path: Path) -> None:
    text = """
    class Outer:
        class Inner:
            async def method(self):
                def inside():
                    return self
                self.value = inside
    """
    found = [(each.function, each.line, each.texts()) for each in mutants(tmp_path, text)]
    assert found == [
        ("Outer.Inner.method", 6, ("return self", "return None")),
        ("Outer.Inner.method", 7, ("self.value = inside", "pass")),
    ]


def test_the_source_is_as_before_when_a_mutant_is_compiled(tmp_path: Path) -> None:
    found = mutants(tmp_path, "def function(a, b):\n    return a < b or a(b, c=1)")
    before = ast.dump(found[0].source.tree, include_attributes=True)
    assert all(mutant.compiled() for mutant in found)
    assert ast.dump(found[0].source.tree, include_attributes=True) == before


def test_a_mutant_with_equal_code_is_none(tmp_path: Path) -> None:
    found = mutants(tmp_path, "def function(a):\n    a = 1 * 1")
    codes = {mutant.texts()[1]: mutant.compiled() for mutant in found}
    assert codes["a = 1 // 1"] is None  # both are 1 once compiled
    assert codes["a = 2 * 1"] is not None
