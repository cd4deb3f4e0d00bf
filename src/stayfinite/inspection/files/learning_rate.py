"""The planned learning rate, and what it trains."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting, in_script
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import RATES, TRAINER_ARGUMENTS, Plan, shown
from stayfinite.inspection.files.post_training import algorithm_of
from stayfinite.inspection.notes import Notes
from stayfinite.readers.configs.script_calls import is_optimizer
from stayfinite.rules.context import CLIP, OPTIMIZER
from stayfinite.rules.known import Known, number_in, written
from stayfinite.rules.optimization.loop_code import learns_nothing
from stayfinite.rules.optimization.planned_limits import PlannedRate, too_high
from stayfinite.rules.optimization.planned_rate import KIND

OPTIMIZERS = lazy_regex(
    r"\b(\w*adam\w*|sgd|adafactor|lion\w*|prodigy|rmsprop|lamb|lars|adagrad|muon|nag|adadelta|lbfgs|rprop|asgd|signsgd|"
    r"\w*shampoo|soap|d-?adapt\w*)\b",
    re.IGNORECASE,
)
_TAKERS = {
    "rate": lazy_regex(rf"(?:^|\.)(?:{TRAINER_ARGUMENTS}|\w*Trainer|\w*[Oo]ptim\w*)$"),
    "clip": lazy_regex(rf"(?:^|\.)(?:{TRAINER_ARGUMENTS}|\w*Trainer|clip_grad\w*)$"),
}


def own_optimizer(setting: Setting) -> str:
    """`sgd` of `torch.optim.SGD.lr`: the optimizer that gets this rate; empty for another call."""
    call, _, name = setting.name.rpartition(".")
    found = OPTIMIZERS.search(call) if name == "lr" else None
    return "" if found is None else found.group().lower()


def handed_rates(plan: Plan) -> list[Setting] | None:
    """The known rates that scripts hand on, certain ones if there are any; None if they hand on none."""
    return _known(plan, RATES, _handed(plan, "rate", RATES))


def handed_clips(plan: Plan) -> list[Setting] | None:
    """The known limits of the gradient norm that scripts hand on; None if they hand on none."""
    return _known(plan, CLIP, _handed(plan, "clip", CLIP))


def counting_rates(plan: Plan) -> list[Setting]:
    """The rates that may count, the likeliest first: several where a script has several optimizers."""
    first = plan.numbered(*RATES)
    if first is not None and first.kind in ("command", "file", "log"):
        return [first]
    handed = handed_rates(plan)
    return handed if handed is not None else [] if first is None else [first]


def counting_clip(plan: Plan) -> Setting | None:
    """The limit of the gradient norm that counts."""
    first = plan.numbered(*CLIP)
    if first is not None and first.kind in ("command", "file", "log"):
        return first
    handed = handed_clips(plan)
    return first if handed is None else next(iter(handed), None)


def _handed(plan: Plan, what: str, names: Sequence[str]) -> list[Setting]:
    """Arguments of these names in calls of an optimizer, a trainer or its arguments, or of clipping."""
    found = []
    for setting in plan.settings:
        call = setting.name.rpartition(".")[0]
        if not call or setting.kind not in ("script", "notebook", "default") or last_step(setting) not in names:
            continue
        to_optimizer = what == "rate" and (own_optimizer(setting) or "optim" in setting.bound_to.lower())
        if (to_optimizer or _TAKERS[what].search(call)) and setting.where not in plan.switched_off:
            found.append(setting)
    return found


def _known(plan: Plan, names: Sequence[str], handed: list[Setting]) -> list[Setting] | None:
    if not handed:
        return None
    known = [each for each in handed if number_in(each.value) is not None and not isinstance(each.value, Expression)]
    if known:
        return [each for each in known if not each.doubtful] or known
    # `lr=config.lr` of a config that is read elsewhere: what has this name counts, and nothing else.
    words = {word for each in handed if isinstance(each.value, Expression) for word in re.findall(r"\w+", each.value)}
    meant = plan.numbered(*(name for name in names if name in words))
    return [] if meant is None else [meant]


_LARGE = frozenset({"LLaMA", "Qwen", "Gemma", "DeepSeek", "Phi", "ChatGLM", "Baichuan", "InternLM", "Yi", "OLMo",
                    "Falcon", "Granite", "bf16-trained"})  # fmt: skip
_SIZE = lazy_regex(r"(?<![\d.])(\d+(?:\.\d+)?)[ _-]?([bm])\b", re.IGNORECASE)
_TRANSFORMER = lazy_regex(
    r"bert|gpt|\bbart|\bvit\b|\bvit[-_]|deit|swin|beit|whisper|wav2vec|hubert|\bclip|electra|\bopt-|bloom|marian|"
    r"opus-mt|"
    r"nllb|m2m|xlm|albert|transformer|pythia|mamba|blip|\bmpnet|minilm|layoutlm|donut|trocr|segformer",
    re.IGNORECASE,
)
_LAYERS_OF_ONE = lazy_regex(r"(?<!class )\b(?:VisionTransformer|SwinTransformer\w*|nn\.Transformer\w*)\(")
_TUNED = lazy_regex(r"torchtune\.models\.\w+\.(?P<adapters>q?lora_)?(?!.*(?:clip|flamingo|vision))\w+")
_SCRATCH = lazy_regex(r"from_scratch|init_from: scratch|train_from_scratch|\.from_config\b|random_init", re.IGNORECASE)
_PRETRAINED = ("model_name_or_path", "base_model", "from_pretrained_name", "pretrained_model_name_or_path", "model_id",
               "pretrained_model", "restore_file", "finetune_from_model", "pretrained")  # fmt: skip
_FACTOR = lazy_regex(
    r"\bnoam|\btransformer[-_]lr\b|\bscaled_?adam\b|lambda_?lr\b|lr_lambda|rsqrt|\bxformer_schedule|lr_?find|find_?lr|lr_?range",
    re.IGNORECASE,
)
_FROZEN = lazy_regex(r"requires_grad: False|\bfreeze|\bfrozen|linear_prob", re.IGNORECASE)
_NORMALISED = lazy_regex(
    r"(?:batch|layer|group|instance|rms)_?norm|(?:\b|_)(?:resnet|resnext|densenet|efficientnet|mobilenet|wrn|"
    r"wide_resnet)",
    re.IGNORECASE,
)
_BY_HAND = lazy_regex(r"\.(?:add_|sub_)\(.{0,40}\.grad\b.{0,40}\blr\b|-=\s*[\w.]*lr\b\s*\*\s*[\w.]+\.grad\b")
"""A hand-written SGD update: `p.data.add_(p.grad, alpha=-lr)`, `p -= lr * p.grad`."""
_OF_TENSORS = lazy_regex(r"\(\s*(?:params\s*=\s*)?\[\s*\w+(?:\s*,\s*\w+)*\s*,?\s*\]")
_LONGEST_CALL = 3  # lines from an optimizer's name to its rate
_JOINED = lazy_regex(r"(?:vision|image|visual|audio|speech)_(?:tower|model|encoder)\w*")
_SHOWN = lazy_regex(r"(?:^|_)(?:visdom|plot|show|print|log|draw|track|tensorboard|wandb)_\w*$")
"""Names of switches that draw the learning rate."""
_IN_GROUPS = lazy_regex(r"\[[\"']lr[\"']\]\s*=(?!=)")
_CRITIC = lazy_regex(r"critic_(?:\w+_)?(?:lr|learning_rate)")
_OF_A_CLASS = lazy_regex(r"(?:__init__|defaults)\.")
_VECTORS = lazy_regex(
    r"\b(?:P?Vera|IA3|FourierFT|LNTuning|Beft|Frod|C3A|HRA|BOFT|OFT|Adamss|VBLoRA|Road|WaveFT|Shira|BitFit)(?:Config|"
    r"Model)\b|"
    r"\bpeft_type\W{1,4}(?:p?vera|ia3|fourierft|ln_tuning|beft|frod|c3a|hra|boft|oft|adamss|vblora|road|waveft|"
    r"shira)\b",
    re.IGNORECASE,
)
"""Adapters that are vectors, spectra or rotations: few values on top of frozen weights."""
_OPTIMIZER_CLASS = ("optim_wrapper_optimizer_type", "optimizer_class_path", "optimizer_target", "optimizer_component")
"""Settings that hold the optimizer class in mmengine, Lightning, Hydra and torchtune."""
ABSURD = 0.1
"""A rate that no part of a pre-trained model has."""
_GROUP = lazy_regex(r"(.+)\.\d+\.(?:lr|learning_rate)")
_ADAMS_OWN = frozenset({"beta1", "beta2", "betas", "adam_beta1", "adam_beta2", "adam_betas"})
_MOST_STEP = 25.0
"""Largest rate times clip norm at which clipping bounds an SGD step: LSTM language models use 20 x 0.25 and 1 x 10."""


def look_at_learning_rate(plan: Plan, notes: Notes) -> None:
    """Check that the rate exists, is positive, and fits its optimizer and model."""
    causes: tuple[str, ...] = ("lr-zero", "lr-too-high", "lr-too-low")
    title = "learning rate"
    counting = [each for each in _counting(plan) if not _tuned_apart(plan, each)]
    if not counting:
        notes.check("Learning rate", title, *causes, skipped="not set, or one for each group of parameters")
        return
    setting = _worst(plan, counting)
    known = written(setting, number_in(setting.value))
    impossible = _impossible(plan, known)
    if impossible is not None:
        text = f"{impossible.text}: must be a number above 0"
        causes = (*causes, notes.contradict(text, impossible.where, "set a finite number above 0"))
    elif known.value == 0 and _all_zero(plan) and not _set_by_hand(plan, setting) and not _warms_up(plan, setting):
        notes.remark("plan.lr_zero", (f"{known.text}: nothing is learned", known.where))
    planned = planned_rate(plan, known, setting)
    critic = _critics(plan)
    if critic is not None and not too_high(planned):
        own = replace(planned_rate(plan, written(critic, number_in(critic.value)), critic), answers=False)
        if too_high(own):
            planned, known, setting = own, written(critic, own.rate), critic
    notes.saw("plan.rate", planned, known.where)
    for_what = " for ".join(part for part in (planned.optimizer, _trained_words(planned)) if part)
    seen = shown(setting) + (f", {for_what}" if for_what else "")
    notes.check("Learning rate", title, *causes, seen=seen)


def _tuned_apart(plan: Plan, setting: Setting) -> bool:
    """Whether groups of parameters have different rates, not all absurd: the recipe was tuned part by part."""
    group = _GROUP.fullmatch(setting.name)
    others = (each for each in plan.known if group and (other := _GROUP.fullmatch(each.name)) and other[1] == group[1])
    rates = {rate for each in others if (rate := number_in(each.value)) is not None}
    return len(rates) > 1 and min(rates) < ABSURD


def _worst(plan: Plan, counting: list[Setting]) -> Setting:
    """A rate that is too high for its optimizer; among branches that exclude each other, one that is not."""
    high = [each for each in counting if too_high(planned_rate(plan, written(each, number_in(each.value)), each))]
    fine = [each for each in counting if each not in high]
    return (fine if counting[0].doubtful and fine else high or counting)[0]


def _critics(plan: Plan) -> Setting | None:
    """The rate of the value model: `critic.optim.lr`, `--critic.adam.lr`, `--critic_learning_rate`."""
    setting = next((each for each in plan.known if _CRITIC.fullmatch(each.plain)), None)
    return setting if setting is not None and number_in(setting.value) is not None else None


def planned_rate(plan: Plan, known: Known, setting: Setting) -> PlannedRate:
    """The rate with everything that decides whether it fits."""
    alone = _moves_tensors(plan, setting)
    answers = bool(algorithm_of(plan))
    return PlannedRate(
        rate=float(known.value),
        text=known.text,
        optimizer=own_optimizer(setting) or optimizer_of(plan),
        trained="tensors" if alone else _trained_from_answers(plan) if answers else trained(plan),
        model=model_kind(plan),
        batch=batch_of(plan),
        clipped=_bounded(plan, float(known.value)),
        normalised=plan.says(_NORMALISED) or any(_NORMALISED.search(each.text) for each in plan.scripts),
        preference=plan.preference,
        answers=answers,
        part=plan.adapters is None and plan.says(_FROZEN),
        factor=_is_factor(plan)
        or any(learns_nothing(source.settings) for source in plan.scripts if source.name == setting.source),
    )


def _is_factor(plan: Plan) -> bool:
    """Whether the schedule takes the rate as a factor; where a config names its schedule, by that name."""
    kind = plan.find(*KIND)
    if kind is None or not isinstance(kind.value, str) or in_script(kind.where):
        return plan.says(_FACTOR)
    told = (f"{each.name}: {each.value}" for each in plan.known if not in_script(each.where))
    return any(_FACTOR.search(line) for line in told)


def optimizer_of(plan: Plan) -> str:
    """The optimizer's name in lowercase; empty if unknown."""
    for setting in plan.settings.all(*OPTIMIZER, *_OPTIMIZER_CLASS):
        found = OPTIMIZERS.search(setting.value) if isinstance(setting.value, str) else None
        if found is not None and setting.where not in plan.switched_off:
            return found.group().lower()
    for setting in plan.settings:
        if setting.where not in plan.switched_off and (name := own_optimizer(setting)):
            return name
        if last_step(setting) == "target" and isinstance(setting.value, str) and is_optimizer(setting.value):
            return setting.value.rpartition(".")[2].lower()
    for setting in plan.known:  # `OPTIMIZING_METHOD: sgd`
        if "optim" in setting.plain and isinstance(setting.value, str) and OPTIMIZERS.fullmatch(setting.value):
            return setting.value.lower()
    if any(_BY_HAND.search(text) for source in plan.scripts for _, text in source.settings.notes):
        return "sgd"
    if plan.find("_base_") is not None:
        return "inherited"  # from a file that is not available
    if any(last_step(setting) in _ADAMS_OWN for setting in plan.settings):
        return "adam"
    return "adamw" if plan.framework else ""


