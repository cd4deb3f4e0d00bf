"""Rows or batches have only masked labels.

## What it means
All labels are -100 (or the loss's `ignore_index`), so the mean runs over no token: 0 divided by 0, a NaN loss and NaN
gradients. Implementations that guard the division report a loss of 0.0 with a gradient of 0 instead. transformers
replaces a NaN loss in its log, so it usually looks like `loss: 0.0` with `grad_norm: nan`.

## Why it happens
- The answer was cut away: prompts longer than `max_length`, truncation on the right, and only the answer is trained
  on (`completion_only_loss`, `assistant_only_loss`, `train_on_responses_only`, `train_on_prompt: false`).
- The response template is never found: it is tokenized differently after a newline or a space, the chat template is
  another model's, `{% generation %}` is missing from it.
- For preference training: `max_prompt_length` is as large as `max_length`, so nothing is left for the answer.
- Padding is masked by token id, and the pad token is the end token, or every token.
- A collator masks by role names that the data does not have (`gpt` against `assistant`); segmentation masks that hold
  nothing but the ignore value.

## How to recognize it
- `loss` 0.0 and `grad_norm` nan or 0.0 from the first step on, in bf16 and fp32 too; `mean_token_accuracy` 0.0 or
  nan.
- `eval_loss: nan` with a good training loss: some batch of the evaluation has no answer left.
- `Could not find response key ... This instance will be ignored in loss calculation`,
  `All labels in your dataset are -100`.
- One line tells: `[(row["labels"] != -100).sum() for row in batch]`, and decode what is left.

## How to fix it
- Raise the limit above prompt plus answer: TRL `SFTConfig(max_length=...)`, LLaMA-Factory `cutoff_len`, axolotl
  `sequence_len`, ms-swift `--max_length`; or drop rows that do not fit before training.
- TRL: `completion_only_loss` needs `prompt` and `completion` columns; `assistant_only_loss=True` needs a chat
  template with `{% generation %}`. With the old `DataCollatorForCompletionOnlyLM`, give the template as token ids.
- unsloth: `train_on_responses_only(trainer, instruction_part=..., response_part=...)` with the exact text of the
  template.
- DPO and similar: `max_prompt_length` well below `max_length`.
- Own loss: `loss.sum() / (labels != -100).sum().clamp(min=1)`; it keeps a batch without labels from breaking the
  weights.

## When it is a false alarm
A loss of 0.0 with a live gradient is not this: GRPO's loss is 0 by construction at the first step, and a finished
overfit goes to 0 slowly. A single such batch among many is harmless when the mean is guarded.
"""

import math
import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.data.lookups import longest_input
from stayfinite.rules.data.truncation import some_keep_labels
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote

_SAID = (
    r"could not find (?:the )?(?:response|instruction|assistant) (?:key|template)|"
    r"\b(?:all|most|every) labels?\b.{0,30}(?:-100|\bmasked|\bignored)|\bmask(?:s|ed) (?:all|every) labels?\b|"
    r"\bno (?:label|target|token)s? (?:is|are|was|were)? ?(?:left|supervised|unmasked)|\bnothing to train on\b|"
    r"\bfully (?:un-?label\w+|masked|ignored|void)\b|\b(?:no|zero) valid (?:pixel|label|target|token)s?\b|"
    r"(?:this )?instance will be ignored in loss|return_assistant_tokens_mask.{0,40}generation"
)
_MASKS = (
    r"assistant_only_loss|completion_only|CompletionOnly|response_template|train_on_responses_only|"
    r"train_on_inputs: ?false|train_on_prompt: ?false|mask_prompt|ignore_index"
)
_CUT_AWAY = (
    r"\b\w*labels?\w*['\"\]]*\s*=\s*[\w.\[\]'\"]*labels?\w*['\"\]]*\[\s*:\s*[\w.]*(?:max|len|limit|size|ctx|context)|"
    r"\b\w*labels?\w*\[\s*:\s*[\w.]*(?:max|len|limit|cutoff)"
)
_ANSWERS = r"\b(?:SFT|DPO|TPO|KTO|ORPO|CPO|SimPO|Reward)(?:Trainer|Config)\b|\bsft\b|truncation_mode|\btrl\b|\balpaca"
_FINE = r"train(?:ing)?[ _]loss\W{0,2} ?(?:is |stays |looks )?(?:finite|fine|ok|normal|falls|decreas\w+|good)"
_RIGHT = lazy_regex(r"(?:\w+_)?acc(?:uracy)?(?:_\w+)?$")
_POLICY = r"\bgrpo\b|\bppo\b|num_generations|reward_func"
_BY_COUNT = (
    r"/ ?\(?\w*(?:tokens?|labels?|targets?|supervised|valid|unmasked|loss_mask|answers?)\w*"
    r"(?:\.sum\(|\.item\(|\)|,|\s*$|\.shape|\b)"
)
NEAR = 5
"""Lines of a traceback between an error and the code that it quotes."""
SOME = 0.001
"""Share of fully masked rows above which fully masked batches occur."""
FEW = 5
"""Healthy points that show that most rows have labels."""
SHORT = 256
"""Tokens. Few conversations fit their prompt and answer into such a limit."""


def judge(facts: Facts) -> Clues:
    """Clues: a loss of 0 or NaN from the start, and settings that mask."""
    yield from _observed(facts)
    yield from quote(some_keep_labels(facts), REFUTED)
    said = facts.said(_SAID)
    if said is not None:
        yield Clue(said.text, STRONG + 1.0, said.where)
        if facts.symptoms.healthy and facts.symptoms.points >= FEW:
            yield Clue("training continues normally: few rows are affected", REFUTED)
    yield from _divided(facts)
    symptoms, empty = facts.symptoms, _empty_means(facts)
    if symptoms.zero_loss or symptoms.bad_losses or symptoms.bad_norms or symptoms.bad_evals or empty:
        yield from empty
        yield from _numbers(facts)
        yield from _settings(facts)
        yield from _against(facts)


