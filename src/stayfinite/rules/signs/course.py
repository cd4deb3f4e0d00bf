"""The course of a finite loss: flat, degrading, recovering, or with one jump."""

from __future__ import annotations

import math
from statistics import median

from stayfinite.rules.contradictions import sums_by_epoch
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.number_shapes import trainings


def no_measure(facts: Facts) -> Line | None:
    """``(where, text)`` that shows that the loss does not measure progress: rewards, or two players."""
    for name in ("reward", "rewards", "mean_reward", "episode_reward", "ep_rew_mean", "return", "episode_return"):
        track = facts.metric(name)
        if (
            len(track) >= 2
            and math.isfinite(track[0][0])
            and math.isfinite(track[-1][0])
            and track[-1][0] >= track[0][0]
        ):
            return Line(track[-1][1], f"{name} rises")
    return facts.mentioned(
        r"\bw?gans?\b|discriminator|generator_loss|\bppo\b|\bgrpo\b|\brlhf\b|actor[_ -]critic|\bdqn\b|\bsac\b|"
        r"\bd_loss\b|reinforce"
    )


def stands_still(facts: Facts) -> Line | None:
    """A finite loss that is flat over four or more points and a hundred or more steps."""
    for run in facts.runs:
        rows = [(step, value, line) for step, value, line in run.column("loss") if math.isfinite(value)]
        if len(rows) < 4 or rows[-1][0] - rows[0][0] < 100 or min(value for _, value, _ in rows) <= 1e-6:
            continue
        values = [value for _, value, _ in rows]
        if max(values) - min(values) <= 6e-3 * median(values) and values[-1] > 0.99 * values[0]:
            return Line(run.where(rows[0][2]), f"the loss stays at {values[-1]:.4g}")
    return None


def evaluates_alike(facts: Facts) -> bool:
    """Whether an evaluation's loss never falls by a hundredth, over two evaluations or more."""
    values = [value for value, _ in facts.metric("validation_loss", "eval_loss", "val_loss")]
    return len(values) >= 2 and min(values) > 0.99 * values[0] > 0


def fell_apart(facts: Facts) -> Line | None:
    """A finite loss that was low and got far worse, permanently or repeatedly.

    Three ways: the last points are far above the lowest two; a language model goes from below 1.5 to above 4; or it
    jumps there more than once. An untrained model's mean token loss on ordinary text is above 4.
    """
    if no_measure(facts) is not None:
        return None
    language = facts.context.adapters is not None or facts.context.family is not None
    speaks = (
        language or facts.mentioned(r"\bgpt|\bllms?\b|language model|\bppl\b|perplexity|\b\w*bert\b|tokens") is not None
    )
    for run, points in ((each, part) for each in facts.runs for part in trainings(list(each.points))):
        rows = [(p.loss, p.line) for p in points if p.loss is not None and math.isfinite(p.loss)]
        values = [value for value, _ in rows]
        if len(rows) < 3 or min(values) <= 0.02 or sums_by_epoch(points):
            continue
        lowest, second = sorted(values)[:2]
        best, tail = values.index(lowest), values[-3:]
        # Small losses (regression, diffusion) vary more by batch than by step: a few prove nothing.
        telling = min(tail) >= 1.0 or len(values) >= 20
        away = telling and len(values) >= 7 and best >= 2 and best + 3 < len(values)
        if away and min(tail) >= max(3 * lowest, 2 * second) and tail[-1] == max(values[best:]):
            return Line(
                run.where(rows[-1][1]), f"the loss fell to {lowest:.4g} and has climbed to {tail[-1]:.4g} since"
            )
        shifted = _new_level(values) if speaks else None
        if shifted is not None:
            text = f"the loss was {values[shifted - 1]:.4g} and then never below {min(values[shifted:]):.4g}"
            return Line(run.where(rows[shifted][1]), text)
        lasting = language and min(tail) >= 1.0 and len(values) >= 5 and best >= 1
        if lasting and min(tail) >= max(4 * lowest, 2 * second, 1.2 * values[0]):
            return Line(run.where(rows[-1][1]), f"the loss fell to {lowest:.4g} and is at {tail[-1]:.4g} since")
        if not language:
            continue
        usual = median(values)
        high = [(value, line) for value, line in rows if value >= 4.0 and value >= 4 * max(lowest, 0.3)]
        ends_high = min(values[-2:]) >= 4.0 and min(values[:-2]) <= 1.5
        if ends_high or (usual <= 1.5 and len(values) >= 6 and len(high) >= 2 and values[0] <= 1.5):
            return Line(
                run.where(high[0][1]), f"the loss was {min(values[0], usual):.4g} and jumps to {high[-1][0]:.4g}"
            )
    return None


def _new_level(values: list[float]) -> int | None:
    """Where a language model's loss rises permanently to unigram level: from 4 or less to about 6."""
    for index in range(2, len(values) - 2):
        before, after = values[max(0, index - 5) : index], values[index:]
        if max(before) <= 4.5 and min(after) >= max(5.5, 1.8 * max(before)):
            return index
    return None


def returns(facts: Facts) -> bool:
    """Whether the run ends finite, with loss and gradient norm at their usual level."""
    for run in facts.runs:
        norms = [value for _, value, _ in run.column("grad_norm")]
        losses = [value for _, value, _ in run.column("loss")]
        if len(norms) < 3 or len(losses) < 3 or not (math.isfinite(norms[-1]) and math.isfinite(losses[-1])):
            continue
        lowest = min(value for value in norms if math.isfinite(value))
        if norms[-1] <= 3 * lowest and losses[-1] <= 1.2 * losses[0]:
            return True
    return False


def lone_spike(facts: Facts) -> Line | None:
    """A single loss or gradient norm far above all others, followed by a recovery."""
    for run in facts.runs:
        for column, factor in (("loss", 4.0), ("grad_norm", 20.0)):
            rows = [(value, line) for _, value, line in run.column(column) if math.isfinite(value)]
            if len(rows) in (3, 4) and column == "grad_norm":
                peak = max(value for value, _ in rows[1:-1])
                if peak >= 50 * max(rows[0][0], rows[-1][0]) > 0:
                    line = next(at for value, at in rows if value == peak)
                    return Line(run.where(line), f"{column} jumps to {peak:.4g} from {rows[0][0]:.4g} and comes back")
            if len(rows) < 5:
                continue
            usual = median(value for value, _ in rows)
            at = max(range(len(rows)), key=lambda index: rows[index][0])
            value, line = rows[at]
            if value > 1000 * abs(usual) > 0 and at + 1 < len(rows) and abs(rows[-1][0]) <= 2 * abs(usual):
                return Line(run.where(line), f"{column} jumps to {value:.4g} from about {usual:.4g} and comes back")
            if len(rows) < 12:
                continue
            after = [later for later, _ in rows[at + 1 : at + 6]]
            before = [earlier for earlier, _ in rows[max(0, at - 5) : at]]
            both_sides = usual > 0 and len(after) >= 3 and len(before) >= 3
            if both_sides and value >= factor * max(usual, *before) and median(after) <= 2 * max(before):
                return Line(run.where(line), f"{column} jumps to {value:.4g} from about {usual:.4g} and comes back")
    return None
