"""Finds the names of settings in the file and in the environment, and suggests names for misspelt
settings.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from raftlog.client.tls import VARIABLES as TLS_VARIABLES
from raftlog.errors import InvalidRequest

NESTED = "__"
PREFIX = f"RAFTLOG_BROKER{NESTED}"
OF_RAFTLOG = "RAFTLOG_"
# no settings of a broker, but often set in its environment
OF_CLIENTS = frozenset(("RAFTLOG_URL", "RAFTLOG_RACK", "RAFTLOG_CONTEXT", *TLS_VARIABLES.values()))


def setting_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the names of all settings and groups of settings, with dots between parts: ``http.port``."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for inner in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                of_each = "<id>." if get_origin(field.annotation) is dict else ""
                yield from setting_names(inner, f"{prefix}{name}.{of_each}")


def refuse_unknown_variables(variables: Iterable[str], model: type[BaseModel]) -> None:
    """Raise ``InvalidRequest`` for an environment variable that looks like a setting but is not the name of a
    setting.

    Every variable that begins with ``RAFTLOG_`` looks like a setting, except the variables of clients.
    """
    known = set(setting_names(model))
    for variable in variables:
        name = variable.upper()
        if name.startswith(OF_RAFTLOG) and name not in OF_CLIENTS:
            setting = name.removeprefix(PREFIX).removeprefix(OF_RAFTLOG).lower().replace(NESTED, ".")
            if not name.startswith(PREFIX) or _numberless(setting) not in known:
                meant = " or ".join(map(_variable, _meant(setting, known)))
                hint = f"; did you mean {meant}?" if meant else "; unset it"
                raise InvalidRequest(f"{variable} in the environment is not a setting{hint}", field=variable)


def described(error: ErrorDetails, model: type[BaseModel], environment: Mapping[str, str]) -> str:
    """Describe the error of a setting, with the setting's name as the user gave it."""
    setting = ".".join(str(part) for part in error["loc"])
    given = _variable(setting)
    where = given if given in map(str.upper, environment) else setting or "settings"
    if error["type"] != "extra_forbidden":
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    meant = " or ".join(_meant(setting, setting_names(model)))
    return f"{where} is not a setting" + (f"; did you mean {meant}?" if meant else "")


def _variable(setting: str) -> str:
    return PREFIX + setting.replace(".", NESTED).upper()


def _numberless(setting: str) -> str:
    return re.sub(r"^peers\.[0-9]+(?=\.|$)", "peers.<id>", setting)


def _meant(setting: str, known: Iterable[str]) -> list[str]:
    """Suggest settings for a misspelt name: the name without a wrong prefix, settings with an equal ending,
    or the most similar setting.
    """
    names = sorted(known)
    for given in (_numberless(setting), _numberless(setting.removeprefix("broker_"))):
        if given in names:  # only the prefix of the variable is wrong
            return [given]
    last = setting.rpartition(".")[2]
    same = [name for name in names if name.rpartition(".")[2] == last and "<id>" not in name]
    return same[:3] or difflib.get_close_matches(setting, names, 1)
