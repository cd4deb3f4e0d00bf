"""Rows per update, on which all files agree, and sequence lengths within the model's positions."""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.added_tokens import added_tokens
from stayfinite.inspection.files.learning_rate import batch_of
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.files.post_training import VERL
from stayfinite.inspection.files.sources import Source
from stayfinite.inspection.notes import Notes
from stayfinite.rules.data.lookups import position_limit
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import is_on, number_in
from stayfinite.rules.plans import Remark

ROWS = (
    "per_device_train_batch_size", "micro_batch_size", "train_batch_size", "train_micro_batch_size_per_gpu",
    "samples_per_gpu", "global_batch_size", "batch_size",
)  # fmt: skip
_SAME = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_num_steps": "warmup_steps",
}
"""DeepSpeed settings and the Trainer's equivalents; transformers refuses a mismatch."""


def look_at_batches(plan: Plan, notes: Notes) -> None:
    """Check for positive sizes, divisibility, and one value per setting across files."""
    remarks = _impossible(plan) + _in_verl(plan)
    for source in plan.sources:
        if _is_deepspeed(source):
            remarks += _products(source) + _offloading(source)
            remarks += _against_trainer(source, plan) if plan.is_transformers else []
    causes = {notes.contradict(*remark) for remark in remarks}
    found = [plan.numbered(name) for name in (*ROWS, "gradient_accumulation_steps", "accumulate_grad_batches")]
    told = {id(each): each for each in found if each is not None}
    seen = [shown(each) for each in told.values()][:3]
    rows = batch_of(plan)
    whole = f", {rows:g} rows per update on each GPU" if rows is not None and len(seen) > 1 else ""
    notes.check(
        "Batch",
        "batch sizes",
        *causes,
        seen=", ".join(seen) + whole,
        otherwise="" if causes else "no setting gives its size",
    )


def _impossible(plan: Plan) -> list[Remark]:
    names = ("per_device_train_batch_size", "gradient_accumulation_steps", "accumulate_grad_batches")
    sizes = [size for name in names if (size := plan.number(name)) is not None]
    fix = "use a whole number, 1 or more"
    return [(f"{size.text} must be at least 1", size.where, fix) for size in sizes if size.value < 1]


def _in_verl(plan: Plan) -> list[Remark]:
    """A GPU's share of a mini-batch below its micro-batch: verl refuses it; older releases divide by 0."""
    names = (f"{VERL}actor.ppo_mini_batch_size", f"{VERL}actor.ppo_micro_batch_size_per_gpu",
             "trainer.n_gpus_per_node", "trainer.nnodes")  # fmt: skip
    known = {each.name: each for each in reversed(list(plan.settings)) if number_in(each.value)}
    settings = [known[name] for name in names if name in known]
    megatron = any(".megatron." in each.name or each.value == "megatron" for each in plan.settings)
    if len(settings) < len(names) or megatron or plan.on("use_dynamic_bsz") is not None:
        return []
    mini, micro, cards, nodes = (number_in(each.value) or 0.0 for each in settings)
    answers = plan.number(f"{VERL}rollout.n")
    parts = plan.number("ulysses_sequence_parallel_size")
    group = 1.0 if answers is None else answers.value
    share = mini * group * (1.0 if parts is None else parts.value) / (cards * nodes)
    if share >= micro:
        return []
    text = f"ppo_mini_batch_size {mini:g} x n {group:g} over {cards * nodes:g} GPUs is {share:g} answers per GPU"
    text += f", below ppo_micro_batch_size_per_gpu {micro:g}"
    return [(text, settings[1].where, "a smaller ppo_micro_batch_size_per_gpu, or a larger ppo_mini_batch_size")]


def _is_deepspeed(source: Source) -> bool:
    return any(
        each.name.startswith(("zero_optimization", "train_micro_batch_size_per_gpu")) for each in source.settings
    )


def _of(source: Source, name: str) -> tuple[float, Setting] | None:
    for setting in source.settings:
        value = number_in(setting.value) if setting.name == name else None
        if value is not None:
            return value, setting
    return None


