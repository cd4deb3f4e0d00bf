"""RL and preference training: algorithm, sampling, policy limits, reference, value head, end token."""

import re
from collections.abc import Iterator
from itertools import islice

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.known import is_on, number_in
from stayfinite.rules.plans import Remark

GROUPED = frozenset({
    "grpo", "rloo", "group_norm", "dr_grpo", "grpo_passk", "gspo", "dapo", "grpo_vectorized", "rloo_vectorized", "gpg",
    "opo", "reinforce_baseline", "reinforce_plus_plus_baseline", "optimal_token_baseline", "tir_optimal_token_baseline",
})  # fmt: skip
"""Algorithms that compare several answers to one prompt."""
SAMPLING = GROUPED | {"ppo", "gae", "reinforce", "reinforce_plus_plus", "remax"}
"""Algorithms that sample answers and reward them."""
VERL = "actor_rollout_ref."  # prefix of most verl names
PAIRED = frozenset({"dpo", "kto"})
"""Algorithms that compare a policy with a reference on given answers."""

_CALL = lazy_regex(r"(?:^|\.)(GRPO|RLOO|DPO|KTO)(?:Config|Trainer)\.")
_NAMED = frozenset({"adv_estimator", "advantage_estimator", "rl", "rlhf_type", "stage"})
_MODULE = lazy_regex(r"openrlhf\.cli\.train_(dpo|kto|ppo)")


def algorithm_of(plan: Plan) -> str:
    """`grpo`, `rloo`, `dpo`, ...; empty if unknown."""
    module = ""
    for setting in plan.settings:
        if (found := _CALL.search(setting.name)) is not None:
            return found.group(1).lower()
        if not isinstance(setting.value, str) or isinstance(setting.value, Expression):
            continue
        named = last_step(setting) in _NAMED or setting.name.endswith("advantage.estimator")
        if named and setting.value.lower() in SAMPLING | PAIRED:
            return setting.value.lower()
        if last_step(setting) == "module" and (found := _MODULE.match(setting.value)) is not None:
            module = found.group(1)
    return module


GREEDY = 0.05  # a temperature that amounts to greedy decoding
SAMPLED_ANEW = 0.01  # temperature difference that is more than rounding
REASONING = 128  # tokens that are too few for any reasoning

