"""Rows per update, and whether all files agree: DeepSpeed's values must match the Trainer's."""

from __future__ import annotations

from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.learning_rate import batch_of
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.files.post_training import VERL
from stayfinite.inspection.files.sources import Source
from stayfinite.inspection.notes import Notes
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
    fix = 'write "auto" in the DeepSpeed file, and the value in the Trainer only'
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
