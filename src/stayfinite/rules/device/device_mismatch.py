"""Tensors of one operation are on different devices.

## What it means
An operation got one tensor on a GPU and another on the CPU (or on another GPU). torch never copies silently, so it
stops. No number is wrong yet: the run cannot take its first step, or cannot take its first step after loading.

## Why it happens
- A batch, a label, a mask or a constant made with `torch.tensor(...)`, `torch.arange(...)` or `torch.zeros(...)` inside
  the forward pass was never moved to the model's device.
- A tensor that belongs to the model is a plain attribute and no buffer, so `model.to(device)` passes it by. So does a
  plain Python list of layers.
- The checkpoint was loaded to the CPU and the optimizer's moments stayed there: the crash comes at `optimizer.step()`,
  in `exp_avg.mul_` or `buf.mul_(momentum)`.
- The optimizer was built before `model.to(device)`.
- `device_map="auto"` spread the model over several cards and the code moves the batch, or adds two hidden states, by
  hand.

## How to recognize it
- `Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!` and its older forms
  (`Expected object of device type cuda but got device type cpu`, `Input type (torch.cuda.FloatTensor) and weight type
  (torch.FloatTensor) should be the same`).
- The traceback's last line of your own code names the tensor; with `optimizer.step()` in it, it is a restored optimizer
  state.

## How to fix it
- Batches: `batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}` at one place, just before the
  forward pass.
- Constants inside a module: `self.register_buffer("mask", mask)`; those made on the fly:
  `torch.arange(n, device=x.device)`.
- Resuming in plain torch: `model.to(device)` first, then build the optimizer, then `optimizer.load_state_dict(state)`,
  which moves the moments to where their parameters are. `torch.load(path, map_location=device)`.
- Lightning: create tensors with `device=self.device` or `x.new_zeros(...)`; never `.cuda()` in a LightningModule.
- accelerate and transformers: let `accelerator.prepare(...)` or the `Trainer` move model and batch; with
  `device_map="auto"` send inputs to `model.device` and add nothing across blocks by hand.

## When it is a false alarm
A 0-dimensional CPU tensor may meet a GPU tensor, so a scalar constant is fine. The message with *HalfTensor* and
*FloatTensor*, both of them `torch.cuda`, is about dtypes and not about devices.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.series import Message
from stayfinite.rules.device.versions import raised_inside
from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

_REFUSAL = (
    r"found at least two devices|(?:expected|must|should)\b.{0,80}\b(?:be on|have) the same device|"
    r"expected object of (?:device type|backend) \w+ but got (?:device type|backend) \w+|"
    r"expected device \S+ but got device|"
    r"tensor for .{0,60}is on (?:cpu|gpu|cuda).{0,40}expected (?:it|them) to be on|"
    r"indices should be either on \W?\w+\W? or on the same device|arguments are located on different gpus|"
    r"parameters and buffers on device .{0,40}but found one of them on|"
    r"expected a '?\w+'? (?:device type|generator device) for generator but found|"
    r"placeholder storage has not been allocated on mps|tensor on device \w+(?::\d)? is not on the expected device|"
    r"pointer argument .{0,40}cannot be accessed from triton|input, output and indices must be on the current device"
)
_WANTED = (
    r"\b(?:expected|but (?:got|found|is)|must (?:be|have)|should be|(?:not|n't) (?:at|on|be on) the same|incompatible|"
    r"conflicting|different|mismatch|same device|weight type|required)\b"
)
_HEADLINE = lazy_regex(
    r"\b\w*(?:Error|Exception|Assert\w*)\b|(?:^|[\"'`])\W*(?:expected|input|tensor|all|module|argument)\b",
    re.IGNORECASE,
)
_PLACE = lazy_regex(
    r"torch\.(?:cuda\.)?\w+Tensor\b|\b(?:cuda|npu|xpu|mps|hpu|gpu|meta):\d+|\b(?:cpu|cuda|gpu|mps|xpu|npu|hpu)\b(?!\.)",
    re.IGNORECASE,
)
_CONVERSION = (
    r"can'?t convert (?:cuda(?::\d+)?|mps(?::\d+)?|xpu(?::\d+)?) (?:device type )?tensor to numpy|"
    r"can'?t convert \w+:\d+ device type tensor|cannot copy out of meta tensor|(?:must|should) be a cuda tensor|"
    r"expected (?:a )?cuda tensor|is not a cuda tensor|cpu not supported|only supported (?:on|for) cuda tensors?"
)


def judge(facts: Facts) -> Clues:
    """Clues: torch's error is proof; its location says which tensor was not moved."""
    refusal = facts.said(_REFUSAL) or (None if facts.symptoms.healthy else _two_places(facts))
    if refusal:
        yield Clue(refusal.text, PROOF if raised_inside(facts) is None else HINT, refusal.where)
        step = facts.said(r"optimizer\.step\(\)|torch[/.]optim[/.]|exp_avg|momentum_buffer|buf\.mul_\(momentum")
        yield from quote(step, HINT, "raised in the optimizer's step: its state is on another device ({})")
    yield from quote(facts.said(_CONVERSION), STRONG + FAIR)


def _two_places(facts: Facts) -> Message | None:
    """An error about two devices, or about a CPU and a CUDA tensor type."""
    given = facts.said(r"invalid combination of arguments - got \([^)]*\btorch\.cuda\.\w+Tensor")
    if given is not None and facts.said(r"\btorch\.(?!cuda|Sparse)\w+Tensor\b") is not None:
        return given  # the listed signatures are those of the CPU
    for message in facts.all_said(_WANTED):
        if _HEADLINE.search(message.text) and len({_place(found) for found in _PLACE.findall(message.text)}) > 1:
            return message
    return None


def _place(word: str) -> str:
    """The device of a word: `torch.FloatTensor` and `cpu` are the same."""
    lowered = word.lower().strip("'\"( ")
    if lowered.startswith("torch."):
        return "cuda" if "cuda" in lowered else "cpu"
    return "cuda" if lowered in ("gpu", "cuda") else lowered


RULE = Rule(
    code="SF501",
    fix="move the model to the device before building the optimizer and loading its state; move every batch with "
    ".to(device); "
    "register constants as buffers",
    beats=("nan-loss", "resume-state-missing", "environment", "upstream-bug"),
    proofs={
        # Names of parameters, buffers or inputs that are not on the model's device; empty when none.
        "device.mixed": "tensors on different devices: {}",
    },
    says={
        r"only supports single device modules but got params on": PROOF,
    },
)