def _moves_tensors(plan: Plan, setting: Setting) -> bool:
    """Whether the optimizer gets plain tensors, as in `Adam([image], lr=0.2)`, instead of model weights."""
    lines = plan.text_of(setting.source).split("\n")[max(0, setting.line - 1) : setting.line + _LONGEST_CALL]
    return bool(own_optimizer(setting)) and _OF_TENSORS.search("\n".join(lines).partition("lr=")[0]) is not None


def trained(plan: Plan) -> str:
    """What is trained: `prompt`, `adapters`, `vectors` (non-LoRA adapters), `whole`, `scratch`; empty if unclear."""
    if plan.soft_prompt:
        return "prompt"
    if plan.says(_VECTORS):
        return "vectors"
    if plan.adapters is not None:
        return "adapters"
    models = (_TUNED.fullmatch(each.value) for each in plan.known if isinstance(each.value, str))
    tuned = next(filter(None, models), None) if plan.find("checkpoint_dir") else None
    if tuned is not None:
        return "adapters" if tuned["adapters"] else "whole"
    if plan.says(_SCRATCH):
        return "scratch"
    if plan.says(_FROZEN):
        return ""
    setting = plan.settings.find(*_PRETRAINED)
    if setting is not None and setting.value:
        # When a vision model is joined to a language model, training starts with the connector.
        return "" if any(_JOINED.fullmatch(last_step(each)) for each in plan.settings) else "whole"
    return "scratch" if plan.find("arch", "config_name") and not plan.find("checkpoint", "load") else ""


