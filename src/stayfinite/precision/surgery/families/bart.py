"""BART, mBART, Pegasus: layer norms with a mean and a bias, whose epsilon (1e-5) is fixed in the code.

A layer norm takes a factor away as an RMS norm does, but for its epsilon, which no setting can follow. The smaller the
factor and the smaller the variance, the more this shows; the proof on data decides.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from stayfinite.precision.surgery.families.parts import HOMOGENEOUS, LOGITS, Parts
from stayfinite.precision.surgery.freedoms import Anatomy, Freedom

POST, PRE = frozenset({"bart"}), frozenset({"mbart", "pegasus"})
TYPES = POST | PRE


def anatomy(model: nn.Module) -> Anatomy:
    """The freedoms of a BART."""
    parts, config = Parts(model), getattr(model, "config", None)
    activation = str(getattr(config, "activation_function", ""))
    base = "model." if hasattr(model, "model") else ""
    freedoms: list[Freedom] = []
    fixed: dict[str, str] = {}
    crossing: list[str] = []
    streams: dict[str, Freedom] = {}
    for stack in (f"{base}encoder", f"{base}decoder"):
        layers: Any = model.get_submodule(f"{stack}.layers")
        branches: list[tuple[str, str, list[str]]] = []
        """Writer, norm and readers of each branch, in order."""
        for index, layer in enumerate(layers):
            path = f"{stack}.layers.{index}"
            for name in ("self_attn", "encoder_attn"):
                if hasattr(layer, name):
                    attention = f"{path}.{name}"
                    projections = [f"{attention}.{each}_proj" for each in "qkv"]
                    freedoms.append(parts.pair(f"{attention} values", projections[2], f"{attention}.out_proj"))
                    freedoms.append(parts.scores(f"{attention} scores", projections[0], projections[1]))
                    if name == "encoder_attn":
                        crossing += projections[1:]
                        projections = projections[:1]
                    branches.append((f"{attention}.out_proj", f"{attention}_layer_norm", projections))
            if activation in HOMOGENEOUS:
                act = [f"{path}.activation_fn:out"]
                freedoms.append(parts.pair(f"{path} feed-forward", f"{path}.fc1", f"{path}.fc2", act))
            else:
                fixed[f"{path}.fc1:out"] = f"{activation} is not piecewise linear: it cannot be rescaled"
            branches.append((f"{path}.fc2", f"{path}.final_layer_norm", [f"{path}.fc1"]))
        if str(getattr(config, "model_type", "")) in POST:
            freedoms += _sublayers(parts, stack, branches)
        else:
            streams[stack] = _stream(parts, stack, branches)
            freedoms += [parts.norm_output(norm, readers) for _, norm, readers in branches]
    if crossing and streams:
        freedoms.append(parts.norm_output(f"{base}encoder.layer_norm", crossing))
    head = "lm_head" if hasattr(model, "lm_head") else ""
    if head:
        fixed["lm_head:out"] = LOGITS
    if streams and str(getattr(config, "model_type", "")) == "pegasus":
        freedoms.insert(0, _from_embeddings(parts, base, list(streams.values()), head))
    else:
        freedoms = [*streams.values(), *freedoms]
    return Anatomy(family="BART", freedoms=freedoms, fixed=fixed)


def _stream(parts: Parts, stack: str, branches: list[tuple[str, str, list[str]]]) -> Freedom:
    """Norms before each branch: all that is added up takes the factor, from the norm of the embeddings on."""
    writers = [writer for writer, _, _ in branches]
    norms = [norm for _, norm, _ in branches] + [f"{stack}.layer_norm"]
    inside = {f"{writer}:out": 1 for writer in writers} | {f"{norm}:in": 1 for norm in norms}
    start = f"{stack}.layernorm_embedding"
    return Freedom(
        name=f"{stack} residual stream",
        parameters=parts.whole([*writers, start], 1),
        activations=inside | {f"{start}:out": 1},
        norms=norms,
    )


def _from_embeddings(parts: Parts, base: str, streams: list[Freedom], head: str) -> Freedom:
    """Pegasus has no norm after its embeddings, which both streams share: they are one."""
    parameters: dict[str, int] = {}
    inside: dict[str, int] = {}
    norms: list[str] = []
    for stream, stack in zip(streams, (f"{base}encoder", f"{base}decoder"), strict=True):
        parameters |= dict(stream.parameters) | parts.whole([f"{stack}.embed_tokens", f"{stack}.embed_positions"], 1)
        inside |= dict(stream.activations) | {f"{stack}.embed_tokens:out": 1}
        norms += stream.norms
    last = f"{base}decoder.layer_norm"
    if head and parts.tied("lm_head.weight", f"{base}decoder.embed_tokens.weight"):
        parameters |= parts.whole([last], -1)
        inside |= {f"{last}:out": -1, "lm_head:in": -1}
    return Freedom(name="residual stream", parameters=parameters, activations=inside, norms=norms)


def _sublayers(parts: Parts, stack: str, branches: list[tuple[str, str, list[str]]]) -> list[Freedom]:
    """Norms after each branch: between two norms there is a factor of its own."""
    freedoms, before = [], f"{stack}.layernorm_embedding"
    for writer, norm, readers in branches:
        freedoms.append(
            Freedom(
                name=f"{writer} with its residual",
                parameters=parts.whole([before, writer], 1) | parts.weights(readers, -1),
                activations={f"{before}:out": 1, f"{writer}:out": 1, f"{norm}:in": 1},
                norms=[norm],
            )
        )
        before = norm
    return freedoms
