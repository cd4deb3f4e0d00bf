"""The planned precision: at most one 16-bit format that suits the model, with fp32 weights; fp8 where it works."""

import re
from collections.abc import Iterator
from itertools import product

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting, Settings
from stayfinite.inspection.files.half_formats import fixed_scale, half_vae, lost_updates
from stayfinite.inspection.files.learning_rate import OPTIMIZERS, optimizer_of
from stayfinite.inspection.files.names import first_steps, last_step
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.files.post_training import VERL
from stayfinite.inspection.notes import Edit, Notes
from stayfinite.readers.configs.judges.loops import HOLDS_LOSS
from stayfinite.rules.fp8_modules import MULTIPLE, keeps_head
from stayfinite.rules.fp8_settings import BLOCKWISE, MXFP8, ROWWISE, EightBits, eight_bits_of
from stayfinite.rules.known import Known, is_on, number_in
from stayfinite.rules.plans import Remark
from stayfinite.rules.precision.fp8_stale_scale import short_memory
from stayfinite.rules.precision_settings import TRAINED

_HALF = lazy_regex(r"(?:torch\.)?(?:float16|fp16|half)", re.IGNORECASE)
_OTHER_MODEL = lazy_regex(
    r"ref|teacher|reward|vae|text_?encoder|image_?encoder|clip|safety|judge|embed|retriev|eval", re.IGNORECASE
)
"""Other models, which are often kept in fp16."""
_MODEL = lazy_regex(r"(?:self\.)?(?:\w*model\b|net\b|network\b|[A-Z]\w+\.(?:\w+\.)*(?:cuda|to|from_pretrained)\b)")

_BEARS_HALF = lazy_regex(r"(?:^|/)t5-small$")
"""Only t5-small is trained in fp16 by its library's own notebooks; larger and gated T5s overflow."""
_LEAST_HALF = 6e-8
_MASTER = lazy_regex(r"master_?(?:param|weight|copy)|fp16_?optimizer|main_?params|fp32_?param", re.IGNORECASE)
"""Optimizers that keep fp32 copies of fp16 weights."""
_PLAIN_BACKWARD = lazy_regex(r"(?m)^\s+[^#\n]*\.backward\(\)")
_GIVEN_BACKWARD = lazy_regex(r"\.backward\(\s*[\w(]|scaler|no_sync")
_AS_BF16 = {"fp16": "bf16", "float16": "bfloat16", "16-mixed": "bf16-mixed"}
_ROUNDED = lazy_regex(r"\.half\(\)\.(?:float|double|bfloat16)\(\)|deepcopy\(|\bsave\(")
"""Weights rounded to fp16 and converted back, or a copy of them: the trained ones stay in fp32."""


