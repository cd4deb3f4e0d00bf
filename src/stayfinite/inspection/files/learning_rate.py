"""Which learning rate is planned, and for what."""

from __future__ import annotations

import math
import re

from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.contradictions import contradict
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import RATES, Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.context import CLIP, OPTIMIZER
from stayfinite.rules.known import Known, number_in, written
from stayfinite.rules.optimisation.planned_limits import PlannedRate

_LARGE = frozenset({"LLaMA", "Qwen", "Gemma", "DeepSeek", "Phi", "ChatGLM", "Baichuan", "InternLM", "Yi", "OLMo",
                    "Falcon", "Granite", "bf16-trained"})  # fmt: skip
_SIZE = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?)[ _-]?([bm])\b", re.IGNORECASE)
_TRANSFORMER = re.compile(
    r"bert|gpt|\bbart|\bvit\b|\bvit[-_]|deit|swin|beit|whisper|wav2vec|hubert|\bclip|electra|\bopt-|bloom|marian|opus-mt|"
    r"nllb|m2m|xlm|albert|transformer|pythia|mamba|blip|\bmpnet|minilm|layoutlm|donut|trocr|segformer",
    re.IGNORECASE,
)
_SCRATCH = re.compile(r"from_scratch|init_from: scratch|train_from_scratch|\.from_config\b|random_init", re.IGNORECASE)
_PRETRAINED = ("model_name_or_path", "base_model", "from_pretrained_name", "pretrained_model_name_or_path", "model_id",
               "pretrained_model", "restore_file", "finetune_from_model", "pretrained")  # fmt: skip
_FACTOR = re.compile(r"\bnoam|lambda_?lr\b|lr_lambda|rsqrt|\bxformer_schedule", re.IGNORECASE)
_FROZEN = re.compile(r"requires_grad: False|\bfreeze|\bfrozen|linear_prob", re.IGNORECASE)
_OPTIMIZERS = re.compile(
    r"\b(\w*adam\w*|sgd|adafactor|lion\w*|prodigy|rmsprop|lamb|lars|adagrad|muon|nag|adadelta)\b", re.IGNORECASE
)

_OTHER_SCALE = re.compile(r"\bscaled_?adam\b|\bscaled_?adam\.", re.IGNORECASE)
"""icefall's, whose usual rate is 0.045."""
_OPTIMIZER_CLASS = ("optim_wrapper_optimizer_type", "optimizer_class_path", "optimizer_target", "optimizer_component")
"""Where mmengine, Lightning, Hydra and torchtune write the class."""
_ADAMS_OWN = frozenset({"beta1", "beta2", "betas", "adam_beta1", "adam_beta2", "adam_betas"})
_MOST_STEP = 25.0
"""The rate times the largest gradient norm, up to which clipping bounds a step of SGD: word language models with LSTMs
take 20 x 0.25 and 1 x 10."""


def look_at_learning_rate(plan: Plan, notes: Notes) -> None:
    """Whether it is there, a number above 0, and on the scale of its optimizer and of what is trained."""
    causes: tuple[str, ...] = ("lr-zero", "lr-too-high", "lr-too-low")
    title = "on the scale of the optimizer and of what is trained"
    setting = _counting(plan)
    if setting is None:
        notes.check("Learning rate", title, *causes, skipped="no setting gives it as a number")
        return
    known = written(setting, number_in(setting.value))
    impossible = _impossible(plan, known)
    if impossible is not None:
        text = f"{impossible.text}: a learning rate is a number above 0"
        causes = (*causes, contradict(notes, text, impossible.where, "write the rate as a finite number above 0"))
    elif known.value == 0 and _all_zero(plan):
        notes.saw("plan.lr_zero", [(f"{known.text}: nothing is learned", known.where)])
    planned = planned_rate(plan, known)
    notes.saw("plan.rate", planned, known.where)
    for_what = " for ".join(part for part in (planned.optimizer, _trained_words(planned)) if part)
    seen = shown(setting) + (f", {for_what}" if for_what else "")
    notes.check("Learning rate", title, *causes, seen=seen)


def planned_rate(plan: Plan, known: Known) -> PlannedRate:
    """The rate with all that decides whether it fits."""
    return PlannedRate(
        rate=float(known.value),
        text=known.text,
        optimizer=optimizer_of(plan),
        trained=trained(plan),
        model=model_kind(plan),
        batch=batch_of(plan),
        clipped=_bounded(plan, float(known.value)),
        preference=plan.preference,
        factor=plan.says(_FACTOR) or (plan.adapters is None and plan.says(_FROZEN)),
    )


