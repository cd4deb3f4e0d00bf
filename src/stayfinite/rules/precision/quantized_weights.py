"""A quantized base is trained directly, or with half-precision adapters.

## What it means
The base model is loaded in 8 or 4 bits. Such weights are codes, not numbers that a gradient can move: only adapters
beside them can be trained. Here the quantized weights are trained directly, or the parts that are trained are in half
precision beside them; the loss becomes NaN or is logged as 0.0.

## Why it happens
`load_in_8bit=True` is used to make a model fit, and the Trainer is started on it without adapters. Or adapters are
there, but the norms, the head, the embeddings or `modules_to_save` stayed in fp16, whose range the outputs of int8
products leave. On cards without int8 tensor cores (V100, older) bitsandbytes' 8-bit products are known to overflow.

## How to recognize it
- `You cannot perform fine-tuning on purely quantized models. Please attach trainable adapters`.
- `only Tensors of floating point dtype can require gradients`.
- `loss` 0.0 or nan from the first step with `load_in_8bit: true`; the same model unquantized trains.

## How to fix it
- peft: `model = prepare_model_for_kbit_training(model)`, then `get_peft_model(model, LoraConfig(...))`. The first
  casts norms and head to fp32 and lets gradients reach the first adapter; the second keeps adapters in fp32.
- transformers: `BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
  bnb_4bit_compute_dtype=torch.bfloat16)`; `torch.float32` for the computation on cards without bf16. 4 bits train
  more stably than 8.
- 8 bits on older cards: `BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=5.0)` moves more outlier channels
  to fp16; or no 8 bits.
- `modules_to_save=["lm_head", "embed_tokens"]`: `for p in model.parameters(): p.data = p.data.float() if
  p.requires_grad else p.data`.
- LLaMA-Factory: `finetuning_type: lora` with `quantization_bit: 4`, never `full`.

## When it is a false alarm
QLoRA as above trains as well as half precision does. 8-bit *optimizers* (`adamw_bnb_8bit`) have nothing to do with
this. GPTQ and AWQ models can carry adapters too.
"""

import re

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.rules.facts import Facts
from stayfinite.rules.known import Known, first_number
from stayfinite.rules.precision.half_range import overflow_sign
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clue, Clues, Rule, quote

REFUSALS = (
    r"fine-?tuning on purely quantized models|train (?:a|an) (?:\d|\w)-?bit (?:quantized )?model|"
    r"quantization method do(?:es)? not support training|"
    r"model you (?:want to train|are trying to fine-?tune) is (?:loaded in 8-bit|quantized)|"
    r"can'?t train a model that has been loaded in \d-bit|not support (?:training|fine-?tuning).{0,40}quantiz|"
    r"not supported for \W?\d-bit\W.{0,40}\bmodels?\b"
)
_IN_A_SENTENCE = lazy_regex(r"\b(?:I|we|my|our|tried|using)\b")
"""A sentence leaves out what a list of settings would have."""
CODES = r"only tensors of floating point (?:and complex )?dtype can require gradients"


def judge(facts: Facts) -> Clues:
    """Clues: the library's error is proof; a quantized base with a failed run is likely."""
    refusal = facts.said(REFUSALS)
    yield from quote(refusal, PROOF)
    codes = facts.said(CODES)
    yield from quote(codes, STRONG + HINT)
    quantized = facts.context.quantized or _bits(facts)
    if quantized is None:
        return
    sign = overflow_sign(facts)
    if sign is None and refusal is None and codes is None:
        return
    # QLoRA's base has 4 bits, whatever else is said.
    eight = quantized.value == "int8" and re.search(r"qlora|nf4|4-?bit", quantized.text, re.IGNORECASE) is None
    yield Clue(
        f"the base is quantized ({quantized.text.strip()})",
        FAIR + HINT / 2 if eight else HINT,
        quantized.where,
        risk=True,
    )
    if sign is not None:
        yield sign
    if facts.context.adapters is None and not _IN_A_SENTENCE.search(quantized.text):
        yield Clue("and no adapters are trained", FAIR, quantized.where, risk=True)


def _bits(facts: Facts) -> Known | None:
    """A quantized base by number of bits, as in LLaMA-Factory, QLoRA's script and others."""
    known = first_number(facts.settings, "quantization_bit", "quant_bits", "quantize_bits", "bits", "quantization")
    return (
        Known(f"int{known.value:g}", known.where, known.text) if known is not None and known.value in (4, 8) else None
    )


RULE = Rule(
    code="SF110",
    fix="prepare_model_for_kbit_training(model), adapters with get_peft_model, 4-bit with bf16 (or fp32) compute",
    beats=(
        "nan-loss",
        "fp16-overflow",
        "fp16-overflow-model-family",
        "pure-fp16-weights",
        "loss-collapse",
        "lr-zero",
        "params-frozen",
    ),
    plans={"plan.quantized_without_adapters": PROOF},
    says={
        r"cannot resize embedding layers of a quantized": PROOF,
        r"cannot flatten integer dtype": STRONG,
    },
)