def look_at_precision(plan: Plan, notes: Notes) -> None:
    """Check for one 16-bit format, the model family, and the dtype of the weights."""
    precision = plan.precision
    both = _both_halves(plan)
    if both:
        half_on, brain_on = both
        text = f"{half_on.name}: {half_on.value} and {brain_on.name}: {brain_on.value} ({brain_on.where})"
        notes.remark("plan.both_halves", (text, half_on.where))
        if plan.card is not None:  # the GPU decides between the two
            off = half_on if plan.card.bf16 else brain_on
            notes.edits.append(Edit(cause="both-half-formats", setting=off, value=False))
    half = precision is not None and precision.value == "fp16"
    own = plan.trains and plan.context.deepspeed is None  # DeepSpeed keeps an fp32 copy
    weights = _half_weights(plan) if own and plan.adapters is None else None
    if precision is not None and half and plan.family is not None and not _BEARS_HALF.search(plan.family.text):
        adapters = " with adapters" if plan.adapters is not None else ""
        family = plan.family.value
        text = f"{plan.family.text}{adapters} overflows in fp16 ({_as_written(precision)})"
        value = {"family": family, "adapters": plan.adapters is not None, "text": text}
        notes.saw("plan.fp16_family", value, precision.where)
        if plan.card is not None and plan.card.bf16:
            notes.edits.extend(_to_bf16(plan, precision))
    true_half = plan.settings.search(r"(?:precision|dtype)\W{1,3}16-true\b")
    mixed = half and precision is not None and weights is not None and not _says_both(precision, weights)
    if weights is not None and precision is not None and mixed and not _quantized(plan):
        text = f"{_written(weights)} makes fp16 weights, and {_as_written(precision)} adds a loss scaler"
        notes.remark("plan.double_fp16", (text, weights.where))
    elif true_half is not None:
        notes.remark("plan.pure_fp16", (f"{true_half[1].strip()[:80]} keeps no fp32 weights", true_half[0]))
    elif weights is not None and not mixed and not _quantized(plan) and _no_cast(precision, weights):
        of_verl = weights.name.startswith(VERL)
        bf16 = of_verl if precision is None else precision.value == "bf16"
        cast = "no loss scaler under bf16" if bf16 else "no mixed precision"
        text = f"fp16 weights are trained directly ({_written(weights)}, {cast})"
        if plan.is_transformers or of_verl or (last_step(weights) == TRAINED and _divides_by_zero(plan)):
            notes.remark("plan.pure_fp16", (text, weights.where))
    base = _loaded_in_half(plan) if own and plan.adapters is not None and half and not _quantized(plan) else None
    if base is not None and precision is not None and not _says_both(precision, base):
        text = f"{_written(base)} under {_as_written(precision)}: fp16 weights and fp16 mixed precision at once"
        notes.remark("plan.double_fp16_adapters", (text, base.where))
    notes.remark("plan.scaler_missing", *_unscaled(plan))
    notes.remark("plan.fixed_scale", *fixed_scale(plan))
    notes.remark("plan.bf16_updates", *lost_updates(plan))
    notes.remark("plan.half_vae", *half_vae(plan))
    seen = "" if precision is None else f"{precision.value} ({precision.where})"
    causes = ("both-half-formats", "fp16-overflow-model-family", "scaler-missing", "fp16-underflow")
    notes.check("Precision", "precision for this model", *causes, seen=seen, otherwise="not set")
    loaded = plan.context.weights
    seen = "" if loaded is None else f"{loaded.value} ({loaded.where})"
    notes.check(
        "Precision",
        "weight dtype",
        "double-fp16",
        "pure-fp16-weights",
        "bf16-lost-updates",
        seen=seen,
        otherwise="not set",
    )


def _unscaled(plan: Plan) -> list[Remark]:
    """A loss computed in fp16, whose gradients nothing scales."""
    for setting in plan.known:
        around, text = setting.name.rpartition(".")[0], plan.text_of(setting.source)
        if around.endswith("Accelerator") and last_step(setting) == "mixed_precision" and setting.value == "fp16":
            bypassed = _PLAIN_BACKWARD.search(text) and not _GIVEN_BACKWARD.search(text)
            if bypassed and not setting.doubtful and ".prepare(" in text:
                text = (
                    f"{setting.name}: fp16, but loss.backward() bypasses accelerator.backward(loss): nothing is scaled"
                )
                return [(text, setting.where, "accelerator.backward(loss)")]
    for setting in plan.settings:
        call, _, name = setting.name.rpartition(".")
        if name != HOLDS_LOSS or setting.where in plan.switched_off:
            continue
        told = {each.name.removeprefix(f"{call}."): each.value for each in plan.known if each.name.startswith(call)}
        half = setting.value == "default" or _HALF.fullmatch(str(told.get("dtype")))
        if half and told.get("enabled") is not False and told.get("device_type") != "cpu":
            return [("fp16 autocast without a GradScaler", setting.where)]
    return []


def _no_cast(precision: Known | None, weights: Setting) -> bool:
    """Whether fp16 weights are updated directly; bf16 autocast does not change them."""
    return precision is None or precision.value in ("fp32", "bf16") or _says_both(precision, weights)


def _says_both(precision: Known, weights: Setting) -> bool:
    """Whether one setting was read as both the weights' dtype and the compute precision."""
    return precision.text == f"{weights.name}: {weights.value}"


def _divides_by_zero(plan: Plan) -> bool:
    """Whether Adam updates fp16 weights with an eps that is 0 in fp16. SGD bears fp16 weights."""
    told = [each for each in plan.known if last_step(each) in ("adam_epsilon", "adam_eps")]
    told += [each for each in plan.known if last_step(each) == "eps" and OPTIMIZERS.search(each.name)]
    small = all((number_in(each.value) or 0.0) < _LEAST_HALF for each in told)
    return "adam" in optimizer_of(plan) and small and not plan.says(_MASTER)


