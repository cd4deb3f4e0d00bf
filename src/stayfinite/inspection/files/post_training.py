"""Reinforcement and preference training: groups, sampling, KL coefficient, room for answers, reference, end token."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfinite.core.settings import Expression, Setting
from stayfinite.inspection.files.algorithm import GROUPED, PAIRED, SAMPLING, algorithm_of
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import Notes
from stayfinite.rules.known import number_in
from stayfinite.rules.plans import Remark

GREEDY = 0.05
"""A temperature that leaves no choice."""
SAMPLED_ANEW = 0.01
"""Difference of two temperatures that is no rounding."""
STIFF, LOOSE = 5.0, 1e-3
"""DPO's beta: from 5 on a fifth of a nat saturates the loss; below 0.001 whole answers may move by 1,000 nats."""
HEAVY = 1.0
"""A KL coefficient beside advantages of size 1, from which the reference outweighs every reward."""
REASONING = 128
"""Tokens in which no reasoning ends."""

_SIZES = ("num_generations", "rollout_n", "rollout_n_samples_per_prompt")
_LIMITS = frozenset({"max_completion_length", "max_response_length", "generate_max_len", "max_new_tokens"})
_REASONS = re.compile(r"<think>|\bgsm8k|\\boxed|\baime\b|openr1-math|chain[- ]of[- ]thought|\breasoning_|deepscaler")
_ELSEWHERE = re.compile(r"(?:^|[._])(?:e?val\w*|test|teacher|distil\w*|judge|sapo\w*|generation_kwargs)(?:[._]|$)")
_COEFFICIENTS = ("kl_loss_coef", "kl_ctrl_kl_coef", "kl_init_coef", "init_kl_coef")

_SAME = re.compile(
    r"^\s*(?:self\.)?ref(?:erence)?_(?:model|policy)\s*=\s*(?:self\.)?(?:model|policy|actor|actor_model)\s*$"
)
_TRAINED = re.compile(r"(?:Adam\w*|SGD|optim\w*)\(.*\bref(?:erence)?_(?:model|policy)\.parameters\(\)")

_WITH_DROPOUT = re.compile(r"(?:^|/)(?:(?:distil)?gpt2(?:-\w+)?|opt-[\d.]+[mb])$", re.IGNORECASE)
"""Models whose config has dropout above 0; that of most later ones is 0."""
_VALUE_HEAD = re.compile(r"ForCausalLMWithValueHead\b|\bself\.(?:v_head|value_head)\s*=")
_WITHOUT_HEAD = re.compile(
    r"(?:Adam\w*|SGD)\(\s*(?:params\s*=\s*)?\w+(?:\.\w+)*\.(?:pretrained_model|backbone|base_model|lm)\.parameters\(\)"
)
_HEAD_TRAINED = re.compile(r"\b(?:v_head|value_head)\.parameters\(\)")

_PAD_IS_END = re.compile(r"\.pad_token(?:_id)?\s*=\s*\w*\.?\w+\.eos_token(?:_id)?\b")
_END_ADDED = re.compile(
    r"\+\s*\[?\s*(?:self\.)?\w*tokenizer\.eos_token(?:_id)?\b|\{(?:self\.)?\w*tokenizer\.eos_token\}"
)
_PAD_MASKED = re.compile(
    r"labels\[\s*labels\s*==\s*[\w.]*pad_token_id\s*\]\s*=\s*-100|"
    r"-100\s+if\s+\w+\s*==\s*[\w.]*pad_token_id|"
    r"where\(\s*\w+\s*==\s*[\w.]*pad_token_id\s*,\s*-100|"
    r"DataCollatorForLanguageModeling\(.*mlm\s*=\s*False"
)