def _divided(facts: Facts) -> Clues:
    """A division by the number of unmasked tokens, which was 0."""
    zero = facts.said(r"ZeroDivisionError|division by zero")
    count = facts.said(_BY_COUNT)
    if zero is not None and count is not None and abs(zero.line - count.line) <= NEAR:
        text = f"the number of supervised tokens is 0: {count.text.strip()[:100]}"
        yield Clue(text, STRONG + FAIR, count.where)


def _numbers(facts: Facts) -> Clues:
    symptoms = facts.symptoms
    accuracy = facts.metric("mean_token_accuracy", "token_accuracy", "token_acc")
    if accuracy and all(value == 0 or not math.isfinite(value) for value, _ in accuracy):
        yield Clue("token accuracy is 0 or NaN: no token is supervised", STRONG, accuracy[0][1])
    right = [track.values for run in facts.runs for name, track in run.metrics.items() if _RIGHT.match(name)]
    if symptoms.zero_loss and symptoms.from_start and not symptoms.bad_norms and right and not any(map(any, right)):
        yield Clue("loss and accuracy are exactly 0 from the start: no label counts", STRONG)
    if symptoms.zero_loss and symptoms.from_start:
        place = symptoms.at("first_zero")
        if symptoms.bad_norms:
            yield Clue("loss 0 with a NaN or inf gradient norm, from the start", HINT, place)
        elif symptoms.zero_norms * 2 >= symptoms.points:
            yield Clue("loss and gradient norm are exactly 0 from the start", 3.5, place)
    if symptoms.bad_evals and not symptoms.bad_losses and not symptoms.bad_norms:
        place = symptoms.at("bad_eval")
        if symptoms.good_losses or facts.mentioned(_FINE) is not None:
            yield Clue("the evaluation loss is NaN or inf, the training loss is not", FAIR, place)
        else:
            yield Clue("the evaluation loss is NaN or inf", HINT, place)


def _settings(facts: Facts) -> Clues:
    masks, cut, answers = facts.mentioned(_MASKS), facts.mentioned(_CUT_AWAY), facts.mentioned(_ANSWERS)
    yield from quote(masks, STRONG, "only part of each text is supervised ({:.100})")
    yield from quote(cut, STRONG, "the answers may be truncated ({:.100})")
    yield from quote(answers, 1.5, "trains on answers to prompts ({:.80})", risk=True)
    limit = longest_input(facts)
    short = facts.symptoms.zero_loss or masks is not None or (answers is not None and facts.symptoms.bad_evals > 0)
    if limit is not None and limit[0] <= SHORT and short:
        yield Clue(f"texts are truncated to {limit[0]} tokens ({limit[1]})", FAIR, limit[2], risk=True)


def _empty_means(facts: Facts) -> list[Clue]:
    """NaN means over answer tokens although no loss is NaN."""
    if facts.symptoms.bad_losses or facts.symptoms.bad_norms:
        return []
    for run in facts.runs:
        for name, track in run.metrics.items():
            if re.search(r"log(?:its|ps)\W(?:chosen|rejected)|token_acc|completion\w*\W", name) and not all(
                map(math.isfinite, track.values)
            ):
                return [Clue(f"{name} is NaN: a mean over no tokens", 2.5, run.where(track.lines[0]))]
    return []


def _against(facts: Facts) -> Clues:
    symptoms = facts.symptoms
    if facts.context.half is not None:
        yield Clue(f"fp16 explains it as well ({facts.context.half.text})", -1.0, facts.context.half.where)
    policy = facts.mentioned(_POLICY)
    if policy is not None or facts.metric("reward_std", "reward", "kl"):
        yield Clue("the policy trains on rewards, not labels", 2 * AGAINST, policy.where if policy else "")
    if symptoms.good_before >= 3:
        yield Clue(f"{symptoms.good_before} points were good before", AGAINST, symptoms.at("start"))
    if symptoms.explodes:
        yield Clue("the loss exploded", AGAINST, symptoms.at("largest_loss"))


def _observed(facts: Facts) -> Clues:
    share = facts.seen("labels.supervised_share")
    if share is not None:
        if share.value == 0:
            yield Clue("every label of the batch is masked", PROOF, share.where)
        elif share.value > 0.01:
            yield Clue(f"{share.value:.1%} of the labels are supervised", REFUTED, share.where)
    rows = facts.seen("labels.masked_rows_share")
    if rows is not None and rows.value > SOME:
        text = f"{rows.value:.1%} of the rows have no supervised label"
        yield Clue(text, PROOF if rows.value > 0.05 else STRONG, rows.where)


RULE = Rule(
    code="SF302",
    fix=(
        "raise max_length (cutoff_len) above prompt plus answer or drop longer rows, and check that the response "
        "template occurs in the tokens"
    ),
    prior=-3.5,
    beats=("nan-loss", "loss-collapse", "zero-gradient", "truncation", "loss-formula-singularity"),
    observes={
        "labels.supervised_share": "the share of a batch's labels that are not ignored, 0 to 1",
        "labels.masked_rows_share": "the share of the data's rows in which no label is left, 0 to 1",
    },
    plans={"plan.no_room_for_answer": STRONG + HINT},
    warns={
        r"chat template does not contain .{0,30}generation": STRONG + FAIR,
    },
)
