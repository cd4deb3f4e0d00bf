"""Architectures whose freedoms are known: T5, LLaMA and BART with their relatives. A new one is a function here.

BART's layer norms take a factor away as RMS norms do, but for their epsilon, which is fixed in the code and can follow
no setting. The smaller the factor and the smaller the variance, the more this shows; the proof on data decides.
"""

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from stayfinite.precision.surgery.freedoms import Anatomy, Freedom

LOGITS = "the loss depends on the scale of the logits"
HOMOGENEOUS = frozenset({"relu", "leaky_relu", "linear"})
"""Activations with f(a x) = a f(x) for a > 0."""

Branch = tuple[str, str, list[str]]
"""The layer that writes a branch's result, its norm, and the layers that read that norm's output."""


def anatomy_of(model: nn.Module) -> Anatomy | None:
    """What is known of the model's architecture, by its config's `model_type`; None where nothing is."""
    find = KNOWN.get(str(getattr(getattr(model, "config", None), "model_type", "")))
    return find(model) if find else None


class _Parts:
    """Collects the freedoms of a model from the paths of its layers, with or without biases and tied weights."""

    def __init__(self, model: nn.Module, activation: Any) -> None:
        self._model, self._activation = model, str(activation or "")
        # A tied weight has several names and is multiplied once, under the first.
        first: dict[int, str] = {}
        self._first: dict[str, str] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._first[name] = first.setdefault(id(parameter), name)
        self.freedoms: list[Freedom] = []
        self.fixed: dict[str, str] = {}
        self.base = "model." if hasattr(model, "model") else ""

    def children(self, path: str) -> Iterable[tuple[str, Any]]:
        """The blocks in a list of modules, each with its path."""
        blocks: Any = self._model.get_submodule(path)
        return [(f"{path}.{index}", block) for index, block in enumerate(blocks)]

    def whole(self, paths: Iterable[str], power: int) -> dict[str, int]:
        """Weights and biases: all that the layer gives out takes the power."""
        names = (name for path in paths for name in (f"{path}.weight", f"{path}.bias"))
        return {self._first[name]: power for name in names if name in self._first}

    def weights(self, paths: Iterable[str], power: int) -> dict[str, int]:
        """Weights alone: they undo what their input has taken."""
        return {self._first[f"{path}.weight"]: power for path in paths}

    def pair(self, name: str, first: str, second: str, between: Iterable[str] = ()) -> None:
        """Two layers with nothing but homogeneous operators between them: the first times f, the second over f."""
        seen = {f"{first}:out": 1, f"{second}:in": 1} | dict.fromkeys(between, 1)
        self._add(name, self.whole([first], 1) | self.weights([second], -1), seen)

    def feed_forward(self, name: str, first: str, second: str, activation: str) -> None:
        """Two layers with an activation between them: a pair if it is homogeneous."""
        if self._activation in HOMOGENEOUS:
            self.pair(name, first, second, [f"{activation}:out"])
        else:
            self.fixed[f"{first}:out"] = f"{self._activation} is not piecewise linear: it cannot be rescaled"

    def gated(self, name: str, *, gate: str, up: str, down: str) -> None:
        """A feed-forward with a gate: what it multiplies is half of a pair."""
        self.pair(name, up, down)
        if self._activation not in HOMOGENEOUS:
            self.fixed[f"{gate}:out"] = f"{self._activation} is not piecewise linear: the gate cannot be rescaled"

    def scores(self, attention: str, query: str, key: str) -> None:
        """Queries times f, keys over f: attention sees their product alone."""
        powers = self.whole([query], 1) | self.whole([key], -1)
        self._add(f"{attention} scores", powers, {f"{query}:out": 1, f"{key}:out": -1})

    def norm_output(self, norm: str, readers: Iterable[str]) -> None:
        """A norm's weight times f, the layers that read its output over f."""
        readers = list(readers)
        seen = {f"{norm}:out": 1} | {f"{reader}:in": 1 for reader in readers}
        self._add(f"{norm} output", self.whole([norm], 1) | self.weights(readers, -1), seen)

    def head(self, norm: str, embeddings: str, stream: dict[str, int], inside: dict[str, int]) -> None:
        """The last norm and the head. A head that is tied takes the stream's factor, so its input gives it back."""
        if not hasattr(self._model, "lm_head"):
            return
        self.fixed["lm_head:out"] = LOGITS
        if self.tied(embeddings):
            stream |= self.whole([norm], -1)
            inside |= {f"{norm}:out": -1, "lm_head:in": -1}
        else:
            self.norm_output(norm, ["lm_head"])

    def tied(self, embeddings: str) -> bool:
        """Whether the head's weight is that of the embeddings."""
        head = self._first.get("lm_head.weight")
        return head is not None and head == self._first.get(f"{embeddings}.weight")

    def _add(self, name: str, parameters: dict[str, int], activations: dict[str, int]) -> None:
        self.freedoms.append(Freedom(name=name, parameters=parameters, activations=activations))