def look_at_post_training(plan: Plan, notes: Notes) -> None:
    """What in a plan of reinforcement or preference training cannot work; and an end token that is masked."""
    ends = list(_masked_ends(plan))
    if ends:
        notes.saw("plan.end_masked", ends)
        notes.check("Labels", "end-of-answer token", "eos-never-learned", seen=ends[0][0])
    heads = list(_heads_left_out(plan))
    if heads:
        notes.saw("plan.value_head", heads)
        notes.check("Value head", "in the optimizer", "params-not-in-optimizer", seen=heads[0][0])
    algorithm = algorithm_of(plan)
    moving = list(_moving_references(plan))
    if not algorithm and not moving:
        return
    for name, remarks in (
        ("plan.no_group", list(_no_group(plan, algorithm))),
        ("plan.sampled_otherwise", list(_sampled_otherwise(plan))),
        ("plan.dropout_on", list(_dropout_left_on(plan))),
        ("plan.beta", list(_betas(plan, algorithm))),
        ("plan.reference", moving),
    ):
        if remarks:
            notes.saw(name, remarks)
    short = list(_too_short(plan, algorithm))
    if short:
        before = notes.observed.get("plan.generation_limit")
        notes.saw("plan.generation_limit", [*(before.value if before is not None else []), *short])
    for label, causes, names in (
        (
            "groups and sampling",
            ("grpo-zero-advantage", "sampler-mismatch", "generation-too-short"),
            ("num_generations", "temperature"),
        ),
        ("KL coefficient and reference", ("beta-out-of-scale", "reference-moves"), ("beta",)),
    ):
        known = [shown(each) for each in plan.settings if last_step(each) in names]
        notes.check("Post-training", label, *causes, seen=", ".join(known[:2]) or algorithm or moving[0][0])


def _no_group(plan: Plan, algorithm: str) -> Iterator[Remark]:
    """One answer a prompt, or the same answer each time: every advantage is 0."""
    if algorithm not in GROUPED:
        return
    size = plan.find(*_SIZES) or next((each for each in plan.settings if each.name == "--n_samples_per_prompt"), None)
    if size is not None and number_in(size.value) == 1:
        yield (
            f"{size.name}: 1: a lone answer is its own mean, its advantage is 0",
            size.where,
            f"{last_step(size)}=8: at least 2 answers a prompt",
        )
    for setting in _temperatures(plan):
        value = number_in(setting.value)
        if value is not None and 0 <= value <= GREEDY:
            yield (
                f"{setting.name}: {setting.value}: all answers of a group are the same, their advantage is 0",
                setting.where,
                "temperature=1.0",
            )


def _temperatures(plan: Plan) -> list[Setting]:
    """Of the sampling that is trained on."""
    return [
        setting
        for setting in plan.settings
        if last_step(setting) == "temperature"
        and not isinstance(setting.value, Expression)
        and not _ELSEWHERE.search(setting.name.lower().lstrip("-"))
    ]


def _sampled_otherwise(plan: Plan) -> Iterator[Remark]:
    """trl divides the training pass's logits by its own temperature, whatever `generation_kwargs` samples with."""
    for setting in plan.settings:
        found = re.fullmatch(r"(\w+Config)\.generation_kwargs\.temperature", setting.name)
        sampled = number_in(setting.value) if found is not None else None
        if found is None or sampled is None:
            continue
        own = next((each for each in plan.settings if each.name == f"{found.group(1)}.temperature"), None)
        trained = number_in(own.value) if own is not None else 1.0
        if trained is not None and abs(trained - sampled) > SAMPLED_ANEW:
            yield (
                f"{setting.name}: {setting.value}, and the training pass uses temperature {trained:g}",
                setting.where,
                f"temperature={sampled:g} in {found.group(1)}, and nothing in generation_kwargs",
            )


def _dropout_left_on(plan: Plan) -> Iterator[Remark]:
    """trl's GRPO and RLOO leave dropout on: the training pass then differs from the sampling one and from itself."""
    config = next((each for each in plan.settings if re.match(r"(?:GRPO|RLOO)Config\.", each.name)), None)
    known = [str(each.value) for each in plan.settings if re.fullmatch(r"\w+Trainer\.model", each.name)]
    known += [str(plan.context.model.value)] if plan.context.model is not None else []
    name = next((each for each in known if _WITH_DROPOUT.search(each)), None)
    none = any("drop" in last_step(each) and number_in(each.value) == 0 for each in plan.settings)
    if config is not None and name is not None and not none and plan.on("disable_dropout") is None:
        owner = config.name.partition(".")[0]
        text = f"{name} has dropout, and {owner} leaves it on: the same tokens get another probability in each pass"
        yield text, config.where, f"{owner}(disable_dropout=True)"


def _heads_left_out(plan: Plan) -> Iterator[Remark]:
    """A model with a value head, of which the optimizer is given the rest."""
    for source in plan.scripts:
        if not _VALUE_HEAD.search(source.text) or _HEAD_TRAINED.search(source.text):
            continue
        for number, line in enumerate(source.text.splitlines(), 1):
            if _WITHOUT_HEAD.search(line) and f"{source.name}:{number}" not in plan.switched_off:
                text = f"{line.strip()[:120]}: the value head is not among them and never learns"
                yield text, f"{source.name}:{number}", "give the optimizer model.parameters()"
                return


