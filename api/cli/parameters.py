"""Builds the command of a function from its signature, which declares the options and arguments.

::

    def create(
        name: Annotated[str, Argument(help="The topic's name.", completes="topics")],
        partitions: Annotated[int, Option("--partitions", "-P", min=1, help="Number of partitions.")] = 1,
    ) -> None:

Decides: click's parameter for each annotation. Leaves to others: parsing and help (click). Typer reads such
signatures, too, but imports pydantic for every call, a quarter of the time of a short command.
"""

from __future__ import annotations

import enum
import inspect
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import click

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
_WHOLE: Final = re.compile("-?[0-9]+")  # int() also accepts blanks, underscores and digits of all scripts


class Parameter:
    """An option or argument of a command, except its type and its default, which are in the signature."""

    def __init__(
        self,
        *names: str,
        help: str,
        min: float | None = None,
        max: float | None = None,
        metavar: str | None = None,
        envvar: str | None = None,
        path: click.Path[Path] | None = None,
        completes: str | None = None,
        takes_bytes: bool = False,
    ) -> None:
        """``completes`` is the kind of names with which shells complete the value, such as ``topics``.

        With ``takes_bytes`` the value may have bytes that are not UTF-8; it is encoded as by ``os.fsencode``.
        """
        self.names = names
        self.help = help
        self.min = min
        self.max = max
        self.metavar = metavar
        self.envvar = envvar
        self.path = path or click.Path(path_type=Path)
        self.completes = completes
        self.takes_bytes = takes_bytes

    def complete(self) -> Complete | None:
        """Return the function that completes a value in a shell; ``None`` leaves completion to the type."""
        return None if self.completes is None else names_of(self.completes)


def names_of(kind: str) -> Complete:
    """Return the function that completes names of ``kind``, such as ``topics``."""

    def names(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from api.cli import completion

        return completion.names(kind, context, incomplete)

    return names


class Option(Parameter):
    """An option of a command. Without ``names`` it has the name of the function's parameter."""


class Argument(Parameter):
    """An argument of a command, given by its position."""


class Choice(click.Choice[enum.StrEnum]):
    """A choice among the values of an enumeration; click itself would use the names of its members."""

    def normalize_choice(self, choice: object, ctx: click.Context | None) -> str:
        return str(choice)


class _Text(click.types.StringParamType):
    """The type of a text in UTF-8. Text with other bytes is refused, because it could not be sent."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail(f"{text!r} is not UTF-8.", param, ctx)
        return text


class _WholeNumber(click.types.IntParamType):
    """The type of a whole number in ASCII digits, as in HTTP requests."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        if isinstance(value, str) and not _WHOLE.fullmatch(value):
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return int(super().convert(value, param, ctx))


class _WholeNumberInRange(_WholeNumber, click.IntRange):
    """The type of a whole number within bounds, which the help shows."""


class FiniteNumber(click.FloatRange):
    """The type of a finite number in a range; refuses ``nan``, which click would accept in any range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def command_of(name: str, function: Callable[..., None]) -> click.Command:
    """Create the command that calls ``function``; its help is the docstring."""
    hints = get_type_hints(function, include_extras=True)
    signature = inspect.signature(function).parameters
    params = [_parameter(each, hints[each], given.default) for each, given in signature.items()]
    return click.Command(name, callback=function, params=params, help=inspect.getdoc(function))


def _parameter(name: str, hint: object, default: object) -> click.Parameter:
    kind, declared = get_args(hint)
    assert isinstance(declared, Parameter)
    if isinstance(kind, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    is_list = get_origin(kind) is list
    if is_list:
        (kind,) = get_args(kind)
    is_required = default is inspect.Parameter.empty
    found: click.Parameter
    if isinstance(declared, Argument):
        found = click.Argument(
            [name],
            type=_type_of(kind, declared),
            help=f"{declared.help}  [default: {default}]" if default and not is_required else declared.help,
            metavar=declared.metavar,
            nargs=-1 if is_list else 1,
            required=is_required,
            shell_complete=declared.complete(),
        )
    else:
        found = click.Option(
            [name, *(declared.names or [f"--{name.replace('_', '-')}"])],
            type=None if kind is bool else _type_of(kind, declared),
            is_flag=kind is bool or None,
            help=declared.help,
            metavar=declared.metavar,
            multiple=is_list,
            required=is_required,
            shell_complete=declared.complete(),
            show_default=True,
            envvar=declared.envvar,
            show_envvar=True,
        )
    if not is_required:
        found.default = (
            str(default) if isinstance(default, enum.StrEnum) else default
        )  # help shows the default
    return found


def _type_of(kind: object, declared: Parameter) -> click.ParamType[object]:
    if kind is int:
        least, most = (None if bound is None else int(bound) for bound in (declared.min, declared.max))
        return _WholeNumber() if least is most is None else _WholeNumberInRange(least, most)
    if kind is float:
        return FiniteNumber(declared.min, declared.max)
    if kind is Path:
        return declared.path
    if isinstance(kind, type) and issubclass(kind, enum.StrEnum):
        return Choice(list(kind))
    assert kind is str, f"no parameter is declared as {kind}"
    return click.STRING if declared.takes_bytes else _Text()