def _products(source: Source) -> list[Remark]:
    whole, part, steps = (
        _of(source, name)
        for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    )
    if whole is None or part is None:
        return []
    each = part[0] * (steps[0] if steps is not None else 1)
    if each > 0 and whole[0] % each == 0:
        return []
    text = f"train_batch_size {whole[0]:g} is not a multiple of {each:g}, the rows of one GPU per update"
    fix = "train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x number of GPUs"
    return [(text, whole[1].where, fix)]


def _offloading(source: Source) -> list[Remark]:
    stage = _of(source, "zero_optimization.stage")
    if stage is None:
        return []
    if stage[0] not in (0, 1, 2, 3):
        text = f"zero_optimization.stage: {stage[0]:g} is not 0, 1, 2 or 3"
        return [(text, stage[1].where, "set the stage to 0, 1, 2 or 3")]
    for setting in source.settings:
        device = str(setting.value).lower()
        if setting.name == "zero_optimization.offload_param.device" and device in ("cpu", "nvme") and stage[0] < 3:
            text = f"offload_param needs stage 3, but the stage is {stage[0]:g}"
            return [(text, setting.where, "stage 3, or remove offload_param")]
    return []


def _against_trainer(source: Source, plan: Plan) -> list[Remark]:
    """DeepSpeed values that contradict the Trainer's; `auto` adopts them."""
    others = [each for each in plan.settings if each.source != source.name and each.kind != "default"]
    pairs: list[tuple[Setting, Setting]] = []
    fix = 'set the DeepSpeed values to "auto"; keep the numbers in the Trainer'
    for theirs, ours in _SAME.items():
        known = _of(source, theirs)
        other = next((each for each in others if last_step(each) == ours and number_in(each.value) is not None), None)
        if known is not None and other is not None and number_in(other.value) != known[0]:
            pairs.append((known[1], other))
    for name in ("fp16", "bf16"):
        switch = next((each for each in source.settings if each.name == f"{name}.enabled"), None)
        other = next((each for each in others if last_step(each) == name), None)
        if switch is not None and other is not None and {is_on(switch.value), is_on(other.value)} == {True, False}:
            pairs.append((switch, other))
    return [
        (f"{one.name}: {one.value}, and {other.name}: {other.value} ({other.where})", one.where, fix)
        for one, other in pairs
        if not isinstance(other.value, Expression)
    ]


INPUT = frozenset(
    {
        "max_length", "max_seq_length", "max_seq_len", "max_sequence_length", "max_len", "cutoff_len",
        "max_source_length", "max_input_length", "sequence_len", "seq_length", "seq_len", "max_target_length",
        "max_text_length",
    }
)  # fmt: skip
LIMITS = (
    "max_source_length", "max_input_length", "max_seq_length", "max_length", "cutoff_len", "sequence_len",
    "max_seq_len", "max_len", "seq_length", "block_size", "max_target_length", "generation_max_length",
    "max_new_tokens", "max_completion_length", "max_prompt_length",
)  # fmt: skip
_PAIRS = {"min_new_tokens": "max_new_tokens", "min_length": "max_length", "doc_stride": "max_seq_length"}
"""Each must be below the other."""
_HEARS = lazy_regex(r"whisper|wav2vec|hubert|speech|audio", re.IGNORECASE)
_OF_TARGETS = frozenset({"max_target_length", "max_text_length"})
"""Lengths in tokens also where inputs are frames or samples of sound."""
_NO_TEXT = lazy_regex(r"(?:\w+\.)*(?:vision|image|visual|audio|speech)_", re.IGNORECASE)
"""Models whose inputs are not tokens; text limits belong to the model next to them."""
DEFAULT_LIMIT = 20  # transformers' default limit of generated tokens


