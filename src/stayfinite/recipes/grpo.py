"""``stayfinite train grpo``: reinforcement learning of a small chat model from checkable answers.

    stayfinite train grpo                                   # the built-in task, on a CPU: fine-tuned first, then GRPO
    stayfinite train grpo --start runs/sft --output-dir runs/grpo            # from what `train sft` trained
    stayfinite train grpo --start runs/sft --train questions.jsonl --kl 0.02
    stayfinite sft test --adapter runs/grpo/best            # the result is an adapter like any other

Several answers are sampled per question. Better ones become likelier, worse ones less likely, within the clipped ratio.
The program reads top to bottom: settings, start, data, model, check, loop, result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from torch import Tensor
from torch.utils.data import DataLoader

from stayfinite.core.policy import Policy
from stayfinite.errors import NotReady, UsageError
from stayfinite.guard.recovering.precision import PrecisionControl
from stayfinite.recipes.chat.adapters import adapted, base_of, fingerprint, record_of, save_adapter, take_adapter
from stayfinite.recipes.chat.bases import Bits
from stayfinite.recipes.chat.data import questions_of
from stayfinite.recipes.chat.evaluating import TOLD, evaluate, in_words, kept_random, scored_once, tokens_enough
from stayfinite.recipes.chat.prompts import Padding, Prompting
from stayfinite.recipes.policy import groups
from stayfinite.recipes.policy.losses import PolicyLoss
from stayfinite.recipes.policy.starting import start_of, without_dropout
from stayfinite.recipes.running.directories import write_whole
from stayfinite.recipes.running.launch import Launch, look_before_start
from stayfinite.recipes.running.loop import guarded
from stayfinite.recipes.running.optimizing import optimizer_for
from stayfinite.recipes.running.options import Asking
from stayfinite.recipes.running.place import PlannedPrecision, before_plan, choose_precision, is_planned, plan_again
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.running.records import Outcome, read_launch, settings_of, write_result
from stayfinite.recipes.running.sharing import Examples
from stayfinite.recipes.running.timing import refuse_untimed, timed_schedule
from stayfinite.recipes.settings import read_settings, require, require_usual
from stayfinite.recipes.sft import refuse_fp16, refuse_written_over


@dataclass(frozen=True, kw_only=True)
class Grpo(Asking):
    """GRPO of a small chat model on questions with checkable answers. Without --train: unit conversions."""

    # -- start
    start: str | None = None
    """Run of `train sft`, or its adapter: the model to start from, with its format."""
    model: str | None = None
    """Instead of --start: a model that uses the answer tags, or a size built and fine-tuned here first (tiny, small).
    By default tiny."""
    sft_rows: int = 5000
    """Built-in questions for fine-tuning a model built here; many lengths in them are wrong."""
    sft_epochs: int = 4
    """Epochs of that fine-tuning."""

    # -- data
    train: tuple[str, ...] = ()
    """JSON, JSONL, CSV, TSV, Parquet or Arrow files with a question and an answer per row."""
    task: Literal["auto", "metric", "units"] = "auto"
    """Built-in questions; auto uses those of the start."""
    system: str | None = None
    """System text before every question; by default that of the start."""
    max_length: int | None = None
    """Most tokens per question; by default that of the start."""

    # -- sampling
    prompts: int = 32
    """Questions per step, over all ranks."""
    group_size: int = 8
    """Answers sampled per question and compared with each other."""
    updates: int = 2
    """Steps per sampling round. Sampling for several steps at once is faster; later ones use slightly older samples,
    which ratio clipping allows."""
    temperature: float = 1.0
    """Sampling temperature, above 0."""
    answer_reward: float = 0.1
    """Reward of a wrong answer that can be parsed. Correct: 1; unparsable or truncated: 0."""

    # -- model
    bits: Bits | None = None
    """How the base is stored: full, 8bit, or 4bit; by default that of the start."""
    rank: int = 16
    """Rank of a new adapter; that of the start is kept."""
    alpha: float = 32.0
    """Scale of a new adapter: alpha / rank."""
    output_dir: str = "runs/grpo"

    # -- training
    steps: Annotated[int, tyro.conf.arg(aliases=["--max-steps"])] = 300
    """Total steps."""
    batch_size: int = 64
    """Answers per training batch and rank; a step has --prompts times --group-size."""
    clip: float = 0.2
    """Clip range of the probability ratio."""
    kl: float = 0.0
    """Weight of the KL to the start; 0 for none, which saves a pass."""
    steer: bool = True
    """Act on bad signals: drop groups with extreme ratios, raise --kl, cut the learning rate, roll back."""
    length_normalized: bool = False
    """Weight every answer equally, whatever its length; by default every token."""
    learning_rate: float = 1e-4
    """Peak learning rate."""
    schedule: Literal["linear", "cosine", "inverse_sqrt", "constant"] = "cosine"
    """Decay of the learning rate after warmup, over the steps or the minutes, whichever end first."""
    precision: PlannedPrecision = "auto"
    """Compute precision: auto, fp32, bf16, or FILE.json (a precision plan). auto is bf16 if the GPU supports it, else
    fp32. fp16 is refused."""

    # -- looking on
    eval_steps: int = 50
    """Steps between evaluations."""
    logging_steps: int = 10
    checkpoint_steps: int | None = None
    """Steps between checkpoints, rounded up to whole sampling rounds; by default as between evaluations."""


BUILT_IN: dict[str, Any] = {
    "prompts": 16, "steps": 60, "learning_rate": 5e-4, "eval_steps": 20, "rows": 4000, "batch_size": 128,
}  # fmt: skip
"""Defaults of the built-in run."""
FIXED = (
    "start", "model", "sft_rows", "sft_epochs", "train", "val", "question", "answer", "val_share", "task", "rows",
    "held_out", "system", "max_length", "prompts", "group_size", "updates", "temperature", "new_tokens",
    "answer_reward", "bits", "rank", "alpha", "batch_size", "kl", "clip", "steer", "length_normalized", "seed",
    "eval_rows",
)  # fmt: skip
"""Settings that must not change on resume."""


def settled(config: Grpo) -> Grpo:
    """Apply the defaults of the built-in run if it is used."""
    built_in = not config.train and config.start is None and config.model in (None, "tiny")
    return replace(config, **BUILT_IN) if built_in else config


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """The result of a training."""

    accuracy: float
    answer_rate: float
    start_accuracy: float


def train(config: Grpo, say: Callable[[str], None] = print) -> Result:
    """Train an adapter from rewards, evaluate it before and after, keep the best."""
    refuse_impossible(config)
    with place_of_process(config.device) as place:
        refuse_fewer_than(place.count, config.prompts)
        return _train(config, place, place.voice(say))


def _train(config: Grpo, place: Place, say: Callable[[str], None]) -> Result:
    launch = Launch.of("grpo", config, place, say, FIXED)
    output, device = launch.output, place.device

    # -- start and data ----------------------------------------------------------------------------------------------
    settings, named = start_of(config, place, say)
    torch.manual_seed(config.seed)
    training, validation = place.together(lambda: questions_of(settings, say))
    place.require_alike("questions", [*training, *validation])
    refuse_too_few(len(training), config.prompts * config.updates)

    # -- model -------------------------------------------------------------------------------------------------------
    precision = choose_precision(before_plan(config.precision), device, say, lambda: "fp16 is for inference only")
    base = base_of(settings, place, (), say)
    prompting = Prompting(tokenizer=base.tokenizer, system=settings.system)
    new_tokens = config.new_tokens or tokens_enough(prompting.examples([*training, *validation], settings.max_length))
    mark = fingerprint(base.model)
    model = adapted(settings, base, device, precision)
    without_dropout(model)
    begun = groups.StartWeights(model)
    reference = begun if config.kl else None
    record = record_of(settings, named, mark, new_tokens)

    # -- questions, optimizer, schedule ------------------------------------------------------------------------------
    compute_loss = _loss_of(config, model, device)
    padding = Padding(pad=int(base.tokenizer.pad_token_id))
    loader: DataLoader[Any] = DataLoader(
        Examples(training), batch_size=config.prompts * config.updates, shuffle=True, drop_last=True, collate_fn=list,
        generator=torch.Generator().manual_seed(config.seed),
    )  # fmt: skip
    optimizer = optimizer_for(model, lr=config.learning_rate, weight_decay=config.weight_decay, device=device)
    if is_planned(config.precision):
        precision = launch.settle(config.precision, model, optimizer, None, compute_loss)[0]
    scheduler = timed_schedule(config, optimizer, config.steps, place)
    checkpoint_steps = -(-(config.checkpoint_steps or config.eval_steps) // config.updates) * config.updates
    policy = Policy(
        precision=precision,
        # Only at the end of a sampling round: its remaining answers are not in the checkpoint.
        checkpoint_steps=checkpoint_steps,
        keep_checkpoints=config.keep_checkpoints,
        keep_frozen=False,  # the base is loaded anew every time
    )

    def sample(questions: Sequence[Any], autocast: Any) -> groups.Sampled:
        return groups.sample_groups(
            model, prompting, questions, size=config.group_size, temperature=config.temperature, new_tokens=new_tokens,
            limit=settings.max_length, readable=config.answer_reward, autocast=autocast,
            batch_size=max(1, (4096 if device.type == "cuda" else 512) // config.group_size),
        )  # fmt: skip

    def portions(sampled: groups.Sampled, steps: int, autocast: Any, kl: float, ranks: Place) -> list[groups.Portion]:
        """Training data of each step, all scored before the first step."""
        found = groups.portions_of(
            sampled, padding, steps=steps, rows=config.batch_size, keep_equal=bool(config.kl),
            length_normalized=config.length_normalized, place=ranks,
        )  # fmt: skip
        score = compute_loss.score  # not through DDP: ranks may have different numbers of batches
        return [
            replace(each, batches=[groups.scored(batch, score, autocast, reference, kl) for batch in each.batches])
            for each in found
        ]

    # -- the check ---------------------------------------------------------------------------------------------------
    def look() -> None:
        with kept_random(device):
            autocast = PrecisionControl(precision, device).autocast
            first = sample(training[: config.prompts], autocast)
            refuse_equal_rewards(first, config, say)
            batch = portions(first, 1, autocast, config.kl, Place(device=device))[0].batches[0]
        look_before_start(
            model, optimizer, batch, compute_loss, precision=precision, scaler=None, then=config.check,
            directory=output, say=say,
        )  # fmt: skip

    launch.record(config.steps, training, validation)
    if config.check != "off":
        place.by_first(look)

    # -- the loop ----------------------------------------------------------------------------------------------------
    team = launch.team(model, optimizer)
    policy_loss = _loss_of(config, team.trained, device)
    with guarded(
        launch, team, optimizer, scheduler, forward=policy_loss, policy=policy, steps=config.steps, metric="merit",
        describe=lambda batch: groups.in_words_of(base.tokenizer, batch), max_norm=config.max_grad_norm,
    ) as loop:  # fmt: skip
        guard, best = loop.guard, loop.best

        def ask(count: int | None = None) -> dict[str, Any]:
            """Evaluate, each rank its share."""
            return evaluate(
                model, prompting, validation[:count], new_tokens=new_tokens, limit=settings.max_length, place=place,
                autocast=guard.autocast, samples=config.samples, say=say,
                batch_size=512 if device.type == "cuda" else 128,
            ).to_json()  # fmt: skip

        def save(into: Path) -> None:
            save_adapter(model, base.tokenizer, into, record | {"steps": loop.taken}, instead_of=best.directory)

        def judge() -> None:
            """Evaluate, and keep the adapter if it is the best so far."""
            if not loop.evaluated:
                with loop.evaluating():
                    found = ask(config.eval_rows)
                loop.judge(f"step {loop.taken}", found, in_words(found), save if loop.taken else None, told=TOLD)

        before = scored_once(output / "start_scores.json", place, ask)
        say(f"start: {in_words(before)}")
        loop.resume()
        over = partial(loop.over, config.steps)
        steered = groups.Steered(guard, config, say)
        judge()  # the start is the one to beat
        loop.record_end()
        for questions in groups.endless(lambda: guard.batches(loader), over):
            steered.follow()
            sampled = sample(groups.share_of_questions(questions, config.updates, place), guard.autocast)
            for portion in portions(sampled, config.updates, guard.autocast, steered.kl, place):
                loop.step(
                    portion.batches, portion.shares, lambda batch: batch["attention_mask"].sum(),
                    signals=partial(_signals, policy_loss, portion), parts=groups.shown(portion), weight=1.0,
                )  # fmt: skip
                if loop.taken % config.eval_steps == 0:
                    judge()
                if over():
                    break

        # -- result --------------------------------------------------------------------------------------------------
        judge()
        loop.finish()
        if place.first and not best.directory.exists():  # nothing was better than the start
            with begun():
                write_whole(best.directory, save)
        place.wait()
        take_adapter(model, best.directory)
        found = ask()
    result = Result(
        accuracy=found["accuracy"], answer_rate=found["answer_rate"], start_accuracy=before["accuracy"],
        **loop.numbers(),
    )  # fmt: skip
    if place.first:
        write_result(output, {"scores": found, "start": before, **result.numbers(), "evaluations": best.history})
    say(f"start  {in_words(before)}\ntuned  {in_words(found)}")
    say(f"Saved the best adapter to {best.directory}. Try it: stayfinite sft chat --adapter {best.directory}")
    return result


def main(arguments: Sequence[str]) -> None:
    """Run with these flags."""
    train(read_settings(Grpo, arguments, "stayfinite train grpo", settled))


def build(run_dir: str | Path) -> tuple[Any, Callable[[Mapping[str, Tensor]], Tensor]]:
    """Model and forward pass of a run, for ``stayfinite replay``."""
    config: Grpo = settings_of(Grpo, read_launch(run_dir, "grpo") | {"output_dir": str(run_dir)})
    alone = Place(device=torch.device("cpu"))
    settings, _ = start_of(config, alone, lambda _: None)
    model = adapted(settings, base_of(settings, alone, ()), alone.device, "fp32")
    without_dropout(model)
    plan_again(model, Path(run_dir))
    return model, _loss_of(config, model, alone.device)


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def refuse_impossible(config: Grpo) -> None:
    """Raise UsageError for a value out of range, or if a trained adapter would be overwritten."""
    refuse_fp16(config)
    require_usual(config)
    require(
        config, above_zero=("max_grad_norm", "temperature"),
        at_least={
            2: ("group_size",), 1: ("prompts", "updates", "sft_rows"), 0: ("kl", "answer_reward"), 8: ("max_length",),
        },
        shares={"[0, 1)": ("val_share", "warmup_ratio", "answer_reward"), "(0, 1)": ("clip",)},
    )  # fmt: skip
    if config.start is not None and config.model is not None:
        raise UsageError("--start and --model cannot be combined: the start names its model", fix="use one of them")
    refuse_untimed(config)
    refuse_written_over(config)


def refuse_too_few(questions: int, wanted: int) -> None:
    """Raise UsageError if there are too few questions for one sampling round."""
    if questions < wanted:
        raise UsageError(
            f"{questions:,} training questions, but one sampling round needs {wanted:,} (--prompts times --updates)",
            fix="more questions, or fewer --prompts",
        )


def refuse_fewer_than(ranks: int, prompts: int) -> None:
    """Raise UsageError if there are more ranks than questions per step."""
    if prompts < ranks:
        raise UsageError(
            f"{ranks} ranks share the {prompts} questions of a step (--prompts): {ranks - prompts} would have none",
            fix=f"start {prompts} ranks at most, or another --output-dir with more --prompts",
        )


def refuse_equal_rewards(sampled: groups.Sampled, config: Grpo, say: Callable[[str], None]) -> None:
    """Refuse a start without a gradient: the rewards in every group are equal."""
    right = float((sampled.rewards == 1.0).float().mean())
    cut = sum(sampled.cut) / len(sampled.cut)
    say(
        f"first samples: {right:.1%} of {len(sampled.texts)} answers correct, {sampled.length:.1f} tokens each, "
        f"{cut:.1%} truncated; {sampled.equal:.0%} of groups have equal rewards (no gradient)"
    )
    if sampled.equal < 1.0:
        return
    shown = " ".join(sampled.texts[0].split())[:120]
    problem = (
        f"all {config.group_size} answers to every question get the same reward; one of them: {shown or '(nothing)'!r}"
    )
    fix = "--start with a model that uses the tags, another --temperature, or more --new-tokens"
    if config.check == "stop":
        raise NotReady(f"no gradient: {problem}", fix=f"{fix}. To start anyway: --check warn")
    say(f"check: warning: {problem}. {fix}")


def _loss_of(config: Grpo, model: Any, device: torch.device) -> PolicyLoss:
    return PolicyLoss(
        model, device, temperature=config.temperature, clip=config.clip, kl=config.kl,
        length_normalized=config.length_normalized, group_size=config.group_size if config.steer else None,
    )  # fmt: skip


def _signals(loss: PolicyLoss, portion: groups.Portion, _: float) -> dict[str, Any]:
    return {"signals": {**loss.signals(), **portion.signals}}
