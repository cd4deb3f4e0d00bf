from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from stayfinite.errors import UsageError
from stayfinite.recipes.images.data import decode
from stayfinite.recipes.images.pairs import FIRST, LABELS, SECOND, SIMILAR, SWAPPED, read_pairs, sort_out


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in "abcd":
        (tmp_path / f"{name}.png").write_bytes(b"not looked at here")
    return tmp_path


def write(directory: Path, *lines: str, name: str = "pairs.csv", encoding: str = "utf-8") -> str:
    path = directory / name
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return str(path)


HEAD = "img1,img2,score1,score2,label"


def test_a_label_may_be_a_name_or_a_number(images: Path) -> None:
    table = write(images, HEAD, "a.png,b.png,3,1,First", "a.png,c.png,1,3,1", "a.png,d.png,2,2,similar")
    assert [pair.label for pair in read_pairs(table)] == [FIRST, SECOND, SIMILAR]


def test_spaces_case_and_a_byte_order_mark_do_no_harm(images: Path) -> None:
    table = write(images, "IMG1, img2 ,Label", "a.png, b.png , SECOND", encoding="utf-8-sig")
    assert read_pairs(table)[0].label == SECOND


def test_without_a_label_the_scores_decide_within_the_margin(images: Path) -> None:
    table = write(images, "img1,img2,score1,score2", "a.png,b.png,3,1", "a.png,c.png,1,3", "a.png,d.png,2,2.4")
    assert [pair.label for pair in read_pairs(table, margin=0.5)] == [FIRST, SECOND, SIMILAR]
    assert read_pairs(table, margin=0.0)[2].label == SECOND


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (("img1,img2,score1,score2", "a.png,b.png,nan,1"), r"pairs.csv:2: no label"),
        (("left,right,label", "a.png,b.png,First"), r"no column img1, img2; it has left, right, label"),
        (
            (HEAD, "a.png,b.png,3,1,First", "a.png,gone.png,3,1,First"),
            r"1 of 3 images are missing: .*gone.png \(.*pairs.csv:3\)",
        ),
        ((HEAD,), "no pairs"),
        (("",), "no pairs"),
        ((HEAD, "a.png"), r"pairs.csv:2: 1 fields, but the header has 5"),
    ],
)
def test_what_makes_no_pairs_is_named_with_its_line(images: Path, lines: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_pairs(write(images, *lines))


@pytest.mark.parametrize("label", ["3", "-1", "Third", "nan", "1.5"])
def test_a_label_outside_of_the_classes_is_named_with_its_line(images: Path, label: str) -> None:
    table = write(images, HEAD, "a.png,b.png,3,1,First", f"a.png,c.png,1,3,{label}")
    with pytest.raises(UsageError, match=rf"pairs.csv:3: the label is '{label}', expected one of First, Second"):
        read_pairs(table)


def test_bytes_that_are_no_table_are_an_error_with_the_file(images: Path) -> None:
    path = images / "pairs.csv"
    path.write_bytes(b"\x89PNG\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"pairs.csv is a picture, not a table"):
        read_pairs(str(path))


def test_a_pair_that_stands_there_in_both_orders_is_kept_once(images: Path) -> None:
    table = write(images, HEAD, "a.png,b.png,3,1,First", "b.png,a.png,1,3,Second", "a.png,c.png,3,1,First")
    found = sort_out(read_pairs(table))
    assert len(found.pairs) == 2
    assert found.both_orders == 1


def test_a_pair_with_two_labels_is_left_out_and_named(images: Path) -> None:
    table = write(images, HEAD, "a.png,b.png,3,1,First", "b.png,a.png,1,3,First", "a.png,c.png,3,1,First")
    found = sort_out(read_pairs(table))
    assert [pair.where for pair in found.pairs] == [f"{table}:4"]
    assert found.torn == [f"{table}:2", f"{table}:3"]


def test_labels_against_the_scores_are_counted_and_a_reversed_scale_is_not(images: Path) -> None:
    reversed_scale = [f"{one}.png,{two}.png,1,3,First" for one, two in ("ab", "ac", "ad")]
    assert sort_out(read_pairs(write(images, HEAD, *reversed_scale))).against_scores == 0
    torn = [*reversed_scale, "b.png,c.png,3,1,First"]
    assert sort_out(read_pairs(write(images, HEAD, *torn))).against_scores == 0.25


def test_swapping_twice_changes_nothing() -> None:
    assert [SWAPPED[SWAPPED[label]] for label in range(len(LABELS))] == [FIRST, SECOND, SIMILAR]


def test_an_image_folder_with_metadata_is_a_table_and_is_named(images: Path) -> None:
    rows = ['{"left_file_name": "a.png", "right_file_name": "b.png", "label": 1}', '{"left_file_name": "a.png", ']
    (images / "metadata.jsonl").write_text(rows[0] + "\n")
    said: list[str] = []
    (pair,) = read_pairs(str(images), say=said.append)
    assert (Path(pair.first).name, Path(pair.second).name, pair.label) == ("a.png", "b.png", SECOND)
    assert said == [f"{images.name}: ImageFolder with metadata.jsonl, JSON lines, image pairs, 1 rows"]
    (images / "metadata.jsonl").write_text("\n".join(rows))
    with pytest.raises(UsageError, match=r"metadata.jsonl:2: not JSON"):
        read_pairs(str(images))


def test_preference_rows_say_that_the_first_is_the_one(images: Path) -> None:
    table = write(images, "prompt,chosen,rejected", "a cat,a.png,b.png", "a dog,c.png,d.png")
    said: list[str] = []
    assert [pair.label for pair in read_pairs(table, say=said.append)] == [FIRST, FIRST]
    assert said == ["pairs.csv: CSV, preference rows, 2 rows"]


def test_two_folders_are_pairs_by_name_and_one_without_a_partner_is_named(images: Path) -> None:
    for folder in ("chosen", "rejected"):
        (images / folder).mkdir()
        for name in ("x.png", "y.jpg"):
            (images / folder / name).write_bytes(b"not looked at here")
    assert [Path(pair.first).parent.name for pair in read_pairs(str(images))] == ["chosen", "chosen"]
    (images / "rejected" / "y.jpg").unlink()
    with pytest.raises(UsageError, match=r"y.jpg has no partner"):
        read_pairs(str(images))


def test_pairs_come_from_webdataset_tars_and_their_images_are_read_there(tmp_path: Path) -> None:
    pil = pytest.importorskip("PIL.Image")
    for shard in range(2):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as archive:
            for number in range(3):
                label = {"label": LABELS[number]}
                members = {
                    "img1.png": (number, 0, 0),
                    "img2.png": (0, number, shard),
                    "json": json.dumps(label).encode(),
                }
                for ending, made in members.items():
                    data = made
                    if isinstance(made, tuple):
                        drawn = io.BytesIO()
                        pil.new("RGB", (8, 8), made).save(drawn, "PNG")
                        data = drawn.getvalue()
                    entry = tarfile.TarInfo(f"{shard}{number}.{ending}")
                    entry.size = len(data)
                    archive.addfile(entry, io.BytesIO(data))
    said: list[str] = []
    pairs = read_pairs(str(tmp_path), say=said.append)
    assert [pair.label for pair in pairs] == [FIRST, SECOND, SIMILAR] * 2
    assert decode(pairs[5].second).getpixel((0, 0)) == (0, 2, 1)
    assert "WebDataset tar, image pairs, 6 rows" in said[0]
    whole = (tmp_path / "1.tar").read_bytes()
    (tmp_path / "1.tar").write_bytes(whole[:2000])
    with pytest.raises(UsageError, match=r"1.tar:\d+: reading stopped here: the archive is truncated"):
        read_pairs(str(tmp_path))