def look_at_lengths(plan: Plan, notes: Notes) -> None:
    """Check position tables, room for answers, and contradictory limits."""
    notes.remark("plan.too_long", *_beyond_positions(plan))
    notes.remark("plan.tokens_added", *added_tokens(plan))
    notes.remark("plan.generation_limit", *_generation_too_short(plan))
    causes = ["position-out-of-range", "token-id-out-of-range", "generation-too-short", "all-labels-masked"]
    prompt, whole = plan.number("max_prompt_length"), _named(plan, "max_length")
    # One value used for both is a single limit.
    if prompt is not None and whole is not None and prompt.value >= whole[0] and prompt.where != whole[1].where:
        text = f"{prompt.text} leaves no room for an answer within {whole[1].name}: {whole[1].value} ({whole[1].where})"
        notes.remark("plan.no_room_for_answer", (text, prompt.where))
    for least, most in _PAIRS.items():
        low, high = _named(plan, least), _named(plan, most)
        if low is None or high is None:
            continue
        if low[0] > high[0] or (least == "doc_stride" and low[0] == high[0]):
            text = f"{low[1].name}: {low[1].value} is not below {high[1].name}: {high[1].value} ({high[1].where})"
            causes.append(notes.contradict(text, low[1].where, f"lower {least}, or raise {most}"))
    limits = [shown(found[1]) for name in LIMITS if (found := _named(plan, name)) is not None]
    causes = list(dict.fromkeys(causes))
    notes.check("Lengths", "sequence lengths", *causes, seen=", ".join(limits[:4]), otherwise="not set")


def _named(plan: Plan, name: str) -> tuple[float, Setting] | None:
    """A setting with exactly this last part, and its number; `generate.max_length` is a different one."""
    for setting in plan.known:
        value = number_in(setting.value) if last_step(setting) == name else None
        if value is not None and 0 < value < 1e7 and "generat" not in setting.name.partition(".")[0]:
            return value, setting
    return None


def _beyond_positions(plan: Plan) -> list[Remark]:
    model = plan.context.model
    if model is None and plan.find("max_position_embeddings", "n_positions", "n_ctx") is None:
        return []
    if not plan.trains or (model is not None and _NO_TEXT.match(model.text.lstrip("-"))):
        return []
    if plan.says(r"\brope|rotary|alibi|relative_position|interpolat|position_ids|sliding|stride"):
        return []
    limit = position_limit(Facts(settings=plan.settings))
    names = INPUT & _OF_TARGETS if limit is not None and _HEARS.search(limit[1]) else INPUT
    lengths = [each for name in names if (each := _named(plan, name)) is not None]
    longest, setting = max(lengths, key=lambda each: each[0], default=(0.0, None))
    if limit is None or setting is None or longest <= limit[0]:
        return []
    return [(f"{setting.name}: {setting.value}, and {limit[1]}", setting.where)]


_GENERATING = r"compute_metrics|\.predict\("


def _generation_too_short(plan: Plan) -> list[Remark]:
    """Evaluation by generation with a limit below the target length."""
    generates = plan.on("predict_with_generate")
    if generates is None:
        return []
    target = _named(plan, "max_target_length") or _named(plan, "val_max_target_length")
    limit = plan.number("generation_max_length", "max_new_tokens", "generation_max_new_tokens", "val_max_target_length")
    if limit is not None:
        if target is None or limit.value >= target[0]:
            return []
        text = f"{limit.text} is below {target[1].name}: {target[1].value} ({target[1].where}): answers are cut"
        return [(text, limit.where)]
    told = r"generation_?config|max_new_tokens|gen_kwargs|config\.max_length|generation_max_length|gen_max_len"
    family = plan.family
    if family is None or family.value != "T5" or plan.says(told):
        return []
    if not plan.scripts or any("generation" in source.text for source in plan.scripts):
        return []
    if any("Trainer(" in each.text for each in plan.scripts) and not plan.says(_GENERATING):
        return []  # without metrics, the trainer computes losses and generates nothing
    text = f"{generates.text}, but no length is set: {family.text} stops at {DEFAULT_LIMIT} tokens"
    return [(text, generates.where)]
