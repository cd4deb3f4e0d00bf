"""The shape of a model, read from its config.json, and how its training runs, as far as they affect memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from stayfinite.errors import UsageError

Family = Literal["t5", "bert", "llama", "gpt2", "vit"]
"""Model families that keep the same tensors for the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The dimensions of a transformer."""

    name: str
    family: Family
    width: int
    """Of the residual stream."""
    ff: int
    """Inner width of the feed-forward part."""
    heads: int
    kv_heads: int
    """Fewer than `heads` with grouped queries."""
    head_width: int
    layers: int
    """Of the encoder, or the only stack."""
    decoder_layers: int = 0
    vocabulary: int = 0
    positions: int = 0
    """Rows of a learned position table; also the longest sequence."""
    types: int = 0
    """Rows of the segment table (BERT)."""
    gated: bool = False
    activation: str = "gelu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    tied: bool = True
    """The output layer shares the embedding matrix."""
    classes: int = 0
    """Outputs of a classifier; 0 for a language model."""
    per_token: bool = True
    """Whether the output layer sees every token, or one vector per row."""
    pooler: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ff_bias: bool = False
    head_norms: bool = False
    """Queries and keys are normalized per head (Qwen3)."""
    buckets: int = 0
    """Relative position buckets (T5)."""
    image: int = 0
    """Pixels per side."""
    patch: int = 0
    channels: int = 3

    @property
    def encoder_decoder(self) -> bool:
        return self.decoder_layers > 0

    @property
    def inner(self) -> int:
        """Total width of the queries."""
        return self.heads * self.head_width

    @property
    def kv_inner(self) -> int:
        """Total width of the keys."""
        return self.kv_heads * self.head_width

    @property
    def outputs(self) -> int:
        """Width of the logits."""
        return self.classes or self.vocabulary

    @property
    def image_tokens(self) -> int:
        """Patches plus the class token."""
        return (self.image // self.patch) ** 2 + 1 if self.patch else 0

    @property
    def matrices_in_ff(self) -> int:
        """Matrices of the feed-forward part."""
        return 3 if self.gated else 2


AttentionChoice = Literal["sdpa", "eager"]
BiasKernel = Literal["eager", "math", "efficient"]
BaseChoice = Literal["full", "8bit", "4bit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Storage widths of one precision."""

    name: str
    title: str
    stored: int
    """Bytes per weight, gradient and optimizer state."""
    compute: int
    """Bytes per output element of a matrix product."""
    residual: int
    """Bytes per element of the residual stream."""

    @property
    def autocast(self) -> bool:
        """Whether weights are in fp32 and products in half precision, so every product casts its inputs."""
        return self.compute < self.stored


