"""Loss, perplexity and accuracy on held-out texts, and gaps filled by the model."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from stayfinite.recipes.language.blocks import Blocks, Masking, SpanCorruption, spans_of
from stayfinite.recipes.running.processes import Place
from stayfinite.recipes.seq2seq.batching import IGNORED, Example, Padding
from stayfinite.recipes.seq2seq.models import answering


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Scores over all target tokens."""

    loss: float
    accuracy: float
    tokens: int

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite if it overflows."""
        return math.exp(self.loss) if math.isfinite(self.loss) and self.loss < 700 else math.inf

    def to_json(self) -> dict[str, float]:
        return {"loss": self.loss, "accuracy": self.accuracy, "tokens": self.tokens}

    def __str__(self) -> str:
        return (
            f"validation loss {self.loss:.4f}  perplexity {self.perplexity:.2f}  accuracy {self.accuracy:.1%} of "
            f"{self.tokens:,} tokens"
        )


def validation_examples(blocks: Blocks, masking: Masking, most: int | None) -> list[Example]:
    """Validation examples with fixed masks, evenly spaced if there are more than ``most``."""
    count = len(blocks)
    wanted = count if most is None else min(most, count)
    return [masking(blocks[number * count // wanted], number) for number in range(wanted)]


def evaluate(
    model: Any,
    examples: list[Example],
    padding: Padding,
    batch_size: int,
    *,
    autocast: Callable[[], AbstractContextManager[Any]],
    place: Place,
) -> Evaluation:
    """Evaluate. Draws no random numbers, so that training is unaffected.

    Arguments:
        place: of this process. Ranks share the examples, and all get the total scores.
    """
    examples = sorted(examples, key=lambda example: example.length)[place.rank :: place.count]
    device = next(model.parameters()).device
    total = torch.zeros((), dtype=torch.float64)
    right = tokens = 0
    with answering(model):
        for start in range(0, len(examples), batch_size):
            batch = {name: item.to(device) for name, item in padding(examples[start : start + batch_size]).items()}
            with torch.inference_mode(), autocast():
                logits = model(**batch).logits.float()  # (B, T, V)
            labels = batch["labels"]
            asked = labels != IGNORED
            total += F.cross_entropy(logits[asked], labels[asked], reduction="sum").double().cpu()
            right += int((logits.argmax(-1) == labels)[asked].sum())
            tokens += int(asked.sum())
    loss, hits, count = place.total([float(total), right, tokens])
    return Evaluation(loss=loss / max(1, count), accuracy=hits / max(1, count), tokens=int(count))


def fill_in(
    model: Any,
    tokenizer: Any,
    masking: Masking,
    examples: Sequence[Example],
    autocast: Callable[[], AbstractContextManager[Any]],
    longest: int = 64,
) -> list[str]:
    """A model's output for a few examples, one line each: `The [old] road to [Velmar, not Dunholt]`."""
    if not examples:
        return []
    batch = Padding(pad=tokenizer.pad_token_id)(examples)
    device = next(model.parameters()).device
    most = min(longest, max(len(example.target) for example in examples) + 8)
    with answering(model), torch.inference_mode(), autocast():
        written = model.generate(
            input_ids=batch["input_ids"].to(device), attention_mask=batch["attention_mask"].to(device),
            max_new_tokens=most, do_sample=False, num_beams=1, use_cache=True,
        ).tolist()  # fmt: skip
    return [_shown(tokenizer, masking, *both) for both in zip(examples, written, strict=True)]


def _shown(tokenizer: Any, masking: Masking, example: Example, written: list[int]) -> str:
    def words(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def held_against(tokens: Sequence[int], meant: Sequence[int]) -> str:
        said, wanted = words(tokens), words(meant)
        return f"[{said if said == wanted else f'{said}, not {wanted}'}]"

    if not isinstance(masking, SpanCorruption):
        return f"{words(example.source)} {held_against(written, example.target)}"
    ends = (masking.end, tokenizer.pad_token_id)
    guessed = spans_of(written, masking.sentinels, ends)
    meant = spans_of(example.target, masking.sentinels, ends)
    marks = set(masking.sentinels)
    parts: list[str] = []
    run: list[int] = []
    for token in example.source:
        if token not in marks:
            run.append(token)
            continue
        parts += [words(run), held_against(guessed.get(token, []), meant.get(token, []))]
        run = []
    return " ".join(part for part in [*parts, words(run)] if part)
