"""Decode image files. An unreadable file is an error, never a black image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.readers.data.tar_rows import member_bytes, tar_of
from stayfinite.recipes.images.pairs import Pair


def decode(path: str) -> Any:
    """The image as 8-bit RGB, rotated by its EXIF data.

    Raises:
        UsageError: unreadable, truncated, or more than 16 bits per channel.
    """
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise MissingExtra.of("pillow", extra="recipes", what_for="reading images") from None
    try:
        with Image.open(path if tar_of(path) is None else BytesIO(member_bytes(path))) as opened:
            opened.load()
            image = ImageOps.exif_transpose(opened)
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        # One line, since the guard quotes it for a batch that fails to load, even from a worker.
        words = str(error).replace(path, "").strip(" :'\"") or type(error).__name__
        raise UsageError(f"cannot read image {path}: {words}") from error
    if image.mode.startswith("I;16"):
        # Pillow would clip above 255 and turn a 16-bit image white.
        image = image.point(lambda value: value / 256).convert("L")
    elif image.mode in ("I", "F"):
        raise UsageError(f"{path}: 32-bit pixels have no known range; save it with 8 or 16 bits per channel")
    return image.convert("RGB")


def find_unreadable(pairs: Iterable[Pair], most: int) -> tuple[dict[str, str], int, int]:
    """Decode images before the start.

    Arguments:
        most: images to check, evenly spread.

    Returns:
        The error of each unreadable image, the number checked, and the number of images.
    """
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.first, pair.second)))
    stride = max(1, -(-len(names) // most)) if most > 0 else len(names) + 1
    looked = names[::stride] if most > 0 else []
    wrong: dict[str, str] = {}
    for name in looked:
        try:
            decode(name)
        except UsageError as error:
            wrong[name] = error.message
    return wrong, len(looked), len(names)


def without(pairs: Sequence[Pair], unreadable: Iterable[str]) -> list[Pair]:
    """The pairs that use none of these images."""
    gone = set(unreadable)
    return [pair for pair in pairs if pair.first not in gone and pair.second not in gone]
