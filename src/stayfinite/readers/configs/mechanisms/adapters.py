"""Adapters that are configured and never applied, or frozen once more by the trainer that gets them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.readers.configs.mechanisms.code import Code, Mechanism, given, last_name
from stayfinite.readers.configs.program.names import dotted_name

_CONFIGS = frozenset({"LoraConfig", "AdaLoraConfig", "LoHaConfig", "LoKrConfig", "IA3Config", "OFTConfig", "VeraConfig",
                      "PrefixTuningConfig", "PromptTuningConfig"})  # fmt: skip
_TRAINS = frozenset({"train", "fit", "backward", "launch"})
_TRL = lazy_regex(r"(?:SFT|DPO|ORPO|KTO|Reward|CPO|GRPO)Trainer")
_APPLY = "get_peft_model(model, config), or peft_config=config of the trainer"
_QUANTIZED = lazy_regex(r"load_in_[48]bit ?= ?True|BitsAndBytesConfig\(|quantization_config|prepare_model_for_kbit")


def unused_adapters(code: Code, *, whole: bool) -> Iterator[Mechanism]:
    """A config of an adapter whose name nothing reads, in a program that trains."""
    used = {each.id for each in code.nodes if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)}
    trained = [each for each in code.calls if last_name(each.func).endswith("Trainer")]
    trained += [each for each in code.calls if whole and last_name(each.func) in _TRAINS]
    left_out = [each for call in trained for each in call.args if isinstance(each, ast.Constant) and each.value is ...]
    if not trained or left_out:
        return
    for name, values in code.assigned.items():
        for value, at in values:
            made = isinstance(value, ast.Call) and last_name(value.func) in _CONFIGS
            if made and "." not in name and name not in used and isinstance(at, ast.Assign):
                text = "the adapter is configured and never applied: nothing reads its config"
                # An excerpt may leave out where it is applied.
                yield Mechanism("params-frozen", text, at, sure=whole, when="" if whole else "still", fix=_APPLY)


def wrapped_twice(code: Code) -> Iterator[Mechanism]:
    """A trainer of trl that gets adapters on a quantized base: old versions prepared it again, and froze them."""
    for call in code.calls:
        model = given(call, 0, "model")
        if model is None or not _TRL.fullmatch(last_name(call.func)):
            continue
        values = [each.value for each in code.assigned.get(dotted_name(model, {}), ())]
        wrapped = any(
            isinstance(each, ast.Call) and last_name(each.func) == "get_peft_model" for each in (model, *values)
        )
        if wrapped and _QUANTIZED.search(code.text):
            text = "the trainer gets a model with adapters on a quantized base: old trl freezes them again"
            yield Mechanism(
                "params-frozen",
                text,
                call,
                sure=False,
                when="still",
                fix="give the trainer the plain model and peft_config=",
            )
