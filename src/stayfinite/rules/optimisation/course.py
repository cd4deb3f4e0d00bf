"""The course of a run: whether it began well, how it became not finite, what stood out on the way."""

from __future__ import annotations

import math
import re
from statistics import median

from stayfinite.rules.facts import Facts

LATE_STEP = 100
"""A first bad point logged beyond this step had good ones before it, logged or not."""

FEW = 3
"""Points that cannot vouch for a run whose messages speak of NaN."""

LARGE_PART = 100.0
"""A part of the loss above this, and far above its own usual value, has blown up."""

SAYS_NOT_FINITE = (
    r"\bloss(?:es)?\b\W{0,4}[^a-z\n]{0,60}\b(?:nan|inf)\b|loss became infinite or nan|loss (?:is|was|became|becomes|"
    r"became:?|turned) (?:\w+ )?(?:nan|inf)|"
    r"non-?finite loss|\b(?:nan|inf) loss\b|"
    r"loss (?:nan|inf)\b|training has diverged|loss explod|contains? inf/?nan|contains? nan|"
    r"loss.{0,20}stopping training|non-?finite, so it cannot be clipped|"
    r"returned nan values in its|detected inf/nan|found nan|nan (?:detected|encountered|or inf)|(?:nan|"
    r"inf) or (?:nan|inf)|\btensor\(\[*-?nan\b|"
    r"\b\w*(?:emb|weight|param|grad|loss)\w*\s{0,2}[=:]\s{0,2}(?:tensor\()?\[*\(?-?(?:nan|inf)\b|"
    r"\bparameter \w+\b.{0,160}\binvalid values|non-finite norm encountered"
)
"""Words with which libraries and scripts say that a loss, a gradient or an output is not finite."""

TELLS_NOT_FINITE = (
    r"\b(?:loss\w*|cost|perplexity|ppl|elbo|kld?|nll|objective|energy|reward|err(?:or)?|weights?|param(?:eter)?s?|"
    r"grad(?:ient)?s?(?:[_ ]norm)?|logits?|outputs?|preds?|predictions?|activations?|hidden(?:[_ ]states?)?|"
    r"embeddings?|features?)\b[^.;\n]{0,25}?(?<![\w/.])-?(?:nans?|infs?)\b(?!\W{0,4}(?:false|0\b|none\b|no\b))"
)
"""The same in anybody's words: `cost nan`, `weights NaN after the update`."""

_ANSWERED_NO = re.compile(r"\b(?:nans?|infs?)\b\W{0,5}(?:false|0\b(?!\.)|none\b|no\b)", re.IGNORECASE)
"""`contains nan: False`."""

_DENIES = re.compile(
    r"\b(?:no|not|never|without|free of|isn't|aren't|if|whether|unless|skip|check\w*|assert|detect_anomaly|"
    r"nan_to_num|filter)\b",
    re.IGNORECASE,
)

RISES = (
    r"\b(?:loss\w*|cost|perplexity|ppl|norms?|gradients?|train(?:ing)? error)\b[^.;\n]{0,30}\b(?:ris(?:es|ing)|rose|"
    r"increas(?:es|ing|ed)|climb\w*|goes up|went up|going up|grow(?:s|ing)|grew|blow(?:s|ing)? up|blew up|explod\w*|"
    r"shoots? up|sky-?rocket\w*|diverg(?:es|ed|ing)|huge|astronomical\w*)\b"
)
"""Somebody says that it climbed."""

_FROM_TO = re.compile(
    r"\bloss(?:es)?\b[^\d.;\n]{0,24}(\d+(?:\.\d+)?(?:e\+?\d+)?)\s*(?:->|=>|→|to|then|up to|\.\.+|,)\s*"
    r"(\d+(?:\.\d+)?(?:e\+?\d+)?)\b",
    re.IGNORECASE,
)

_PART = re.compile(r"loss(?!.*(?:scale|weight))|(?:^|[/_])(?:nll|kl|mse|bce|ce|l1)(?:$|[/_])", re.IGNORECASE)
_PART_IN_ERROR = re.compile(
    r"['\"]?(\w*loss\w*)['\"]?\s*[:=]\s*tensor\(\s*(\d+(?:\.\d*)?(?:e[-+]?\d+)?|nan|inf)", re.IGNORECASE
)


