"""Calls in a script that say how it trains, and the arguments that it declares: argparse, click, absl, dataclasses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.program.state import Call, Value


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument: its name, its short name for `args.NAME`, and its default."""

    name: str
    attribute: str
    default: ast.expr
    line: int


def argument_of(call: ast.Call, last: str) -> Argument | None:
    """`parser.add_argument("--lr", default=1e-4)`, `click.option(...)`, `flags.DEFINE_float("lr", 1e-4, "...")`."""
    strings = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if not strings:
        return None
    keywords = {each.arg: each.value for each in call.keywords if each.arg}
    if last.startswith("DEFINE_"):
        default = keywords.get("default") or (call.args[1] if len(call.args) > 1 else None)
        return None if default is None else Argument(f"--{strings[0]}", strings[0], default, call.lineno)
    if last not in {"add_argument", "option"}:
        return None
    options = [each for each in strings if each.startswith("-")] or strings[:1]
    name = next((each for each in options if each.startswith("--")), options[0])
    default = keywords.get("default", _switch(keywords))
    if default is None:
        return None
    destination = keywords.get("dest")
    attribute = destination.value if isinstance(destination, ast.Constant) else name
    return Argument(name, str(attribute).lstrip("-").replace("-", "_").partition("/")[0], default, call.lineno)


def fields_of(definition: ast.ClassDef) -> Iterator[tuple[str, ast.expr, int]]:
    """``(name, value, line)`` of class fields with a value."""
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            yield statement.target.id, statement.value, statement.lineno
        elif isinstance(statement, ast.Assign):
            names = (target.id for target in statement.targets if isinstance(target, ast.Name))
            yield from ((name, statement.value, statement.lineno) for name in names)


def _switch(keywords: dict[str, ast.expr]) -> ast.expr | None:
    """`action="store_true"` defaults to False."""
    action = keywords.get("action")
    if isinstance(action, ast.Constant) and action.value in {"store_true", "store_false"}:
        return ast.Constant(action.value == "store_false", lineno=action.lineno, col_offset=0)
    flag = keywords.get("is_flag")
    return ast.Constant(False, lineno=flag.lineno, col_offset=0) if flag is not None else None


def declares_fields(definition: ast.ClassDef) -> bool:
    """Whether its fields are defaults that an instance may override: a dataclass, a config."""
    sources = [*definition.decorator_list, *definition.bases]
    for source in sources:
        for node in ast.walk(source):
            word = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
            if re.search(
                r"dataclass|Config$|Args$|Arguments$|BaseModel|BaseSettings|NamedTuple|define|attrs|Tap$", word
            ):
                return True
    return False


def field_default(value: ast.expr) -> ast.expr | None:
    """The default in `field(default=...)` or `Field(1e-4, ...)`."""
    if not (isinstance(value, ast.Call) and isinstance(value.func, (ast.Name, ast.Attribute))):
        return value
    name = value.func.id if isinstance(value.func, ast.Name) else value.func.attr
    if name.lower() not in {"field", "ib", "attrib"}:
        return value
    for keyword in value.keywords:
        if keyword.arg == "default":
            return keyword.value
        if keyword.arg in {"default_factory", "factory"} and isinstance(keyword.value, ast.Lambda):
            return keyword.value.body
    return value.args[0] if value.args else None


_PRESENCE = lazy_regex(
    r"half|bfloat16|float|double|GradScaler|autocast|gradient_checkpointing_enable|enable_gradient_checkpointing|"
    r"enable_input_require_grads|prepare_model_for_kbit_training|prepare_model_for_int8_training|clip_grad_norm_|"
    r"clip_grad_value_|clip_grad_norm|clip_gradients|unscale_|zero_grad|backward|step|update|eval|train|no_grad|"
    r"inference_mode|set_grad_enabled|set_detect_anomaly|detect_anomaly|requires_grad_|resize_token_embeddings|"
    r"add_special_tokens|add_tokens|get_peft_model|DistributedDataParallel|DDP|FullyShardedDataParallel|FSDP|"
    r"fully_shard|DataParallel|initialize|manual_seed|set_seed|set_default_dtype|set_default_tensor_type|"
    r"set_float32_matmul_precision|merge_and_unload|load_state_dict|freeze|unfreeze|manual_backward|toggle_optimizer|"
    r"nan_to_num|load_model_from_checkpoint|apply_chat_template|"
    r"convert_to_float8_training|swap_linear_with_float8_linear|fp8_autocast|fp8_model_init|DelayedScaling"
)
"""Calls that matter even without arguments: `model.half()` is the setting `model.half` = True."""

