"""``stayfinite generate``: generate text with a trained language model, or any T5."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from stayfinite.cli.ending import command, given
from stayfinite.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Generate:
    """Generate text: continue a prompt, or fill its gaps (`<extra_id_0>`). Without --prompt and --file, read prompts
    from standard input, one per line.
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run directory (its best model), a model directory, or a hub name."""

    prompt: tuple[str, ...] = ()
    """Text to continue; may be given several times."""

    file: Path | None = None
    """File with one prompt per line."""

    max_new_tokens: int = 64
    """Most tokens to generate."""

    num_return_sequences: int = 1
    """Texts per prompt."""

    temperature: float | None = None
    """Sampling temperature; by default greedy."""

    top_k: int | None = None
    """Sample from this many likeliest tokens."""

    top_p: float | None = None
    """Sample from the likeliest tokens with this total probability."""

    no_repeat_ngram_size: int = 0
    """Never repeat n-grams of this size; 0 to allow repeats."""

    repetition_penalty: float = 1.0
    """Above 1, repeated tokens become less likely."""

    num_beams: int = 1
    """Beams of beam search."""

    seed: int = 0
    """Seed for sampling."""

    device: str = "auto"
    """cpu or cuda; by default the best available."""

    cache_dir: str | None = None
    """Cache directory for hub models."""

    json: bool = False
    """Print one JSON list: prompt, text and gaps of each answer."""


@command(Generate)
def run(settings: Generate) -> int:
    """Run the command; 0 if all prompts were answered, 2 on wrong use."""
    options = options_of(settings)
    answers = _answers(settings, _prompts(settings), options)
    if settings.json:
        print(json.dumps([answer.to_json() for answer in answers], indent=1, ensure_ascii=False))
        return 0
    for answer in answers:
        print(f"{answer.prompt}\n  {answer.text}" if len(answers) > 1 else answer.text)
    return 0


def options_of(settings: Generate) -> dict[str, Any]:
    """The settings as arguments of transformers' ``generate``.

    Raises:
        UsageError: a value is out of range, or two settings conflict.
    """
    from stayfinite.recipes.settings import require

    require(
        settings,
        above_zero=("temperature", "repetition_penalty"),
        at_least={
            1: ("max_new_tokens", "num_return_sequences", "num_beams", "top_k"),
            0: ("no_repeat_ngram_size", "seed"),
        },
        shares={"(0, 1]": ("top_p",)},
    )
    drawn = any(value is not None for value in (settings.temperature, settings.top_k, settings.top_p))
    if not drawn and settings.num_return_sequences > settings.num_beams:
        raise UsageError(
            f"--num-return-sequences {settings.num_return_sequences}: greedy decoding gives one text only",
            fix=f"--temperature 0.8 to sample, or --num-beams {settings.num_return_sequences}",
        )
    if settings.num_return_sequences > settings.num_beams > 1:
        raise UsageError(
            f"--num-return-sequences {settings.num_return_sequences} needs as many beams, not --num-beams "
            f"{settings.num_beams}",
            fix=f"--num-beams {settings.num_return_sequences}, or leave --num-beams out",
        )
    names = ("max_new_tokens", "num_return_sequences", "num_beams", "no_repeat_ngram_size", "repetition_penalty")
    options: dict[str, Any] = given(settings, *names) | {"do_sample": drawn}
    if drawn:
        # By default transformers samples from the 50 most likely tokens.
        options |= {"temperature": settings.temperature or 1.0, "top_k": settings.top_k or 0}
        options |= {"top_p": 1.0 if settings.top_p is None else settings.top_p}
    return options


def _prompts(settings: Generate) -> list[str]:
    given = list(settings.prompt)
    if settings.file is not None:
        from stayfinite.readers.data.text_lines import text_file
        from stayfinite.recipes.seq2seq.pairs import legible

        try:
            with text_file(settings.file, newline=None) as file:
                given += [legible(line.rstrip("\n")) for line in file.lines()]
        except OSError as error:
            raise UsageError(
                f"cannot read {settings.file}: {error.strerror or error}",
                fix=("give a text file with one prompt per line"),
            ) from error
    elif not given:
        given += sys.stdin.read().splitlines()
    prompts = [prompt for prompt in given if prompt.strip()]
    if not prompts:
        raise UsageError("no prompt", fix="--prompt 'some words', --file prompts.txt, or lines on stdin")
    return prompts


def _answers(settings: Generate, prompts: Sequence[str], options: dict[str, Any]) -> list[Any]:
    from stayfinite.recipes.language.trained import Author, find_model
    from stayfinite.recipes.running.place import choose_device

    device = choose_device(settings.device)
    author = Author(find_model(settings.model), device=device, **given(settings, "seed", "cache_dir"))
    if any(author.completes(prompt) for prompt in prompts):
        print(
            "stayfinite generate: this model fills gaps: <extra_id_0> is added to a plain prompt",
            file=sys.stderr,
        )
    return [answer for prompt in prompts for answer in author.write(prompt, options)]