PRECISIONS = {
    "fp32": Precision(name="fp32", title="fp32", stored=4, compute=4, residual=4),
    "bf16": Precision(name="bf16", title="bf16 autocast", stored=4, compute=2, residual=4),
    "fp16": Precision(name="fp16", title="fp16 autocast", stored=4, compute=2, residual=4),
    "pure-bf16": Precision(name="pure-bf16", title="pure bf16", stored=2, compute=2, residual=2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to run a training step."""

    batch: int
    seq: int
    target_seq: int
    """Decoder tokens per row; equals `seq` for models with one stack."""
    precision: Precision
    checkpointing: bool = False
    attention: AttentionChoice = "sdpa"
    bias_kernel: BiasKernel = "math"
    """Kernel for attention with a learned bias (T5) when `attention` is sdpa."""
    padded: bool = False
    """Whether rows differ in length, so that attention needs a mask."""
    optimizer: str = "adamw"
    lora: int = 0
    """Rank of the adapters; 0 if all weights are trained."""
    base: BaseChoice = "full"
    """Storage of the frozen weights under adapters."""
    accumulate: bool = False
    """Whether gradients of earlier batches exist during a step."""
    flash: bool = True
    """The GPU has the flash kernel: Ampere and newer."""
    hopper: bool = True
    """Hopper and newer, where cuBLAS has a larger workspace."""

    @property
    def tokens(self) -> int:
        return self.batch * self.seq

    @property
    def target_tokens(self) -> int:
        return self.batch * self.target_seq


Config = Mapping[str, Any]

BESIDE = "give the config.json next to the weights"  # advice for an impossible config


class Fields:
    """The fields of a config. Invalid values raise UsageError with the field name."""

    def __init__(self, config: Config, name: str) -> None:
        self.config = config
        self.name = name

    def whole(self, *keys: str, default: int | None = None) -> int:
        """A positive integer."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 40:
                raise UsageError(f'{self.name}: "{key}" should be a whole number above 0, not {value!r}')
            return value
        if default is None:
            raise UsageError(f'{self.name}: "{keys[0]}" is missing', fix=BESIDE)
        return default

    def rate(self, key: str, default: float) -> float:
        """A share between 0 and 1."""
        value = self.config.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise UsageError(f'{self.name}: "{key}" should be a number from 0 to 1, not {value!r}')
        return float(value)

    def share(self, width: int, heads: int) -> int:
        """The width of one head."""
        if heads > width:
            raise UsageError(f"{self.name}: {heads} heads do not divide a width of {width}")
        return width // heads

    def keys_for(self, heads: int) -> int:
        """The number of key-value heads."""
        keys = self.whole("num_key_value_heads", default=heads)
        if heads % keys:
            raise UsageError(f"{self.name}: {heads} heads cannot share {keys} keys evenly")
        return keys

    def text(self, key: str, default: str) -> str:
        value = self.config.get(key)
        return value if isinstance(value, str) else default

    def flag(self, key: str, default: bool) -> bool:
        value = self.config.get(key)
        return value if isinstance(value, bool) else default

    def built_for(self, *tasks: str) -> bool:
        """Whether the architecture's name ends in one of these."""
        named = self.config.get("architectures")
        first = named[0] if isinstance(named, list) and named and isinstance(named[0], str) else ""
        return first.endswith(tasks)

    def classes(self) -> int:
        """Number of classes; 0 for a language model."""
        if not self.built_for("Classification", "QuestionAnswering"):
            return 0
        labels = self.config.get("id2label")
        counted = len(labels) if isinstance(labels, dict) and labels else 2
        return 2 if self.built_for("QuestionAnswering") else self.whole("num_labels", default=counted)


def shape_from_config(config: Config, name: str) -> Shape:
    """The shape that a config describes. Raises UsageError if the model type is unknown or a number is impossible."""
    kind = config.get("model_type")
    if isinstance(config.get("text_config"), dict) and kind not in _READERS:
        raise UsageError(
            f"{name}: {kind} combines several models; only single models are supported",
            fix='save its "text_config" as a separate config.json, and add the memory of the other towers',
        )
    if not isinstance(kind, str) or kind not in _READERS:
        raise UsageError(
            f'{name}: "model_type" {kind!r} is unknown',
            fix=f"known: {', '.join(sorted(_READERS))}; give the config of the most similar one",
        )
    return _READERS[kind](Fields(config, name))


def _t5(fields: Fields) -> Shape:
    projection = fields.text("feed_forward_proj", "gated-gelu" if fields.text("model_type", "") == "mt5" else "relu")
    gated = projection.startswith("gated")
    inner = projection.removeprefix("gated-")
    layers = fields.whole("num_layers", default=6)
    dropout = fields.rate("dropout_rate", 0.1)
    return Shape(
        name=fields.name,
        family="t5",
        width=fields.whole("d_model", "hidden_size"),
        ff=fields.whole("d_ff"),
        heads=fields.whole("num_heads"),
        kv_heads=fields.whole("num_heads"),
        head_width=fields.whole("d_kv", default=64),
        layers=layers,
        decoder_layers=fields.whole("num_decoder_layers", default=layers),
        vocabulary=fields.whole("vocab_size"),
        gated=gated,
        activation="gelu_new" if gated and inner == "gelu" else inner,
        dropout=dropout,
        attention_dropout=dropout,
        tied=True,
        buckets=fields.whole("relative_attention_num_buckets", default=32),
    )


def _stack(fields: Fields, kv_heads: int | None = None, head_width: int | None = None) -> dict[str, Any]:
    """Measures of a stack with the usual names."""
    heads, width = fields.whole("num_attention_heads"), fields.whole("hidden_size")
    return {
        "name": fields.name, "width": width, "ff": fields.whole("intermediate_size"), "heads": heads,
        "kv_heads": kv_heads or heads, "head_width": head_width or fields.share(width, heads),
        "layers": fields.whole("num_hidden_layers"),
    }  # fmt: skip


_BIASES: dict[str, Any] = {"qkv_bias": True, "output_bias": True, "ff_bias": True}


def _ends(fields: Fields, *, tied: bool) -> dict[str, Any]:
    """Both ends of a language model or a classifier: the embedding and the output layer."""
    return {
        "vocabulary": fields.whole("vocab_size"), "tied": fields.flag("tie_word_embeddings", tied),
        "classes": fields.classes(), "per_token": not fields.built_for("SequenceClassification"),
    }  # fmt: skip


def _bert(fields: Fields) -> Shape:
    ends = _ends(fields, tied=True)
    return Shape(
        family="bert",
        **_stack(fields),
        positions=fields.whole("max_position_embeddings", default=512),
        types=fields.whole("type_vocab_size", default=2),
        activation=fields.text("hidden_act", "gelu"),
        dropout=fields.rate("hidden_dropout_prob", 0.1),
        attention_dropout=fields.rate("attention_probs_dropout_prob", 0.1),
        **ends,
        pooler=bool(ends["classes"]) and not ends["per_token"],
        **_BIASES,
    )


def _distilbert(fields: Fields) -> Shape:
    names = {"dim": "hidden_size", "hidden_dim": "intermediate_size", "n_heads": "num_attention_heads"}
    names |= {"n_layers": "num_hidden_layers", "dropout": "hidden_dropout_prob", "activation": "hidden_act"}
    names |= {"attention_dropout": "attention_probs_dropout_prob"}
    config = {names.get(key, key): value for key, value in fields.config.items()}
    shape = _bert(Fields({**config, "type_vocab_size": None}, fields.name))
    return replace(shape, types=0)


def _llama(fields: Fields) -> Shape:
    kind = fields.text("model_type", "llama")
    bias = fields.flag("attention_bias", False)
    heads, width = fields.whole("num_attention_heads"), fields.whole("hidden_size")
    head_width = fields.whole("head_dim", default=128 if kind == "qwen3" else fields.share(width, heads))
    return Shape(
        family="llama",
        **_stack(fields, kv_heads=fields.keys_for(heads), head_width=head_width),
        gated=True,
        activation=fields.text("hidden_act", "silu"),
        attention_dropout=fields.rate("attention_dropout", 0.0),
        **_ends(fields, tied=False),
        qkv_bias=kind == "qwen2" or bias,
        output_bias=kind != "qwen2" and bias,
        ff_bias=fields.flag("mlp_bias", False),
        head_norms=kind == "qwen3",
    )


def _gpt2(fields: Fields) -> Shape:
    heads, width = fields.whole("n_head", "num_attention_heads"), fields.whole("n_embd", "hidden_size")
    return Shape(
        name=fields.name,
        family="gpt2",
        width=width,
        ff=fields.whole("n_inner", default=4 * width),
        heads=heads,
        kv_heads=heads,
        head_width=fields.share(width, heads),
        layers=fields.whole("n_layer", "num_hidden_layers"),
        positions=fields.whole("n_positions", "n_ctx", default=1024),
        activation=fields.text("activation_function", "gelu_new"),
        dropout=fields.rate("resid_pdrop", 0.1),
        attention_dropout=fields.rate("attn_pdrop", 0.1),
        **_ends(fields, tied=True),
        **_BIASES,
    )


def _vit(fields: Fields) -> Shape:
    labels = fields.config.get("id2label")
    return Shape(
        family="vit",
        **_stack(fields),
        activation=fields.text("hidden_act", "gelu"),
        dropout=fields.rate("hidden_dropout_prob", 0.0),
        attention_dropout=fields.rate("attention_probs_dropout_prob", 0.0),
        classes=fields.whole("num_labels", default=len(labels) if isinstance(labels, dict) and labels else 2),
        per_token=False,
        qkv_bias=fields.flag("qkv_bias", True),
        output_bias=True,
        ff_bias=True,
        image=fields.whole("image_size", default=224),
        patch=fields.whole("patch_size", default=16),
        channels=fields.whole("num_channels", default=3),
    )


_READERS: dict[str, Callable[[Fields], Shape]] = {
    **dict.fromkeys(("t5", "mt5"), _t5),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), _bert),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), _llama),
    "distilbert": _distilbert, "gpt2": _gpt2, "vit": _vit,
}  # fmt: skip