def not_finite(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)``: how the run shows that a loss or gradient is not finite; None where it is, or settles."""
    seen = facts.symptoms
    if seen.bad and not seen.settles:
        what = "the loss is not finite" if seen.bad_losses else "the gradient norm is not finite"
        return what, seen.where.get("first_bad", "")
    if seen.bad_losses:
        return "the final training loss is not finite", seen.where.get("summary", "")
    if seen.healthy and seen.points > FEW:
        return None
    said = next((each for each in facts.all_said(SAYS_NOT_FINITE) if not _ANSWERED_NO.search(each.text)), None)
    if said is not None:
        return said.text, said.where
    told = next((each for each in facts.all_said(TELLS_NOT_FINITE) if not _DENIES.search(each.text)), None)
    if told is not None:
        return told.text, told.where
    if seen.bad_evals:
        return "the evaluation loss is not finite", seen.where.get("bad_eval", "")
    return None


def remark(facts: Facts, pattern: str) -> tuple[str, str] | None:
    """``(where, text)`` of what somebody wrote about it; None for a healthy run, where words alone are no finding."""
    return None if facts.symptoms.healthy else facts.mentioned(pattern)


def began_well(facts: Facts) -> str | None:
    """What shows that steps worked before the first one that did not; None when nothing does."""
    seen = facts.symptoms
    if seen.good_before >= 2:
        return f"{seen.good_before} logged points are fine before it"
    if seen.first_bad is not None:
        step, epoch = seen.first_bad.step, seen.first_bad.epoch
        if step is not None and math.isfinite(step) and step > LATE_STEP:
            return f"it appears at step {step:.0f}, not at the beginning"
        # Epochs are counted from 1 as often as from 0: a whole 1 is the first one.
        if epoch is not None and math.isfinite(epoch) and epoch >= 0.5 and epoch != 1:
            return f"it appears at epoch {epoch:g}, not at the beginning"
    iteration = facts.said(
        r"(?:iteration|iter|step)\s?[=:]?\s?\d{3,}.{0,80}\b(?:nan|inf)|(?:nan|infinite).{0,40}(?:iteration|iter|"
        r"step)\s?[=:]?\s?\d{3,}"
    )
    if iteration is not None:
        return "it appears long after the first step"
    averages = [
        value for value, _ in facts.metric("train_loss", "training_loss") if math.isfinite(value) and value > 1e-3
    ]
    if averages and (seen.bad or seen.zero_losses):
        return f"the average loss of the run is {averages[-1]:.4g}, so that most steps had one"
    return None


def at_first_step(facts: Facts) -> bool:
    """Whether the very first step, before any update, was already not finite."""
    first = facts.symptoms.first_bad
    return (
        first is not None
        and facts.symptoms.good_before == 0
        and first.step is not None
        and first.step <= 1
        and first.step != first.epoch
        and first.loss is not None
        and not math.isfinite(first.loss)
    )


def told_climb(facts: Facts) -> tuple[str, str, bool] | None:
    """``(text, where, by numbers)`` of a remark that loss or gradient climbed: in words, or by two numbers."""
    for where, text in [*facts.settings.notes, *((each.where, each.text) for each in facts.messages)]:
        for before, after in _FROM_TO.findall(text):
            if 0 < 1.8 * float(before) <= float(after):
                return text.strip(), where, True
    found = facts.mentioned(RISES)
    if found is None or re.search(r"\b(?:no|not|never|without|if|when)\b", found[1], re.IGNORECASE):
        return None
    return found[1].strip(), found[0], False


def no_measure(facts: Facts) -> tuple[str, str] | None:
    """``(where, text)`` of what says that the loss does not measure progress: rewards, or two players."""
    for name in ("reward", "rewards", "mean_reward", "episode_reward", "ep_rew_mean", "return", "episode_return"):
        track = facts.metric(name)
        if (
            len(track) >= 2
            and math.isfinite(track[0][0])
            and math.isfinite(track[-1][0])
            and track[-1][0] >= track[0][0]
        ):
            return track[-1][1], f"{name} rises"
    return facts.mentioned(
        r"\bw?gans?\b|discriminator|generator_loss|\bppo\b|\bgrpo\b|\brlhf\b|actor[_ -]critic|\bdqn\b|\bsac\b|"
        r"\bd_loss\b|reinforce"
    )


def stands_still(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` of a finite loss that has not moved in four points or more, over a hundred steps or more."""
    for run in facts.runs:
        rows = [(step, value, line) for step, value, line in run.column("loss") if math.isfinite(value)]
        if len(rows) < 4 or rows[-1][0] - rows[0][0] < 100 or min(value for _, value, _ in rows) <= 1e-6:
            continue
        values = [value for _, value, _ in rows]
        if max(values) - min(values) <= 6e-3 * median(values) and values[-1] > 0.99 * values[0]:
            return f"the loss stays at {values[-1]:.4g}", run.where(rows[0][2])
    return None


