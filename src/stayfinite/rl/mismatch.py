"""Explain why the sampler's log-probabilities differ from the trainer's: re-run the same tokens with one change.

Each change is a world: dropout off, fp32, another temperature, positions from the padding, other attention kernels, the
tokens as the sampler saw them. The world in which the difference disappears has the cause. It is kept, and the rest is
examined again. If no single change helps, pairs are tried: dropout and a temperature hide each other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from stayfinite.errors import UsageError
from stayfinite.state.parts import evaluating

__all__ = ["Difference", "Mismatch", "explain_mismatch"]

Forward = Callable[..., Any]

SMALL = 0.02
"""Mean difference, in nats, caused by bf16 rounding and other kernels: not worth an explanation."""

EXPLAINED = 0.5
"""A change that removes this share of the difference is a cause."""

SHOWN = 8
"""Most tokens to list."""

MOST_CAUSES = 3

TEMPERATURES = (0.1, 5.0)


@dataclass(frozen=True, slots=True)
class Difference:
    """One token on which sampler and trainer disagree."""

    row: int
    place: int
    token: int
    text: str
    sampler: float
    trainer: float

    def __str__(self) -> str:
        shown = repr(self.text) if self.text else str(self.token)
        return f"row {self.row}, token {self.place} {shown}: sampler {self.sampler:.3f}, trainer {self.trainer:.3f}"


@dataclass(frozen=True, slots=True)
class Cause:
    """One change that reduces the difference."""

    name: str
    text: str
    fix: str
    left: float
    """Mean difference that remains with this cause and those before it removed."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How far sampler and trainer differ, and the proved causes."""

    mean: float
    largest: float
    causes: tuple[Cause, ...] = ()
    worlds: dict[str, float] = field(default_factory=dict)
    """Mean difference with each single change; empty if they agree."""
    tokens: tuple[Difference, ...] = ()
    """Tokens that differ most."""

    @property
    def explained(self) -> bool:
        """Whether little is left unexplained."""
        return self.left <= max(SMALL, (1 - EXPLAINED) * self.mean)

    @property
    def left(self) -> float:
        """Mean difference that remains with all causes removed."""
        return self.causes[-1].left if self.causes else self.mean

    def __str__(self) -> str:
        if self.mean <= SMALL:
            return f"sampler and trainer agree: mean difference {self.mean:.2g} nats per token"
        head = f"mismatch {self.mean:.2g} nats per token (largest {self.largest:.2g})"
        if not self.causes:
            tried = ", ".join(f"{name} {left:.2g}" for name, left in self.worlds.items())
            lines = [f"{head}: cause not found. Tried: {tried}"]
        else:
            lines = [f"{head}, proved by re-run:"]
            lines += [f"- {each.text}: {each.left:.2g} without it. Fix: {each.fix}" for each in self.causes]
        return "\n".join([*lines, *map(str, self.tokens)])


@dataclass(frozen=True, slots=True)
class _Setting:
    """How the tokens are run; worlds change one field."""

    evaluate: bool = False
    exact: bool = False
    math: bool = False
    positions: str = ""
    temperature: float = 1.0
    shift: int = 0
    resampled: bool = False


def explain_mismatch(
    model: nn.Module,
    tokens: Tensor,
    sampler_logprobs: Tensor,
    mask: Tensor,
    *,
    attention_mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    temperature: float = 1.0,
    tokens_as_sampled: tuple[Tensor, Tensor] | None = None,
    forward: Forward | None = None,
    decode: Callable[[list[int]], str] | None = None,
) -> Mismatch:
    """Compare log-probabilities of the sampler with those of the training pass, and find the cause of a difference.

    Examples:
        >>> words = torch.nn.Sequential(torch.nn.Embedding(9, 9), torch.nn.Dropout(0.5))  # in training mode
        >>> tokens = torch.arange(64).view(4, 16) % 9
        >>> answers = (torch.arange(16) > 0).expand(4, 16)
        >>> sampled = words.eval()(tokens).log_softmax(-1).roll(1, 1).gather(-1, tokens[..., None])[..., 0]
        >>> found = rl.explain_mismatch(words.train(), tokens, sampled, answers)
        >>> found.causes[0].text
        'the training pass runs in train mode (dropout)'

    The model is unchanged afterwards: weights, module modes, and random generators.

    Arguments:
        model: in its training mode. Call this under the autocast of the training.
        tokens: whole sequences, prompt and answer, ``[rows, places]``.
        sampler_logprobs: log-probability of each token from the sampler, at the token's own position.
        mask: true for the answers' tokens.
        attention_mask: as in the training pass, or None.
        position_ids: as in the training pass, or None.
        temperature: divisor of the logits in the training pass.
        tokens_as_sampled: the sampler's sequences and mask, if its template or padding differs; answers have the same
            length.
        forward: ``forward(model, tokens, attention_mask, position_ids)`` returns logits. By default the model is called
            as in transformers; the first of a tuple is used.
        decode: token ids to text, for listed tokens.

    Raises:
        UsageError: shapes do not fit together, the mask is empty, or the model returns no logits.
    """
    _check(tokens, sampler_logprobs, mask)
    run = _Runs(
        model, tokens, sampler_logprobs, mask.bool(), attention_mask, position_ids, tokens_as_sampled, forward or _usual
    )
    setting = _Setting(temperature=temperature)
    with _undisturbed(model):
        trained = run.logprobs(setting)
        apart = run.apart(trained)
        mean, largest = run.mean(apart), float(apart.max())
        worlds: dict[str, float] = {}
        causes: list[Cause] = []
        left = mean
        if mean > SMALL:
            worlds = {cause.name: cause.left for cause, _ in run.causes(setting)}
        while left > SMALL and len(causes) < MOST_CAUSES:
            best, setting = run.best(setting, (1 - EXPLAINED) * left)
            if not best:
                break
            causes += best
            left = best[-1].left
    return Mismatch(mean, largest, tuple(causes), worlds, run.most(apart, trained, decode))