def _trained_from_answers(plan: Plan) -> str:
    """Like ``trained``, for rewarded or compared answers: such a training needs a pretrained model."""
    known = trained(plan)
    return "whole" if not known and not plan.says(_FROZEN) else known


def model_kind(plan: Plan) -> str:
    """`large`, `t5`, `transformer` or empty."""
    model = plan.context.model
    text = str(model.value) if model is not None else plan.family.text if plan.family is not None else ""
    size = _SIZE.search(text)
    billions = None if size is None else float(size.group(1)) / (1 if size.group(2).lower() == "b" else 1000)
    family = "" if plan.family is None else plan.family.value
    if family in ("T5", "Pegasus"):
        return "t5"
    if family in _LARGE if billions is None else billions >= 1:
        return "large"
    by_class = any(_LAYERS_OF_ONE.search(each.text) for each in plan.scripts)
    return "transformer" if family or _TRANSFORMER.search(text) or by_class else ""


def batch_of(plan: Plan) -> float | None:
    """Rows per update, if the files give them."""
    rows = plan.number(
        "train_batch_size", "global_batch_size", "per_device_train_batch_size", "micro_batch_size", "batch_size",
        "samples_per_gpu",
    )  # fmt: skip
    if rows is None or rows.value <= 0:
        return None
    steps = plan.number("gradient_accumulation_steps", "accumulate_grad_batches", "update_freq")
    cards = plan.number("num_processes", "nproc_per_node", "num_gpus", "gpus", "world_size")
    return float(rows.value) * max(1.0, steps.value if steps else 1.0) * max(1.0, cards.value if cards else 1.0)


