"""Whatever stands in the rows, the answer is an inspection or an error in words, and it can be written as JSON."""

import json
import random
from contextlib import suppress

import pytest

from inspection.data.tiny_tokenizers import letters
from stayfinite.errors import UsageError
from stayfinite.inspection.data.inspecting import inspect_data

VALUES = [
    None, "", 1, -1, 1.5, float("nan"), float("inf"), True, "nan", "text here", [1, 2], [], ["a"], {}, {"a": 1}, [[1]],
    [{"role": "user", "content": "x"}], [{"role": None}], [{"from": "gpt", "value": None}], "\ud800", "é" * 5, 10**400,
]  # fmt: skip
NAMES = [
    "text", "source", "target", "label", "labels", "messages", "input_ids", "id", "prompt", "completion", "chosen",
    "rejected", "a", "", "translation", "tokens",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_rows_of_anything_are_never_a_traceback(tmp_path, seed):
    rng = random.Random(seed)
    names = rng.sample(NAMES, rng.randint(1, 5))
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for _ in range(rng.randint(1, 40)):
            row = {name: rng.choice([*VALUES, f"some words {rng.random()}"]) for name in names if rng.random() < 0.95}
            file.write(json.dumps(row) + "\n")
    tokenizer = (None, "bytes", letters(tmp_path / "model", "abcdefgh "))[seed % 3]
    val = [str(path)] if seed % 2 else []
    with suppress(UsageError):
        inspection = inspect_data([str(path)], val=val, tokenizer=tokenizer, max_length=16 if seed % 5 else None)
        json.dumps(inspection.to_json(), ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("seed", range(40))
def test_bytes_of_anything_under_the_name_of_a_table_are_never_a_traceback(tmp_path, seed):
    rng = random.Random(seed)
    pieces = [
        b",",
        b'"',
        b"\n",
        b"\r\n",
        b"\0",
        b"\xff\xfe",
        b"\xe9",
        "š₂".encode(),
        b"word",
        b"1.5",
        b"\\",
        b"\t",
        b"{",
        b"[1",
    ]
    path = tmp_path / f"rows{rng.choice(['.csv', '.tsv', '.jsonl', '.json', '.txt'])}"
    path.write_bytes(b"".join(rng.choices(pieces, k=rng.randint(1, 2000))))
    with suppress(UsageError):
        inspection = inspect_data([str(path)], tokenizer="bytes", max_length=16)
        json.dumps(inspection.to_json(), ensure_ascii=False, allow_nan=False).encode()
