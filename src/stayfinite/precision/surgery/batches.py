"""Batches to measure activations on: from texts, from token ids, or random ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stayfinite.errors import UsageError

Row = tuple[list[int], list[int]]
"""Source and target; the target of a language model is its source."""


def random_batches(config: Any, *, count: int, rows: int, length: int) -> list[dict[str, Tensor]]:
    """Uniformly random tokens, the same ones each time."""
    vocabulary = int(config.get_text_config().vocab_size)
    generator = torch.Generator().manual_seed(0)
    least = min(10, vocabulary // 2)  # special tokens come first in most vocabularies
    batches = []
    for _ in range(count):
        source, target = torch.randint(least, vocabulary, (2, rows, length), generator=generator)
        batches.append({"input_ids": source, "labels": target if config.is_encoder_decoder else source})
    return batches


def batches_from(
    path: Path, tokenizer: Any, config: Any, *, count: int, rows: int, length: int
) -> list[dict[str, Tensor]]:
    """From a file: lines of text (source, tab, target for encoder-decoders), or JSON lines with `input_ids` or `text`.

    Raises:
        UsageError: nothing in it can be used.
    """
    seq2seq = bool(config.is_encoder_decoder)
    found: list[Row] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if len(found) == count * rows:
            break
        if line.strip():
            found.append(_row(line, path, tokenizer, seq2seq=seq2seq, length=length))
    found = [row for row in found if row[0] and row[1]]
    if not found:
        raise UsageError(f"no rows in {path}", fix="one text per line, or JSON lines with input_ids")
    filler = config.pad_token_id if config.pad_token_id is not None else 0
    return [_batch(found[start : start + rows], int(filler), seq2seq=seq2seq) for start in range(0, len(found), rows)]


def _row(line: str, path: Path, tokenizer: Any, *, seq2seq: bool, length: int) -> Row:
    record = json.loads(line) if path.suffix in (".jsonl", ".ndjson") else line
    if isinstance(record, dict) and "input_ids" in record:
        source = [int(token) for token in record["input_ids"]][:length]
        return source, [int(token) for token in record.get("labels", source)][:length]
    text = str(record.get("text", "")) if isinstance(record, dict) else line
    if tokenizer is None:
        raise UsageError(f"{path} is text, but the model has no tokenizer", fix="JSON lines with input_ids")
    if seq2seq and "\t" not in text:  # plain text: the first half asks for the second
        words = text.split()
        text = " ".join(words[: len(words) // 2]) + "\t" + " ".join(words[len(words) // 2 :])
    sides = text.split("\t")[:2] if seq2seq else [text, text]
    one, other = (list(tokenizer(each, truncation=True, max_length=length)["input_ids"]) for each in sides)
    return one, other


def _batch(rows: Sequence[Row], filler: int, *, seq2seq: bool) -> dict[str, Tensor]:
    sources = _padded([source for source, _ in rows], filler)
    mask = _padded([[1] * len(source) for source, _ in rows], 0)
    labels = _padded([target if seq2seq else source for source, target in rows], -100)
    return {"input_ids": sources, "attention_mask": mask, "labels": labels}


def _padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[filler] * (width - len(row))] for row in rows])
