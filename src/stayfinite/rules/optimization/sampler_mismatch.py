"""Sampler and trainer differ on the same tokens.

## What it means
The engine that generates and the model that trains hold the same weights, so the same token should have the same
log-probability in both. Rounding makes 0.01 to 0.05 nats per token. More means that they do not compute the same thing:
training then follows samples of another policy, and rewards collapse sooner or later.

## Why it happens
- Another dtype (fp8 or bf16 in the engine, fp32 in the trainer), other attention or mixture-of-experts kernels.
- Temperature: trl's `generation_kwargs={"temperature": ...}` changes the sampling alone; an engine reports
  log-probabilities before the temperature is applied, the trainer after it.
- Another chat template, padding side, position ids or missing special tokens in the training pass.
- Dropout is on in the training pass. The engine still has old weights, or lacks the adapter.

## How to recognize it
- `sampling/sampling_logp_difference/mean` (trl with vLLM) above 0.1; `rollout_corr/log_ppl_abs_diff` (verl).
- It is there from the first step on: a setting. It grows from step to step: old weights in the engine.

## How to fix it
Take one answer and compare both log-probabilities token by token; the first that differs tells which. In evaluation
mode, in fp32, with the template and temperature of the sampler the difference must vanish: change one at a time.

- trl: `GRPOConfig(disable_dropout=True)`, the same dtype in `model_init_kwargs` and vLLM,
  `vllm_importance_sampling_correction=True`.
- verl: `actor_rollout_ref.rollout.calculate_log_probs=True`, `actor_rollout_ref.rollout.dtype=bfloat16`, rollout
  correction.
- OpenRLHF: `--algo.advantage.is_correction_enable`.

## When it is a false alarm
An asynchronous sampler is some updates behind by design, which adds to the difference. Single tokens may differ by
several nats: the mean is judged.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote

_FORCED = (
    r"\b(?:min_new_tokens|min_length|no_repeat_ngram_size|num_beams)[\"':=\s]{1,4}(?:[2-9]|1\d)|"
    r"\brepetition_penalty[\"':=\s]{1,4}(?!1(?:\.0+)?\b)\d|\bbad_words_ids\b|\bforced_\w+_id\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: a mean difference of log-probabilities beyond rounding, or a KL divergence that is said to be negative."""
    negative = facts.symptoms.said("negative kl")
    if negative is None:
        return
    yield Clue(f"reported: a KL divergence below 0: {negative.text[:100]}", STRONG, negative.where)
    yield from quote(
        facts.mentioned(_FORCED), FAIR, "generation is forced away from the policy's own distribution: {:.80}"
    )


RULE = Rule(
    code="SF245",
    fix="compare dtype, temperature, template, dropout and weights of sampler and trainer",
    beats=("ratio-explosion", "kl-runaway", "reward-falls", "entropy-collapse"),
    signals=True,
    plans={"plan.sampled_otherwise": PROOF},
    mild_plans={"plan.dropout_on": PROOF},
)
