"""Usage code for the card, and generation settings that give the same answers."""

from __future__ import annotations

from typing import Any

from stayfinite.recipes.exporting.finding import Found

FRAME = (
    "{% for message in messages %}{% if message['role'] == 'system' %}{{ message['content'] + '\\n' }}"
    "{% elif message['role'] == 'user' %}{{ 'Question: ' + message['content'] + '\\nAnswer: ' }}"
    "{% else %}{{ message['content'] + '\\n' }}{% endif %}{% endfor %}"
)
"""The plain template of `recipes/chat/prompts.py`, for a tokenizer without a chat template."""


def generation_of(found: Found) -> dict[str, Any]:
    """Settings for generation_config.json, as used by the recipe."""
    settings = found.settings
    if found.recipe == "translate":
        held = found.beside("translate.json") or settings
        return {"max_new_tokens": int(held.get("max_target_length", 256)), "num_beams": int(held.get("beams") or 1)}
    if found.recipe in ("sft", "grpo"):
        return {"max_new_tokens": int(found.beside("sft.json").get("new_tokens", 128)), "do_sample": False}
    return {"max_new_tokens": 64} if found.recipe == "mt5" else {}


def use_of(found: Found, name: str, *, merged: bool) -> str:
    """Python that loads and runs the export."""
    if found.recipe == "mmdit":
        return f'from safetensors.torch import load_file\n\nweights = load_file("{name}/model.safetensors")'
    if found.recipe in ("translate", "mt5"):
        prompt = "Thank you <extra_id_0> me to your party." if _fills(found) else "The train left at"
        asked = repr(prompt) if found.recipe == "mt5" else _source(found)
        return (
            "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer\n\n"
            f'model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained("{name}"), '
            f'AutoTokenizer.from_pretrained("{name}")\n\n'
            f'asked = tokenizer({asked}, return_tensors="pt")\n'
            "print(tokenizer.batch_decode(model.generate(**asked), skip_special_tokens="
            f"{found.recipe == 'translate'}))"
        )
    if found.recipe == "compare":
        return (
            "from transformers import AutoModelForImageTextToText, AutoProcessor\n\n"
            f'model, processor = AutoModelForImageTextToText.from_pretrained("{name}"), '
            f'AutoProcessor.from_pretrained("{name}")\n\n'
            f"asked = processor(text={found.beside('compare.json').get('prompt')!r}, images=[first, second], "
            'return_tensors="pt")\n'
            "logits = model(**asked).logits[0, -1]  # the likeliest of the answers below is the model's"
        )
    system = found.beside("sft.json").get("system") or ""
    said = f'{{"role": "system", "content": {system!r}}}, ' if system else ""
    return (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        f'model, tokenizer = AutoModelForCausalLM.from_pretrained("{name}"), '
        f'AutoTokenizer.from_pretrained("{name}")\n\n'
        f'chat = [{said}{{"role": "user", "content": "How many g is 2 kg?"}}]\n'
        "asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, "
        'return_tensors="pt")\n'
        'print(tokenizer.decode(model.generate(**asked)[0, asked["input_ids"].shape[1]:], skip_special_tokens=True))'
        + ("" if merged else "\n# transformers loads the adapter onto its base where `peft` is installed")
    )


def notes_of(found: Found, *, merged: bool) -> list[str]:
    """Notes needed to use the model as it was trained."""
    notes = []
    if found.recipe == "translate":
        forms = found.settings.get("normalise") or []
        if forms:
            notes.append(f"Sources were normalized in training ({', '.join(forms)}); do the same in use.")
        if prefix := found.settings.get("prefix"):
            notes.append(f"Start every source with `{prefix}`.")
    if found.recipe in ("sft", "grpo"):
        notes.append("The answer is between `<answer>` and `</answer>`.")
    if found.recipe == "compare":
        answers = found.beside("compare.json").get("answers") or {}
        said = ", ".join(f"{name}: `{answer}`" for name, answer in answers.items())
        notes.append(f"Answers by class: {said}.")
    if found.recipe == "mmdit":
        notes.append(
            "Not a transformers model. `model.safetensors` holds the weights, `config.json` shape, schedule, "
            "normalization and vocabulary. The class is `MMDiT` in `stayfinite.recipes.diffusion.model`; "
            "`stayfinite.recipes.diffusion.trained.load` reads both."
        )
    bits = found.settings.get("bits") or found.settings.get("base")
    if merged and bits in ("8bit", "4bit"):
        notes.append(
            f"The adapter was trained on a base in {bits} and merged into full-precision weights: answers may differ "
            "slightly."
        )
    return notes


def _fills(found: Found) -> bool:
    return found.beside("language.json").get("objective", found.settings.get("objective")) == "span_corruption"


def _source(found: Found) -> str:
    prefix = str(found.settings.get("prefix") or "")
    return repr(prefix + "a text to translate")