class _Runs:
    """Runs the tokens under a setting."""

    def __init__(
        self,
        model: nn.Module,
        tokens: Tensor,
        sampler: Tensor,
        mask: Tensor,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        resampled: tuple[Tensor, Tensor] | None,
        forward: Forward,
    ) -> None:
        self._model, self._tokens, self._mask, self._forward = model, tokens, mask, forward
        self._attention, self._positions, self._resampled = attention_mask, position_ids, resampled
        self._sampler = sampler.detach().float()[mask]
        self._seen: dict[_Setting, Tensor] = {}

    def worlds(self, now: _Setting) -> Iterator[tuple[str, _Setting, str, str]]:
        """All changes that could matter, with their meaning and fix."""
        training = any(module.training for module in self._model.modules())
        if training and not now.evaluate:
            yield (
                "eval mode", replace(now, evaluate=True), "the training pass runs in train mode (dropout)",
                "set dropout to 0 in the policy's config, or call model.eval() before the training pass",
            )  # fmt: skip
        if not now.exact:
            yield (
                "fp32", replace(now, exact=True), "rounding in low precision",
                "run sampler and trainer in one dtype, and compute log-probabilities from fp32 logits",
            )  # fmt: skip
        if not now.math:
            yield (
                "math attention", replace(now, math=True), "the attention kernel",
                "use one attention kernel in both, e.g. attn_implementation='sdpa'",
            )  # fmt: skip
        if self._attention is not None and not now.positions:
            for name in ("from the padding", "from 0"):
                yield (
                    f"positions {name}", replace(now, positions=name), f"position ids: the sampler counts {name}",
                    "position_ids = (attention_mask.cumsum(-1) - 1).clamp(min=0)"
                    if name == "from the padding" else "give both the same position_ids",
                )  # fmt: skip
        if not now.shift:
            for by in (-1, 1):
                yield (
                    f"shifted by {by}", replace(now, shift=by), f"log-probabilities are off by {by:+d} token",
                    "logits[:, :-1] belong to tokens[:, 1:]",
                )  # fmt: skip
        if self._resampled is not None and not now.resampled:
            yield (
                "tokens as sampled", replace(now, resampled=True), "prompt tokens differ (template or padding)",
                "train on the token ids that the sampler returned; do not apply the template again",
            )  # fmt: skip
        fitted = self._fitted(now)
        if fitted is not None:
            text = f"the sampler's temperature is {fitted:.2g}, the trainer's {now.temperature:.2g}"
            fix = f"divide the logits by {fitted:.2g} in the training pass"
            yield "temperature", replace(now, temperature=fitted), text, fix

    def causes(self, now: _Setting) -> list[tuple[Cause, _Setting]]:
        """All changes with the difference they leave."""
        return [(Cause(name, text, fix, self.left(new)), new) for name, new, text, fix in self.worlds(now)]

    def best(self, now: _Setting, bound: float) -> tuple[list[Cause], _Setting]:
        """The change that leaves least, if below the bound; else the best pair; else none."""
        tried = [([cause], new) for cause, new in self.causes(now)]
        for in_pairs in (False, True):
            if in_pairs:
                tried = [([*first, second], new) for first, after in tried for second, new in self.causes(after)]
            found = min(tried, key=lambda each: each[0][-1].left, default=None)
            if found is not None and found[0][-1].left <= bound:
                return found
        return [], now

    def left(self, setting: _Setting) -> float:
        """Mean difference under a setting."""
        return self.mean(self.apart(self.logprobs(setting)))

    def apart(self, logprobs: Tensor) -> Tensor:
        """Difference at each token; a non-finite one counts as large."""
        return (logprobs - self._sampler).abs().nan_to_num(nan=100.0, posinf=100.0)

    def mean(self, apart: Tensor) -> float:
        return float(apart.mean())

    def logprobs(self, setting: _Setting) -> Tensor:
        """Log-probabilities of the answers' tokens."""
        resampled = self._resampled if setting.resampled else None
        tokens, mask = resampled or (self._tokens, self._mask)
        logits = self._logits(setting)[:, :-1].float() / setting.temperature
        own = logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        placed = torch.cat([own.new_zeros(len(own), 1), own], dim=1)
        if setting.shift:
            placed = placed.roll(setting.shift, dims=1)
        return placed[mask.bool()]

    def most(self, apart: Tensor, trained: Tensor, decode: Callable[[list[int]], str] | None) -> tuple[Difference, ...]:
        """Tokens that differ most."""
        places = self._mask.nonzero()
        found = []
        for index in apart.argsort(descending=True)[:SHOWN].tolist():
            row, place = places[index].tolist()
            token = int(self._tokens[row, place])
            text = decode([token]) if decode else ""
            found.append(Difference(row, place, token, text, float(self._sampler[index]), float(trained[index])))
        return tuple(found)

    def _fitted(self, now: _Setting) -> float | None:
        """Temperature with the smallest difference, if it is another one; needs no further pass."""
        low, high = TEMPERATURES

        def left(temperature: float) -> float:
            return self.left(replace(now, temperature=temperature))

        grid = [low * (high / low) ** (step / 24) for step in range(25)]
        best = min(range(len(grid)), key=lambda at: left(grid[at]))
        below, above = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        for _ in range(16):
            first, second = below + 0.382 * (above - below), below + 0.618 * (above - below)
            if left(first) < left(second):
                above = second
            else:
                below = first
        found = round((below + above) / 2, 3)
        return found if abs(found - now.temperature) > 0.02 * now.temperature else None

    def _logits(self, setting: _Setting) -> Tensor:
        """Logits of the last pass; temperatures and shifts need no other."""
        known = replace(setting, temperature=1.0, shift=0)
        if known not in self._seen:
            self._seen = {known: self._run(known)}  # logits are large, so keep only one pass
        return self._seen[known]

    def _run(self, setting: _Setting) -> Tensor:
        tokens = self._resampled[0] if setting.resampled and self._resampled is not None else self._tokens
        same = tokens.shape == self._tokens.shape
        attention, positions = (self._attention, self._positions) if same else (None, None)
        if setting.positions and self._attention is not None and same:
            counted = self._attention.long().cumsum(-1) - 1
            positions = counted.clamp(min=0) if setting.positions == "from the padding" else _plain(tokens)
        kernel = sdpa_kernel(SDPBackend.MATH) if setting.math else nullcontext()
        precision = torch.autocast(tokens.device.type, enabled=False) if setting.exact else nullcontext()
        mode = evaluating(self._model) if setting.evaluate else nullcontext()
        with mode, kernel, precision, _exact(self._model, setting.exact):
            result: Tensor = self._forward(self._model, tokens, attention, positions)
            return result


