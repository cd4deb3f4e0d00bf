"""``stayfinite sft chat``: ask a trained adapter yourself, with the very prompt of its training."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from stayfinite.errors import UsageError
from stayfinite.recipes.chat.evaluating import generate
from stayfinite.recipes.chat.questions import found_in
from stayfinite.recipes.chat.using import Using, make_ready
from stayfinite.recipes.settings import read_settings, require


@dataclass(frozen=True, kw_only=True)
class Chat(Using):
    """Ask a trained adapter, one question per line; an empty line or end of input stops."""

    base: str | None = None
    """Base model; by default that of the adapter. Without an adapter, the model to ask."""
    ask: str | None = None
    """Ask this one question."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    seed: int = 0
    """Seed for sampling."""


def chat(config: Chat, lines: Iterable[str], say: Callable[[str], None] = print) -> None:
    """Answer each line."""
    require(config, at_least={0: ("temperature",), 1: ("new_tokens",)})
    if config.ask is not None and not config.ask.strip():
        raise UsageError("--ask: the question is empty", fix='--ask "Convert 3 km to m."')
    ready = make_ready(config, config.base)
    torch.manual_seed(config.seed)
    for line in [config.ask] if config.ask is not None else lines:
        question = line.strip()
        if not question:
            break
        (text,) = generate(
            ready.model, ready.prompting, [question], new_tokens=ready.new_tokens, limit=ready.limit,
            temperature=config.temperature,
        )  # fmt: skip
        answer = found_in(text)
        say(text.strip() or "(nothing)")
        say("no answer in it" if answer is None else f"answer: {answer}")


def main(arguments: Sequence[str]) -> None:
    """Run with these flags."""
    config = read_settings(Chat, arguments, "stayfinite sft chat")
    chat(config, _typed())


def _typed() -> Iterable[str]:
    """Lines from the keyboard, asked for, or from a pipe."""
    asking = sys.stdin.isatty()
    while True:
        if asking:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line
