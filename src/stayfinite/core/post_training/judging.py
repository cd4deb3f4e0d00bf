"""One test per cause: takes the courses of a run's signals, yields a sign if they show it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from stayfinite.core.post_training import signs
from stayfinite.core.post_training.course import LATE, LONG, Course
from stayfinite.core.post_training.signs import Sign

ONE_NAT = 1.0
"""KL per token at which a token is e times as likely as under the reference."""

LEARNED = 3.0
"""KL per token that a rising reward justifies: a policy that has learned its answers is this far from its start."""

NO_PLATEAU = 8.0
"""KL per token at which no run settles: tokens are 3,000 times as likely as under the reference."""

GREEDY = 0.05
"""Entropy per token at which sampling is nearly greedy: about one token in a hundred is open."""


COLLAPSED = 0.1
"""Fraction of the first level that remains of a collapsed entropy."""

NARROWED = 0.35
"""The same where the reward falls with it."""

ALL_EQUAL = 0.99
"""Share of groups, or of truncated answers, that counts as all."""

LONGER = 1.25
"""Multiple of the first length that counts as a rise."""

CUT, CUT_MORE = 0.2, 0.1
"""Share of truncated (or repetitive) answers that is high, and its minimum rise."""

MOSTLY_CUT, MOSTLY_CUT_MORE = 0.5, 0.25
"""The same for rewards that ignore truncation."""

RATIO_OFF = 2.0
"""The mean ratio is 1 for fresh samples; twice or half of it is not noise."""

RATIO_MAX, RATIO_MAX_RISE = 1000.0, 8.0
"""Ratio of one token that outweighs a batch, and its rise over the first: single early tokens are noise."""

MOSTLY_CLIPPED, CLIPPED_RISE, MEAN_OFF = 0.5, 4.0, 1.2
"""Share of clipped tokens that leaves little gradient, and its rise: some losses clip many by design. Without the rise,
a mean ratio this far off shows it.
"""

OTHER_MODEL = 0.1
"""Mean log-probability difference in nats that rounding does not cause: bf16 kernels differ by 0.01 to 0.05."""

FALLEN = 0.5
"""Relative fall of the chosen answers' log-probability."""

STAYS_ZERO = 20
"""Steps with a KL of exactly 0 after which the reference must be the policy itself."""

EXPLAINS_NOTHING, EXPLAINING = 0.05, 20
"""Explained variance of a value function no better than the mean, and the number of values needed."""

SAME_SCORE = 1e-4
"""Relative spread at which all scores of a reward model are the same."""

REWARD_DROP = 0.5
"""Share of the best level that a falling reward has lost."""

SUDDEN, LASTING = 5.0, 3.0
"""Deviations below the best for a short and a long level; noise alone does not reach them."""

WANDERING = 5.0
"""The same for rewards that wander, in deviations of such a level."""

Courses = Mapping[str, Course]


def _level(courses: Courses, *names: str) -> dict[str, float]:
    return {name: courses[name].late for name in names if name in courses and courses[name].sustained}


def _kl_runs_away(step: int, courses: Courses) -> Iterator[Sign]:
    kl = courses.get("kl")
    if kl is None or not kl.sustained or kl.late < ONE_NAT:
        return
    reward, away = courses.get("reward"), kl.late >= 4.0 * max(kl.early, 0.0)
    # KL is exponential in the log-ratio: one token can make a small batch jump.
    if min(kl.late, kl.usual) < LEARNED and reward is not None and reward.rose(2.5) and kl.late < NO_PLATEAU:
        return
    rising = kl.judged and away and kl.late >= 1.5 * max(kl.before, 0.0)
    worse = reward is not None and reward.fell(2.0) and away
    # It started at the reference, has been far from it for long, and the reward did not rise.
    in_vain = reward is not None and reward.judged and not (reward.rose(1.5) or _at_best(reward))
    stays = kl.long and kl.late_long >= ONE_NAT and kl.lowest <= 0.1 * ONE_NAT and in_vain
    if rising or worse or stays or kl.late >= NO_PLATEAU:
        more = _level(courses, "entropy", "reward")
        changed = {name: now for name, now in more.items() if abs(now - courses[name].early) > 0.1 * abs(now)}
        beside = "".join(f", {name} {courses[name].early:.3g} to {now:.3g}" for name, now in changed.items())
        first = kl.early if away else kl.lowest
        yield Sign(
            signs.KL_RUNAWAY, "kl", step, kl.late, first,
            f"KL to the reference rose from {first:.3g} to {kl.late:.3g} nats per token{beside}", figures=more,
        )  # fmt: skip