def _written(weights: Setting) -> str:
    """`model.half: float16`, `AutoModel.from_pretrained.torch_dtype: float16`."""
    return f"{weights.name.removesuffix(f'.{TRAINED}')}: {weights.value}"


def _as_written(precision: Known) -> str:
    return precision.text.strip()[:80]


def _quantized(plan: Plan) -> bool:
    return plan.on("load_in_8bit", "load_in_4bit") is not None


def _to_bf16(plan: Plan, precision: Known) -> Iterator[Edit]:
    """Turn `mixed_precision: fp16` into bf16, and `fp16: true` into `bf16: true`."""
    for setting in plan.settings:
        if setting.where != precision.where or f"{setting.name}: {setting.value}" != precision.text:
            continue
        if isinstance(setting.value, str) and setting.value in _AS_BF16:
            yield Edit(cause="fp16-overflow-model-family", setting=setting, value=_AS_BF16[setting.value])
        elif last_step(setting) == "fp16" and is_on(setting.value) is True:
            yield Edit(cause="fp16-overflow-model-family", setting=setting, name="bf16")


def _both_halves(plan: Plan) -> tuple[Setting, Setting] | None:
    """Both switches on in one place: one file and level, or a command and its file."""
    switches: dict[str, list[Setting]] = {"fp16": [], "bf16": []}
    for setting in plan.known:
        name = last_step(setting)
        name = first_steps(setting).rpartition(".")[2] if name == "enabled" else name
        if name in switches and is_on(setting.value) is True and (number_in(setting.value) or 1) == 1:
            switches[name].append(setting)
    pairs = product(switches["fp16"], switches["bf16"])
    return next(((half, brain) for half, brain in pairs if _meet(half, brain, plan)), None)


def _meet(one: Setting, other: Setting, plan: Plan) -> bool:
    """Whether two switches concern the same training."""
    if one.source != other.source:
        # A command may disable a script's default.
        overruled = {each.plain for each in plan.settings if is_on(each.value) is False and each.kind == "command"}
        return "default" not in (one.kind, other.kind) and not {one.plain, other.plain} & overruled
    if (one.where, other.where) in plan.either_or:
        return False
    strip = re.compile(r"(?:^|\.)(?:fp16|bf16)(?:\.enabled)?$")
    return strip.sub("", one.name.lstrip("-")) == strip.sub("", other.name.lstrip("-"))


def _half_weights(plan: Plan) -> Setting | None:
    """Where the trained weights become fp16; by names alone only where no model was followed to its optimizer."""
    followed = [each for each in plan.settings if last_step(each) == TRAINED]
    if followed:
        sure = (each for each in followed if each.value == "float16" and not each.doubtful)
        return next((each for each in sure if each.where not in plan.switched_off), None)
    return _loaded_in_half(plan)


def _loaded_in_half(plan: Plan) -> Setting | None:
    """Where a model that may be the trained one is loaded or cast as fp16, by the names of settings."""
    halves = [
        setting
        for setting in plan.settings.all("torch_dtype", "from_pretrained_dtype", "model_dtype", "params_dtype")
        if isinstance(setting.value, str) and not isinstance(setting.value, Expression)
        if _HALF.fullmatch(setting.value) and not setting.doubtful
    ]
    others = {each.where for each in halves if _of_another_model(each)}
    for setting in halves:
        # A dict that is used only for a teacher does not concern the student.
        if not _of_another_model(setting) and (setting.bound_to or setting.where not in others):
            return setting
    for setting in plan.settings:
        called = last_step(setting) == "half" and _MODEL.match(first_steps(setting)) and is_on(setting.value) is True
        if called and not setting.doubtful and setting.where not in plan.switched_off:
            line = plan.text_of(setting.source).split("\n")[max(0, setting.line - 1) : setting.line]
            if not _ROUNDED.search("".join(line)):
                return setting
    return None


def _of_another_model(setting: Setting) -> bool:
    return _OTHER_MODEL.search(f"{setting.name.removeprefix(VERL)} {setting.bound_to}") is not None


_SIDES = ("hidden_size", "ffn_hidden_size", "intermediate_size", "in_features", "out_features")
_LENGTH, _BATCH = ("seq_length", "seq_len"), ("micro_batch_size", "local_batch_size")
_HISTORY = "--fp8-amax-history-len 1024 --fp8-amax-compute-algo max"