_WITH_ALL_KEYWORDS = lazy_regex(
    r"from_pretrained|from_config|from_name|load_from_checkpoint|autocast|get_\w*schedule\w*|get_peft_model|initialize|"
    r"checkpoint|prepare_model_for_\w+|gradient_checkpointing_enable|clip_grad\w*|get_\w*config\w*|create_optimizer\w*|"
    r"create_\w*scheduler|build_\w+|compile|init|load_dataset|generate|corpus_bleu|sentence_bleu|cross_entropy|"
    r"\w*_loss|\w*_entropy\w*|scaled_dot_product_attention|train|fit|tokenizer|processor|encode_plus|batch_encode_plus|"
    r"__call__|fully_shard|parametrize|convert_to_float8_training|fp8_autocast|from_recipe_name"
)
_TELLING_KEYWORD = lazy_regex(
    r"(?:torch_|compute_|param_|model_|weight_)?dtype|precision|mixed_precision|fp16|bf16|half|use_amp|amp|use_fp16|lr|"
    r"learning_rate|eps|epsilon|max_length|max_seq_length|truncation|padding|ignore_index|reduction|max_norm|"
    r"max_grad_norm|warmup\w*|num_warmup_steps|num_training_steps|label_smoothing|find_unused_parameters|use_reentrant|"
    r"use_cache|quantization_config|load_in_\w+|attn_implementation|weight_decay|betas|momentum|batch_size|shuffle|"
    r"drop_last|opt_level|loss_scale|gradient_\w+|requires_grad|set_to_none|retain_graph|only_inputs|enabled|training|"
    r"strict|is_causal|attn_mask"
)
_EVERYDAY = lazy_regex(
    r"print|open|range|zip|sorted|log|info|debug|warning|error|format|join|sum|mean|max|min|cat|stack|zeros\w*|ones\w*|"
    r"empty\w*|full\w*|arange|linspace|tensor|as_tensor|asarray|array|rand\w*|plot|scatter|figure|subplots|savefig|"
    r"legend|read_csv|to_csv|astype|dumps?|loads?|field|Field|dataclass|add_argument|option|squeeze|argmax|std|var"
)
_OPTIMIZER = lazy_regex(
    r"(?:\w*Adam\w*|\w*SGD\w*|RMSprop|Adagrad|Adadelta|\w*Lion\w*|LAMB|LARS|Muon|Sophia\w*|Adan|Rprop|NAdam|ASGD)"
)
_OTHER_LEARNER = lazy_regex(r"(?:XGB|LGBM|CatBoost|\w*GradientBoosting|AdaBoost|MLP(?=Classifier|Regressor))\w*")
_POSITIONAL: dict[str, tuple[str, ...]] = {
    "clip_grad_norm_": ("", "max_norm", "norm_type"), "clip_grad_norm": ("", "max_norm", "norm_type"),
    "clip_grad_value_": ("", "clip_value"), "load_from_checkpoint": ("name",), "load_dataset": ("name", "subset"),
    "autocast": ("device_type", "dtype"), "GradScaler": ("device",), "Dropout": ("p",),
    "Embedding": ("num_embeddings", "embedding_dim"), "LayerNorm": ("normalized_shape", "eps"),
    "StepLR": ("", "step_size", "gamma"), "MultiStepLR": ("", "milestones", "gamma"), "ExponentialLR": ("", "gamma"),
    "CosineAnnealingLR": ("", "T_max", "eta_min"), "OneCycleLR": ("", "max_lr", "total_steps"),
    "get_scheduler": ("name", "", "num_warmup_steps", "num_training_steps"),
    "get_linear_schedule_with_warmup": ("", "num_warmup_steps", "num_training_steps"),
    "get_cosine_schedule_with_warmup": ("", "num_warmup_steps", "num_training_steps"),
    "get_constant_schedule_with_warmup": ("", "num_warmup_steps"), "to": ("dtype",), "type": ("dtype",),
    "pipeline": ("task", "model"), "from_recipe_name": ("recipe_name",),
}  # fmt: skip
_MATTERS_BY_BOOL = frozenset({"requires_grad_", "set_grad_enabled", "set_detect_anomaly", "train", "enable_grad"})


def told_arguments(call: Call, last: str, *, every: bool = False) -> Iterator[tuple[str, Value, ast.expr | None]]:
    """``(name, value, expression)`` of every argument worth keeping."""
    for name, place in _positional(call, last):
        if name:
            yield name, call.positional[place], call.written.get(place)
    keep_all = every or last[:1].isupper() or _WITH_ALL_KEYWORDS.fullmatch(last) is not None
    if _EVERYDAY.fullmatch(last) and not every:
        return
    for name, value in call.keywords.items():
        if keep_all or _TELLING_KEYWORD.fullmatch(name) or last == "to":
            yield name, value, call.written.get(name)


def matters_by_itself(last: str) -> bool:
    """Whether the call matters even without arguments."""
    return _PRESENCE.fullmatch(last) is not None


def is_constructor(last: str) -> bool:
    """Whether the name is a class: `Adam`, `BCELoss`."""
    return (last[:1].isupper() and not last.isupper()) or last in {"SGD", "LAMB", "DDP", "FSDP"}


def is_optimizer(name: str) -> bool:
    """Whether it is an optimizer: `torch.optim.AdamW`, `bnb.optim.Adam8bit`, `Lion`; not a schedule."""
    return _OPTIMIZER.fullmatch(name.rpartition(".")[2]) is not None


def is_other_learner(last: str) -> bool:
    """Whether it is a learner whose rate is not an optimizer's: `XGBClassifier(learning_rate=0.1)`."""
    return _OTHER_LEARNER.fullmatch(last) is not None


def value_position(last: str) -> bool:
    """Whether the only argument is the value set: `requires_grad_(False)`, `manual_seed(0)`."""
    return last in _MATTERS_BY_BOOL or last.startswith(("set_", "manual_seed", "resize_"))


def _positional(call: Call, last: str) -> Iterator[tuple[str, int]]:
    places = range(len(call.positional))
    if last == "from_pretrained":
        # `PeftModel.from_pretrained(model, "name")`: the name is the first string, at any position.
        texts = [place for place in places if isinstance(call.positional[place].data, str)]
        return iter([("name", place) for place in (texts or places)[:1]])
    names = ("", "lr") if _OPTIMIZER.fullmatch(last) else _POSITIONAL.get(last, ())
    return zip(names, places, strict=False)
