"""Separate torch's own classes and functions in a pickle from foreign ones."""

from __future__ import annotations

from collections.abc import Iterable

from stayfinite.readers.checkpoints.facts import FileFacts
from stayfinite.readers.pickles.machine import Global

_DANGEROUS = frozenset({
    "os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "pty", "runpy", "importlib", "code", "codeop",
    "ctypes", "multiprocessing", "webbrowser", "asyncio", "pickle", "marshal", "commands", "timeit", "pdb", "cProfile",
    "profile", "trace", "http", "urllib", "requests",
})  # fmt: skip
_DANGEROUS_BUILTINS = frozenset({
    "eval", "exec", "compile", "open", "__import__", "getattr", "setattr", "breakpoint", "input", "globals",
})  # fmt: skip
_FURNITURE = ("torch", "collections", "numpy", "_codecs", "copyreg", "builtins", "__builtin__", "ml_dtypes")


def is_dangerous(found: Global) -> bool:
    """Whether malware uses this to run code; no checkpoint needs it."""
    module, *rest = found.module.split(".")
    if module in ("builtins", "__builtin__"):
        return found.name.split(".")[0] in _DANGEROUS_BUILTINS
    if module == "torch":
        return found.name.split(".")[-1] in ("load", "system", "eval") or "hub" in rest
    return module in _DANGEROUS


def tell_of(facts: FileFacts, found: Iterable[Global]) -> None:
    """Record foreign globals, which ``torch.load(weights_only=True)`` may refuse, and report dangerous ones."""
    found = tuple(found)
    foreign = [str(each) for each in found if each.module.split(".")[0] not in _FURNITURE]
    facts.strangers = (*facts.strangers, *foreign)
    dangerous = [str(each) for each in found if is_dangerous(each)]
    if dangerous:
        facts.complain("dangerous", f"loading it would call {', '.join(dangerous[:5])}; none of it was run")
