"""fp16 and bf16 are both enabled.

## What it means
The two 16-bit formats exclude each other: fp16 needs a loss scaler, bf16 must not have one. transformers and DeepSpeed
refuse to start; scripts that only ask for one of the switches silently train in the format that they ask for first.

## Why it happens
A config for one card is changed for another, and only one of the two lines is. A command line switch is added to a
config file that sets the other one. A DeepSpeed file has `fp16.enabled: true` and the Trainer is given `bf16`.

## How to recognize it
- `At most one of fp16 and bf16 can be True, but not both`.
- `bfloat16 and float16 modes cannot be simultaneously enabled` from DeepSpeed.
- Both lines in the settings, in one file or in two that are used together.

## How to fix it
Keep one of them: bf16 on Ampere or newer, else fp16 if it is safe for the model.

- transformers: `bf16=True, fp16=False`.
- DeepSpeed: `"bf16": {"enabled": true}, "fp16": {"enabled": false}`, or `"auto"` in both and the switch in the Trainer.
- axolotl: `bf16: auto` and no `fp16`. LLaMA-Factory: `bf16: true` and no `fp16`.

## When it is a false alarm
Switches of two trainings in one file (two models, two stages) do not meet. `fp16_full_eval` with `bf16` is another
switch: it concerns the evaluation alone.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import PROOF, Clues, Rule, quote


def judge(facts: Facts) -> Clues:
    """Clues: both switches on in one plan."""
    refusal = facts.said(
        r"at most one of fp16 and bf16 can be true|"
        r"\bbf16\W{0,2} when \W{0,2}fp16\W{0,2} is set|\bfp16\W{0,2} when \W{0,2}bf16\W{0,2} is set|"
        r"(?:bfloat16|bf16) and (?:float16|fp16) modes? cannot be (?:simultaneously )?enabled"
    )
    yield from quote(refusal, PROOF)


RULE = Rule(
    code="SF115",
    fix="keep one: bf16=True, fp16=False on Ampere or newer, else fp16 or fp32",
    plans={"plan.both_halves": PROOF},
)
