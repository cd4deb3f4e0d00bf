"""Tensors of different dtypes meet outside autocast.

## What it means
Some tensors are in 16 bits and others in fp32, and no autocast joins them; or a scaler is in use while every
operation runs in fp32. Either the step stops with an error about dtypes, or it runs without the speed and memory that
mixed precision should bring.

## Why it happens
`torch.autocast` is a context: only what is called inside it is cast. A loss, an evaluation, a custom `training_step`,
a generation or a module called by hand outside of it sees fp32 inputs and half weights. A model loaded in fp16 or
bf16 without any mixed precision meets fp32 inputs. Autocast entered for "cuda" does nothing for tensors on another
device.

## How to recognize it
- `expected scalar type Half but found Float` (or the other way round, or BFloat16).
- `mat1 and mat2 must have the same dtype, but got Half and Float`.
- `Input type (c10::Half) and bias type (float) should be the same`; `Input type (float) and bias type
  (c10::BFloat16)`.
- `FlashAttention only support fp16 and bf16 data type`: fp32 reached a kernel that has no fp32.
- A scaler in the script and no `autocast` anywhere.

## How to fix it
- plain torch: `with torch.autocast("cuda", dtype=torch.bfloat16): loss = criterion(model(x), y)`; backward stays
  outside.
- transformers: `bf16=True` or `fp16=True` enters it in `compute_loss`; an overridden one that calls the model outside
  of `self.compute_loss_context_manager()` does not.
- Lightning: `Trainer(precision="bf16-mixed")`; inside hooks that it does not wrap: `with
  self.trainer.precision_plugin.forward_context():`.
- accelerate: `with accelerator.autocast():` for anything that is not the prepared model's own forward.
- DeepSpeed's fp16 and bf16 modes cast weights, not inputs: cast the batch, or use `"torch_autocast": {"enabled":
  true}`.
- Without autocast: one dtype for all, `x = x.to(next(model.parameters()).dtype)`.

## When it is a false alarm
Data on another device than the model gives a similar message that names `torch.cuda.FloatTensor` and
`torch.FloatTensor`: that is SF501. Layers that autocast keeps in fp32 on purpose (norms, softmax, losses) are as they
should be.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

DTYPES = r"(?:c10::)?(?:B?Float16|BFloat16|Half|Float|float|double|Double|torch\.\w+)"
MISMATCH = (
    rf"expected (?:scalar type|dtype|object of scalar type) {DTYPES},? but (?:found|got) (?:scalar type )?{DTYPES}|"
    rf"must have the same dtype,? (?:but got|got)|mat1 and mat2.{{0,20}}same dtype|"
    r"input type \((?:c10::Half|c10::BFloat16|float|torch\.cuda\.HalfTensor|torch\.HalfTensor|CUDABFloat16Type|"
    r"struct c10::\w+|Half|BFloat16)\) "
    r"and (?:weight|bias) type.{0,60}should be the same|"
    r"input type \(torch\.cuda\.\w+Tensor\) and (?:weight|bias) type \(torch\.cuda\.\w+Tensor\)|"
    r"expected query, key, and value to have the same dtype|(?:should|to) have the same dtype|"
    r"expected to be an? (?:half|float|double|bfloat16) tensor but is an?|"
    r"dtypes match, got \w+ for the destination and \w+ for the source|"
    r"flash_?attention only supports? fp16 and bf16|"
    r"found dtype (?:half|b?float16|float) but expected (?:half|b?float16|float)\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: an error about mixed float dtypes, or a probe without any 16-bit operation."""
    ran = facts.seen("autocast.half_operations")
    if ran is not None and ran.value == 0:
        yield Clue("mixed precision is on, but no operation ran in 16 bits", PROOF, ran.where)
    mismatch = facts.said(MISMATCH)
    yield from quote(mismatch, STRONG + HINT)
    yield from quote(
        facts.said(r"not implemented for '(?:Half|c10::Half)'"),
        STRONG,
        "an operation without fp16 support, common on CPUs: {}",
    )
    if mismatch is not None and facts.context.half is not None:
        yield Clue(f"fp16 is on ({facts.context.half.text.strip()})", HINT, facts.context.half.where, risk=True)


RULE = Rule(
    code="SF109",
    fix="run forward and loss inside torch.autocast, or use one dtype for model and inputs",
    beats=("environment", "nan-loss"),
    observes={"autocast.half_operations": "how many operations of a step ran in fp16 or bf16"},
    warns={
        r"only supports? .{0,60}dtypes?, but the current dy?t?y?pe in": STRONG + FAIR,
    },
)
