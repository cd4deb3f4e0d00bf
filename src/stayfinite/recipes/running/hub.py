"""Ask a hub once with a short timeout, before transformers retries for a minute without a network."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError

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