_SIZES = ("num_generations", "rollout_n", "rollout_n_samples_per_prompt")
_LIMITS = frozenset({"max_completion_length", "max_response_length", "generate_max_len", "max_new_tokens"})
_REASONS = lazy_regex(r"<think>|\bgsm8k|\\boxed|\baime\b|openr1-math|chain[- ]of[- ]thought|\breasoning_|deepscaler")
_ELSEWHERE = lazy_regex(r"(?:^|[._])(?:e?val\w*|test|teacher|distil\w*|judge|sapo\w*|generation_kwargs)(?:[._]|$)")
_WITH_DROPOUT = lazy_regex(r"(?:^|/)(?:(?:distil)?gpt2(?:-\w+)?|opt-[\d.]+[mb])$", re.IGNORECASE)
"""Models with dropout in their config; most newer ones have none."""
_VERL_SAMPLER = r"actor_rollout_ref\.rollout\.dtype"
_VERL_TRAINER = r"actor_rollout_ref\.actor\.(?:\w+_config|megatron)\.(?:dtype|mixed_precision\.param_dtype)"
_HALVES = {"fp16": "fp16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "bfloat16": "bf16"}


def look_at_sampling(plan: Plan, notes: Notes, algorithm: str) -> None:
    """Check for sampling that leaves nothing to learn from, or differs from the trained policy."""
    causes: tuple[str, ...] = ("grpo-zero-advantage", "sampler-mismatch", "generation-too-short")
    notes.remark("plan.no_group", *_no_group(plan, algorithm))
    notes.remark("plan.lone_answer", *_lone_answer(plan, algorithm))
    notes.remark("plan.sampled_otherwise", *_sampled_otherwise(plan), *_in_another_format(plan))
    notes.remark("plan.dropout_on", *_dropout_left_on(plan))
    for setting in _temperatures(plan) if algorithm in SAMPLING - GROUPED else ():
        if number_in(setting.value) == 0:
            text = f"{setting.name}: 0: the training pass divides logits by the temperature"
            causes = (*causes, notes.contradict(text, setting.where, "temperature=1.0"))
    notes.remark("plan.generation_limit", *_too_short(plan, algorithm))
    engine = plan.named(rf"{VERL}rollout\.name")
    known = [shown(each) for each in (_group_size(plan), *_temperatures(plan)[:1]) if each is not None]
    known += [] if engine is None else [f"engine {engine.value} ({engine.where})"]
    notes.check("Post-training", "groups and sampling", *causes, seen=", ".join(known) or algorithm)


def _group_size(plan: Plan) -> Setting | None:
    return plan.find(*_SIZES) or plan.named("--n_samples_per_prompt")


def _no_group(plan: Plan, algorithm: str) -> Iterator[Remark]:
    """One answer per prompt, or always the same one: every advantage is 0."""
    if algorithm not in GROUPED:
        return
    size = _group_size(plan)
    if size is not None and number_in(size.value) == 1 and not _of_verl(size):
        text = f"{size.name}: 1: with a single answer per group the advantage is 0"
        yield text, size.where, f"{last_step(size)}=8: at least 2 answers per prompt"
    for setting in _temperatures(plan):
        value = number_in(setting.value)
        if value is not None and 0 <= value <= GREEDY:
            text = f"{setting.name}: {setting.value}: all answers of a group are identical, so the advantage is 0"
            yield text, setting.where, "temperature=1.0"


def _lone_answer(plan: Plan, algorithm: str) -> Iterator[Remark]:
    """verl uses 0 as the mean of one answer: it trains, but compares nothing."""
    size = _group_size(plan)
    if algorithm in GROUPED and size is not None and number_in(size.value) == 1 and _of_verl(size):
        text = f"{size.name}: 1: a single answer has no group; verl uses its raw reward as advantage"
        yield text, size.where, "rollout.n=8: at least 2 answers per prompt"


def _of_verl(size: Setting) -> bool:
    return size.name.endswith("rollout.n")


def _temperatures(plan: Plan) -> list[Setting]:
    """Temperatures of training samples."""
    return [setting for setting in plan.known if last_step(setting) == "temperature" and not _elsewhere(setting)]


def _elsewhere(setting: Setting) -> bool:
    """Whether it belongs to an evaluation, a teacher or a judge."""
    return _ELSEWHERE.search(setting.name.lower().lstrip("-")) is not None


def _sampled_otherwise(plan: Plan) -> Iterator[Remark]:
    """trl divides the training logits by its own temperature, ignoring `generation_kwargs`."""
    for setting in plan.settings:
        found = re.fullmatch(r"(\w+Config)\.generation_kwargs\.temperature", setting.name)
        sampled = number_in(setting.value) if found is not None else None
        if found is None or sampled is None:
            continue
        own = plan.named(rf"{found.group(1)}\.temperature")
        trained = number_in(own.value) if own is not None else 1.0
        if trained is not None and abs(trained - sampled) > SAMPLED_ANEW:
            text = f"{setting.name}: {setting.value}, but the training pass uses temperature {trained:g}"
            yield text, setting.where, f"temperature={sampled:g} in {found.group(1)}, but nothing in generation_kwargs"


def _dropout_left_on(plan: Plan) -> Iterator[Remark]:
    """trl's GRPO and RLOO keep dropout on, so the training pass differs from sampling and from itself."""
    config = plan.named(r"(?:GRPO|RLOO)Config\..*")
    known = [str(each.value) for each in plan.settings if re.fullmatch(r"\w+Trainer\.model", each.name)]
    known += [str(plan.context.model.value)] if plan.context.model is not None else []
    name = next((each for each in known if _WITH_DROPOUT.search(each)), None)
    none = any("drop" in last_step(each) and number_in(each.value) == 0 for each in plan.settings)
    if config is not None and name is not None and not none and plan.on("disable_dropout") is None:
        owner = config.name.partition(".")[0]
        text = f"{name} has dropout, and {owner} keeps it on: token probabilities differ in each pass"
        yield text, config.where, f"{owner}(disable_dropout=True)"


def _in_another_format(plan: Plan) -> Iterator[Remark]:
    """verl: both sides default to bf16; fp16 on one side alone rounds differently."""
    sides = [_half_of(plan, pattern) for pattern in (_VERL_SAMPLER, _VERL_TRAINER)]
    sampler, trainer = ("bf16" if side is None else side[1] for side in sides)
    if {sampler, trainer} != {"fp16", "bf16"}:
        return
    setting = next(side[0] for side in sides if side is not None and side[1] == "fp16")
    text = f"{setting.name}: {setting.value}: the sampler computes in {sampler}, the training pass in {trainer}"
    yield text, setting.where, "the same dtype for actor_rollout_ref.rollout and actor_rollout_ref.actor"


def _half_of(plan: Plan, pattern: str) -> tuple[Setting, str] | None:
    """The setting of this name and its 16-bit format, "" for others; None if not set."""
    found = plan.named(pattern)
    return None if found is None else (found, _HALVES.get(str(found.value).removeprefix("torch.").lower(), ""))


def _too_short(plan: Plan, algorithm: str) -> Iterator[Remark]:
    if algorithm not in SAMPLING or not plan.says(_REASONS):
        return
    for setting in plan.known:
        value = number_in(setting.value) if last_step(setting) in _LIMITS else None
        if value is not None and 0 < value < REASONING and not _elsewhere(setting):
            text = f"{setting.name}: {setting.value}: reasoning is truncated before it ends"
            yield text, setting.where, f"{last_step(setting)}=1024"
            return


STIFF, LOOSE = 5.0, 1e-3
"""DPO's beta: from 5 on a fifth of a nat saturates the loss; below 0.001 whole answers may drift by 1,000 nats."""
HEAVY = 1.0
"""A KL coefficient at which, with advantages of size 1, the reference outweighs every reward."""
UNCLIPPED = 10.0  # a clip above 10 has no effect; CISPO caps go up to 5

_COEFFICIENTS = {
    "kl_loss_coef": "use_kl_loss", "kl_ctrl_kl_coef": "use_kl_in_reward", "kl_init_coef": "", "init_kl_coef": "",
}  # fmt: skip
"""Each with verl's switch for it."""
_CLIP = lazy_regex(r"(?:.*\.)?(?:clip_ratio|eps_clip)|(?:GRPO|RLOO)Config\.epsilon")
_HIGHER = lazy_regex(r"(?:.*\.)?(?:clip_ratio_high|eps_clip_low_high)|(?:GRPO|RLOO)Config\.epsilon_high")
_UNCLIPPED_LOSSES = frozenset({"gpg", "reinforce"})


def look_at_policy_limits(plan: Plan, notes: Notes, algorithm: str) -> None:
    """Check the scales of the limits that tie the policy to its reference and samples."""
    causes: tuple[str, ...] = ("beta-out-of-scale", "ratio-explosion")
    notes.remark("plan.beta", *_betas(plan, algorithm))
    clip = _upper_clip(plan) if algorithm in SAMPLING else None
    limit = None if clip is None else _upper(clip)
    if clip is not None and limit is not None and limit <= 0:
        text = f"{clip.name}: {clip.value}: ratios are clipped to 1, so only the first update per batch trains"
        causes = (*causes, notes.contradict(text, clip.where, "0.2 is usual"))
    elif clip is not None and limit is not None and limit > UNCLIPPED and not _held(plan):
        text = f"{clip.name}: {clip.value}: no ratio is clipped, and there is no KL term"
        notes.remark("plan.unclipped", (text, clip.where, "a clip of 0.2, or a KL coefficient of 0.001"))
    known = [shown(each) for each in (_coefficient(plan), clip) if each is not None]
    notes.check("Post-training", "KL coefficient and clip", *causes, seen=", ".join(known) or algorithm)


def _coefficient(plan: Plan) -> Setting | None:
    return plan.find(*_COEFFICIENTS) or next((each for each in plan.settings if _is_beta(each)), None)


def _betas(plan: Plan, algorithm: str) -> Iterator[Remark]:
    if algorithm in PAIRED:
        other_loss = plan.find("loss_type", "pref_loss")
        if other_loss is not None and str(other_loss.value).strip("[]'\" ").lower() not in ("sigmoid", "kto"):
            return  # beta means something else in IPO, SimPO and others
        setting = next((each for each in plan.settings if _is_beta(each)), None)
        value = None if setting is None else number_in(setting.value)
        if setting is None or value is None:
            return
        fix = f"{last_step(setting)}=0.1"
        if value >= STIFF:
            text = f"{setting.name}: {setting.value}: a difference of {2 / value:.2g} nats saturates the loss"
            yield text, setting.where, fix
        elif value < LOOSE:
            yield f"{setting.name}: {setting.value}: no KL term keeps the policy near its reference", setting.where, fix
    elif algorithm in SAMPLING:
        named = [plan.find(name) for name in _COEFFICIENTS if not _switched_off(plan, name)]
        found = [each for each in named if each is not None]
        for setting in found or [each for each in plan.settings if _is_beta(each)][:1]:
            value = number_in(setting.value)
            fix = f"{last_step(setting)}=0.04 or less; 0 trains without a reference"
            if value is not None and value > HEAVY:
                yield f"{setting.name}: {setting.value}: the KL term outweighs every reward", setting.where, fix
            elif value is not None and value < 0:
                yield f"{setting.name}: {setting.value}: a negative KL term rewards distance", setting.where, fix


def _switched_off(plan: Plan, coefficient: str) -> bool:
    switch = plan.find(_COEFFICIENTS[coefficient]) if _COEFFICIENTS[coefficient] else None
    return switch is not None and is_on(switch.value) is False


def _held(plan: Plan) -> bool:
    """Whether a KL term is, or may be by default, above 0."""
    verl = any(each.name.startswith(VERL) for each in plan.settings)
    for name, switch in _COEFFICIENTS.items():
        setting = plan.find(name)
        value = None if setting is None else number_in(setting.value)
        on = plan.on(switch) is not None if switch else setting is not None
        if on and value != 0:
            return True
    if verl:
        return False  # no KL term by default
    setting = _coefficient(plan)
    if setting is not None:
        return number_in(setting.value) != 0
    return not any(each.name.startswith("GRPOConfig.") for each in plan.settings)


def _upper_clip(plan: Plan) -> Setting | None:
    """The upper clip of the ratio; None if the loss has none."""
    if plan.word("loss_mode", "loss_type") in _UNCLIPPED_LOSSES:
        return None
    given = [each for each in plan.known if each.value is not None]
    found = (each for pattern in (_HIGHER, _CLIP) for each in given if pattern.fullmatch(each.name.lstrip("-")))
    return next(found, None)


def _upper(clip: Setting) -> float | None:
    """The last number: OpenRLHF gives lower and upper bound together."""
    return number_in(clip.value[-1] if isinstance(clip.value, list) and clip.value else clip.value)


def _is_beta(setting: Setting) -> bool:
    """Beta of DPO or GRPO: `DPOConfig.beta`, `beta`, `pref_beta`, `--model.beta`; not of Adam or a schedule."""
    owner = setting.name.lstrip("-").rpartition(".")[0]
    named = last_step(setting) in ("beta", "pref_beta") and not isinstance(setting.value, Expression)
    return named and re.fullmatch(r"(?:\w*(?:GRPO|RLOO|DPO|KTO)Config|model|rlhf|trl)?", owner) is not None


_SAME = lazy_regex(
    r"\s*(?:self\.)?ref(?:erence)?_(?:model|policy)\s*=\s*(?:self\.)?(?:model|policy|actor|actor_model)\s*$"
)
_MOVING = lazy_regex(rf"^{_SAME.pattern}|(?:Adam\w*|SGD|optim\w*)\(.*\bref(?:erence)?_(?:model|policy)\.parameters\(\)")

_VALUE_HEAD = lazy_regex(r"ForCausalLMWithValueHead\b|\bself\.(?:v_head|value_head)\s*=")
_WITHOUT_HEAD = lazy_regex(
    r"(?:Adam\w*|SGD)\(\s*(?:params\s*=\s*)?\w+(?:\.\w+)*\.(?:pretrained_model|backbone|base_model|lm)\.parameters\(\)"
)
_HEAD_TRAINED = lazy_regex(r"\b(?:v_head|value_head)\.parameters\(\)")

_PAD_IS_END = lazy_regex(r"\.pad_token(?:_id)?\s*=\s*\w*\.?\w+\.eos_token(?:_id)?\b")
_END_ADDED = lazy_regex(
    r"\+\s*\[?\s*(?:self\.)?\w*tokenizer\.eos_token(?:_id)?\b|\{(?:self\.)?\w*tokenizer\.eos_token\}"
)
_PAD_MASKED = lazy_regex(
    r"labels\[\s*labels\s*==\s*[\w.]*pad_token_id\s*\]\s*=\s*-100|"
    r"-100\s+if\s+\w+\s*==\s*[\w.]*pad_token_id|"
    r"where\(\s*\w+\s*==\s*[\w.]*pad_token_id\s*,\s*-100|"
    r"DataCollatorForLanguageModeling\(.*mlm\s*=\s*False"
)


_PADDED = lazy_regex(
    r"(?:labels?\w*\s*=|[\"']labels[\"']\s*:)[^\n]*pad_sequence\((?:[^()]|\([^()]*\))*"
    r"padding_value\s*=\s*[\w.]*(?:pad_token_id|pad_id)\b"
)
_LEFT_OUT = lazy_regex(r"==\s*[\w.]*pad_token_id[^\n]*(?:-100|IGNORE)|ignore_index|masked_fill\([^\n]*pad")
_TO_MAX = lazy_regex(r"padding\s*=\s*\\?[\"']max_length")
_COPIED = lazy_regex(r"\[\\?[\"']labels\\?[\"']\]\s*=\s*\w+(?:\[\\?[\"']input_ids\\?[\"']\]|\.input_ids)")
_MASKED = lazy_regex(
    r"-100|ignore_(?:index|id)|IGNORE_\w+|DataCollatorFor(?:LanguageModeling|Completion)|ignore_pad_token|\bloss_mask"
)


def look_at_post_training(plan: Plan, notes: Notes) -> None:
    """Check RL and preference settings, and for a masked end token."""
    if padded := list(_learned_padding(plan)):
        notes.remark("plan.padding_learned", *padded)
        notes.check("Labels", "padding", "padding-learned", seen=padded[0][0])
    if ends := list(_masked_ends(plan)):
        notes.remark("plan.end_masked", *ends)
        notes.check("Labels", "end-of-answer token", "eos-never-learned", seen=ends[0][0])
    if heads := list(_heads_left_out(plan))[:1]:
        notes.remark("plan.value_head", *heads)
        notes.check("Value head", "optimizer coverage", "params-not-in-optimizer", seen=heads[0][0])
    algorithm = algorithm_of(plan)
    if algorithm:
        look_at_sampling(plan, notes, algorithm)
        look_at_policy_limits(plan, notes, algorithm)
    moving = list(_moving_references(plan))
    notes.remark("plan.reference", *moving)
    if algorithm or moving:
        notes.check("Post-training", "reference", "reference-moves", seen=moving[0][0] if moving else algorithm)


def _learned_padding(plan: Plan) -> Iterator[Remark]:
    """Labels filled with the padding's id, for a model of transformers, whose loss leaves out -100 alone."""
    for source in plan.scripts if plan.trains else ():
        text = source.text
        if "from_pretrained" not in text:
            continue
        if not _LEFT_OUT.search(text):
            for line, where in plan.lines(source, _PADDED):
                yield f"{line[:120]}: labels hold the padding's id", where
        if _TO_MAX.search(text) and not _MASKED.search(text):
            for line, where in plan.lines(source, _COPIED):
                yield f"{line[:120]}: with padding to max_length, labels hold the padding's id", where


def _heads_left_out(plan: Plan) -> Iterator[Remark]:
    """A model with a value head that the optimizer does not get."""
    for source in plan.scripts:
        if not _VALUE_HEAD.search(source.text) or _HEAD_TRAINED.search(source.text):
            continue
        for line, where in plan.lines(source, _WITHOUT_HEAD):
            text = f"{line[:120]}: the value head is missing and never trains"
            yield text, where, "give the optimizer model.parameters()"


def _moving_references(plan: Plan) -> Iterator[Remark]:
    """A reference that is the policy itself, or that the optimizer gets."""
    fix = "ref_model = copy.deepcopy(model).eval().requires_grad_(False); in trl leave ref_model out"
    for setting in plan.settings:
        owner, _, name = setting.name.rpartition(".")
        if name == "ref_model" and isinstance(setting.value, Expression) and owner.endswith("Trainer"):
            model = plan.settings.find(f"{owner}.model")
            if model is not None and model.where == setting.where and model.value == setting.value:
                text = f"{owner}(model={model.value}, ref_model={setting.value}): the reference is the policy"
                yield text, setting.where, fix
                return
    for source in plan.scripts:
        for line, where in plan.lines(source, _MOVING):
            if not _SAME.match(line):
                yield f"{line[:120]}: the optimizer trains the reference", where, fix
            elif "backward" in source.text:
                yield f"{line}: both names are one model, so the reference trains too", where, fix


def _masked_ends(plan: Plan) -> Iterator[Remark]:
    """The padding token is the end token, texts end with it, and labels are masked at padding."""
    for source in plan.scripts:
        if not _PAD_IS_END.search(source.text) or not _END_ADDED.search(source.text):
            continue
        for line, where in islice(plan.lines(source, _PAD_MASKED), 1):
            text = f"{line[:120]}: pad_token is eos_token, so the end of every answer is masked"
            yield text, where, "mask by attention_mask == 0, or use a separate pad token"
