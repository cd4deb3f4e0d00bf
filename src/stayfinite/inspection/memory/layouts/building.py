"""Build the list of parts from a shape and a plan."""

from __future__ import annotations

from collections.abc import Callable

from stayfinite.inspection.memory.layouts.bert import bert_layout
from stayfinite.inspection.memory.layouts.gpt2 import gpt2_layout
from stayfinite.inspection.memory.layouts.llama import llama_layout
from stayfinite.inspection.memory.layouts.t5 import t5_layout
from stayfinite.inspection.memory.layouts.vit import vit_layout
from stayfinite.inspection.memory.parts import Layout
from stayfinite.inspection.memory.plan import Plan
from stayfinite.inspection.memory.shape import Family, Shape

_LAYOUTS: dict[Family, Callable[[Shape, Plan], Layout]] = {
    "t5": t5_layout,
    "bert": bert_layout,
    "llama": llama_layout,
    "gpt2": gpt2_layout,
    "vit": vit_layout,
}


def layout_of(shape: Shape, plan: Plan) -> Layout:
    """The parts of a model in execution order."""
    return _LAYOUTS[shape.family](shape, plan)


def parameters_of(layout: Layout) -> int:
    """Number of parameters; a shared table counts once."""
    return sum(part.matrices + part.vectors + part.table * (not part.shares_table) for part in layout.parts())