def _usual(model: nn.Module, tokens: Tensor, attention: Tensor | None, positions: Tensor | None) -> Tensor:
    given = {"attention_mask": attention, "position_ids": positions}
    found = model(tokens, **{name: value for name, value in given.items() if value is not None})
    # With a value head, a plain model and older trl return (logits, ..., values).
    logits = found[0] if isinstance(found, tuple) else getattr(found, "logits", found)
    if not isinstance(logits, Tensor) or logits.dim() != 3:
        raise UsageError(
            f"no logits [rows, places, words] in what {type(model).__name__} returns",
            fix="forward=lambda model, tokens, attention_mask, position_ids: model(tokens)[...]",
        )
    return logits


def _plain(tokens: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)


@contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Context without gradients that restores the generators."""
    devices = sorted({each.device.index for each in model.parameters() if each.device.type == "cuda"})
    with torch.no_grad(), torch.random.fork_rng(devices):
        yield


@contextmanager
def _exact(model: nn.Module, wanted: bool) -> Iterator[None]:
    """Context with the model in fp32; its own tensors are restored afterwards."""
    if not wanted:
        yield
        return
    held = [(each, each.data) for each in (*model.parameters(), *model.buffers()) if each.is_floating_point()]
    try:
        for each, data in held:
            each.data = data.float()
        yield
    finally:
        for each, data in held:
            each.data = data


def _check(tokens: Tensor, sampler: Tensor, mask: Tensor) -> None:
    for name, other in (("sampler_logprobs", sampler), ("mask", mask)):
        if other.shape != tokens.shape:
            raise UsageError(
                f"{name} has shape {list(other.shape)}, the tokens {list(tokens.shape)}",
                fix="give whole sequences, prompt and answer, with one number per token",
            )
    if not mask.any():
        raise UsageError("the mask is empty", fix="set it to True on the answers' tokens")
