"""`stayfinite diff A B`: compare two plans of any kind, stability first."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting
from stayfinite.errors import UsageError
from stayfinite.inspection.files.learning_rate import batch_of
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.files.sources import COMMAND, MEND, broken_in, read_sources
from stayfinite.rules.context import ATTENTION, CHECKPOINTING, CLIP, OPTIMIZER, WARMUP
from stayfinite.rules.known import Known, is_on, number_in, written
from stayfinite.rules.optimization.planned_rate import EPOCHS, KIND, STEPS


@dataclass(frozen=True, slots=True)
class Matter:
    """One topic, whatever frameworks call it."""

    key: str
    """Our name for it."""
    names: tuple[str, ...]
    """Setting names, by their last part."""
    means: str
    """What a difference means for stability."""
    higher: str = ""
    """What the larger value means, if more needs saying; `{ratio}` is larger over smaller."""


MATTERS = (
    Matter("learning rate", ("learning_rate", "lr", "max_lr", "base_lr", "peak_lr", "init_lr", "lr0"),
           "a rate that fits one setup may be too high for the other",
           "updates are {ratio} times as large: the higher rate diverges first"),
    Matter("warmup", (*WARMUP, "warmup_epochs", "warmup_num_steps", "lr_warmup_steps", "warmup_proportion"),
           "shorter warmup reaches the full rate before Adam's averages settle"),
    Matter("clipping", (*CLIP, "clip"), "without clipping, one huge gradient can ruin the weights"),
    Matter("input length", (
        "max_source_length", "max_input_length", "max_input_len", "max_source_len", "max_src_len", "max_seq_length",
        "max_seq_len", "max_sequence_length", "cutoff_len", "sequence_len", "seq_length", "seq_len", "max_length",
        "max_len", "maxlen", "block_size", "model_max_length", "max_tokens",
    ), "the shorter limit truncates inputs; the longer one costs memory"),
    Matter("target length", (
        "max_target_length", "max_target_len", "max_output_length", "max_output_len", "max_label_length",
        "val_max_target_length", "max_tgt_len", "max_completion_length",
    ), "the shorter limit truncates labels; a fully truncated answer has no label"),
    Matter("generation length", ("generation_max_length", "max_new_tokens", "gen_max_length", "max_gen_length"),
           "the shorter limit truncates answers in evaluation: lower scores, same training"),
    Matter("optimizer", (*OPTIMIZER, "opt"), "each optimizer needs its own learning rate"),
    Matter("schedule", KIND, "the rate decays differently: late steps differ most"),
    Matter("weight decay", ("weight_decay", "wd"), "more decay keeps weights and activations smaller"),
    Matter("Adam's epsilon", ("adam_epsilon", "eps", "adam_eps", "optimizer_eps"),
           "a tiny epsilon makes huge updates from small second moments; 1e-8 is 0 in fp16"),
    Matter("Adam's second beta", ("adam_beta2", "beta2"),
           "closer to 1 remembers a spike longer and needs longer warmup"),
    Matter("betas", ("betas", "adam_betas"), "the second one sets how fast Adam adapts to larger gradients"),
    Matter("epochs", EPOCHS, "the schedule scales with the length: the rate differs at the same step"),
    Matter("steps", STEPS, "the schedule scales with the length: the rate differs at the same step"),
    Matter("model", (
        "model_name_or_path", "pretrained_model_name_or_path", "base_model", "model_name", "model_id",
        "model_checkpoint", "checkpoint", "pretrained_model", "arch",
    ), "another model has other activation ranges and another safe rate"),
    Matter("adapters' rank", ("lora_r", "lora_rank", "r"),
           "adapter updates scale with alpha / rank: changing one changes the rate"),
    Matter("adapters' alpha", ("lora_alpha",),
           "adapter updates scale with alpha / rank: changing one changes the rate"),
    Matter("8-bit weights", ("load_in_8bit", "use_8bit"),
           "quantized weights cannot be trained and add noise to the adapters"),
    Matter("4-bit weights", ("load_in_4bit", "use_4bit", "quantization_bit"),
           "quantized weights cannot be trained and add noise to the adapters"),
    Matter("gradient checkpointing", CHECKPOINTING,
           "saves memory, same numbers, unless re-entrant over frozen inputs"),
    Matter("attention", ATTENTION, "kernels round differently, and some return NaN for fully masked rows"),
    Matter("loss scale", ("loss_scale", "initial_scale_power", "init_scale", "fp16_init_scale"),
           "decides when fp16 gradients overflow or underflow"),
    Matter("dropout", ("dropout", "dropout_rate", "hidden_dropout_prob"), "more dropout, noisier gradients"),
    Matter("label smoothing", ("label_smoothing_factor", "label_smoothing"),
           "smoothing bounds the logits and raises the lowest possible loss"),
    Matter("shuffling", ("shuffle", "shuffle_dataset"), "unshuffled data: consecutive batches look alike"),
    Matter("seed", ("seed", "random_seed", "manual_seed", "set_seed", "seed_everything", "data_seed"),
           "different seed: individual spikes move, the trend stays"),
)  # fmt: skip

BATCH = (
    "per_device_train_batch_size", "per_gpu_train_batch_size", "train_batch_size", "micro_batch_size", "batch_size",
    "train_micro_batch_size_per_gpu", "global_batch_size", "samples_per_gpu",
)  # fmt: skip
ACCUMULATION = (
    "gradient_accumulation_steps", "accumulate_grad_batches", "update_freq", "grad_accum_steps", "accum_steps",
)  # fmt: skip
PRECISION = lazy_regex(
    r"fp16|bf16|use_fp16|use_amp|amp|mixed_precision|precision|bfloat16|half|fp16_opt_level|opt_level|amp_dtype"
)
PRECISION_MEANS = {
    frozenset({"fp16", "fp32"}): "fp16 overflows above 65,504, fp32 does not: finite in one, NaN in the other",
    frozenset({"fp16", "bf16"}): "fp16 overflows above 65,504; bf16 has fp32's range but rounds more",
    frozenset({"bf16", "fp32"}): "bf16 keeps about 3 digits; weights stored in bf16 lose small updates",
}


_BOTH = "fp16 and bf16"
"""Shown as the format of a side that switches on both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A value on one side."""

    name: str
    value: Any
    where: str

    def to_json(self) -> dict[str, Any]:
        plain = isinstance(self.value, bool | int | float | str | list | dict | None)
        finite = not isinstance(self.value, float) or math.isfinite(self.value)
        return {"name": self.name, "value": self.value if plain and finite else str(self.value), "where": self.where}


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting that differs."""

    name: str
    left: Side | None
    """None if this side does not set it."""
    right: Side | None
    means: str = ""
    """Its effect on stability; empty if none."""

    @property
    def clash(self) -> bool:
        """Whether both sides contradict themselves alike: no difference, but it comes before those."""
        return [side.value for side in (self.left, self.right) if side is not None] == [_BOTH, _BOTH]

    @property
    def differs(self) -> bool:
        """Whether both sides set it to different values."""
        return self.left is not None and self.right is not None and not same_value(self.left.value, self.right.value)

    def to_json(self) -> dict[str, Any]:
        sides = {name: side.to_json() if side else None for name, side in (("left", self.left), ("right", self.right))}
        return {"name": self.name, **sides, "means": self.means}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Differences between two plans."""

    left: str
    right: str
    training: tuple[Difference, ...]
    """Set differently and relevant for stability, most important first; before them what contradicts itself alike."""
    other: tuple[Difference, ...]
    """Set differently, but not relevant for stability: paths, logging."""
    one_sided: tuple[Difference, ...]
    """Set by one side only; relevant for stability first."""
    equal: int

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.training or self.other or self.one_sided)

    def to_json(self) -> dict[str, Any]:
        parts = {name: [each.to_json() for each in getattr(self, name)] for name in ("training", "other", "one_sided")}
        return {"same": self.same, "left": self.left, "right": self.right, **parts, "equal": self.equal}


def same_value(left: Any, right: Any) -> bool:
    """Whether two values are equal, however written: `1e-4` and `"0.0001"`, `true` and `1`."""
    if isinstance(left, bool) or isinstance(right, bool):
        return is_on(left) is not None and is_on(left) == is_on(right)
    numbers = [number_in(each) if _is_number(each) else None for each in (left, right)]
    if None not in numbers:
        return numbers[0] == numbers[1] or all(math.isnan(each) for each in numbers if each is not None)
    return left == right or str(left).strip().lower() == str(right).strip().lower()


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return re.fullmatch(r"[-+]?\d*\.?\d+(?:e[-+]?\d+)?", value.strip(), re.IGNORECASE) is not None
    return isinstance(value, int | float)


_CALLED = lazy_regex(r"(?:self\.)?[a-z_]\w*(?:\.\w+)*\.\w+")
"""A method call such as `loss.backward` or `trainer.train`, which occurs in code but not in configs."""


def compare(left: str, right: str) -> Comparison:
    """Compare two files or commands. Raises UsageError if one cannot be read."""
    plans = tuple(Plan(sources=read_sources([each])) for each in (left, right))
    for plan, name in zip(plans, (left, right), strict=True):
        for broken in broken_in(plan.sources)[:1]:
            raise UsageError(f"{broken.where}: {broken.text}", fix=MEND)
        if not plan.settings:
            raise UsageError(f"no settings found in {name}", fix="name a config, a script, a notebook or a command")
    taken: tuple[set[int], set[int]] = (set(), set())
    found = [*_precision(plans, taken), *_matters(plans, taken), *_rest(plans, taken)]
    both = [each for each in found if each.left is not None and each.right is not None]
    differing = [each for each in both if each.differs]
    names = [plan.sources[0].name for plan in plans]
    if names == [COMMAND, COMMAND]:
        names = [f"{COMMAND} 1", f"{COMMAND} 2"]
    clashes = [each for each in both if each.clash] if len(differing) + len(found) > len(both) else []
    return Comparison(
        left=names[0],
        right=names[1],
        training=(*clashes, *(each for each in differing if each.means)),
        other=tuple(each for each in differing if not each.means),
        one_sided=tuple(sorted((each for each in found if each not in both), key=lambda each: not each.means)),
        equal=len(both) - len(differing) - len(clashes),
    )


def _precision(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    """The number format first, whichever switch sets it."""
    known = [plan.precision or _left_open(plan) for plan in plans]
    formats = ["fp32" if each is None else str(each.value) for each in known]
    for index, (plan, ids) in enumerate(zip(plans, taken, strict=True)):
        switches = [each for each in plan.settings if _is_switch(each)]
        ids.update(map(id, switches))
        if any(_asks_for_other(each, formats[index]) for each in switches):
            formats[index] = _BOTH
    if all(each is None for each in known):
        return
    names = {"" if each is None else _last(each.text.partition(":")[0]) for each in known}
    names |= {"precision"} if _BOTH in formats else set()
    sides = []
    for each, number_format in zip(known, formats, strict=True):
        if each is None:
            sides.append(Side(name="", value="not set", where=""))
            continue
        name, _, value = each.text.strip().partition(":")
        # Show the switch as written if both sides use the same one, else the resulting format.
        plain = len(names) == 1 and formats[0] != formats[1]
        sides.append(Side(name=name, value=value.strip() if plain else number_format, where=each.where))
    if formats[0] == formats[1]:  # two spellings of one format
        sides = [replace(side, value=formats[0]) for side in sides]
    means = PRECISION_MEANS.get(frozenset(formats), "values finite in one format may overflow in the other")
    if _BOTH in formats:
        means = "only one of fp16 and bf16 can apply: switch one off"
    called = names.pop() if len(names) == 1 else "precision"
    yield Difference(name=called, left=sides[0], right=sides[1], means=means)


def _left_open(plan: Plan) -> Known | None:
    """A switch that is known only at run time: `bf16: auto`, `fp16=not is_bf16_supported()`."""
    for setting in plan.settings:
        if _is_switch(setting) and isinstance(setting.value, str) and is_on(setting.value) is None:
            return written(setting, f"{last_step(setting)}: {setting.value}")
    return None


def _is_switch(setting: Setting) -> bool:
    return bool(PRECISION.fullmatch(last_step(setting)) or re.search(r"(?:fp16|bf16)\.enabled$", setting.name))


def _asks_for_other(setting: Setting, number_format: str) -> bool:
    named = re.search(r"bf16|fp16", setting.name)
    return named is not None and named.group() != number_format and is_on(setting.value) is True


def _matters(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    for index, matter in enumerate(MATTERS):
        if index == 3:  # after rate, warmup and clipping
            yield from _batch(plans, taken)
        yield from _matter(matter, plans, taken)


def _matter(matter: Matter, plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    found = [_first(plan, matter.names, ids) for plan, ids in zip(plans, taken, strict=True)]
    if all(each is None for each in found):
        return
    sides = [_side(each) for each in found]
    means = matter.means
    numbers = [None if each is None else number_in(each.value) for each in found]
    if matter.higher and all(value is not None and math.isfinite(value) and value > 0 for value in numbers):
        low, high = sorted(value for value in numbers if value is not None)
        means = matter.higher.format(ratio=f"{high / low:.3g}" if high < 100 * low else f"{high / low:,.0f}")
    name = _called(matter.key, sides)
    if matter.key == "clipping":  # without it, a single gradient can end the training
        sides = [side or Side(name="", value="not set", where="") for side in sides]
    yield Difference(name=name, left=sides[0], right=sides[1], means=means)


def _batch(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    """Rows per update, from all settings that contribute."""
    sides: list[Side | None] = []
    rows_an_update = []
    for plan, ids in zip(plans, taken, strict=True):
        rows, steps = _first(plan, BATCH, ids), _first(plan, ACCUMULATION, ids)
        whole = batch_of(plan)
        if rows is None or whole is None:
            sides.append(None)
            continue
        parts = f"{rows.value} x {steps.value}" if steps is not None and number_in(steps.value) else ""
        rows_an_update.append(whole)
        sides.append(Side(name=last_step(rows), value=f"{whole:g} ({parts})" if parts else whole, where=rows.where))
    if len(rows_an_update) == 2 and rows_an_update[0] == rows_an_update[1]:  # the same update, split differently
        sides = [replace(side, value=rows_an_update[0]) for side in sides if side is not None]
    if any(side is not None for side in sides):
        means = "smaller batches have noisier gradients: lower the rate with them, and expect more spikes"
        yield Difference(name="batch (rows per update)", left=sides[0], right=sides[1], means=means)


def _first(plan: Plan, names: tuple[str, ...], taken: set[int]) -> Setting | None:
    """The effective setting: by name order, known values before defaults before expressions."""
    by_name: dict[str, list[Setting]] = {}
    for setting in plan.settings:
        if id(setting) not in taken:
            by_name.setdefault(last_step(setting), []).append(setting)
    found = [each for name in names for each in by_name.get(name, []) if not isinstance(each.value, dict)]
    chosen = min(found, key=lambda each: (isinstance(each.value, Expression), each.kind == "default"), default=None)
    if chosen is not None:
        taken.update(id(each) for each in found if each is chosen or not _says_more(each, chosen))
    return chosen


def _says_more(setting: Setting, chosen: Setting) -> bool:
    """Whether another setting of the same topic has a different value: another group's rate, another limit."""
    if setting.source != chosen.source or setting.kind != chosen.kind or isinstance(setting.value, Expression):
        return False  # overridden, a default, or unknown
    return not same_value(setting.value, chosen.value)


