"""The loss of a batch: cross-entropy over the tokens of the answers, and nothing else."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stayfinite.recipes.chat.prompts import IGNORED


def loss_of(model: Any, device: torch.device) -> Callable[[Mapping[str, Tensor]], Tensor]:
    """``forward(batch) -> loss``, the mean over the supervised tokens.

    On a CPU, where the time goes with the tokens, the beginning that all rows share is computed once.
    """
    predict = predictions_of(model, device)
    base = _inner(model)
    packable = device.type == "cpu" and is_packable(base)
    dropping = packable and has_dropout(base)

    def compute_loss(batch: Mapping[str, Tensor]) -> Tensor:
        row = packed(batch, base.config) if packable and not (dropping and model.training) else None
        logits, expected = predict(batch) if row is None else (model(**row.given, use_cache=False).logits, row.labels)
        return F.cross_entropy(logits.flatten(0, 1).float(), expected.flatten(), ignore_index=IGNORED)

    return compute_loss


def predictions_of(model: Any, device: torch.device) -> Callable[[Mapping[str, Tensor]], tuple[Tensor, Tensor]]:
    """``predict(batch) -> logits (B, T, V), labels (B, T)``, each logit beside the label that it predicts.

    Logits are computed only from where the first answer of the batch begins: with a large vocabulary they are most of
    the memory.
    """
    sparing = "logits_to_keep" in inspect.signature(_inner(model).forward).parameters

    def predict(batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        labels = batch["labels"]
        kept = _kept(labels) if sparing else labels.shape[1]
        options = {"logits_to_keep": kept} if sparing else {}
        given = {name: batch[name].to(device, non_blocking=True) for name in ("input_ids", "attention_mask")}
        logits = model(**given, **options).logits  # (B, kept, V)
        return logits[:, :-1], labels[:, labels.shape[1] - kept + 1 :].to(device, non_blocking=True)

    return predict


def _inner(model: Any) -> Any:
    """The base itself, without the wrapper of several processes and without the adapter."""
    inner = model.module if hasattr(model, "module") else model
    return inner.get_base_model() if hasattr(inner, "get_base_model") else inner


def _kept(labels: Tensor) -> int:
    """Places at the end of which the logits are needed: from one before the first supervised one."""
    places = (labels[:, 1:] != IGNORED).any(0).nonzero()
    return labels.shape[1] - int(places[0]) if len(places) else labels.shape[1]


PACKABLE = frozenset(
    {
        "gemma", "gemma3_text", "gpt2", "gpt_neox", "granite", "llama", "mistral", "olmo2", "phi", "phi3", "qwen2",
        "qwen3", "smollm3",
    }
)  # fmt: skip
"""Kinds of models in which a token sees others through masked attention alone, and its place by its position id. A
convolution or a recurrent state would mix rows."""
WORTH = 0.9
"""A batch is packed where that takes less than this share of the time, by estimate."""


class Packed(NamedTuple):
    """A batch as one row of N tokens, of which n predict something."""

    given: dict[str, Tensor]
    """What the model is called with: ``input_ids`` and ``position_ids`` (1, N), ``attention_mask`` (1, 1, N, N), true
    where the first of two tokens sees the second, and ``logits_to_keep`` (n,), the tokens that predict."""
    labels: Tensor
    """(1, n), what they predict."""


def is_packable(model: Any) -> bool:
    """Whether a model (with an adapter, or without) computes a packed batch as it would the rows."""
    config: Any = getattr(model, "config", None)
    return getattr(config, "model_type", None) in PACKABLE and config._attn_implementation == "sdpa"


def has_dropout(model: Any) -> bool:
    """Whether anything is dropped in training. Packed rows would share what is dropped of their beginning."""
    dropped = any(isinstance(module, nn.Dropout) and module.p > 0 for module in model.modules())
    return dropped or bool(getattr(model.config, "attention_dropout", 0.0))


def within_window(config: Any, length: int) -> bool:
    """Whether every token of so many sees all before it."""
    window = getattr(config, "sliding_window", None)
    return window is None or length <= int(window)


def packed(batch: Mapping[str, Tensor], config: Any) -> Packed | None:
    """A batch padded on the right as one row; None where that saves nothing worth it.

    The system text and the frame of a chat are the same tokens in every row, and more than half of a short one. A batch
    of such rows becomes ``shared, own of row 0, own of row 1, ...``: each token has the position that it has in its
    row, and attends to what is shared and to its own row. What they share is computed once, and nothing is padded. Loss
    and gradients are those of the batch, but for rounding.

    Arguments:
        config: of the model.
    """
    ids, mask, labels = batch["input_ids"], batch["attention_mask"].bool(), batch["labels"]
    shared = _shared(ids, mask, labels)
    count, width = ids.shape
    own = mask.clone()
    own[:, :shared] = False
    length = shared + int(own.sum())
    # Per token, the linear layers cost about six times the hidden size where attention costs one for each token seen.
    linear = 6 * int(config.hidden_size)
    gains = length * (linear + length) < WORTH * count * width * (linear + width)
    if shared < 1 or not gains or not within_window(config, width):
        return None
    rows, places = own.nonzero(as_tuple=True)
    beginning = torch.arange(shared, device=ids.device)
    row = torch.cat((beginning.new_full((shared,), -1), rows))
    seen = (row == -1) | (row == row.unsqueeze(1))
    learned = labels[own]
    predicted = (learned != IGNORED).nonzero().squeeze(1)
    given = {
        "input_ids": torch.cat((ids[0, :shared], ids[own])).unsqueeze(0),
        "position_ids": torch.cat((beginning, places)).unsqueeze(0),
        "attention_mask": seen.tril()[None, None],
        "logits_to_keep": predicted + (shared - 1),
    }
    return Packed(given, learned[predicted].unsqueeze(0))


def _shared(ids: Tensor, mask: Tensor, labels: Tensor) -> int:
    """Places at the beginning with the same token in every row, up to before the first that predicts an answer."""
    alike = (ids == ids[0]).all(0) & mask.all(0)
    answers = (labels != IGNORED).any(0)
    silent = ~(answers | torch.cat((answers[1:], answers.new_zeros(1))))
    if not bool(answers.any()):
        return 0
    return int((alike & silent).long().cumprod(0).sum())