def _new_level(values: list[float]) -> int | None:
    """Where a language model's loss rises for good to what word counts alone would give: from 4 and less to about 6."""
    for index in range(2, len(values) - 2):
        before, after = values[max(0, index - 5) : index], values[index:]
        if max(before) <= 4.5 and min(after) >= max(5.5, 1.8 * max(before)):
            return index
    return None


def fell_apart(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` of a finite loss that had been learned well and is lost again, for good or again and again.

    Three ways: the last points all lie far above the lowest two; a language model that was below 1.5 ends above 4;
    or it jumps there more than once. A mean over the tokens of ordinary text is above 4 for a model that knows nothing.
    """
    if no_measure(facts) is not None:
        return None
    language = facts.context.adapters is not None or facts.context.family is not None
    speaks = (
        language or facts.mentioned(r"\bgpt|\bllms?\b|language model|\bppl\b|perplexity|\b\w*bert\b|tokens") is not None
    )
    for run in facts.runs:
        rows = [(value, line) for _, value, line in run.column("loss") if math.isfinite(value)]
        values = [value for value, _ in rows]
        if len(rows) < 3 or min(values) <= 0.02:
            continue
        lowest, second = sorted(values)[:2]
        best, tail = values.index(lowest), values[-3:]
        # Small losses (regression, diffusion) differ by batch more than by step: few of them are no course.
        telling = min(tail) >= 1.0 or len(values) >= 20
        away = telling and len(values) >= 7 and best >= 2 and best + 3 < len(values)
        if away and min(tail) >= max(3 * lowest, 2 * second) and tail[-1] == max(values[best:]):
            return f"the loss fell to {lowest:.4g} and has climbed to {tail[-1]:.4g} since", run.where(rows[-1][1])
        shifted = _new_level(values) if speaks else None
        if shifted is not None:
            text = f"the loss was {values[shifted - 1]:.4g} and from then on never below {min(values[shifted:]):.4g}"
            return text, run.where(rows[shifted][1])
        lasting = language and min(tail) >= 1.0 and len(values) >= 5 and best >= 1
        if lasting and min(tail) >= max(4 * lowest, 2 * second, 1.2 * values[0]):
            return f"the loss fell to {lowest:.4g} and lies at {tail[-1]:.4g} since", run.where(rows[-1][1])
        if not language:
            continue
        usual = median(values)
        high = [(value, line) for value, line in rows if value >= 4.0 and value >= 4 * max(lowest, 0.3)]
        ends_high = min(values[-2:]) >= 4.0 and min(values[:-2]) <= 1.5
        if ends_high or (usual <= 1.5 and len(values) >= 6 and len(high) >= 2 and values[0] <= 1.5):
            return f"the loss had been {min(values[0], usual):.4g} and jumps to {high[-1][0]:.4g}", run.where(
                high[0][1]
            )
    return None


def blown_up_part(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` of a part of the loss that is finite and absurdly large, in a log's line or an error's."""
    for where, parts in _parts_by_line(facts):
        lost = any(not math.isfinite(value) for value in parts.values())
        large = {name: value for name, value in parts.items() if math.isfinite(value) and abs(value) >= LARGE_PART}
        if lost and large:
            name = max(large, key=lambda each: abs(large[each]))
            return f"{name} is {large[name]:.6g} in the step that fails", where
    for run in facts.runs:
        for name, track in run.metrics.items():
            if not _is_part(name):
                continue
            finite = [abs(value) for value in track.values if math.isfinite(value)]
            if len(finite) >= 3 and max(finite) >= max(LARGE_PART, 50 * median(finite)):
                line = next(
                    at for value, at in zip(track.values, track.lines, strict=True) if abs(value) == max(finite)
                )
                return f"{name} jumps to {max(finite):.6g} from about {median(finite):.4g}", run.where(line)
    return None


def lost_part(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` where one part of the loss is not finite and three or more others are as usual."""
    for where, parts in _parts_by_line(facts):
        lost = [name for name, value in parts.items() if not math.isfinite(value)]
        usual = [name for name, value in parts.items() if math.isfinite(value) and abs(value) < LARGE_PART]
        if len(lost) == 1 and len(usual) >= 3:
            return f"only {lost[0]} is lost, and {len(usual)} other parts of the loss are as usual", where
    return None


def lost_ground(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` of a finite loss that had fallen well and ends where it began, or above."""
    for run in facts.runs:
        rows = [(value, line) for _, value, line in run.column("loss") if math.isfinite(value)]
        if len(rows) < 8 or min(value for value, _ in rows) <= 0:
            continue
        best = min(range(len(rows)), key=lambda index: rows[index][0])
        tail = [value for value, _ in rows[-3:]]
        lowest = rows[best][0]
        if best + 3 < len(rows) and min(tail) >= 0.95 * rows[0][0] and min(tail) >= 1.4 * lowest:
            return f"the loss fell to {lowest:.4g} and is back at {tail[-1]:.4g}", run.where(rows[best][1])
    return None


def _is_part(name: str) -> bool:
    return _PART.search(name) is not None and re.search(r"eval|val|test|dev", name) is None


def _parts_by_line(facts: Facts) -> list[tuple[str, dict[str, float]]]:
    """The parts of the loss at each line that has several, and those that an error message names."""
    lines: list[tuple[str, dict[str, float]]] = []
    for run in facts.runs:
        by_line: dict[int, dict[str, float]] = {}
        for name, track in run.metrics.items():
            if _is_part(name):
                for value, line in zip(track.values, track.lines, strict=True):
                    by_line.setdefault(line, {})[name] = value
        lines.extend((run.where(line), parts) for line, parts in sorted(by_line.items()) if len(parts) > 1)
    lines.extend(
        (message.where, {name: float(value) for name, value in _PART_IN_ERROR.findall(message.text)})
        for message in facts.messages
        if "tensor(" in message.text
    )
    return lines


def returns(facts: Facts) -> bool:
    """Whether the run ends as it began, finite and with loss and gradient norm at their usual level."""
    for run in facts.runs:
        norms = [value for _, value, _ in run.column("grad_norm")]
        losses = [value for _, value, _ in run.column("loss")]
        if len(norms) < 3 or len(losses) < 3 or not (math.isfinite(norms[-1]) and math.isfinite(losses[-1])):
            continue
        lowest = min(value for value in norms if math.isfinite(value))
        if norms[-1] <= 3 * lowest and losses[-1] <= 1.2 * losses[0]:
            return True
    return False


def lone_spike(facts: Facts) -> tuple[str, str] | None:
    """``(text, where)`` of one loss or gradient norm far above all others, with a return to the usual after it."""
    for run in facts.runs:
        for column, factor in (("loss", 4.0), ("grad_norm", 20.0)):
            rows = [(value, line) for _, value, line in run.column(column) if math.isfinite(value)]
            if len(rows) in (3, 4) and column == "grad_norm":
                peak = max(value for value, _ in rows[1:-1])
                if peak >= 50 * max(rows[0][0], rows[-1][0]) > 0:
                    line = next(at for value, at in rows if value == peak)
                    return f"{column} jumps to {peak:.4g} from {rows[0][0]:.4g} and comes back", run.where(line)
            if len(rows) < 5:
                continue
            usual = median(value for value, _ in rows)
            at = max(range(len(rows)), key=lambda index: rows[index][0])
            value, line = rows[at]
            if value > 1000 * usual > 0 and at + 1 < len(rows) and rows[-1][0] <= 2 * usual:
                return f"{column} jumps to {value:.4g} from about {usual:.4g} and comes back", run.where(line)
            if len(rows) < 12:
                continue
            after = [later for later, _ in rows[at + 1 : at + 6]]
            before = [earlier for earlier, _ in rows[max(0, at - 5) : at]]
            both_sides = usual > 0 and len(after) >= 3 and len(before) >= 3
            if both_sides and value >= factor * max(usual, *before) and median(after) <= 2 * max(before):
                return f"{column} jumps to {value:.4g} from about {usual:.4g} and comes back", run.where(line)
    return None
