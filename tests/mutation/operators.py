"""Small changes of one function, as replacements of nodes in its syntax tree.

Left out is what tests should not see: texts (errors, logs, ``__repr__``), type annotations, calls of logs,
and assertions, which fail only when something else is already wrong (``assert``, ``InvariantViolated``,
functions called ``require_...``). Default values and decorators are left out since they are evaluated before
a mutant is planted.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
LOG_METHODS: Final = {"debug", "info", "warning", "error", "exception", "critical"}
LOG_NAMES: Final = {"_log", "log", "_logger", "logger", "LOG", "LOGGER"}
TEXT_FUNCTIONS: Final = {"__repr__", "__str__"}
ASSERTIONS: Final = ("require_", "assert_never")

COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
SWAPPED_NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Change:
    """One replacement: the node at ``place`` of ``parent`` becomes ``new``, or goes where ``new`` is None."""

    operator: str
    parent: ast.AST
    place: str
    index: int | None
    new: ast.AST | None

    @property
    def old(self) -> ast.AST:
        """The node that is replaced."""
        found = getattr(self.parent, self.place)
        node = found if self.index is None else found[self.index]
        assert isinstance(node, ast.AST)
        return node

    def apply(self) -> Callable[[], None]:
        """Make the change in the tree. The function that is returned takes it back."""
        before = getattr(self.parent, self.place)
        new = [] if self.new is None else [self.new]
        after = self.new if self.index is None else [*before[: self.index], *new, *before[self.index + 1 :]]
        setattr(self.parent, self.place, after)
        return lambda: setattr(self.parent, self.place, before)


def changes(function: Function) -> Iterator[Change]:
    """All changes of a function's body, functions inside it among them, in a fixed order."""
    if function.name in TEXT_FUNCTIONS or function.name.startswith(ASSERTIONS):
        return
    returns = _returned(function)
    for index, statement in enumerate(function.body):
        yield from _changes(statement, function, "body", index, returns)


def _changes(node: ast.AST, parent: ast.AST, place: str, index: int | None, returns: str) -> Iterator[Change]:
    if _is_left_out(node):
        return
    for operator, new in _replacements(node, returns):
        if new is not None:
            if not hasattr(new, "lineno"):
                ast.copy_location(new, node)
            ast.fix_missing_locations(new)
        yield Change(operator, parent, place, index, new)
    if isinstance(node, Function):
        yield from changes(node)
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list") or (
            isinstance(node, ast.Raise) or (isinstance(node, ast.Lambda) and name == "args")
        ):
            continue
        if isinstance(value, ast.AST):
            yield from _changes(value, node, name, None, returns)
        elif isinstance(value, list):
            for number, each in enumerate(value):
                if isinstance(each, ast.AST):
                    yield from _changes(each, node, name, number, returns)


def _replacements(node: ast.AST, returns: str) -> Iterator[tuple[str, ast.AST | None]]:
    yield from _of_statement(node, returns)
    yield from _of_condition(node)
    yield from _of_value(node)


def _of_statement(node: ast.AST, returns: str) -> Iterator[tuple[str, ast.AST | None]]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise() | ast.AugAssign():
            yield "statement dropped", ast.Pass()
        case (
            ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_])
            | ast.AnnAssign(target=ast.Attribute(), value=ast.expr())
        ):
            yield "statement dropped", ast.Pass()
        case ast.Break():
            yield "break dropped", ast.Pass()
        case ast.Continue():
            yield "continue dropped", ast.Pass()
            yield "continue to break", ast.Break()
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            for constant in (True, False) if returns == "bool" else (0,) if returns == "int" else (None,):
                yield f"returns {constant}", ast.Return(ast.Constant(constant))
        case _:
            pass
    if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield "arithmetic", _with(node, op=ARITHMETIC[type(node.op)]())


def _of_condition(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    match node:
        case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.Constant):
            yield "condition True", _with(node, test=ast.Constant(True))
            yield "condition False", _with(node, test=ast.Constant(False))
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield "condition False", _with(node, test=ast.Constant(False))
        case ast.comprehension(ifs=[_, *_]):
            yield "filter dropped", _with(node, ifs=[])
        case ast.BoolOp(op=op, values=values):
            yield "and / or", _with(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for number in range(len(values)):
                rest = [value for other, value in enumerate(values) if other != number]
                yield "operand dropped", rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not dropped", operand
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for number, op in enumerate(ops):
                others = [*ops[:number], COMPARED[type(op)](), *ops[number + 1 :]]
                yield "comparison", ast.Compare(left, others, comparators)
        case _:
            pass


def _of_value(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    match node:
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "constant", ast.Constant(value + 1)
            yield "constant", ast.Constant(value - 1)
        case ast.Constant(value=float() as value):
            yield "constant", ast.Constant(value * 2 + 1)
        case ast.BinOp(op=op) if type(op) in ARITHMETIC:
            yield "arithmetic", _with(node, op=ARITHMETIC[type(op)]())
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "minus dropped", operand
        case ast.Name(id=name, ctx=ast.Load()) if name in SWAPPED_NAMES:
            yield "min / max, any / all", ast.Name(SWAPPED_NAMES[name], ast.Load())
        case ast.keyword(arg=str()):
            yield "keyword dropped", None
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield "slice", _with(node, lower=None)
            if upper is not None:
                yield "slice", _with(node, upper=None)
        case _:
            pass


def _with(node: ast.AST, **fields: object) -> ast.AST:
    """A copy that shares all other parts."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _returned(function: Function) -> str:
    return function.returns.id if isinstance(function.returns, ast.Name) else ""


def _is_left_out(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.ClassDef():
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="InvariantViolated"))):
            return True
        case ast.If(body=[only], orelse=[]):
            return _is_left_out(only)
        case ast.Expr(value=ast.Constant()):  # a docstring, or ``...``
            return True
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if name.startswith(ASSERTIONS):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=logger, attr=method))):
            name = logger.attr if isinstance(logger, ast.Attribute) else getattr(logger, "id", "")
            return method in LOG_METHODS and name in LOG_NAMES
        case _:
            return False
