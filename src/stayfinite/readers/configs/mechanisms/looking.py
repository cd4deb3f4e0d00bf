"""All mechanisms of one syntax tree."""

from __future__ import annotations

import ast
from itertools import chain

from stayfinite.readers.configs.mechanisms.adapters import unused_adapters, wrapped_twice
from stayfinite.readers.configs.mechanisms.best_picked import best_picked
from stayfinite.readers.configs.mechanisms.code import MOST_NODES, Code, Mechanism
from stayfinite.readers.configs.mechanisms.copied_targets import copied_targets, same_windows
from stayfinite.readers.configs.mechanisms.initial_weights import too_large, zero_weights, zeroed_scales
from stayfinite.readers.configs.mechanisms.one_column import OneColumn
from stayfinite.readers.configs.mechanisms.one_output import OneOutput
from stayfinite.readers.configs.mechanisms.softmax_returned import softmax_returned


def mechanisms_in(tree: ast.Module, *, whole: bool) -> list[Mechanism]:
    """The first mechanism of each cause; ``whole`` where nothing of the program was left out."""
    found: dict[str, Mechanism] = {}
    try:
        code = Code(tree)
        if len(code.nodes) > MOST_NODES:
            return []
        looks = (
            copied_targets, same_windows, wrapped_twice, too_large, zeroed_scales, zero_weights, softmax_returned,
            best_picked,
        )  # fmt: skip
        kinds = (OneOutput(code, whole=whole).found(), OneColumn(code, whole=whole).found())
        for each in chain(*kinds, unused_adapters(code, whole=whole), *(look(code) for look in looks)):
            if each.cause not in found or (each.sure and not found[each.cause].sure):
                found[each.cause] = each
        if found.keys() & {"softmax-axis", "label-out-of-range"}:
            found.pop("metric-stuck", None)  # where nothing can be learned, the metric has nothing to measure
    except RecursionError:  # absurdly deep nesting
        pass
    return list(found.values())
