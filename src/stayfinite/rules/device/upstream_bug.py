"""The installed version of a library has a bug.

## What it means
Model, data and settings are right, and the installed release of torch, DeepSpeed, transformers, a kernel library or a
back end (MPS, NPU, ROCm, XLA) has a bug on this path: a wrong gradient, a norm of exactly 0, NaN where the reference is
finite, an internal assertion.

## Why it happens
Rarely used code paths are poorly tested: new kernels, fused losses, `torch.compile`, sharding combined with
accumulation, young back ends. Regressions come with an upgrade made elsewhere (an unpinned `pip install -U`).

## How to recognize it
- The same code is healthy with another version, and nothing else was changed.
- `INTERNAL ASSERT FAILED ... please report a bug to PyTorch`, `InternalTorchDynamoError`, an illegal memory access
  inside a library's kernel.
- One back end fails and the CPU in fp32 is right; eager is right and compiled is not; the unfused loss is right and the
  fused one is not.
- Loss and gradients that contradict each other: losses fall or rewards vary while `grad_norm` is exactly 0.0 at every
  step.

## How to fix it
1. Search the library's issues for the exact message and version. Read the release notes between your version and the
   newest.
2. Upgrade that one library; if it was upgraded lately, go back to the last version that worked, and pin it.
3. Work around it meanwhile:
   - compiled: `torch.compile` off (`TrainingArguments(torch_compile=False)`, `TORCHDYNAMO_DISABLE=1`)
   - attention: `attn_implementation="eager"`; fused losses: `use_liger_kernel=False`; fused optimizers:
     `optim="adamw_torch"`
   - DeepSpeed: `"overlap_comm": false`, `"use_multi_rank_bucket_allreduce": false`, another ZeRO stage
   - MPS: `PYTORCH_ENABLE_MPS_FALLBACK=1`, or `use_cpu=True` to compare one step
4. Make the smallest script that shows it, with both versions, and report it.

## When it is a false alarm
Library bugs are often suspected and rarely the cause: overflow in fp16, data and learning rates are far commoner.
Without a version that works, or a message that names the library's own fault, look there first.
"""

from stayfinite.rules.device.versions import known_bad, named_versions, other_version, raised_inside
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote
from stayfinite.rules.signs.numbers import finite_metric
from stayfinite.rules.signs.witness import not_finite

_KERNEL_LIBRARIES = frozenset({"bitsandbytes", "triton", "liger", "ligerkernel", "apex", "unsloth", "mlx", "mlxlm"})
"""Kernel libraries: a report that names the version of one suspects it, usually rightly."""
_INTERNAL = (
    r"internal assert failed|please report a bug to pytorch|internaltorchdynamoerror|backendcompilerfailed|"
    r"if capturable=false, state_steps should not be cuda tensors|torch\._inductor\.exc|loweringexception|"
    r"this is a bug|unexpected internal error|not implemented for '?(?:mps|npu|xla|hpu)|"
    r"is not currently (?:implemented|supported) (?:for|on) the (?:mps|npu|xla|hip)"
)
_KERNEL = (
    r"an illegal memory access was encountered|misaligned address|illegal instruction was encountered|"
    r"triton (?:error|compilation)|segmentation fault|\bsigsegv\b"
)
_BACK_END = (
    r"\b(?:mps|apple (?:silicon|m[1-4])|m[1-4] (?:pro|max|ultra|mac\w*)|ascend|torch_npu|910[ab]?\d?|rocm|"
    r"mi\d{2,3}x?|torch[_-]?xla|tpu|gaudi|habana|directml|xpu|dcu)\b"
)
_OTHER_BACK_END = (
    r"\b(?:mps|rocm|xla|tpu|directml|xpu|npu)\b[^.;\n]{0,60}\b"
    r"(?:much worse|worse results|different (?:loss\w*|results?)|"
    r"wrong (?:loss\w*|results?|values?))|"
    r"\b(?:different|wrong) (?:loss\w*|results?) (?:on|with|under) (?:the )?(?:mps|rocm|xla|tpu|directml|xpu|npu)\b"
)
_OF_ITS_OWN_TENSORS = r"found at least two devices|expected all tensors to be on the same device"
_EMPTY_SIZE = r"shape '\[(?:-?\d+, )*0(?:, -?\d+)*\]' is invalid for input of size [1-9]"
_EARLY = r"\bnightly\b|\bv?\d+\.\d+(?:\.\d+)?\.?(?:a|b|alpha|beta|rc|dev)\d+\b|\bbuilt from source\b"
_ONE_PATH = (
    r"\btorch\.compile\(|backend ?= ?['\"]inductor|\b(?:torch_compile|use_liger_kernel|compile)\W{1,4}(?:true|1|on)\b"
)


def judge(facts: Facts) -> Clues:
    """Clues: a library's own admission, a version on record, or a remark that another version works."""
    yield from quote(facts.said(_INTERNAL), PROOF)
    yield from quote(facts.said(_KERNEL), FAIR + HINT)
    yield from quote(facts.mentioned(_OTHER_BACK_END), STRONG + FAIR, "another back end gives other numbers: {:.80}")
    if facts.said(_OF_ITS_OWN_TENSORS) is not None:
        yield from quote(raised_inside(facts), STRONG + FAIR, "raised inside a library, on its own tensors: {}")
    if facts.context.deepspeed is not None:
        text = "a weight has size 0, partitioned by ZeRO-3: {:.120}"
        yield from quote(facts.said(_EMPTY_SIZE), STRONG + HINT, text)
    bad = not_finite(facts)
    symptoms = facts.symptoms
    dead = symptoms.zero_norms > 0 and symptoms.zero_norms == symptoms.points
    if not (bad or dead or symptoms.trouble):
        return
    yield from quote(other_version(facts), STRONG + HINT, "another version behaves differently: {}")
    versions = named_versions(facts)
    for version, what in known_bad(versions):
        yield Clue(f"{version.library} {version.text}: {what}", FAIR + HINT, version.where, risk=True)
        break
    kernels = next((one for one in versions if one.library in _KERNEL_LIBRARIES), None)
    if len(versions) >= 1:
        alone = kernels is not None and bad is not None and facts.context.half is None
        yield Clue(
            "versions in use: " + ", ".join(f"{one.library} {one.text}" for one in versions[:6]),
            3.5 if alone else HINT / 2,
            versions[0].where,
        )
    yield from quote(facts.mentioned(_EARLY), FAIR, "a pre-release version: {:.80}", risk=True)
    yield from quote(
        facts.mentioned(_BACK_END), FAIR + HINT if bad else FAIR, "a rarely used backend: {:.120}", risk=True
    )
    yield from quote(facts.mentioned(_ONE_PATH), FAIR + HINT / 2, "only on this code path: {:.120}")
    spread = [value for value, _ in finite_metric(facts, "reward_std", "rewards/std") if value > 0]
    if dead and (spread or (symptoms.loss_growth < 0.9 and symptoms.points >= 5)):
        yield Clue("the gradient norm is exactly 0 while rewards or losses vary", FAIR, symptoms.at("start"))


RULE = Rule(
    code="SF507",
    fix=(
        "upgrade (or return to the last working version) and pin it. Workaround: eager attention, "
        " no torch.compile, no fused kernel"
    ),
    beats=("nan-loss", "environment", "loss-collapse", "loss-diverging", "zero-gradient"),
)