def _rest(plans: tuple[Plan, ...], taken: tuple[set[int], ...]) -> Iterator[Difference]:
    """All other settings: by full path in configs, by last part in code."""
    left, right = (_by_name(plan, ids) for plan, ids in zip(plans, taken, strict=True))
    all_left, all_right = (_by_name(plan, set()) for plan in plans)
    for name in dict.fromkeys((*left, *right)):
        # A setting already shown under a more important name may match one of the other side here.
        ours = left.get(name) or all_left.get(name, [])
        theirs = right.get(name) or all_right.get(name, [])
        shared = next(((one, other) for one in ours for other in theirs if same_value(one.value, other.value)), None)
        # A name may occur several times: show the values that only one side has.
        only_ours = [each for each in ours if not any(same_value(each.value, other.value) for other in theirs)]
        only_theirs = [each for each in theirs if not any(same_value(each.value, other.value) for other in ours)]
        if shared is not None:
            yield Difference(name=name, left=_side(shared[0]), right=_side(shared[1]))
        for one, other in zip_longest(only_ours, only_theirs):
            either = one if one is not None else other
            means = "" if either is None else _means(either)
            yield Difference(name=name, left=_side(one), right=_side(other), means=means)


def _means(setting: Setting) -> str:
    """The effect of a further setting of a known topic; empty if it does not affect stability."""
    if _is_switch(setting):
        return "a second number format is set, but only one can apply"
    return next((matter.means for matter in MATTERS if last_step(setting) in matter.names), "")


def _by_name(plan: Plan, taken: set[int]) -> dict[str, list[Setting]]:
    found: dict[str, list[Setting]] = {}
    for setting in plan.settings:
        call = setting.value is True and _CALLED.fullmatch(setting.name) and setting.kind in ("script", "notebook")
        if id(setting) not in taken and not call and not isinstance(setting.value, Expression):
            code = setting.kind in ("script", "notebook", "command", "default") or "." not in setting.name
            alike = found.setdefault(last_step(setting) if code else setting.plain, [])
            if not any(same_value(setting.value, each.value) for each in alike):
                alike.append(setting)
    return found


def _side(setting: Setting | None) -> Side | None:
    return None if setting is None else Side(name=setting.name, value=setting.value, where=setting.where)


def _called(key: str, sides: list[Side | None]) -> str:
    """The name that both sides use, else ours."""
    names = {_last(side.name) for side in sides if side is not None}
    return names.pop() if len(names) == 1 else key


def _last(name: str) -> str:
    return re.split(r"[./]", name.strip())[-1].lstrip("-")