def _counting(plan: Plan) -> list[Setting]:
    """The effective rates: among several in a file, the optimizer's own; in a script, all that it hands on."""
    rates = counting_rates(plan)
    if not rates or _SHOWN.search(rates[0].plain):
        return []
    first = rates[0]
    if first.kind == "file":
        for setting in plan.settings:
            of_optimizer = setting.source == first.source and setting.name.startswith(("optimizer.", "optim."))
            if of_optimizer and last_step(setting) in RATES and number_in(setting.value) is not None:
                return [setting]
    # An optimizer class may default to 0, which its caller replaces; a peak rate counts instead.
    begins = first.kind == "default" and _OF_A_CLASS.match(first.name) is not None
    return [] if number_in(first.value) == 0 and (begins or first.name == "max_lr") else rates


def _set_by_hand(plan: Plan, setting: Setting) -> bool:
    """Whether a script sets the rate in the optimizer's groups: `group["lr"] = rate`."""
    return _IN_GROUPS.search(plan.text_of(setting.source)) is not None


def _warms_up(plan: Plan, setting: Setting) -> bool:
    """Whether the rate is that of a warmup's first step: `lr = self.warmup_lr`."""
    here = (last_step(each) for each in plan.settings if each.where == setting.where)
    return any(re.search(r"warm\w*_(?:lr|rate)|(?:lr|rate)_warm", name) for name in here)


