"""Modules that do poorly in fp8, by name."""

from __future__ import annotations

from stayfinite.core.lazy_regex import lazy_regex

MULTIPLE = 16
"""Both dimensions of a weight must be multiples of it: fp8 tensor cores take rows of 16 bytes."""

_HEAD = lazy_regex(r"(?:^|\.)(?:lm_head|output|output_layer|head|embed_out|unembed\w*|score|classifier|proj_out)$")
_ROUTER = lazy_regex(r"(?:^|\.)(?:router|gate|wg|gating|shared_expert_gate|\w*_router|router\.\w+)$")


def is_head(name: str) -> bool:
    """`lm_head`, `model.output`: the layer that computes logits."""
    return _HEAD.search(name) is not None


def is_router(name: str) -> bool:
    """`layers.3.mlp.gate`, `block.router`: expert routers. `gate_proj` is not one."""
    return _ROUTER.search(name) is not None


def keeps_head(names: list[str]) -> bool:
    """Whether an exclusion list contains the head; automatic selection may."""
    return any(is_head(name) or "auto" in name for name in names)
