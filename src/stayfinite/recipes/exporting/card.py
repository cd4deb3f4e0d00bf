"""Model card of an export, from the run's records: usage, scores, data, settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stayfinite import __version__
from stayfinite.recipes.exporting.finding import Found

TITLES = {
    "translate": "Translation model", "mt5": "Language model (T5)", "sft": "Chat model", "grpo": "Chat model",
    "compare": "Model that compares two images", "mmdit": "Text-to-latent diffusion model (MMDiT)",
}  # fmt: skip
TAGS = {"translate": "translation", "mt5": "text2text-generation", "sft": "text-generation", "grpo": "text-generation"}
SETTINGS = (
    "model", "model_name", "objective", "epochs", "minutes", "steps", "batch_size", "learning_rate", "precision",
    "seed", "rank", "alpha", "lora_rank", "bits", "base", "prefix", "normalise", "system", "max_length",
    "max_source_length", "max_target_length", "block_size",
)  # fmt: skip
LISTED = 8
"""Data files listed."""


def card(found: Found, use: str, notes: Sequence[str]) -> str:
    """README.md of an export.

    Arguments:
        use: Python that loads and runs the model.
        notes: one paragraph each.
    """
    head = ["library_name: transformers" if found.recipe != "mmdit" else "library_name: safetensors"]
    head += [f"pipeline_tag: {TAGS[found.recipe]}"] if found.recipe in TAGS else []
    parts = [
        "---\n" + "\n".join(head) + "\n---",
        f"# {TITLES[found.recipe]}",
        f"Trained with `stayfinite train {found.recipe}`, stayfinite {__version__}.",
        f"```python\n{use.strip()}\n```",
        *notes,
        *_section("Scores", _scores(found.result)),
        *_section("Data", _data(found)),
        *_section("Training", _training(found)),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, rows: Sequence[tuple[str, str]]) -> list[str]:
    if not rows:
        return []
    cells = [(name, value.replace("|", "\\|").replace("\n", " ")) for name, value in rows]
    table = "\n".join(f"| {name} | {value} |" for name, value in cells)
    return [f"## {title}\n\n| | |\n|---|---|\n{table}"]


def _scores(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Numbers of result.json, those under `scores` first."""
    scores = result.get("scores")
    held = dict(scores) if isinstance(scores, Mapping) else {}
    plain = ("validation_loss", "accuracy", "first_loss", "last_loss")
    held |= {name: result[name] for name in plain if result.get(name) is not None and name not in held}
    base = result.get("base")
    rows = [(_words(name), _number(value)) for name, value in held.items() if _is_number(value)]
    if isinstance(base, Mapping):
        rows += [(f"{_words(name)} of the base", _number(value)) for name, value in base.items() if _is_number(value)]
    return rows


def _data(found: Found) -> list[tuple[str, str]]:
    settings, counts = found.settings, found.launch.get("data")
    rows = []
    for name in ("train", "data", "val"):
        given = settings.get(name)
        files = [given] if isinstance(given, str) else list(given or ())
        if files:
            more = f" and {len(files) - LISTED} more" if len(files) > LISTED else ""
            rows.append((name, ", ".join(Path(str(file)).name for file in files[:LISTED]) + more))
    if not rows:
        rows.append(("training", "the recipe's built-in task"))
    if isinstance(counts, Mapping):
        rows += [(_words(str(name)), _number(value)) for name, value in counts.items() if _is_number(value)]
    return rows


def _training(found: Found) -> list[tuple[str, str]]:
    rows = [("steps taken", _number(found.result["steps"]))] if _is_number(found.result.get("steps")) else []
    if _is_number(found.result.get("seconds")):
        rows.append(("minutes", f"{found.result['seconds'] / 60:.1f}"))
    settings = found.settings
    for name in SETTINGS:
        value = settings.get(name)
        if value not in (None, "", [], ()):
            said = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            said = Path(said).name if name in ("model", "model_name") and Path(said).is_absolute() else said
            rows.append((_words(name), said))
    return rows


def _words(name: str) -> str:
    return name.replace("_", " ")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


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
    if found.chats:
        return {"max_new_tokens": int(found.beside("sft.json").get("new_tokens", 128)), "do_sample": False}
    return {"max_new_tokens": 64} if found.recipe == "mt5" else {}


def use_of(found: Found, name: str, *, merged: bool) -> str:
    """Python that loads and runs the export."""
    if found.recipe == "mmdit":
        return f'from safetensors.torch import load_file\n\nweights = load_file("{name}/model.safetensors")'
    if found.recipe in ("translate", "mt5"):
        objective = found.beside("language.json").get("objective", found.settings.get("objective"))
        prompt = "Thank you <extra_id_0> me to your party." if objective == "span_corruption" else "The train left at"
        translates = found.recipe == "translate"
        text = f"{found.settings.get('prefix') or ''}a text to translate" if translates else prompt
        return _loading("AutoModelForSeq2SeqLM", name) + (
            f'asked = tokenizer({text!r}, return_tensors="pt")\n'
            f"print(tokenizer.batch_decode(model.generate(**asked), skip_special_tokens={translates}))"
        )
    if found.recipe == "compare":
        return _loading("AutoModelForImageTextToText", name, "AutoProcessor") + (
            f"asked = processor(text={found.beside('compare.json').get('prompt')!r}, images=[first, second], "
            'return_tensors="pt")\n'
            "logits = model(**asked).logits[0, -1]  # the likeliest of the answers below is the model's"
        )
    system = found.beside("sft.json").get("system") or ""
    said = f'{{"role": "system", "content": {system!r}}}, ' if system else ""
    return _loading("AutoModelForCausalLM", name) + (
        f'chat = [{said}{{"role": "user", "content": "How many g is 2 kg?"}}]\n'
        "asked = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, "
        'return_tensors="pt")\n'
        'print(tokenizer.decode(model.generate(**asked)[0, asked["input_ids"].shape[1]:], skip_special_tokens=True))'
        + ("" if merged else "\n# transformers loads the adapter onto its base where `peft` is installed")
    )


def _loading(model: str, name: str, reader: str = "AutoTokenizer") -> str:
    """Python that loads a model and what reads for it, named without its `Auto`."""
    return (
        f"from transformers import {model}, {reader}\n\n"
        f'model, {reader.removeprefix("Auto").lower()} = {model}.from_pretrained("{name}"), '
        f'{reader}.from_pretrained("{name}")\n\n'
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
    if found.chats:
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