def _reference_moves(step: int, courses: Courses) -> Iterator[Sign]:
    kl, reward, groups = courses.get("kl"), courses.get("reward"), courses.get("equal_groups")
    if kl is None or kl.count < STAYS_ZERO or kl.lowest != 0 or kl.highest != 0:
        return
    if (reward is not None and reward.highest == reward.lowest) or (groups is not None and groups.late >= ALL_EQUAL):
        return  # nothing was learned yet
    yield Sign(
        signs.REFERENCE_MOVES, "kl", step, 0.0, 0.0,
        f"KL to the reference is exactly 0 after {kl.count} steps: the reference is the policy",
    )  # fmt: skip


def _entropy_collapses(step: int, courses: Courses) -> Iterator[Sign]:
    entropy, reward = courses.get("entropy"), courses.get("reward")
    # Supervised and preference training do not sample: their entropy may reach 0.
    if entropy is None or not entropy.judged or _SAMPLING.isdisjoint(courses):
        return
    greedy = 0 <= entropy.late <= min(GREEDY, COLLAPSED * entropy.early)
    in_vain = 0 <= entropy.late <= NARROWED * entropy.early and reward is not None and reward.fell(1.5)
    if (kl := courses.get("kl")) is not None and kl.late >= ONE_NAT:
        in_vain = False  # a policy that runs away narrows on its way
    if not (greedy or in_vain):
        return
    if reward is not None and (_at_best(reward) or reward.rose(1.5)):
        return  # it learned the answers
    more = _level(courses, "reward", "equal_groups", "kl")
    yield Sign(
        signs.ENTROPY_COLLAPSE, "entropy", step, entropy.late, entropy.early,
        f"entropy fell from {entropy.early:.3g} to {entropy.late:.2g} nats per token and the reward did not rise"
        if reward is not None
        else f"entropy fell from {entropy.early:.3g} to {entropy.late:.2g} nats per token",
        figures=more,
    )  # fmt: skip


def _no_advantage(step: int, courses: Courses) -> Iterator[Sign]:
    groups, spread, reward = courses.get("equal_groups"), courses.get("advantage_std"), courses.get("reward")
    if groups is not None and groups.sustained and groups.only(1.0):
        signal, course = "equal_groups", groups
    elif groups is None and spread is not None and spread.sustained and spread.ends_in(0.0):
        signal, course = "advantage_std", spread
    else:
        return
    # With one group per batch, equal groups in a row may be chance; a constant reward is not.
    if course is groups and not course.long and (reward is None or reward.highest > reward.lowest):
        return
    more = _level(courses, "reward", "cut_off", "entropy")
    variant, seen = "", "every answer to a prompt gets the same reward"
    if reward is not None and reward.sustained:
        if reward.late <= 0 or _at_worst(reward):
            variant, seen = signs.ALL_WRONG, f"every answer gets reward {reward.late:.3g}"
        elif _at_best(reward):
            variant, seen = signs.ALL_RIGHT, f"every answer gets the best reward {reward.late:.3g}"
        else:
            variant, seen = signs.CONSTANT, f"every answer gets reward {reward.late:.3g}"
    if (cut := courses.get("cut_off")) is not None and cut.late_long >= MOSTLY_CUT:
        seen += f", and {cut.late_long:.0%} are cut at the limit"
    yield Sign(
        signs.ZERO_ADVANTAGE, signal, step, course.late, course.early, f"{seen}: every advantage is 0",
        variant=variant, figures=more,
    )  # fmt: skip


def _at_best(course: Course) -> bool:
    """Whether the level is at the highest value of a signal that varied."""
    span = course.highest - course.lowest
    return span > 0 and course.highest - course.late <= 0.05 * span


