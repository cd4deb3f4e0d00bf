"""Regular expressions that are compiled at their first use."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from copy import deepcopy
from types import ModuleType

import pytest

import stayfinite
from stayfinite.core.lazy_regex import LazyRegex, lazy_regex

ROOMS = ("core", "diagnosis", "inspection", "readers", "report", "rules")


def modules() -> list[ModuleType]:
    names = [name for _, name, _ in pkgutil.walk_packages(stayfinite.__path__, "stayfinite.")]
    return [importlib.import_module(name) for name in names if name.split(".")[1] in ROOMS]


def test_a_lazy_expression_finds_what_a_compiled_one_finds() -> None:
    text, flags = r"\bloss\s*=\s*(nan|inf)", re.IGNORECASE
    lazy, compiled = lazy_regex(text, flags), re.compile(text, flags)
    line = "Loss = NaN, loss=inf"
    assert lazy.findall(line) == compiled.findall(line)
    assert lazy.sub("x", line) == compiled.sub("x", line)
    assert (lazy.pattern, lazy.flags, lazy.groups) == (compiled.pattern, compiled.flags, compiled.groups)
    assert not lazy.fullmatch(line)


def test_a_copy_and_a_pickle_still_match() -> None:
    lazy = lazy_regex("nan")
    for copied in (deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        assert copied.search("loss nan")


def test_an_error_in_an_expression_shows_at_its_first_use() -> None:
    broken = lazy_regex("(")
    with pytest.raises(re.error):
        broken.search("")


def test_every_expression_of_the_package_compiles() -> None:
    found = [value for module in modules() for value in vars(module).values() if isinstance(value, LazyRegex)]
    assert len(found) > 400
    for value in found:
        assert value.pattern
