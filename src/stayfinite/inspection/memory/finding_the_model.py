"""Resolve a model: a directory, a config.json, a checkpoint next to one, or a well-known name."""

import difflib
import json
import math
from pathlib import Path
from typing import Any

from stayfinite.errors import UsageError
from stayfinite.inspection.memory.plan import BESIDE, Shape, shape_from_config
from stayfinite.readers.checkpoints.formats.opening import read_file

_T5 = {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "vocab_size": 32128, "d_kv": 64}
_T5_NEW = {**_T5, "feed_forward_proj": "gated-gelu"}
_MT5 = {**_T5_NEW, "model_type": "mt5", "vocab_size": 250112}
_BYT5 = {**_T5_NEW, "vocab_size": 384}
_BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "max_position_embeddings": 512}
_ROBERTA = {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "max_position_embeddings": 514}
_ROBERTA |= {"vocab_size": 50265, "type_vocab_size": 1}
_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
_QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "vocab_size": 151936}
_QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936, "head_dim": 128}
_GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 50257, "n_positions": 1024}
_VIT = {"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 224, "num_labels": 1000}


def _t5(d_model: int, d_ff: int, layers: int, heads: int, decoder: int | None = None) -> dict[str, Any]:
    depth = {"num_layers": layers, "num_decoder_layers": decoder or layers}
    return {"d_model": d_model, "d_ff": d_ff, "num_heads": heads, **depth}


def _stack(width: int, ff: int, layers: int, heads: int, kv: int | None = None) -> dict[str, Any]:
    attention = {"num_attention_heads": heads, "num_key_value_heads": kv or heads}
    return {"hidden_size": width, "intermediate_size": ff, "num_hidden_layers": layers, **attention}


def _gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"n_embd": width, "n_layer": layers, "n_head": heads}


KNOWN: dict[str, dict[str, Any]] = {
    "t5-small": _T5 | _t5(512, 2048, 6, 8),
    "t5-base": _T5 | _t5(768, 3072, 12, 12),
    "t5-large": _T5 | _t5(1024, 4096, 24, 16),
    "t5-3b": _T5 | _t5(1024, 16384, 24, 32) | {"d_kv": 128},
    "flan-t5-small": _T5_NEW | _t5(512, 1024, 8, 6),
    "flan-t5-base": _T5_NEW | _t5(768, 2048, 12, 12),
    "flan-t5-large": _T5_NEW | _t5(1024, 2816, 24, 16),
    "flan-t5-xl": _T5_NEW | _t5(2048, 5120, 24, 32),
    "mt5-small": _MT5 | _t5(512, 1024, 8, 6),
    "mt5-base": _MT5 | _t5(768, 2048, 12, 12),
    "mt5-large": _MT5 | _t5(1024, 2816, 24, 16),
    "byt5-small": _BYT5 | _t5(1472, 3584, 12, 6, 4),
    "byt5-base": _BYT5 | _t5(1536, 3968, 18, 12, 6),
    "byt5-large": _BYT5 | _t5(1536, 3840, 36, 16, 12),
    "bert-base-uncased": _BERT | _stack(768, 3072, 12, 12) | {"vocab_size": 30522},
    "bert-base-cased": _BERT | _stack(768, 3072, 12, 12) | {"vocab_size": 28996},
    "bert-large-uncased": _BERT | _stack(1024, 4096, 24, 16) | {"vocab_size": 30522},
    "bert-base-multilingual-cased": _BERT | _stack(768, 3072, 12, 12) | {"vocab_size": 119547},
    "distilbert-base-uncased": {"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"]}
    | {"dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12, "vocab_size": 30522},
    "roberta-base": _ROBERTA | _stack(768, 3072, 12, 12),
    "roberta-large": _ROBERTA | _stack(1024, 4096, 24, 16),
    "xlm-roberta-base": _ROBERTA | _stack(768, 3072, 12, 12) | {"model_type": "xlm-roberta", "vocab_size": 250002},
    "gpt2": _GPT2 | _gpt2(768, 12, 12),
    "gpt2-medium": _GPT2 | _gpt2(1024, 24, 16),
    "gpt2-large": _GPT2 | _gpt2(1280, 36, 20),
    "gpt2-xl": _GPT2 | _gpt2(1600, 48, 25),
    "llama-2-7b": _LLAMA | _stack(4096, 11008, 32, 32) | {"vocab_size": 32000},
    "llama-2-13b": _LLAMA | _stack(5120, 13824, 40, 40) | {"vocab_size": 32000},
    "llama-3-8b": _LLAMA | _stack(4096, 14336, 32, 32, 8) | {"vocab_size": 128256},
    "llama-3.2-1b": _LLAMA
    | _stack(2048, 8192, 16, 32, 8)
    | {"vocab_size": 128256, "tie_word_embeddings": True, "head_dim": 64},
    "llama-3.2-3b": _LLAMA
    | _stack(3072, 8192, 28, 24, 8)
    | {"vocab_size": 128256, "tie_word_embeddings": True, "head_dim": 128},
    "tinyllama-1.1b": _LLAMA | _stack(2048, 5632, 22, 32, 4) | {"vocab_size": 32000},
    "smollm2-135m": _LLAMA | _stack(576, 1536, 30, 9, 3) | {"vocab_size": 49152, "tie_word_embeddings": True},
    "smollm2-360m": _LLAMA | _stack(960, 2560, 32, 15, 5) | {"vocab_size": 49152, "tie_word_embeddings": True},
    "smollm2-1.7b": _LLAMA | _stack(2048, 8192, 24, 32) | {"vocab_size": 49152, "tie_word_embeddings": True},
    "mistral-7b": _LLAMA | {"model_type": "mistral"} | _stack(4096, 14336, 32, 32, 8) | {"vocab_size": 32000},
    "qwen2.5-0.5b": _QWEN2 | _stack(896, 4864, 24, 14, 2) | {"tie_word_embeddings": True},
    "qwen2.5-1.5b": _QWEN2 | _stack(1536, 8960, 28, 12, 2) | {"tie_word_embeddings": True},
    "qwen2.5-7b": _QWEN2 | _stack(3584, 18944, 28, 28, 4) | {"vocab_size": 152064},
    "qwen3-0.6b": _QWEN3 | _stack(1024, 3072, 28, 16, 8) | {"tie_word_embeddings": True},
    "qwen3-8b": _QWEN3 | _stack(4096, 12288, 36, 32, 8),
    "vit-base-patch16-224": _VIT | _stack(768, 3072, 12, 12) | {"patch_size": 16},
    "vit-large-patch16-224": _VIT | _stack(1024, 4096, 24, 16) | {"patch_size": 16},
}
"""Keyed by common name, without the publisher."""

