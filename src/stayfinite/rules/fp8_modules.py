"""Modules that fp8 serves badly, by their names."""

from __future__ import annotations

import re

MULTIPLE = 16
"""Both sides of a weight have to be multiples of it: fp8 tensor cores take rows of 16 bytes."""

_HEAD = re.compile(r"(?:^|\.)(?:lm_head|output|output_layer|head|embed_out|unembed\w*|score|classifier|proj_out)$")
_ROUTER = re.compile(r"(?:^|\.)(?:router|gate|wg|gating|shared_expert_gate|\w*_router|router\.\w+)$")


def is_head(name: str) -> bool:
    """`lm_head`, `model.output`: what puts out the logits."""
    return _HEAD.search(name) is not None


def is_router(name: str) -> bool:
    """`layers.3.mlp.gate`, `block.router`: what chooses experts. `gate_proj` is none."""
    return _ROUTER.search(name) is not None


def keeps_head(names: list[str]) -> bool:
    """Whether a list of names to leave out has the head's; what picks modules by itself may have it."""
    return any(is_head(name) or "auto" in name for name in names)