def _betas(plan: Plan, algorithm: str) -> Iterator[Remark]:
    if algorithm in PAIRED:
        other_loss = plan.find("loss_type", "pref_loss")
        if other_loss is not None and str(other_loss.value).strip("[]'\" ").lower() not in ("sigmoid", "kto"):
            return  # of IPO, SimPO and others beta is another thing
        setting = next((each for each in plan.settings if _is_beta(each)), None)
        value = None if setting is None else number_in(setting.value)
        if setting is None or value is None:
            return
        if value >= STIFF:
            text = f"{setting.name}: {setting.value}: {2 / value:.2g} nats of difference saturate the loss"
            yield text, setting.where, f"{last_step(setting)}=0.1"
        elif value < LOOSE:
            text = f"{setting.name}: {setting.value}: nothing holds the policy near its reference"
            yield text, setting.where, f"{last_step(setting)}=0.1"
    elif algorithm in SAMPLING:
        setting = plan.find(*_COEFFICIENTS) or next((each for each in plan.settings if _is_beta(each)), None)
        value = None if setting is None else number_in(setting.value)
        if setting is not None and value is not None and value > HEAVY:
            text = f"{setting.name}: {setting.value}: the KL term outweighs every reward"
            yield text, setting.where, f"{last_step(setting)}=0.04 or less; 0 trains without a reference"


def _is_beta(setting: Setting) -> bool:
    """DPO's or GRPO's own: `DPOConfig.beta`, `beta`, `pref_beta`, `--model.beta`; no beta of Adam or of a schedule."""
    owner = setting.name.lstrip("-").rpartition(".")[0]
    named = last_step(setting) in ("beta", "pref_beta") and not isinstance(setting.value, Expression)
    return named and re.fullmatch(r"(?:\w*(?:GRPO|RLOO|DPO|KTO)Config|model|rlhf|trl)?", owner) is not None


def _too_short(plan: Plan, algorithm: str) -> Iterator[Remark]:
    if algorithm not in SAMPLING or not plan.says(_REASONS):
        return
    for setting in plan.settings:
        if last_step(setting) not in _LIMITS or isinstance(setting.value, Expression):
            continue
        value = number_in(setting.value)
        if value is not None and 0 < value < REASONING and not _ELSEWHERE.search(setting.name.lower().lstrip("-")):
            text = f"{setting.name}: {setting.value}: answers that reason first are cut before they end"
            yield text, setting.where, f"{last_step(setting)}=1024"
            return


def _moving_references(plan: Plan) -> Iterator[Remark]:
    """The policy itself for a reference, or a reference that the optimizer is given."""
    fix = "ref_model = copy.deepcopy(model).eval().requires_grad_(False); in trl leave ref_model out"
    for setting in plan.settings:
        owner, _, name = setting.name.rpartition(".")
        if name == "ref_model" and isinstance(setting.value, Expression) and owner.endswith("Trainer"):
            model = plan.settings.find(f"{owner}.model")
            if model is not None and model.where == setting.where and model.value == setting.value:
                yield (
                    f"{owner}(model={model.value}, ref_model={setting.value}): the reference is the policy",
                    setting.where,
                    fix,
                )
                return
    for source in plan.scripts:
        for number, line in enumerate(source.text.splitlines(), 1):
            where = f"{source.name}:{number}"
            if where in plan.switched_off:
                continue
            if _SAME.match(line) and "backward" in source.text:
                yield f"{line.strip()}: one model under two names, the reference trains along", where, fix
            elif _TRAINED.search(line):
                yield f"{line.strip()[:120]}: the optimizer trains the reference", where, fix


def _masked_ends(plan: Plan) -> Iterator[Remark]:
    """Padding is the end token, the program adds one to each text, and labels are masked wherever padding stands."""
    for source in plan.scripts:
        if not _PAD_IS_END.search(source.text) or not _END_ADDED.search(source.text):
            continue
        for number, line in enumerate(source.text.splitlines(), 1):
            if _PAD_MASKED.search(line) and f"{source.name}:{number}" not in plan.switched_off:
                yield (
                    f"{line.strip()[:120]}: pad_token is eos_token, so the end of every answer is masked too",
                    f"{source.name}:{number}",
                    "mask by attention_mask == 0, or give padding a token of its own",
                )
                break
