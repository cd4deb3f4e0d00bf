"""RL and preference training: sampling, policy limits, reference, value head, end token."""

from __future__ import annotations

from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression
from stayfinite.inspection.files.algorithm import algorithm_of
from stayfinite.inspection.files.plan import Plan
from stayfinite.inspection.files.policy_limits import look_at_policy_limits
from stayfinite.inspection.files.sampling import look_at_sampling
from stayfinite.inspection.notes import Notes
from stayfinite.rules.plans import Remark

_SAME = lazy_regex(
    r"^\s*(?:self\.)?ref(?:erence)?_(?:model|policy)\s*=\s*(?:self\.)?(?:model|policy|actor|actor_model)\s*$"
)
_TRAINED = lazy_regex(r"(?:Adam\w*|SGD|optim\w*)\(.*\bref(?:erence)?_(?:model|policy)\.parameters\(\)")

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


def look_at_post_training(plan: Plan, notes: Notes) -> None:
    """Check RL and preference settings, and for a masked end token."""
    ends = list(_masked_ends(plan))
    if ends:
        notes.saw("plan.end_masked", ends)
        notes.check("Labels", "end-of-answer token", "eos-never-learned", seen=ends[0][0])
    heads = list(_heads_left_out(plan))
    if heads:
        notes.saw("plan.value_head", heads)
        notes.check("Value head", "in the optimizer", "params-not-in-optimizer", seen=heads[0][0])
    algorithm = algorithm_of(plan)
    if algorithm:
        look_at_sampling(plan, notes, algorithm)
        look_at_policy_limits(plan, notes, algorithm)
    moving = list(_moving_references(plan))
    if moving:
        notes.saw("plan.reference", moving)
    if algorithm or moving:
        notes.check("Post-training", "reference", "reference-moves", seen=moving[0][0] if moving else algorithm)


def _heads_left_out(plan: Plan) -> Iterator[Remark]:
    """A model with a value head that the optimizer does not get."""
    for source in plan.scripts:
        if not _VALUE_HEAD.search(source.text) or _HEAD_TRAINED.search(source.text):
            continue
        for number, line in enumerate(source.text.splitlines(), 1):
            if _WITHOUT_HEAD.search(line) and f"{source.name}:{number}" not in plan.switched_off:
                text = f"{line.strip()[:120]}: the value head is missing and never trains"
                yield text, f"{source.name}:{number}", "give the optimizer model.parameters()"
                return


def _moving_references(plan: Plan) -> Iterator[Remark]:
    """A reference that is the policy itself, or that the optimizer gets."""
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
                yield f"{line.strip()}: both names are one model, so the reference trains too", where, fix
            elif _TRAINED.search(line):
                yield f"{line.strip()[:120]}: the optimizer trains the reference", where, fix


def _masked_ends(plan: Plan) -> Iterator[Remark]:
    """The padding token is the end token, texts end with it, and labels are masked at padding."""
    for source in plan.scripts:
        if not _PAD_IS_END.search(source.text) or not _END_ADDED.search(source.text):
            continue
        for number, line in enumerate(source.text.splitlines(), 1):
            if _PAD_MASKED.search(line) and f"{source.name}:{number}" not in plan.switched_off:
                yield (
                    f"{line.strip()[:120]}: pad_token is eos_token, so the end of every answer is masked",
                    f"{source.name}:{number}",
                    "mask by attention_mask == 0, or use a separate pad token",
                )
                break