def _at_worst(course: Course) -> bool:
    span = course.highest - course.lowest
    return span > 0 and course.late - course.lowest <= 0.05 * span


def _length_pays(step: int, courses: Courses) -> Iterator[Sign]:
    length, reward = courses.get("length"), courses.get("reward")
    if length is None or reward is None or not length.judged or not reward.judged:
        return
    cut = courses.get("cut_off")
    if reward.late <= 0 and _at_worst(reward):
        return  # nothing is rewarded
    if cut is not None and _rose_to(cut, MOSTLY_CUT, MOSTLY_CUT_MORE) and not reward.rose(2.5):
        # If many were truncated from the start, the task is like that.
        if cut.late >= 2 * cut.early and reward.late >= reward.early - 2.0 * reward.noise:
            yield Sign(
                signs.REWARD_ON_TRUNCATED, "cut_off", step, cut.late, cut.early,
                f"answers cut at the limit rose from {cut.early:.0%} to {cut.late:.0%} and the reward stays at "
                f"{reward.late:.3g}",
                figures=_level(courses, "reward", "length"),
            )  # fmt: skip
        return
    if length.late < LONGER * length.early or not length.rose(2.0) or not reward.rose(2.5):
        return
    for name, words in (("cut_off", "of answers are cut at the limit"), ("repeats", "of answers repeat themselves")):
        if _rose_to(courses.get(name), CUT, CUT_MORE):
            share = courses[name]
            yield Sign(
                signs.LENGTH_HACKING, "length", step, length.late, length.early,
                f"answers grew from {length.early:.0f} to {length.late:.0f} tokens with the reward, and "
                f"{share.late:.0%} {words} (first {share.early:.0%})",
                figures=_level(courses, "reward", "cut_off", "repeats"),
            )  # fmt: skip
            return


def _rose_to(share: Course | None, level: float, by: float) -> bool:
    """Whether a share reached this level and stayed: one small batch is mostly noise."""
    if share is None or not share.judged:
        return False
    lasting = min(share.late, share.late_long)
    return lasting >= level and lasting - share.early_mean >= max(by, 2.0 * share.noise)


def _ratio_explodes(step: int, courses: Courses) -> Iterator[Sign]:
    mean, largest, clipped = courses.get("ratio_mean"), courses.get("ratio_max"), courses.get("clipped")
    more = _level(courses, "lag", "ratio_mean", "ratio_max", "clipped")
    old = f", samples {more['lag']:.3g} updates old" if more.get("lag", 0.0) >= 1 else ""
    if mean is not None and mean.judged and not 1 / RATIO_OFF <= mean.late <= RATIO_OFF:
        text = f"mean importance ratio {mean.late:.3g} instead of 1{old}"
        yield Sign(signs.RATIO_EXPLOSION, "ratio_mean", step, mean.late, 1.0, text, figures=more)
    elif largest is not None and largest.judged and largest.late >= max(RATIO_MAX, RATIO_MAX_RISE * largest.early):
        text = f"largest importance ratio {largest.late:.3g} (first {largest.early:.3g}){old}"
        yield Sign(signs.RATIO_EXPLOSION, "ratio_max", step, largest.late, largest.early, text, figures=more)
    elif clipped is not None and clipped.judged and clipped.late >= MOSTLY_CLIPPED:
        off = mean is not None and not 1 / MEAN_OFF <= mean.late <= MEAN_OFF
        if not off and clipped.late < CLIPPED_RISE * clipped.early:
            return
        text = f"{clipped.late:.0%} of the ratios are clipped (first {clipped.early:.1%}){old}"
        yield Sign(signs.RATIO_EXPLOSION, "clipped", step, clipped.late, clipped.early, text, figures=more)


def _sampler_differs(step: int, courses: Courses) -> Iterator[Sign]:
    mismatch = courses.get("mismatch")
    if mismatch is not None and mismatch.sustained and mismatch.late >= OTHER_MODEL:
        more = _level(courses, "mismatch_max", "lag")
        largest = f", at most {more['mismatch_max']:.3g}" if "mismatch_max" in more else ""
        yield Sign(
            signs.SAMPLER_MISMATCH, "mismatch", step, mismatch.late, 0.0,
            f"sampler and trainer differ by {mismatch.late:.3g} nats per token on the same tokens{largest}",
            figures=more,
        )  # fmt: skip


