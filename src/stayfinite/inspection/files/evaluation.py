"""Evaluation and saving with transformers' Trainer: what it refuses at the start or hours later."""

import re
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.inspection.files.names import last_step
from stayfinite.inspection.files.plan import Plan, shown
from stayfinite.inspection.notes import CONTRADICTION, Edit, Notes
from stayfinite.rules.known import is_on, number_in
from stayfinite.rules.plans import Remark

_LOWER_IS_BETTER = lazy_regex(r"(?:eval_)?(?:loss|\w*_loss|wer|cer|perplexity|ppl|mae|r?mse|ter)")
_HIGHER_IS_BETTER = lazy_regex(
    r"(?:eval_)?(?:\w*_)?(?:accuracy|acc|f1|bleu|s?acrebleu|rouge\w*|auc|roc_auc|precision|recall|map|m?iou|chrf)"
)
_WHEN = ("eval_strategy", "evaluation_strategy")
_EVERY = 500  # transformers' default of `logging_steps` and `save_steps`, and so of `eval_steps`


def look_at_evaluation(plan: Plan, notes: Notes) -> None:
    """Check that strategies match and that metrics and data exist."""
    remarks = [*_best_model(plan), *_metric(plan), *_data(plan)] if plan.is_transformers else []
    causes = {notes.contradict(*remark) for remark in remarks}
    if causes:
        notes.edits.extend(_edits(plan))
    names = ("save_strategy", "load_best_model_at_end", "metric_for_best_model", "eval_steps", "save_steps")
    settings = [plan.find(*_WHEN), *map(plan.find, names)]
    seen = ", ".join([shown(each) for each in settings if each is not None][:4])
    otherwise = "" if causes else "not set"
    notes.check("Evaluation and saving", "evaluation and save schedule", *causes, seen=seen, otherwise=otherwise)


def _edits(plan: Plan) -> Iterator[Edit]:
    """Safe changes: the direction of a metric, and saving at each evaluation."""
    greater, metric = plan.find("greater_is_better"), plan.find("metric_for_best_model")
    if greater is not None and metric is not None and isinstance(metric.value, str):
        yield Edit(cause=CONTRADICTION, setting=greater, value=not is_on(greater.value))
    evaluates, saves = plan.find(*_WHEN), plan.find("save_strategy")
    if evaluates is not None and saves is not None and evaluates.value in ("steps", "epoch"):
        yield Edit(cause=CONTRADICTION, setting=saves, value=evaluates.value)


def _best_model(plan: Plan) -> list[Remark]:
    best = plan.on("load_best_model_at_end")
    if best is None:
        return []
    evaluates, saves = plan.find(*_WHEN), plan.find("save_strategy")
    if (evaluates is None or saves is None) and (plan.framework != "transformers" or not _whole(plan)):
        return []
    when_evaluated = plan.word(*_WHEN) or "no"
    when_saved = plan.word("save_strategy") or "steps"
    if when_saved == "best":
        return []
    if when_evaluated != when_saved:
        one = shown(evaluates) if evaluates is not None else f"eval_strategy has its default, {when_evaluated!r}"
        other = shown(saves) if saves is not None else f"save_strategy has its default, {when_saved!r}"
        fix = 'eval_strategy and save_strategy both "steps" or both "epoch", or load_best_model_at_end=False'
        return [(f"{best.text} needs the same for both: {one} and {other}", best.where, fix)]
    if when_evaluated != "steps":
        return []
    between = plan.number("eval_steps") or plan.number("logging_steps")
    saving = plan.number("save_steps")
    every, kept = between.value if between else _EVERY, saving.value if saving else _EVERY
    if every <= 0 or kept <= 0:
        return []
    shares = every < 1 or kept < 1
    whole = abs(kept / every - round(kept / every)) < 1e-6 and kept >= every
    if whole or (shares and (every < 1) != (kept < 1) and (between is None or saving is None)):
        return []
    where = (saving or between or best).where
    text = f"{best.text} needs save_steps to be a multiple of eval_steps: {kept:g} and {every:g}"
    return [(text, where, "make save_steps a multiple of eval_steps")]


