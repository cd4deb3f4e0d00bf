"""Evaluation uses another dtype than training.

## What it means
A model that was trained in bf16 or fp32 is evaluated in fp16 (or in 8 bits). Activations that bf16 holds overflow in
fp16: logits become NaN or infinite, generation fails or repeats one token, scores collapse, although the weights are
good.

## Why it happens
`.half()` or `torch_dtype=torch.float16` in the inference script, `fp16_full_eval=True`, a serving library that defaults
to fp16 on older cards, a merged adapter saved in fp16, autocast round training and not round evaluation.

## How to recognize it
- `RuntimeError: probability tensor contains either inf, nan or element < 0` while generating.
- Training losses are healthy, and `eval_loss` is NaN at every evaluation.
- The settings name two dtypes: bf16 for training, fp16 for evaluation or loading.

## How to fix it
- Evaluate in the dtype of the training: `dtype=torch.bfloat16` in `from_pretrained`, `bf16_full_eval=True` (or no
  full-half evaluation at all) in transformers, `Trainer(precision="bf16-mixed")` for `validate` and `test` in
  Lightning.
- Cards without bf16: fp32, or fp16 autocast with fp32 weights, which keeps the norms and the softmax in fp32.
- vLLM: `--dtype bfloat16`; merged adapters: merge in fp32, save in bf16.

## When it is a false alarm
If the training loss is NaN as well, the dtype of the evaluation is not to blame. Models that were trained in fp16 run
in fp16.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.known import is_on
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_TOLD = (
    r"\btrain\w*\b.{0,20}\b(?:bf16|bfloat16|fp32|float32)\b.{0,60}"
    r"\b(?:eval\w*|infer\w*|generat\w*|test\w*|predict\w*|serv\w*)\b.{0,30}\b(?:half|fp16|float16)\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: healthy training, NaN in evaluation or generation, and two dtypes in the settings."""
    symptoms, context = facts.symptoms, facts.context
    sampling = facts.said(r"probability tensor contains either .{0,6}inf.{0,6}nan|element < 0.{0,40}probability tensor")
    yield from quote(sampling, STRONG - HINT, "{:.160}")
    if facts.symptoms.trouble:
        yield from quote(facts.mentioned(_TOLD), PROOF, "two formats: {:.160}")
    full = facts.settings.find("fp16_full_eval")
    if full is not None and is_on(full.value):
        yield Clue(f"{full.name}: {full.value}", FAIR, full.where, risk=True)
    precision, weights = context.precision, context.weights
    if (
        precision
        and weights
        and precision.value in ("bf16", "fp32")
        and weights.value == "fp16"
        and (sampling or symptoms.bad_evals)
    ):
        yield Clue(f"trained in {precision.value}, loaded in fp16 ({weights.text})", FAIR, weights.where, risk=True)
    if symptoms.bad_evals and symptoms.good_losses >= 3 and not symptoms.bad:
        yield Clue(
            ("the evaluation loss is NaN or inf, but every training loss is finite"), FAIR, symptoms.at("bad_eval")
        )
    if symptoms.bad or (symptoms.bad_losses and not sampling):
        yield Clue("training is NaN or inf too", AGAINST * 2, symptoms.at("first_bad"))
    seen = facts.seen("worlds.training_dtype.finite")
    if seen is not None and seen.value is True:
        yield Clue("the same evaluation is finite in the training dtype", PROOF, seen.where)


RULE = Rule(
    code="SF804",
    severity="warning",
    fix=(
        "evaluate in the training dtype: dtype=torch.bfloat16, bf16_full_eval=True instead of fp16_full_eval, no "
        ".half()"
    ),
    beats=("nan-loss", "pure-fp16-weights", "fp16-overflow", "step-fails"),
    observes={"worlds.training_dtype.finite": "whether the evaluation that failed is finite in the training's dtype"},
)