def _both_fall(step: int, courses: Courses) -> Iterator[Sign]:
    chosen, rejected, margin = (courses.get(name) for name in ("chosen_logp", "rejected_logp", "margin"))
    if chosen is None or rejected is None or not chosen.judged or not rejected.judged:
        return
    lost = chosen.early - chosen.late
    if lost < FALLEN * abs(chosen.early) or not chosen.fell(3.0) or not rejected.fell(3.0):
        return
    # A fall that has ended is fine: part of it must be recent.
    if chosen.before - chosen.late < 0.05 * lost:
        return
    if margin is not None and not margin.late > margin.early:
        return
    more = _level(courses, "rejected_logp", "margin")
    yield Sign(
        signs.BOTH_FALL, "chosen_logp", step, chosen.late, chosen.early,
        f"log-probability of chosen answers fell from {chosen.early:.4g} to {chosen.late:.4g}, of rejected ones from "
        f"{rejected.early:.4g} to {rejected.late:.4g}",
        figures=more,
    )  # fmt: skip


def _value_is_blind(step: int, courses: Courses) -> Iterator[Sign]:
    explained, loss, reward = (courses.get(name) for name in ("explained_variance", "value_loss", "reward"))
    if explained is None or explained.count < EXPLAINING or not explained.judged:
        return
    # Two short levels near 0 are chance where the values scatter: the long level must be there as well.
    if max(explained.late, explained.before, explained.late_long) > EXPLAINS_NOTHING or explained.rose(1.0):
        return
    if loss is not None and loss.judged and (loss.late <= 0.9 * loss.early or loss.late == 0):
        return  # it still learns, or there is nothing to explain
    if reward is not None and reward.highest == reward.lowest:
        return
    yield Sign(
        signs.BLIND_VALUE, "explained_variance", step, explained.late, explained.early,
        f"the value function explains {max(0.0, explained.late):.0%} of the returns after {explained.count} updates",
        figures=_level(courses, "value_loss", "reward"),
    )  # fmt: skip


def _one_score(step: int, courses: Courses) -> Iterator[Sign]:
    low, high = courses.get("score_min"), courses.get("score_max")
    if low is None or high is None or not high.judged or not low.judged:
        return
    if high.late - low.late <= SAME_SCORE * max(1.0, abs(high.late)):
        yield Sign(
            signs.ONE_SCORE, "score_max", step, high.late, low.late,
            f"the reward model gives every answer the score {high.late:.3g}", figures=_level(courses, "margin"),
        )  # fmt: skip


def _reward_falls(step: int, courses: Courses) -> Iterator[Sign]:
    reward = courses.get("reward")
    if reward is None or not reward.judged:
        return
    for best, level, least in (
        (reward.best, reward.late, max(SUDDEN * reward.noise, WANDERING * reward.spread(LATE))),
        (reward.best_long, reward.late_long, max(LASTING * reward.noise, WANDERING * reward.spread(LONG * LATE))),
    ):
        lost = best - level
        deep = REWARD_DROP * max(abs(best), abs(best - reward.early))
        if not (math.isfinite(lost) and lost > 0 and lost >= max(deep, least)):
            continue
        more = _level(courses, "kl", "entropy", "length", "cut_off")
        yield Sign(
            signs.REWARD_FALLS, "reward", step, level, best,
            f"the reward fell from {best:.3g} at its best to {level:.3g}", figures=more,
        )  # fmt: skip
        return


TESTS: tuple[Callable[[int, Courses], Iterator[Sign]], ...] = (
    _sampler_differs,
    _kl_runs_away,
    _reference_moves,
    _ratio_explodes,
    _entropy_collapses,
    _no_advantage,
    _length_pays,
    _both_fall,
    _value_is_blind,
    _one_score,
    _reward_falls,
)

_SAMPLING = frozenset(("reward", "kl", "ratio_mean", "ratio_max", "clipped", "equal_groups", "advantage_std"))