def _t5(model: nn.Module) -> Anatomy:
    """T5, mT5, ByT5, Flan-T5, UMT5: RMS norms before each branch, one stream through all blocks."""
    config: Any = model.config
    parts = _Parts(model, getattr(config, "dense_act_fn", ""))
    stacks = [name for name in ("encoder", "decoder") if hasattr(model, name)]
    writers, norms, inside, crossing = [], [], {}, []
    for stack in stacks:
        for block, _ in parts.children(f"{stack}.block"):
            inside[f"{block}:out"] = 1
            for path, layer in parts.children(f"{block}.layer"):
                norms.append(f"{path}.layer_norm")
                inside[f"{path}.layer_norm:in"] = 1
                if hasattr(layer, "DenseReluDense"):
                    dense = f"{path}.DenseReluDense"
                    writers.append(f"{dense}.wo")
                    if hasattr(layer.DenseReluDense, "wi_1"):
                        readers = [f"{dense}.wi_0", f"{dense}.wi_1"]
                        parts.gated(dense, gate=readers[0], up=readers[1], down=f"{dense}.wo")
                    else:
                        readers = [f"{dense}.wi"]
                        parts.feed_forward(dense, f"{dense}.wi", f"{dense}.wo", f"{dense}.act")
                else:
                    crosses = hasattr(layer, "EncDecAttention")
                    attention = f"{path}.{'EncDecAttention' if crosses else 'SelfAttention'}"
                    query, key, value, output = (f"{attention}.{each}" for each in "qkvo")
                    writers.append(output)
                    parts.pair(f"{attention} values", value, output)
                    parts.scores(attention, query, key)
                    readers = [query] if crosses else [query, key, value]
                    crossing += [key, value] if crosses else []
                parts.norm_output(f"{path}.layer_norm", readers)
        norms.append(f"{stack}.final_layer_norm")
        inside[f"{stack}.final_layer_norm:in"] = 1
        inside[f"{stack}.embed_tokens:out"] = 1
    if crossing:
        parts.norm_output("encoder.final_layer_norm", crossing)
    stream = parts.whole((f"{stack}.embed_tokens" for stack in stacks), 1) | parts.whole(writers, 1)
    inside |= {f"{writer}:out": 1 for writer in writers}
    parts.head("decoder.final_layer_norm", "decoder.embed_tokens", stream, inside)
    residual = Freedom(
        name="residual stream", parameters=stream, activations=inside, norms=norms, setting="layer_norm_epsilon"
    )
    return Anatomy(family="T5", freedoms=[residual, *parts.freedoms], fixed=parts.fixed)


