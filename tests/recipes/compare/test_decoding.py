from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from stayfinite.errors import UsageError
from stayfinite.recipes.images.data import decode, find_unreadable, without
from stayfinite.recipes.images.pairs import FIRST, Pair


def cut() -> bytes:
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 80).save(whole, "PNG")
    return whole.getvalue()[:-600]


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x89PNG\r\n\x1a\n", cut()])
def test_what_is_no_whole_image_is_an_error_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jpg"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"cannot read image .*x.jpg"):
        decode(str(path))


def test_a_16_bit_image_keeps_its_shades(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.array([[0, 16384], [32768, 65535]], dtype=np.uint16)).save(path)
    assert np.asarray(decode(str(path)))[..., 0].tolist() == [[0, 64], [128, 255]]


def test_a_32_bit_image_is_refused_because_its_range_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "float.tiff"
    Image.fromarray(np.array([[0.5, np.nan]], dtype=np.float32)).save(path)
    with pytest.raises(UsageError, match=r"float.tiff: 32-bit pixels"):
        decode(str(path))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "CMYK", "LA"])
def test_every_usual_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "image.tiff"
    Image.new("RGB", (4, 3), (250, 250, 250)).convert(mode).save(path)
    image = decode(str(path))
    assert (image.mode, image.size) == ("RGB", (4, 3))
    assert np.asarray(image).min() > 240


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    notes = Image.Exif()
    notes[0x0112] = 6
    Image.new("RGB", (8, 4)).save(path, exif=notes)
    assert decode(str(path)).size == (4, 8)


def test_unreadable_images_are_found_before_the_start_and_only_their_pairs_go(tmp_path: Path) -> None:
    for name in "abc":
        Image.new("RGB", (4, 4)).save(tmp_path / f"{name}.png")
    (tmp_path / "c.png").write_bytes(b"broken")
    a, b, c = (str(tmp_path / f"{name}.png") for name in "abc")
    pairs = [Pair(first=a, second=b, label=FIRST), Pair(first=b, second=c, label=FIRST)]
    wrong, looked, there = find_unreadable(pairs, 100)
    assert (list(wrong), looked, there) == ([c], 3, 3)
    assert without(pairs, wrong) == pairs[:1]
    assert find_unreadable(pairs, 0) == ({}, 0, 3)
    assert find_unreadable(pairs, 2)[1] == 2
