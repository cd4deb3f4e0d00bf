"""Trainable parameters are in no optimizer and never change.

## What it means
Some or all parameters require a gradient and get one, but the optimizer does not hold them, or holds tensors that are
no longer the model's. They never change: the loss stalls, or only a part of the model learns.

## Why it happens
The optimizer was built before adapters were added, before the head was replaced, before the model was wrapped (FSDP,
DeepSpeed), moved or cast in a way that makes new parameters. Or a filter on names or on `requires_grad` let nothing
through. Or a module was created in `forward`.

## How to recognize it
- `ValueError: optimizer got an empty parameter list` where parameters are chosen by a name that none has. Where all
  are frozen or none is registered, the same message has another cause.
- FSDP: `The optimizer does not seem to reference any FSDP parameters`; or not a word, with `use_orig_params: false`.
- `AssertionError: No inf checks were recorded for this optimizer`: the scaler met an optimizer whose parameters have
  no gradients.
- `can't optimize a non-leaf Tensor`.
- The loss is flat while rate and gradient norm are as usual, and after a step parameters with gradients are bit for
  bit unchanged.

## How to fix it
Build the optimizer last: load, add adapters, freeze, move, wrap, and then `torch.optim.AdamW(p for p in
model.parameters() if p.requires_grad)`.

- FSDP: build it after wrapping, or with `use_orig_params=True`. XLA and `.to_empty()`: after moving.
- Lightning: `configure_optimizers` runs after the model is complete; create modules in `__init__` or
  `configure_model`.
- transformers: pass `optimizers=(optimizer, None)` only with a model that will not change again; better let
  Trainer build it.
- accelerate: `prepare(model, optimizer)` in one call. DeepSpeed: hand over `model_parameters=` of the finished model.
- New parameters later: `optimizer.add_param_group({"params": new})`.

## When it is a false alarm
Frozen parts are missing on purpose. A `No inf checks` assertion also comes when no parameter got a gradient at all:
see 4xx.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.optimization.loop_code import calls
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

EMPTY = r"optimizer got an empty parameter list|no parameters? to optimize|empty param(?:eter)? (?:list|group)"
NOT_LEAF = r"can'?t optimize a non-leaf tensor"
NOT_SHARDED = r"optimizer does not seem to reference any fsdp parameters"
NO_CHECKS = r"no inf checks were recorded for this optimizer"


BUILT = lazy_regex(r"=\s*(?:\w+\.)*(?:Adam\w*|SGD|RMSprop|Adafactor|Lion|Adagrad|\w*Optimizer)\(.*\.parameters\(")
CHANGED = lazy_regex(
    r"\bget_peft_model\(|\.add_adapter\(|resize_token_embeddings\(|FullyShardedDataParallel\(|\bFSDP\(|"
    r"\bmodel\.\w+(?:\.\w+)?\s*=\s*(?:torch\.)?nn\.\w+\(|\bmodel\s*=\s*(?:copy\.)?deepcopy\("
)


def judge(facts: Facts) -> Clues:
    """Clues: torch's errors, parameters that do not change, or an optimizer built before the model changed."""
    missing = facts.seen("optimizer.missing_parameters")
    if missing is not None and missing.value:
        named = missing.value if isinstance(missing.value, int) else len(missing.value)
        yield Clue(f"{named} trainable parameters are in no optimizer", PROOF, missing.where)
        strangers = facts.seen("optimizer.strangers")
        if strangers is not None:
            text = f"it holds {strangers.value} tensors of another model: built before the model was moved or replaced"
            yield Clue(text, HINT, strangers.where)
    for pattern, weight in ((EMPTY, FAIR), (NOT_LEAF, STRONG + FAIR), (NO_CHECKS, STRONG), (NOT_SHARDED, PROOF)):
        yield from quote(facts.said(pattern), weight)
    by_name = facts.mentioned(r"named_parameters\(\)[^\n]{0,60}\bif\b[^\n]{0,40}(?:\bin\b|startswith|endswith|==)")
    if facts.said(EMPTY) is not None and by_name is not None and "requires_grad" not in by_name.text:
        yield Clue(f"parameters are selected by a name that none has ({by_name.text.strip()})", STRONG, by_name.where)
    yield from quote(facts.symptoms.contradicted("trainings alike"), STRONG + HINT)
    yield from quote(_built_too_early(facts), STRONG, "the model changes after the optimizer is built ({})", risk=True)


def _built_too_early(facts: Facts) -> Line | None:
    """A line that adds parameters after the optimizer was built."""
    built = calls(facts, BUILT)
    owner = re.search(r"(\w+)\.parameters\(", built[-1].text) if built else None
    made_anew = rf"|^\s*{owner[1]}\s*=\s*(?:\w+\.)*[A-Z]\w*\(" if owner is not None else ""
    changed = calls(facts, re.compile(CHANGED.pattern + made_anew))
    if not built or not changed or changed[-1].order <= built[-1].order:
        return None
    return Line(changed[-1].where, changed[-1].text)


RULE = Rule(
    code="SF211",
    fix="build the optimizer after loading, adding adapters to, moving and wrapping the model",
    beats=("loss-collapse", "lr-too-low", "nan-loss", "params-frozen"),
    observes={
        "optimizer.missing_parameters": "the names (or the number) of trainable parameters that no optimizer holds",
        "optimizer.strangers": "how many tensors the optimizer holds that are not the model's",
    },
    plans={"plan.value_head": PROOF},
    says={
        r"some parameters have no corresponding transformation": PROOF,
        r"make sure the line .{0,4}model\.to\(device\).{0,4} is before the optimizer creation": PROOF,
    },
)
