"""Find the input tensors of a batch and change them; names of tensors."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite.autopsy.steps.batch_parts import batch_items, with_changed
from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.bench.watch import LossCall

_NO_INPUT = lazy_regex(
    r"label|target|mask|length|\blens?\b|position|weight|index|cu_seq|offset|\by\b|answer|advantage|reward|bbox|boxes|"
    r"edge|adj|graph|node|num_|_len\b|grid|size|noise|timestep|\bt\b|sigma",
    re.IGNORECASE,
)
_GRAPH = lazy_regex(r"edge|adj|graph|node|cu_seq|offset", re.IGNORECASE)


def inputs_of(batch: Any, losses: Sequence[LossCall]) -> dict[str, Tensor]:
    """The model's input tensors: no labels, masks, lengths or targets of a loss."""
    targets = [call.target for call in losses]
    found = {}
    for name, item in batch_items(batch).items():
        own = name.removeprefix("batch").lstrip(".")
        if item.dim() == 0 or item.dtype is torch.bool or item.is_meta or _NO_INPUT.search(own):
            continue
        if len(batch_items(batch)) > 1 and any(_same(item, target) for target in targets):
            continue
        found[name] = item
    return found


def has_graph(batch: Any) -> bool:
    """Whether rows belong together by design: graph nodes, packed sequences."""
    items = batch_items(batch)
    rows = {item.shape[0] for item in items.values() if item.dim() > 1 and item.is_floating_point()}
    matrices = [item for item in items.values() if item.dim() == 2]
    square = len(matrices) > 1 and any(item.shape[0] == item.shape[1] > 2 for item in matrices)
    pairs = any(item.shape[0] == 2 and item.dtype is torch.long and rows - {2} for item in matrices)
    return square or pairs or any(_GRAPH.search(name) for name in items)


def with_inputs(batch: Any, names: Collection[str], change: Callable[[Tensor], Tensor]) -> Any:
    """The batch with these inputs changed."""
    chosen = {id(item) for name, item in batch_items(batch).items() if name in names}
    return with_changed(batch, lambda part: change(part) if isinstance(part, Tensor) and id(part) in chosen else part)


def emptied(item: Tensor) -> Tensor:
    """All zero; ids become all equal, since 0 may be invalid."""
    if item.is_floating_point():
        return torch.zeros_like(item)
    return item.flatten()[:1].expand(item.numel()).reshape(item.shape).clone()


def with_other_row(item: Tensor, row: int) -> Tensor:
    """A copy with one row changed; ids only to ids that occur."""
    changed = item.clone()
    old = item[row]
    if item.is_floating_point():
        if old.numel() and float(item.min()) >= 0 and float(item.max()) <= 1:
            changed[row] = 1 - old  # pixels and probabilities keep their range
            return changed
        spread = item.float().std().to(item.dtype) if item.numel() > 1 else 1.0
        changed[row] = old.flip(-1) * 1.25 + spread if old.dim() else old * 1.25 + spread
    elif old.dim() and not torch.equal(old.flip(-1), old):
        changed[row] = old.flip(-1)
    else:
        changed[row] = item[(row + 1) % item.shape[0]]
    return changed


def _same(item: Tensor, target: Tensor) -> bool:
    if item.numel() != target.numel() or target.is_meta:
        return False
    return torch.equal(item.reshape(-1).to(target.device), target.reshape(-1).to(item.dtype))


SHOWN = 3


def error_in_words(error: Exception) -> str:
    """`RuntimeError: shapes do not match`: the first line, with the kind."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def names_in_short(names: Sequence[str]) -> str:
    """The first few, with the rest counted: `encoder.0.weight, encoder.0.bias and 4 more`."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters and buffers by name."""
    yield from model.named_parameters()
    yield from model.named_buffers()


def without_values(model: nn.Module, batch: Any) -> list[str]:
    """Names of tensors on the meta device."""
    return [name for name, tensor in (*tensors_of(model), *batch_items(batch).items()) if tensor.is_meta]
