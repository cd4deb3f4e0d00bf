"""T5, mT5, ByT5, Flan-T5, UMT5: RMS norms before each branch, one stream through all blocks, often tied embeddings."""

from __future__ import annotations

from typing import Any

from torch import nn

from stayfinite.precision.surgery.families.parts import HOMOGENEOUS, LOGITS, Parts
from stayfinite.precision.surgery.freedoms import Anatomy, Freedom

TYPES = frozenset({"t5", "mt5", "umt5"})


def anatomy(model: nn.Module) -> Anatomy:
    """The freedoms of a T5."""
    parts, config = Parts(model), getattr(model, "config", None)
    activation = str(getattr(config, "dense_act_fn", ""))
    stacks = [name for name in ("encoder", "decoder") if hasattr(model, name)]
    freedoms: list[Freedom] = []
    fixed: dict[str, str] = {}
    writers, norms, inside, crossing = [], [], {}, []
    for stack in stacks:
        blocks: Any = model.get_submodule(f"{stack}.block")
        for index, block in enumerate(blocks):
            inside[f"{stack}.block.{index}:out"] = 1
            for place, layer in enumerate(block.layer):
                path = f"{stack}.block.{index}.layer.{place}"
                norm = f"{path}.layer_norm"
                norms.append(norm)
                inside |= {f"{norm}:in": 1}
                if hasattr(layer, "DenseReluDense"):
                    dense = f"{path}.DenseReluDense"
                    gated = hasattr(layer.DenseReluDense, "wi_1")
                    readers = [f"{dense}.wi_0", f"{dense}.wi_1"] if gated else [f"{dense}.wi"]
                    writers.append(f"{dense}.wo")
                    if gated:
                        freedoms.append(parts.pair(f"{dense}", f"{dense}.wi_1", f"{dense}.wo"))
                        fixed[f"{dense}.wi_0:out"] = (
                            f"{activation} is not piecewise linear: the gate cannot be rescaled"
                        )
                    elif activation in HOMOGENEOUS:
                        freedoms.append(parts.pair(f"{dense}", f"{dense}.wi", f"{dense}.wo", [f"{dense}.act:out"]))
                    else:
                        fixed[f"{dense}.wi:out"] = f"{activation} is not piecewise linear: it cannot be rescaled"
                else:
                    name = "EncDecAttention" if hasattr(layer, "EncDecAttention") else "SelfAttention"
                    attention = f"{path}.{name}"
                    writers.append(f"{attention}.o")
                    freedoms.append(parts.pair(f"{attention} values", f"{attention}.v", f"{attention}.o"))
                    freedoms.append(parts.scores(f"{attention} scores", f"{attention}.q", f"{attention}.k"))
                    readers = [f"{attention}.q"]
                    if name == "SelfAttention":
                        readers += [f"{attention}.k", f"{attention}.v"]
                    else:
                        crossing += [f"{attention}.k", f"{attention}.v"]
                freedoms.append(parts.norm_output(norm, readers))
        norms.append(f"{stack}.final_layer_norm")
        inside[f"{stack}.final_layer_norm:in"] = 1
        inside[f"{stack}.embed_tokens:out"] = 1
    if crossing:
        freedoms.append(parts.norm_output("encoder.final_layer_norm", crossing))
    embeddings = [f"{stack}.embed_tokens" for stack in stacks]
    stream = parts.whole(embeddings, 1) | parts.whole(writers, 1)
    inside |= {f"{writer}:out": 1 for writer in writers}
    if hasattr(model, "lm_head"):
        fixed["lm_head:out"] = LOGITS
        if parts.tied("lm_head.weight", "decoder.embed_tokens.weight"):
            # The head takes the factor with the embeddings, so its input gives it back.
            stream |= parts.whole(["decoder.final_layer_norm"], -1)
            inside |= {"decoder.final_layer_norm:out": -1, "lm_head:in": -1}
        else:
            freedoms.append(parts.norm_output("decoder.final_layer_norm", ["lm_head"]))
    residual = Freedom(
        name="residual stream", parameters=stream, activations=inside, norms=norms, setting="layer_norm_epsilon"
    )
    return Anatomy(family="T5", freedoms=[residual, *freedoms], fixed=fixed)
