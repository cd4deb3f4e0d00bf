"""The loss depends on no parameter: the graph is detached.

## What it means
`backward()` starts at the loss and walks back through the operations that made it. If the loss was made from numbers
instead of from tracked tensors, there is no way back: torch raises
`element 0 of tensors does not require grad and does not have a grad_fn`. If only a part was cut, nothing is raised,
and that part of the model never learns.

## Why it happens
- `.item()`, `float(loss)`, `.detach()`, `.data`, `.cpu().numpy()` or a new `torch.tensor(...)` between model and
  loss.
- `argmax`, `round`, a comparison, or a metric (accuracy, BLEU, IoU of boxes chosen by index) used as the loss: they
  have no gradient.
- The forward ran under `torch.no_grad()`, `torch.inference_mode()` or `set_grad_enabled(False)`, be it left on by an
  evaluation, by a decorator, or by an optimizer whose `step(closure)` disables gradients (the old
  `transformers.AdamW` under Lightning).
- `loss.requires_grad_(True)` or `loss.requires_grad = True` as a cure: the message goes away, and so does all
  learning.
- The library returned a loss without a graph because no parameter is trainable (SF402), or because re-entrant
  checkpointing got inputs without gradients (SF403).

## How to recognize it
- `RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn` at the first backward.
- `print(loss)` shows `tensor(2.38)` and no `grad_fn=<...>`.
- With a part cut: some parameters have `grad is None` after backward.
- Look first whether anything is trainable: `sum(p.requires_grad for p in model.parameters())`.

## How to fix it
- Keep tensors to the end: `losses.append(loss)` and `torch.stack(losses).mean()`, `.item()` only for the log.
- Train on a loss that can be differentiated (cross entropy, a soft Dice or IoU), and keep the metric for evaluation.
- Lightning: return the loss tensor of `training_step` itself; use `torch.optim.AdamW`; where a validation step needs
  gradients, `Trainer(inference_mode=False)` and `torch.enable_grad()`.
- transformers: in a custom `compute_loss` return the loss of the model's outputs, not a copy.
- plain torch: wrap only the evaluation in `no_grad`; `torch.set_grad_enabled(True)` at the head of the training step.

## When it is a false alarm
A detached value in a log, in a running mean or in a target (a teacher, a stop-gradient, a value baseline) is right.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts, Line
from stayfinite.rules.gradient_flow.backward_refused import CHECKPOINTED_NOTHING, TRAINS_A_PART, no_graph
from stayfinite.rules.rule import AGAINST, FAIR, HINT, PROOF, REFUTED, STRONG, Clue, Clues, Rule, quote

_CUTS = (
    r"\bloss\w*(?:\.|\s*=\s*[\w.()\[\]]+\.)(?:item|detach|data|numpy|tolist)\b|\bdetach(?:ed|es|ing)?\b|"
    r"torch\.tensor\((?:loss|\[?loss)|loss\w*\.requires_grad_?\s*(?:\(|=)|Variable\(.{0,40}requires_grad ?= ?True|"
    r"float\(loss|np\.(?:mean|array)\(.{0,20}loss|torch\.no_grad|no_grad\(\)|inference_mode|set_grad_enabled\(False"
)


_CUT_OFF = (
    r"\b(\w*loss\w*)\s*=\s*\1\.(?:detach\(\)|data\b|item\(\)|cpu\(\)|numpy\(\))|"
    r"\b\w*loss\w*\s*=\s*torch\.(?:tensor|Tensor|FloatTensor)\(|Variable\(.{0,40}\.data.{0,40}requires_grad ?= ?True|"
    r"\btorch\.tensor\([^)\n]*\brequires_grad ?= ?True|"
    r"\b\w*(?:out|pred|emb|feat|logit|anchor|positive|negative)\w*\s*=\s*(?:torch|paddle)\.(?:to_tensor|tensor|from_numpy|as_tensor)\(\s*"
    r"\w+(?:\.detach\(\))?(?:\.cpu\(\))?\.numpy\(\)|"
    r"loss\w*\.(?:detach\(\)|data|item\(\))\.?\w{0,20}\.?backward|loss\w*\.requires_grad_?\s*(?:\(True|\(\)|=\s*True)"
)
"""A loss replaced by itself without its graph, or made to look as if it had one."""

_ASSIGNED = lazy_regex(r"\s*(\w+)\s*([-+*/]?)=(?!=)\s*(.+)")
_BACKWARD = lazy_regex(r"\b(\w+)\.backward\(|\bbackward\((\w+)\)")
_NUMBERS = lazy_regex(
    r"\.(?:item|numpy|tolist|detach)\(\)\s*$|\.data\s*$|\.argmax\([^)]*\)(?:\.\w+\(\))*\s*$|^(?:float|int|round)\(|"
    r"\.numpy\(\)(?!.*(?:torch\.|loss|criterion|\bF\.))"
)
"""An expression that is a number or a detached tensor as a whole; a target may be detached, a loss may not."""


_TO_NUMPY = r"can'?t call numpy\(\) on (?:a )?\w+ that requires grad"
"""Where such a number is only logged, `.detach()` is right; in a loss it cuts the graph."""


def judge(facts: Facts) -> Clues:
    """Clues: backward's error, minus signs of frozen parameters or checkpointing."""
    seen = facts.seen("loss.requires_grad")
    if seen is not None:
        hangs = "depends on parameters" if seen.value else "depends on no parameter"
        yield Clue(f"the loss {hangs}", REFUTED if seen.value else PROOF, seen.where)
    number = facts.said(
        r"'(?:float|int|numpy\.\w+|ndarray|list|tuple|str|NoneType)' object has no attribute 'backward'"
    )
    yield from quote(number, PROOF)
    yield from quote(facts.said(_TO_NUMPY), STRONG + HINT)
    refusal, cut = no_graph(facts), facts.mentioned(_CUT_OFF) or _made_of_numbers(facts)
    if refusal is None:
        if cut is not None and not facts.symptoms.bad and not _falls(facts):
            yield Clue(f"the loss is detached before backward: {cut.text.strip()[:100]}", STRONG + 1.0, cut.where)
        elif facts.symptoms.zero_norms and (near := facts.mentioned(_CUTS)) is not None:
            yield Clue(f"gradients are 0 or missing, and this detaches: {near[1].strip()[:100]}", STRONG, near[0])
        return
    yield Clue(refusal.text, STRONG, refusal.where)
    yield from quote(facts.mentioned(TRAINS_A_PART), FAIR, "a trainable part does not reach the loss: {:.100}")
    near = cut or facts.mentioned(_CUTS)
    if near is not None:
        yield Clue(f"this detaches the graph: {near[1].strip()[:100]}", FAIR, near[0])
    yield from _against(facts)