def _impossible(plan: Plan, counts: Known) -> Known | None:
    """An invalid rate: the effective one, or another group's or optimizer's in the same file."""
    if not math.isfinite(counts.value) or counts.value < 0:
        return counts
    for setting in plan.known:
        value = number_in(setting.value) if last_step(setting) in RATES and setting.kind != "default" else None
        same_file = counts.where.rpartition(":")[0] in ("", setting.source)
        if same_file and value is not None and (not math.isfinite(value) or value < 0):
            return written(setting, value)
    return None


def _bounded(plan: Plan, rate: float) -> bool:
    """Whether clipping bounds a plain SGD step at this rate."""
    handed = handed_clips(plan)
    named = (plan.numbered(name) for name in CLIP) if handed is None else handed
    norms = [number_in(each.value) or 0.0 for each in named if each is not None]
    return any(norm > 0 and rate * norm <= _MOST_STEP for norm in norms)


def _all_zero(plan: Plan) -> bool:
    """Whether no rate is positive; frozen groups may have 0 next to another rate."""
    counts = plan.find(*RATES)
    rates = [each for each in plan.settings if last_step(each) in RATES]
    here = [each for each in rates if counts is not None and each.source == counts.source]
    if any(isinstance(each.value, Expression) for each in here):
        return False  # `group["lr"] = rate`: a custom schedule sets it
    return all(value == 0 for each in here if (value := number_in(each.value)) is not None)


def _trained_words(planned: PlannedRate) -> str:
    words = {"prompt": "soft prompts", "whole": "a whole pre-trained model", "scratch": "a model from scratch",
             "vectors": "adapters", "tensors": "tensors of its own"}  # fmt: skip
    return words.get(planned.trained, planned.trained)