_TRAINERS = frozenset({"Trainer", "Seq2SeqTrainer", "SFTTrainer", "SentenceTransformerTrainer", "RewardTrainer"})
"""Trainers of libraries that compute what `compute_metrics` returns, and no other metric."""


def _metric(plan: Plan) -> list[Remark]:
    metric = plan.find("metric_for_best_model")
    if metric is None or not isinstance(metric.value, str):
        return []
    found: list[Remark] = []
    name = metric.value.strip().lower()
    greater = plan.find("greater_is_better")
    upwards = None if greater is None else is_on(greater.value)
    wrong_way = _LOWER_IS_BETTER if upwards is True else _HIGHER_IS_BETTER if upwards is False else None
    if greater is not None and wrong_way is not None and wrong_way.fullmatch(name):
        text = f"{metric.name}: {metric.value} with {shown(greater)}: the worst checkpoint is kept"
        found.append((text, metric.where, f"greater_is_better={not upwards}"))
    trainers = {name for source in plan.scripts for name in re.findall(r"\b(\w*Trainer)\(", source.text)}
    computes = re.compile(r"compute_metrics|class \w+\(\w*Trainer\)|def evaluat|\bevaluator\s*=")
    # A Trainer of the project's own may compute its metrics in `evaluate`.
    computed = trainers - _TRAINERS or any(computes.search(source.text) for source in plan.scripts)
    if trainers and not computed and not name.endswith("loss") and plan.on("load_best_model_at_end") is not None:
        text = f"{metric.name}: {metric.value} is never computed: the Trainer has no compute_metrics"
        fix = f'give the Trainer a compute_metrics that returns {metric.value!r}, or metric_for_best_model="loss"'
        found.append((text, metric.where, fix))
    return found


def _data(plan: Plan) -> list[Remark]:
    strategy = plan.find(*_WHEN)
    if strategy is None or plan.word(*_WHEN) not in ("steps", "epoch"):
        return []
    stated = f"{strategy.name}: {strategy.value}"
    if plan.framework == "llama-factory":
        share = plan.number("val_size")
        if plan.find("eval_dataset") is not None or (share is not None and share.value != 0):
            return []
        text = f"{stated}, but neither val_size nor eval_dataset is set"
        return [(text, strategy.where, "for example val_size: 0.1")]
    trainers = {
        each.name.rpartition(".")[0]: each
        for each in plan.settings
        if re.fullmatch(r"(?:\w*\.)*\w*Trainer\.train_dataset", each.name) and each.source == strategy.source
    }
    for call, setting in trainers.items():
        given = plan.settings.find(f"{call}.eval_dataset", f"{call}.evaluator")
        hidden = re.search(rf"{call.rpartition('.')[2]}\([^)]*\*\*", plan.text_of(setting.source))
        if (given is None or given.value is None) and not hidden:
            fix = f'give {call}(...) an eval_dataset, or {last_step(strategy)}="no"'
            return [(f"{stated}, but {call}(...) gets no eval_dataset", strategy.where, fix)]
    return []


def _whole(plan: Plan) -> bool:
    """Whether no arguments are hidden in `**settings` or a missing file."""
    hidden = re.compile(
        r"(?:TrainingArguments|Config)\((?:[^()]|\([^()]*\))*\*\*|parse_(?:yaml|json|dict|known|args_into)|from_dict|"
        r"hydra"
    )
    elsewhere = [each for each in plan.settings if each.name == "config" and number_in(each.value) is None]
    return not (
        any(hidden.search(source.text) for source in plan.scripts)
        or any(str(each.value).endswith((".yaml", ".yml", ".json")) for each in elsewhere)
    )