def eight_bits_in(plan: Plan) -> EightBits | None:
    """The fp8 training that the settings request, ignoring comments and notes."""
    certain = [each for each in plan.settings if not each.doubtful and each.where not in plan.switched_off]
    return eight_bits_of(Settings(certain, plan.settings.notes), words=False)


def look_at_eight_bits(plan: Plan, notes: Notes) -> None:
    """Check fp8 settings; record nothing without fp8."""
    eight = eight_bits_in(plan)
    if eight is None:
        return
    notes.remark("plan.fp8_stale_scale", *_old_scales(plan, eight))
    notes.remark("plan.fp8_sensitive_module", *_head(plan, eight))
    notes.remark("plan.fp8_unaligned_dims", *_sides(plan, eight))
    gather = plan.on("enable_fsdp_float8_all_gather")
    if gather is not None and eight.scaling is not None and eight.scaling.value == ROWWISE:
        text = f"{gather.text}, and {eight.scaling.text}: torchao gathers in float8 with tensorwise scales only"
        notes.contradict(text, gather.where, "enable_fsdp_float8_all_gather = false, or recipe_name = tensorwise")
    scaling = "" if eight.scaling is None else f", {eight.scaling.value} scales"
    by = f" by {eight.library}" if eight.library else ""
    seen = f"fp8{by}{scaling} ({eight.told.where})"
    notes.check("Precision", "fp8 scale freshness", "fp8-stale-scale", seen=seen)
    notes.check("Precision", "output head format", "fp8-sensitive-module")
    notes.check("Precision", "fp8 dimensions", "fp8-unaligned-dims")


def _old_scales(plan: Plan, eight: EightBits) -> list[Remark]:
    if not eight.delayed:
        return []
    # `most_recent` over a long history is a library default: a risk, but not worth a warning.
    found: list[Remark] = [(clue.text, clue.where) for clue in short_memory(eight) if "last step" not in clue.text]
    flag = plan.settings.find("fp8_format")
    megatron = flag is not None and flag.name.startswith("--fp8")
    if flag is not None and megatron and eight.history is None and eight.scaling is None:
        text = f"{flag.name} {flag.value}, and Megatron's history has one step by default"
        found.append((text, flag.where, _HISTORY))
    return found


def _head(plan: Plan, eight: EightBits) -> list[Remark]:
    titan = plan.find("converters")
    if titan is not None and (eight.kept is None or not keeps_head(eight.kept.value)):
        kept = "no filter_fqns" if eight.kept is None else eight.kept.text
        fix = 'filter_fqns = ["output"], or ["lm_head"]: as the model names its head'
        return [(f"{kept}: the head is converted to fp8 too", (eight.kept or eight.told).where, fix)]
    wide = plan.on("fp8_output_proj")
    if wide is not None:
        return [(f"{wide.text}: logits are computed in fp8", wide.where, "disable fp8_output_proj")]
    calls = [each for each in plan.settings if last_step(each) == "convert_to_float8_training" and each.value is True]
    filtered = any("convert_to_float8_training.module_filter_fn" in each.name for each in plan.settings)
    if calls and not filtered and calls[0].where not in plan.switched_off:
        fix = 'module_filter_fn=lambda module, name: name != "lm_head"'
        return [("convert_to_float8_training without module_filter_fn converts the head too", calls[0].where, fix)]
    return []


def _sides(plan: Plan, eight: EightBits) -> list[Remark]:
    """Configured shapes that do not fit. accelerate and torchtitan skip such weights, but not token counts."""
    found: list[Remark] = []
    if eight.library == "Transformer Engine" and plan.find("mixed_precision") is None:
        for setting in filter(None, map(plan.numbered, _SIDES)):
            value = number_in(setting.value) or 0.0
            if value % MULTIPLE:
                found.append((f"{setting.name} {value:g} is not a multiple of {MULTIPLE}", setting.where))
    length, batch = plan.number(*_LENGTH), plan.number(*_BATCH)
    block = {MXFP8: 32, BLOCKWISE: 128}.get("" if eight.scaling is None else eight.scaling.value, MULTIPLE)
    if length is not None and batch is not None and (length.value * batch.value) % block:
        text = f"{length.text} x {batch.text}: {length.value * batch.value:g} tokens is not a multiple of {block}"
        found.append((text, length.where, f"use a length divisible by {block}"))
    return found
