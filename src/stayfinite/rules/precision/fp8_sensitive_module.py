"""A head or a router computes in fp8.

## What it means
fp8 has 3 bits of mantissa: values 6 % apart are one value. In most linear layers such errors average out. The head's
logits go into a softmax over the vocabulary, and a router's decide which expert a token is sent to: an error there
changes the answer. The run trains, with a loss that stays above bf16's, or with experts that take turns.

## Why it happens
- A conversion without a filter: `convert_to_float8_training(model)` swaps every linear layer.
- A filter by a name that the model does not have: `filter_fqns = ["output"]` where the head is called `lm_head`.
- An option that asks for it: an fp8 output projection.

## How to recognize it
- `print(model)` shows `(lm_head): Float8Linear`, or `(router)` or `(gate)` of it.
- `stayfinite check --build train:build` names such modules before training.

## How to fix it
- torchao: `convert_to_float8_training(model, module_filter_fn=lambda module, name: "lm_head" not in name and "router"
  not in name)`.
- torchtitan: `filter_fqns = ["lm_head", "router.gate"]`, the names as `print(model)` has them.
- accelerate with torchao leaves the first and the last linear layer in bf16 automatically.
- Transformer Engine: `nn.Linear`, not `te.Linear`, for head and router. Megatron: `--moe-router-dtype fp32`.

## When it is a false alarm
Large heads were trained in fp8 with rowwise or MX scales. Compare the losses of 1,000 steps with and without.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.known import in_short
from stayfinite.rules.rule import FAIR, PROOF, STRONG, Clue, Clues, Rule, quote

_PRINTED = r"\((?:lm_head|output|output_layer|router|gate|score|classifier|embed_out)\): (?:Float8Linear|MXLinear)\("


def judge(facts: Facts) -> Clues:
    """Clues: modules in fp8 according to a build, a printed model or the settings."""
    for name, what in (("fp8.heads", "computes the logits"), ("fp8.routers", "chooses experts")):
        seen = facts.seen(name)
        if seen is not None and seen.value:
            fix = f"exclude {in_short(seen.value)} from the conversion (module_filter_fn, filter_fqns)"
            yield Clue(f"{in_short(seen.value)} {what} and computes in fp8", PROOF, seen.where, fix=fix, mild=True)
    yield from quote(facts.mentioned(_PRINTED), STRONG, "{:.120}", mild=True)


RULE = Rule(
    code="SF121",
    severity="warning",
    fix='keep it in bf16: module_filter_fn, or filter_fqns = ["lm_head", "router.gate"] with your model\'s names',
    observes={
        "fp8.heads": "fp8 modules that produce logits, a list",
        "fp8.routers": "modules in fp8 that choose experts, a list",
    },
    mild_plans={"plan.fp8_sensitive_module": PROOF},
    warns={
        r"fp8 full-finetunes of moe models may diverge": STRONG + FAIR,
    },
)