def _made_of_numbers(facts: Facts) -> Line | None:
    """The line that makes the loss from plain numbers."""
    made: dict[str, Line | None] = {}
    """By name: the detaching line, or None for a plain number; values with a graph are absent."""
    met: set[str] = set()
    for where, text in facts.statements:
        called = _BACKWARD.search(text)
        if called is not None and (cut := made.get(called.group(1) or called.group(2))) is not None:
            return cut
        assigned = _ASSIGNED.match(text)
        if assigned is None:
            continue
        name, sign, value = assigned.groups()
        if re.fullmatch(r"-?\d+(?:\.\d*)?\s*", value):
            made.setdefault(name, None) if sign else made.update({name: None})
        elif _is_a_number(value) and (not sign or name in made or name not in met):
            made[name] = Line(where, text)
        else:
            made.pop(name, None)
        met.add(name)
    return None


def _is_a_number(value: str) -> bool:
    """Whether an expression has no graph; a sum or product only if no operand can have one."""
    flat = value
    while (inner := re.sub(r"\([^()]*\)", "", flat)) != flat:
        flat = inner
    if re.search(r"\s[-+*/@]\s", flat):
        return re.fullmatch(r"[\d.]+", flat.split()[0]) is not None and _NUMBERS.search(value) is not None
    return _NUMBERS.search(value) is not None


def _falls(facts: Facts) -> bool:
    """Whether the loss falls, which a loss without a graph cannot."""
    first, best = facts.symptoms.first_loss, facts.symptoms.best_loss
    return first is not None and best is not None and best < 0.95 * first


def _against(facts: Facts) -> Clues:
    warned = facts.said(CHECKPOINTED_NOTHING)
    yield from quote(warned, AGAINST, "checkpointing got no input with a gradient: {}")
    context = facts.context
    if warned is None and context.checkpointing is not None and context.adapters is not None:
        yield Clue("gradient checkpointing over a frozen base explains it too", AGAINST, context.checkpointing.where)
    if context.adapters is not None and context.checkpointing is None:
        yield Clue("adapters are used, where other causes are more common", -1.5, context.adapters.where)


RULE = Rule(
    code="SF401",
    fix=(
        "keep tensors until backward (no .item(), .detach(), .data, new torch.tensor) and run forward with gradients "
        "enabled"
    ),
    prior=-3.0,
    beats=("zero-gradient", "environment"),
    observes={"loss.requires_grad": "whether the loss of a step depends on any parameter"},
)