_ALSO = {
    **dict.fromkeys(("llama-7b", "llama2-7b"), "llama-2-7b"),
    **dict.fromkeys(("llama3-8b", "llama-3.1-8b", "meta-llama-3-8b", "meta-llama-3.1-8b"), "llama-3-8b"),
    **dict.fromkeys(("vit-base", "vit-base-patch16-224-in21k"), "vit-base-patch16-224"),
    "bert-base": "bert-base-uncased", "bert-large": "bert-large-uncased", "distilbert": "distilbert-base-uncased",
    "mbert": "bert-base-multilingual-cased", "llama-13b": "llama-2-13b", "llama-1b": "llama-3.2-1b",
    "llama-3b": "llama-3.2-3b", "tinyllama": "tinyllama-1.1b", "vit-large": "vit-large-patch16-224",
}  # fmt: skip

_ENDINGS = (
    "-hf", "-chat", "-instruct", "-it", "-base", "-v0.1", "-v0.2", "-v0.3", "-v1.0",
    "-intermediate-step-1431k-3t", "-lm-adapt",
)  # fmt: skip


def known_as(text: str) -> str | None:
    """The table name that `text` refers to, ignoring publisher, case and suffixes; None if unknown."""
    key = _plain(text)
    while key not in KNOWN and key not in _ALSO:
        ending = next((end for end in _ENDINGS if key.endswith(end)), None)
        if ending is None:
            return None
        key = key.removesuffix(ending)
    return _ALSO.get(key, key)


def near_names(text: str) -> list[str]:
    """Names in the table similar to `text`."""
    return difflib.get_close_matches(_plain(text), [*KNOWN, *_ALSO], n=3, cutoff=0.5)


def _plain(text: str) -> str:
    return text.strip().lower().replace("_", "-").rsplit("/", 1)[-1]


_LONGEST_CONFIG = 8 << 20
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


def find_shape(model: str) -> Shape:
    """The shape of the model. Raises UsageError if the name is unknown or its config cannot be read."""
    if not model.strip():
        raise UsageError("--memory needs a model: a directory, a config.json, or a name such as t5-small")
    path = Path(model).expanduser()
    if path.is_dir() or path.is_file():
        return _from_path(path, model)
    name = known_as(model)
    if name is not None:
        return shape_from_config(KNOWN[name], name)
    looks_like_path = model.endswith((".json", *_WEIGHTS)) or model.startswith((".", "/", "~"))
    if looks_like_path:
        raise UsageError(
            f"--memory: no such file or directory: {model!r}",
            fix="give a config.json, its directory, or a name such as t5-small",
        )
    close = near_names(model)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise UsageError(
        f"--memory: {model!r} is not a file or a known name{hint}",
        fix=f"give a config.json or its directory; nothing is downloaded. Known names: {', '.join(KNOWN)}",
    )


def _from_path(path: Path, asked: str) -> Shape:
    name = path.resolve().name if path.is_dir() else asked
    return shape_from_config(_read(_config_beside(path)), name)


def _config_beside(path: Path) -> Path:
    if path.is_file() and path.suffix not in _WEIGHTS:
        return path
    folder = path if path.is_dir() else path.parent
    config = folder / "config.json"
    if config.is_file():
        return config
    if (folder / "adapter_config.json").is_file():
        raise UsageError(
            f"--memory: {folder} holds only adapters",
            fix="give their base model, and --lora with their rank",
        )
    raise UsageError(f"--memory: no config.json in {folder}", fix="give the model's config.json")


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LONGEST_CONFIG:
            text = f"--memory: {path} has {path.stat().st_size:,} bytes, too large for a config.json"
            raise UsageError(text, fix=BESIDE)
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"--memory: cannot read {path}: {error.strerror or error}"
        raise UsageError(text, fix="check the path and its permissions") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--memory: {path} is not JSON: {error}", fix=BESIDE) from error
    if not isinstance(value, dict):
        text = f"--memory: {path} must hold a JSON object, not {type(value).__name__}"
        raise UsageError(text, fix=BESIDE)
    return value


MOST_FILES = 1000


def numbers_on_disk(model: str) -> int | None:
    """Elements of all tensors in a directory's safetensors files, or in the named file.

    None if there are none or a header cannot be read.
    """
    path = Path(model).expanduser()
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))[:MOST_FILES]
    elif path.suffix == ".safetensors" and path.is_file():
        files = [path]
    else:
        return None
    total = 0
    for file in files:
        facts = read_file(file)
        if not facts.places:
            return None
        total += sum(math.prod(place.shape) for place in facts.places)
    return total or None