def _llama(model: nn.Module) -> Anatomy:
    """LLaMA, Mistral, Qwen2, Qwen3, Gemma 1 to 3: RMS norms before each branch, in Gemma 2 and 3 after it as well."""
    config: Any = model.config
    parts = _Parts(model, getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", ""))
    base = parts.base
    norms, written = [f"{base}norm"], [f"{base}embed_tokens"]
    """Modules whose input is the stream, and modules whose output is added to it."""
    inside = {f"{base}embed_tokens:out": 1, f"{base}norm:in": 1}
    for path, layer in parts.children(f"{base}layers"):
        attention, mlp, before = f"{path}.self_attn", f"{path}.mlp", f"{path}.input_layernorm"
        query, key, value, output = (f"{attention}.{each}_proj" for each in "qkvo")
        gate, up, down = (f"{mlp}.{each}_proj" for each in ("gate", "up", "down"))
        sandwich = hasattr(layer, "pre_feedforward_layernorm")
        between = f"{path}.pre_feedforward_layernorm" if sandwich else f"{path}.post_attention_layernorm"
        norms += [before, between]
        written += [output, down]
        inside |= {f"{path}:out": 1, f"{before}:in": 1, f"{between}:in": 1}
        after = [f"{path}.post_attention_layernorm", f"{path}.post_feedforward_layernorm"] if sandwich else []
        # The norm after a branch takes the factor in, because of its epsilon, and gives it out, by its weight.
        norms += after
        written += after
        if hasattr(layer.self_attn, "q_norm"):
            # These norms have the same epsilon, so their inputs take the factor too; their outputs do not.
            written += [query, key]
            norms += [f"{attention}.q_norm", f"{attention}.k_norm"]
            parts.scores(attention, f"{attention}.q_norm", f"{attention}.k_norm")
        else:
            parts.scores(attention, query, key)
        parts.pair(f"{attention} values", value, output)
        parts.gated(mlp, gate=gate, up=up, down=down)
        parts.norm_output(before, [query, key, value])
        parts.norm_output(between, [gate, up])
    stream = parts.whole(written, 1)
    inside |= {f"{each}:out": 1 for each in written}
    parts.head(f"{base}norm", f"{base}embed_tokens", stream, inside)
    residual = Freedom(
        name="residual stream", parameters=stream, activations=inside, norms=norms, setting="rms_norm_eps"
    )
    less_one = {path for path, module in model.named_modules() if _is_gemma_norm(module)}
    offsets = frozenset(name for name, _ in model.named_parameters() if name.rpartition(".")[0] in less_one)
    return Anatomy(family="LLaMA", freedoms=[residual, *parts.freedoms], fixed=parts.fixed, offsets=offsets)


def _is_gemma_norm(module: nn.Module) -> bool:
    name = type(module).__name__
    return name.startswith("Gemma") and name.endswith("RMSNorm")


def _bart(model: nn.Module) -> Anatomy:
    """BART, mBART, Pegasus: layer norms with a mean and a bias, after each branch in BART, else before it."""
    config: Any = model.config
    parts = _Parts(model, getattr(config, "activation_function", ""))
    stacks = [f"{parts.base}encoder", f"{parts.base}decoder"]
    crossing: list[str] = []
    streams: list[Freedom] = []
    for stack in stacks:
        branches: list[Branch] = []
        for path, layer in parts.children(f"{stack}.layers"):
            for name in ("self_attn", "encoder_attn"):
                if hasattr(layer, name):
                    attention = f"{path}.{name}"
                    query, key, value, output = (f"{attention}.{each}_proj" for each in ("q", "k", "v", "out"))
                    parts.pair(f"{attention} values", value, output)
                    parts.scores(attention, query, key)
                    crosses = name == "encoder_attn"
                    crossing += [key, value] if crosses else []
                    branches.append((output, f"{attention}_layer_norm", [query] if crosses else [query, key, value]))
            parts.feed_forward(f"{path} feed-forward", f"{path}.fc1", f"{path}.fc2", f"{path}.activation_fn")
            branches.append((f"{path}.fc2", f"{path}.final_layer_norm", [f"{path}.fc1"]))
        if config.model_type == "bart":
            parts.freedoms += _sublayers(parts, stack, branches)
        else:
            streams.append(_stream(parts, stack, branches))
            for _, norm, readers in branches:
                parts.norm_output(norm, readers)
    if crossing and streams:
        parts.norm_output(f"{stacks[0]}.layer_norm", crossing)
    if hasattr(model, "lm_head"):
        parts.fixed["lm_head:out"] = LOGITS
    if config.model_type == "pegasus":
        streams = [_from_embeddings(parts, stacks, streams)]
    return Anatomy(family="BART", freedoms=[*streams, *parts.freedoms], fixed=parts.fixed)


def _stream(parts: _Parts, stack: str, branches: list[Branch]) -> Freedom:
    """Norms before each branch: all that is added up takes the factor, from the norm of the embeddings on."""
    writers, start = [writer for writer, _, _ in branches], f"{stack}.layernorm_embedding"
    norms = [*(norm for _, norm, _ in branches), f"{stack}.layer_norm"]
    inside = {f"{writer}:out": 1 for writer in writers} | {f"{norm}:in": 1 for norm in norms} | {f"{start}:out": 1}
    name = f"{stack} residual stream"
    return Freedom(name=name, parameters=parts.whole([*writers, start], 1), activations=inside, norms=norms)


def _from_embeddings(parts: _Parts, stacks: list[str], streams: list[Freedom]) -> Freedom:
    """Pegasus has no norm after its embeddings, which both streams share: they are one."""
    parameters: dict[str, int] = {}
    inside: dict[str, int] = {}
    for stream, stack in zip(streams, stacks, strict=True):
        parameters |= dict(stream.parameters) | parts.whole([f"{stack}.embed_tokens", f"{stack}.embed_positions"], 1)
        inside |= dict(stream.activations) | {f"{stack}.embed_tokens:out": 1}
    last = f"{stacks[1]}.layer_norm"
    if parts.tied(f"{stacks[1]}.embed_tokens"):
        parameters |= parts.whole([last], -1)
        inside |= {f"{last}:out": -1, "lm_head:in": -1}
    norms = [norm for stream in streams for norm in stream.norms]
    return Freedom(name="residual stream", parameters=parameters, activations=inside, norms=norms)


def _sublayers(parts: _Parts, stack: str, branches: list[Branch]) -> list[Freedom]:
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


KNOWN: dict[str, Callable[[nn.Module], Anatomy]] = {
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), _llama),
    **dict.fromkeys(("bart", "mbart", "pegasus"), _bart),
}
"""Architectures by their config's `model_type`."""