def optimizer_of(plan: Plan) -> str:
    """The optimizer's name in small letters; empty where nothing says it, and for one with rates of its own."""
    if plan.says(_OTHER_SCALE):
        return ""
    for setting in plan.settings.all(*OPTIMIZER, *_OPTIMIZER_CLASS):
        if isinstance(setting.value, str) and (found := _OPTIMIZERS.search(setting.value)):
            return found.group().lower()
    for setting in plan.settings:
        found = _OPTIMIZERS.search(setting.name)
        if found is not None and setting.name.rpartition(".")[2] == "lr":  # torch.optim.SGD.lr
            return found.group().lower()
    if any(last_step(setting) in _ADAMS_OWN for setting in plan.settings):
        return "adam"
    return "adamw" if plan.framework else ""


def trained(plan: Plan) -> str:
    """What is trained: `prompt`, `adapters`, `whole`, `scratch`, or empty where it is not clear."""
    if plan.soft_prompt:
        return "prompt"
    if plan.adapters is not None:
        return "adapters"
    if plan.says(_SCRATCH):
        return "scratch"
    if plan.says(_FROZEN):
        return ""
    setting = plan.settings.find(*_PRETRAINED)
    if setting is not None and setting.value:
        return "whole"
    return "scratch" if plan.find("arch", "config_name") and not plan.find("checkpoint", "load") else ""


def model_kind(plan: Plan) -> str:
    """`large`, `t5`, `transformer` or empty."""
    model = plan.context.model
    text = str(model.value) if model is not None else plan.family.text if plan.family is not None else ""
    size = _SIZE.search(text)
    billions = None if size is None else float(size.group(1)) / (1 if size.group(2).lower() == "b" else 1000)
    if plan.family is not None and plan.family.value in ("T5", "Pegasus"):
        return "t5"
    large = plan.family is not None and plan.family.value in _LARGE if billions is None else billions >= 1
    if large:
        return "large"
    return "transformer" if plan.family is not None or _TRANSFORMER.search(text) else ""


def batch_of(plan: Plan) -> float | None:
    """Rows in an update, as far as the files tell."""
    rows = plan.number(
        "train_batch_size", "global_batch_size", "per_device_train_batch_size", "micro_batch_size", "batch_size",
        "samples_per_gpu",
    )  # fmt: skip
    if rows is None or rows.value <= 0:
        return None
    steps = plan.number("gradient_accumulation_steps", "accumulate_grad_batches", "update_freq")
    cards = plan.number("num_processes", "nproc_per_node", "num_gpus", "gpus", "world_size")
    return float(rows.value) * max(1.0, steps.value if steps else 1.0) * max(1.0, cards.value if cards else 1.0)


def _counting(plan: Plan) -> Setting | None:
    """The setting that gives the rate: beside others in the same file, that of the optimizer itself."""
    first = next((found for name in RATES if (found := plan.find(name)) and number_in(found.value) is not None), None)
    if first is None or first.kind != "file":
        return first
    for setting in plan.settings:
        of_optimizer = setting.source == first.source and setting.name.startswith(("optimizer.", "optim."))
        if of_optimizer and last_step(setting) in RATES and number_in(setting.value) is not None:
            return setting
    return first


def _impossible(plan: Plan, counts: Known) -> Known | None:
    """A rate that no optimizer takes: the one that counts, or that of a further group or optimizer of the same file."""
    if not math.isfinite(counts.value) or counts.value < 0:
        return counts
    for setting in plan.settings:
        if last_step(setting) not in RATES or setting.kind == "default" or isinstance(setting.value, Expression):
            continue
        value = number_in(setting.value)
        same_file = counts.where.rpartition(":")[0] in ("", setting.source)
        if same_file and value is not None and (not math.isfinite(value) or value < 0):
            return written(setting, value)
    return None


def _bounded(plan: Plan, rate: float) -> bool:
    """Whether clipping keeps a step of plain SGD short at this rate."""
    norms = [norm.value for name in CLIP if (norm := plan.number(name)) is not None]
    return any(norm > 0 and rate * norm <= _MOST_STEP for norm in norms)


def _all_zero(plan: Plan) -> bool:
    """Whether no rate is above 0: groups that are not to move have 0 beside another one."""
    counts = plan.find(*RATES)
    rates = [each for each in plan.settings if last_step(each) in RATES]
    here = [each for each in rates if counts is not None and each.source == counts.source]
    if any(isinstance(each.value, Expression) for each in here):
        return False  # `group["lr"] = rate`: a schedule of one's own sets it
    return all(value == 0 for each in here if (value := number_in(each.value)) is not None)


def _trained_words(planned: PlannedRate) -> str:
    words = {"prompt": "soft prompts", "whole": "a whole pre-trained model", "scratch": "a model from scratch"}
    return words.get(planned.trained, planned.trained)
