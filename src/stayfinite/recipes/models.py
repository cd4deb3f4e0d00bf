"""What recipes ask of any model: a hub that answers, fewer bits, evaluation in portions that fit; all of it quietly."""

import gc
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from stayfinite.errors import MissingExtra, UsageError


@contextmanager
def with_cache(config: Any) -> Iterator[None]:
    """Gradient checkpointing switches the cache off; generating without it is quadratic."""
    cached, config.use_cache = config.use_cache, True
    try:
        yield
    finally:
        config.use_cache = cached


def quantized(bits: str, what_for: str, kept: Sequence[str] = ()) -> Any:
    """The configuration with which transformers loads a model in `8bit` or `4bit`.

    Arguments:
        what_for: needs it, in words.
        kept: modules that are not quantized, as patterns.

    Raises:
        MissingExtra: bitsandbytes is not installed.
    """
    with MissingExtra.unless("bitsandbytes", extra="quant", what_for=what_for):
        import bitsandbytes  # noqa: F401
    from transformers import BitsAndBytesConfig

    options: dict[str, Any] = {"llm_int8_skip_modules": list(kept)} if kept else {}
    if bits == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True, **options)
    computing = torch.bfloat16 if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else torch.float32
    return BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=computing,
        **options,
    )  # fmt: skip


def peft_for(what_for: str) -> Any:
    """The package peft. Raises MissingExtra where it is not installed; ``what_for`` needs it, in words."""
    with MissingExtra.unless("peft", extra="hf", what_for=what_for):
        import peft
    return peft


def keep_trainable(model: nn.Module) -> None:
    """Keep 4-bit layers out of bitsandbytes' packed format for CPUs with bf16 instructions.

    It packs a layer at its first evaluation. No gradient passes through a packed layer afterwards, and one whose rows
    are no whole blocks of 64 weights fails.
    """
    layers: list[Any] = list(model.modules())
    for layer in layers:
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def in_portions(
    rows: Sequence[int],
    size: int,
    work: Callable[[Sequence[int]], None],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Process all rows, ``size`` at a time. A portion that does not fit in memory is retried in halves.

    Finished portions are kept, so that an evaluation with too large a batch does not lose hours of training.

    Arguments:
        work: processes a portion; may be called again with some of its rows after memory ran out.
        progress: receives the rows done and the total.
    """
    done = 0
    while done < len(rows):
        portion = rows[done : done + size]
        if not _fits(work, portion):
            size = (len(portion) + 1) // 2
            sys.stderr.write(f"out of memory with {len(portion)} rows at a time: continuing with {size}\n")
            continue
        done += len(portion)
        if progress is not None:
            progress(done, len(rows))


def _fits(work: Callable[[Sequence[int]], None], portion: Sequence[int]) -> bool:
    try:
        work(portion)
    except torch.OutOfMemoryError:
        if len(portion) == 1:
            raise
    else:
        return True
    # Only outside the handler is the error released, and with it everything its frames held.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return False


@contextmanager
def quiet_transformers(*, advice: bool = False) -> Iterator[None]:
    """Disable transformers' bars and advice within this context.

    Arguments:
        advice: leave its advice, such as the names of weights that a file does not have.
    """
    import transformers.utils.logging

    logging: Any = transformers.utils.logging  # has no annotations
    shown, loudness = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    if not advice:
        logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(loudness)
        if shown:
            logging.enable_progress_bar()


SECONDS = 5.0
"""Timeout of a request."""
NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""Hub names: owner/name, or a name alone."""


def is_built_here(sizes: Collection[str], name: str) -> bool:
    """Whether the name is a built-in size, not a model to load."""
    return name in sizes and not Path(name).exists()


def loading_options(name: str, *, cache_dir: str | None = None, fix: str = "") -> dict[str, Any]:
    """Options for ``from_pretrained``; local files only if the hub does not answer.

    Arguments:
        name: a directory or hub name.
        cache_dir: cache of hub models.
        fix: shown if not found.

    Raises:
        UsageError: not a directory, not cached, and not available from the hub.
    """
    options: dict[str, Any] = {"cache_dir": cache_dir}
    if Path(name).exists():
        return options
    if not NAME.fullmatch(name) or name.startswith("."):
        raise UsageError(f"cannot load {name!r}: no such directory", fix=fix)
    if (reason := _hub_error(name, fix)) is None:
        return options
    if _in_cache(name, cache_dir):
        return options | {"local_files_only": True}
    raise UsageError(
        f"cannot load {name!r}: no such directory, not in the cache, and the hub does not answer ({reason})",
        fix=fix,
    )


def _hub_error(name: str, fix: str) -> str | None:
    """Why the hub did not answer, or None if it did. One attempt."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, RepositoryNotFoundError

    try:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=SECONDS)
    except RepositoryNotFoundError as error:
        raise UsageError(
            f"cannot load {name!r}: no such directory, and the hub has no such name (or it is private)",
            fix=fix,
        ) from error
    except EntryNotFoundError:
        return None
    except HfHubHTTPError as error:
        return str(error).splitlines()[0]
    except Exception as error:  # the client may raise anything without a network or with HF_HUB_OFFLINE
        return (str(error) or type(error).__name__).splitlines()[0]
    return None


def _in_cache(name: str, cache_dir: str | None) -> bool:
    from huggingface_hub import try_to_load_from_cache

    files = ("config.json", "tokenizer_config.json", "tokenizer.json")
    return any(isinstance(try_to_load_from_cache(name, file, cache_dir=cache_dir), str) for file in files)
