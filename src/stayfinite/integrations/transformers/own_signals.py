"""Signals that trl's trainers measure themselves, or that follow from their inputs.

No extra forward pass is needed. A trainer keeps its measurements, over all ranks, in ``_metrics["train"]`` until it
logs the mean. GRPO and RLOO hold the answers' log-probabilities for a moment, and their samples come with the batch.
Other Trainers are not affected.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from stayfinite import rl
from stayfinite.core.post_training.signs import REFERENCE_MOVES, Sign
from stayfinite.doctor.stand_ins import StandIns
from stayfinite.rl.reference import Reference

NAMES = {
    "entropy": "entropy",
    "reward": "reward",
    "frac_reward_zero_std": "equal_groups",
    "completions/mean_length": "length",
    "completions/clipped_ratio": "cut_off",
    "clip_ratio/region_mean": "clipped",
    "sampling/sampling_logp_difference/mean": "mismatch",
    "sampling/sampling_logp_difference/max": "mismatch_max",
    "logps/chosen": "chosen_logp",
    "logps/rejected": "rejected_logp",
    "rewards/margins": "margin",
    "margin": "margin",
    "min_reward": "score_min",
    "max_reward": "score_max",
}
"""trl's names, and ours. KTO's ``kl`` is over whole answers, so it is left out."""

REWARDS = "stayfinite_rewards"
"""Batch key for the rewards of each answer."""

LOGPS, SCORE, GENERATE = "_get_per_token_logps_and_entropies", "_calculate_rewards", "_generate_and_score_completions"

MOST_BATCHES = 64
"""Batches whose ratios are kept, for incidents."""

MOST_TEXT = 900
"""Characters of a prompt or an answer in an incident."""


class OwnSignals:
    """Hooks one trainer while it takes a step."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        metrics = getattr(trainer, "_metrics", None)
        self.known = isinstance(metrics, Mapping) and "train" in metrics
        """Whether it measures anything itself."""
        self.samples = self.known and hasattr(trainer, GENERATE)
        """Whether it learns from its own samples."""
        self._earlier: dict[str, int] = {}
        """Lengths of the measurement lists before this batch."""
        self._now: tuple[Tensor, Tensor | None] | None = None
        """Log-probabilities and entropies of the answers in the current loss."""
        self._rewards: Tensor | None = None
        self._ratios: deque[tuple[Tensor, Tensor]] = deque(maxlen=MOST_BATCHES)
        """Answers of the last batches, and the largest ratio of each."""

    @contextmanager
    def listening(self, hear: Callable[[Mapping[str, Tensor | float]], None]) -> Iterator[None]:
        """Context for one batch; ``hear`` gets its signals as soon as the loss is known."""
        if not self.known:
            yield
            return
        # It empties all of them when it logs, between two batches.
        self._earlier = {key: len(values) for key, values in self._trainer._metrics["train"].items()}
        stand_ins = StandIns()

        def compute_loss(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            self._now = None
            found = method(*args, **kwargs)
            inputs = kwargs["inputs"] if "inputs" in kwargs else args[1]
            hear(self._of_answers(inputs) | self._measured())
            return found

        stand_ins.put(self._trainer, "compute_loss", compute_loss)
        for name, ours in ((LOGPS, self._logprobs), (SCORE, self._score), (GENERATE, self._generate)):
            if hasattr(self._trainer, name):
                stand_ins.put(self._trainer, name, ours)
        try:
            yield
        finally:
            stand_ins.off()
            self._now = None

    def describe(self, batch: Any) -> list[str]:
        """Describe each row of a batch: the answer and, if sampled, its reward, advantage and largest ratio."""
        if "completion_ids" not in batch:
            return self._texts(batch["input_ids"], batch.get("attention_mask"))
        prompts = self._texts(batch["prompt_ids"], batch.get("prompt_mask"))
        answers = self._texts(batch["completion_ids"], batch.get("completion_mask"))
        figures = {"advantage": _each(batch.get("advantages")), "largest ratio": None}
        for answers_of, ratios in self._ratios:
            if answers_of is batch["completion_ids"]:
                figures["largest ratio"] = _each(ratios)
        rewards = batch.get(REWARDS)
        for place, name in enumerate(getattr(self._trainer, "reward_func_names", ())):
            figures[f"reward {name}"] = None if rewards is None else _each(rewards[:, place])
        told = []
        for row, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
            known = [f"{name} {values[row]:.4g}" for name, values in sorted(figures.items()) if values is not None]
            told.append(f"{', '.join(known)}\nprompt: {prompt}\nanswer: {answer}")
        return told

    # -- what is listened to -----------------------------------------------------------------------------------------

    def _logprobs(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        found = method(*args, **kwargs)
        # Those of the reference and the sampler are computed without gradients.
        if torch.is_grad_enabled():
            self._now = found[0].detach(), None if found[1] is None else found[1].detach()
        return found

    def _score(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._rewards = method(*args, **kwargs)
        return self._rewards

    def _generate(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._rewards = None
        batch = method(*args, **kwargs)
        if self._rewards is not None and isinstance(batch, dict):
            # They are those of all ranks; inside the batch they are shuffled and split with it.
            rows, rank = len(batch["completion_ids"]), self._trainer.accelerator.process_index
            own = self._rewards[rank * rows : (rank + 1) * rows]
            if own.dim() == 2 and len(own) == rows:
                batch[REWARDS] = own
        return batch

    # -- what is made of it ------------------------------------------------------------------------------------------

    def _measured(self) -> dict[str, Tensor | float]:
        """The trainer's measurements of this batch."""
        found: dict[str, Tensor | float] = {}
        for key, values in self._trainer._metrics["train"].items():
            name = _name(key, samples=hasattr(self._trainer, GENERATE))
            if name is not None and len(values) > self._earlier.get(key, 0):
                found[name] = float(values[-1])
        return found

    def _of_answers(self, inputs: Mapping[str, Any]) -> dict[str, Tensor | float]:
        """Signals from the log-probabilities of sampled answers."""
        if self._now is None or "completion_mask" not in inputs:
            return {}
        logprobs, entropy = self._now
        mask = inputs["completion_mask"]
        mask = mask if inputs.get("tool_mask") is None else mask * inputs["tool_mask"]
        if logprobs.shape != mask.shape:
            return {}
        old = inputs.get("old_per_token_logps")
        found: dict[str, Tensor | float] = {
            **rl.signals(
                logprobs, old, inputs.get("ref_per_token_logps"), inputs.get("advantages"), mask, entropy=entropy,
                sampler_logprobs=inputs.get("sampling_per_token_logps"), tokens=inputs["completion_ids"],
            ),
            "lag": float(self._lag()),
        }  # fmt: skip
        if (whole := inputs.get("old_logps")) is not None:
            # RLOO weighs whole answers.
            old, logprobs, mask = whole[:, None], torch.where(mask.bool(), logprobs, 0).sum(1)[:, None], mask[:, :1]
            of_wholes = rl.signals(logprobs, old)
            found |= {name: of_wholes[name] for name in ("ratio_mean", "ratio_max")}
        if old is not None:
            ratios = torch.where(mask.bool(), (logprobs - old).exp(), 0).amax(1)
            self._ratios.append((inputs["completion_ids"], ratios))
        return found

    def _lag(self) -> int:
        """Updates since the answers were sampled."""
        trainer = self._trainer
        batches = trainer._step % (trainer.args.steps_per_generation * trainer.num_iterations)
        return int(batches // trainer.args.gradient_accumulation_steps)

    def _texts(self, ids: Tensor, mask: Tensor | None) -> list[str]:
        """Decode rows of ids, without masked tokens."""
        decode = self._trainer.processing_class.decode
        rows = ids.tolist()
        kept = [[True] * len(row) for row in rows] if mask is None else mask.bool().tolist()
        return [
            str(decode([each for each, counts in zip(row, counted, strict=True) if counts]))[:MOST_TEXT]
            for row, counted in zip(rows, kept, strict=True)
        ]


def _name(key: str, *, samples: bool) -> str | None:
    if key == "kl":
        return "kl" if samples else None
    if key.startswith("rewards/") and key.endswith("/mean"):
        return f"reward/{key.removeprefix('rewards/').removesuffix('/mean')}"
    return NAMES.get(key)


def _each(values: Tensor | None) -> list[float] | None:
    if values is None:
        return None
    flat: list[float] = (values if values.dim() == 1 else values.float().mean(1)).tolist()
    return flat


EVERY = 10
"""Steps between checks."""

OF_REFERENCE = ".ref."
"""Part of the weight names of trl's reference adapter."""


class TrainerReference:
    """Checks the reference of one trainer; does nothing without one, or if trl moves it by design.

    Arguments:
        trainer: any Trainer; with ``sync_ref_model`` its reference follows the policy.
    """

    def __init__(self, trainer: Any, optimizer: Any) -> None:
        self._trainer, self._reported, self._looked = trainer, False, 0
        reference = getattr(trainer, "ref_model", None)
        synced = bool(getattr(trainer.args, "sync_ref_model", False))
        self._reference = (
            Reference(trainer.model, reference, optimizer) if isinstance(reference, nn.Module) and not synced else None
        )

    def look(self, step: int) -> Sign | None:
        """A sign if the reference is faulty, reported once."""
        self._looked += 1
        if self._reported or self._looked % EVERY != 1:
            return None
        seen = self._seen()
        if not seen:
            return None
        self._reported = True
        return Sign(REFERENCE_MOVES, "reference", step, 0.0, 0.0, seen)

    def _seen(self) -> str:
        if self._reference is None:
            adapters = getattr(self._trainer.model, "peft_config", {})
            named = self._trainer.model.named_parameters() if "ref" in adapters else ()
            trains = [name for name, each in named if OF_REFERENCE in name and each.requires_grad]
            return f"the reference adapter trains: {len(trains)} weights, first {trains[0]}" if trains else ""
        if fault := self._reference.fault():
            return fault
        moved = self._reference.moved()
        return f"{len(moved)} weights of the reference changed, first {moved[0]}" if moved else ""
