"""``stayfinite train sft``: LoRA fine-tuning of a small chat model on questions and answers.

    stayfinite train sft                                             # the built-in task: minutes on two CPU cores
    stayfinite train sft --train questions.jsonl --model HuggingFaceTB/SmolLM2-360M-Instruct --output-dir runs/first
    stayfinite train sft --model smollm2                             # unit conversions with SmolLM2-135M, no hub needed
    stayfinite train sft --train questions/ --stream on --max-steps 50000     # files that do not fit memory
    stayfinite sft test --adapter runs/first/best                    # also: sft chat, sft datagen

The program reads top to bottom: settings, data, base, adapter, check, loop, result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor

from stayfinite.errors import StayfiniteError, UsageError
from stayfinite.inspection.inspection import Inspection
from stayfinite.readers.data.arrow_rows import is_hub
from stayfinite.readers.data.opening import open_data, text_size
from stayfinite.recipes.chat.adapters import (
    adapted,
    base_of,
    fingerprint,
    holds_trained,
    name_of_base,
    record_of,
    save_adapter,
    size_in_words,
    take_adapter,
)
from stayfinite.recipes.chat.bases import Bits, is_size
from stayfinite.recipes.chat.data import examples_of, questions_of, task_of
from stayfinite.recipes.chat.evaluating import TOLD, evaluate, in_words, scored_once, tokens_enough
from stayfinite.recipes.chat.losses import loss_of
from stayfinite.recipes.chat.prompts import Padding, Prompting, loader_of, rows_in_words, supervised
from stayfinite.recipes.chat.streaming import sampled_examples, streamed_questions
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.launch import Launch, look_before_start
from stayfinite.recipes.running.logbook import Progress
from stayfinite.recipes.running.loop import STREAM_EVAL_STEPS, guarded
from stayfinite.recipes.running.optimizing import optimizer_for, steps_of
from stayfinite.recipes.running.options import Asking, Large
from stayfinite.recipes.running.place import PlannedPrecision, before_plan, choose_precision, is_planned, plan_again
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.running.records import Outcome, read_launch, settings_of, write_result
from stayfinite.recipes.running.sharding import refuse_unshardable, refuse_unsplittable
from stayfinite.recipes.running.sharing import refuse_idle, weights_in_step
from stayfinite.recipes.running.timing import EvaluationBudget, refuse_untimed, schedule_of
from stayfinite.recipes.settings import read_settings, require, require_usual
from stayfinite.recipes.streaming.loading import given, opened, steps_in_words

SYSTEM = "Answer the question. Put the answer between tags, like this: <answer>12.5</answer>"


@dataclass(frozen=True, kw_only=True)
class Sft(Asking, Large):
    """LoRA fine-tuning of a small chat model on questions and answers. Without --train: built-in unit conversions."""

    # -- data
    train: tuple[str, ...] = ()
    """JSON (also a list of pairs), JSONL, CSV, TSV, Parquet or Arrow: questions with answers, chats, Alpaca. Files,
    directories, patterns, or a hub's data set (hub:owner/name)."""
    reasoning: str | None = None
    """Reasoning column, which is learned too; `reasoning` if there is one."""
    task: Literal["auto", "metric", "units"] = "auto"
    """Built-in questions: `metric` is easier, `units` is all; auto depends on the model's size."""
    system: str = SYSTEM
    """System text before every question, in training and in use; empty for the model's default."""
    max_length: int = 256
    """Most tokens per row and per question. Longer questions are truncated, answers never."""

    # -- model
    model: str = "tiny"
    """A size built here (tiny, small), smollm2 (from a package), a directory, a GGUF file, or a hub name."""
    adapter: str | None = None
    """Continue from this trained adapter or run, with its rank, alpha and dropout."""
    bits: Bits = "full"
    """How the base is stored: full, 8bit, or 4bit (QLoRA)."""
    rank: int = 16
    """Rank of the adapter, on every linear layer."""
    alpha: float = 32.0
    """Adapter scale: alpha / rank."""
    dropout: float = 0.05
    """Dropout before the adapter; none for a small set, of which every step counts."""
    gradient_checkpointing: bool = True
    """Recompute activations to save memory; on a CPU only where they take over a quarter of it."""
    output_dir: str = "runs/sft"

    # -- training
    epochs: int = 3
    """Passes over the training questions."""
    batch_size: int = 8
    """Questions per batch and process."""
    accumulation: int = 4
    """Batches per step; 1 for a small set."""
    learning_rate: float = 2e-4
    """Peak learning rate; 5e-4 for a small set."""
    precision: PlannedPrecision = "auto"
    """Compute precision: auto, fp32, bf16, plan (make a precision plan), or FILE.json (a plan). auto is bf16 if the GPU
    supports it, else fp32. fp16 is for `sft test` and `sft chat`."""

    # -- looking on
    base_score: bool | None = None
    """Evaluate before the first step, for comparison; by default unless the base has random weights."""
    eval_epochs: int | None = None
    """Epochs between evaluations, by default 1. With --minutes, slow ones (over a tenth of the time) are skipped."""
    logging_steps: int = 20
    checkpoint_steps: int | None = None
    """Steps between checkpoints; by default one per epoch, and with --minutes every twentieth of the time."""


BUILT_IN: dict[str, dict[str, Any]] = {
    "metric": {
        "learning_rate": 2e-3, "batch_size": 32, "accumulation": 1, "gradient_checkpointing": False, "epochs": 4,
        "rank": 64, "alpha": 64.0, "dropout": 0.0, "eval_epochs": 2, "max_length": 64, "system": "", "rows": 6000,
    },
    "units": {
        "learning_rate": 1e-3, "batch_size": 64, "accumulation": 1, "gradient_checkpointing": False, "epochs": 4,
        "rank": 32, "alpha": 32.0, "dropout": 0.0, "max_length": 160, "rows": 20_000,
    },
}  # fmt: skip
"""Settings that a built-in task has where nothing else is asked for."""
SMALL = 512 << 10
"""Bytes of text below which a set is small: a few thousand short questions."""
FOR_SMALL: dict[str, Any] = {"learning_rate": 5e-4, "accumulation": 1, "dropout": 0.0}
"""Settings that a small set has where nothing else is asked for: it is over in a hundred steps of 32 questions, which
teach a model the form of an answer and little more."""
FIXED = (
    "train", "val", "question", "answer", "reasoning", "val_share", "task", "rows", "held_out", "system", "max_length",
    "model", "adapter", "bits", "rank", "alpha", "batch_size", "accumulation", "seed", "stream", "shuffle_rows",
    "eval_rows",
)  # fmt: skip
"""Settings that a run which is resumed must share with the one that was begun."""
PER_RANK = ("batch_size",)
"""Of these, the ones that are for each rank: over all ranks they cannot change."""


def settled(config: Sft) -> Sft:
    """The settings with those of the built-in task, or of a small set, where that is what is trained on."""
    if config.train:
        return replace(config, **FOR_SMALL) if _is_small(config.train) else config
    task = task_of(config)
    return replace(config, task=task, **BUILT_IN[task])


ENOUGH = 256
"""Questions for a quick look."""
TALKATIVE = 96
"""Tokens that a model which was trained elsewhere may say before its answer; one that knows when to stop does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """The result of a training."""

    accuracy: float
    answer_rate: float


def train(config: Sft, say: Callable[[str], None] = print, *, dataset: Any = None) -> Result:
    """Train an adapter, evaluate it, keep the best.

    Arguments:
        dataset: an object of the `datasets` library to train on, beside what the settings name.
    """
    config = replace(config, train=given(config.train, dataset))
    refuse_impossible(config)
    with place_of_process(config.device, config.tensor_parallel) as place:
        result = _train(config, place, place.voice(say), dataset)
        assert isinstance(result, Result)
        return result


def _train(
    config: Sft, place: Place, say: Callable[[str], None], dataset: Any, *, look_only: bool = False
) -> Result | Inspection | None:
    launch = Launch.of("sft", config, place, say, FIXED, PER_RANK)
    output, device, whole_batch = launch.output, place.device, config.batch_size * launch.in_batch

    # -- data --------------------------------------------------------------------------------------------------------
    files_of = partial(opened, config.train, open_data, dataset)
    files, stream, training, validation = launch.read("questions", files_of, streamed_questions, questions_of)
    if stream is None:
        refuse_idle(len(training), whole_batch, place.row_ranks)
    if look_only:
        training, validation = training[: max(ENOUGH, config.batch_size)], validation[:ENOUGH]

    # -- base and adapter --------------------------------------------------------------------------------------------
    precision = choose_precision(before_plan(config.precision), device, say, lambda: "fp16 is for inference only")
    base = base_of(config, place, training, say)
    if config.train and config.adapter is None and is_size(config.model):
        say(f"{config.model} has random weights: for testing only. Use --model smollm2, a directory or a hub name")
    prompting = Prompting(tokenizer=base.tokenizer, system=config.system)
    examples = (
        examples_of(config, prompting, training, say, validation)
        if stream is None
        else sampled_examples(config, prompting, training, validation)
    )
    mark = fingerprint(base.model)
    longest = max(example.length for example in examples) if stream is None else config.max_length
    model = adapted(config, base, device, precision, longest=longest)
    refuse_unsplittable(model, place.tensor)
    say(size_in_words(model, examples))
    new_tokens = config.new_tokens or tokens_enough(examples, 0 if is_size(config.model) else TALKATIVE)
    record = record_of(config, name_of_base(config), mark, new_tokens)

    # -- batches, optimizer, schedule --------------------------------------------------------------------------------
    loader: Any
    if stream is not None:
        in_one = max(1, whole_batch // place.row_ranks)
        loader = stream.loader(config, prompting, place, say, batch_size=in_one)
        batches = stream.batches(len(training) / in_one, place.row_ranks, steps=config.max_steps)
    else:
        loader = loader_of(
            examples, base.tokenizer.pad_token_id, size=whole_batch, rank=place.row_rank, count=place.row_ranks,
            seed=config.seed, pin=device.type == "cuda",
        )  # fmt: skip
        batches = len(loader)
    optimizer = optimizer_for(model, lr=config.learning_rate, weight_decay=config.weight_decay, device=device)
    first_batch = Padding(pad=base.tokenizer.pad_token_id)(examples[: config.batch_size])
    if is_planned(config.precision):
        precision = launch.settle(config.precision, model, optimizer, first_batch, loss_of(model, device))[0]
    if look_only:  # at the learning rate itself, before the schedule begins with less
        return look_before_start(
            model, optimizer, first_batch, loss_of(model, device), precision=precision, scaler=None, then="warn",
            directory=output, say=say,
        )  # fmt: skip
    per_epoch = steps_of(batches, config.accumulation, 1)
    steps = min(per_epoch * config.epochs, config.max_steps or per_epoch * config.epochs)
    if stream is not None:
        say(steps_in_words(per_epoch, steps))
    scheduler = schedule_of(config, optimizer, steps, place)

    # -- the check ---------------------------------------------------------------------------------------------------
    launch.record(steps, training, validation, None if stream is None else files)
    place.wait()
    launch.look(model, optimizer, first_batch, loss_of(model, device), precision=precision, again=True)

    # -- the loop ----------------------------------------------------------------------------------------------------
    team = launch.team(model, optimizer)
    with guarded(
        launch, team, optimizer, scheduler, forward=loss_of(team.trained, device), metric="merit", steps=steps,
        describe=lambda batch: rows_in_words(base.tokenizer, batch), max_norm=config.max_grad_norm,
        policy=launch.policy(precision, per_epoch, keep_frozen=False),  # the base is loaded by this program every time
    ) as loop:  # fmt: skip
        evaluation_budget = EvaluationBudget()

        def ask(rows: int | None) -> dict[str, Any]:
            """Evaluate, each process its part; all have the scores of the whole."""
            asked = validation[:rows]
            with evaluation_budget.of(len(asked)):
                return evaluate(
                    model, prompting, asked, new_tokens=new_tokens, limit=config.max_length,
                    autocast=loop.guard.autocast, samples=config.samples, say=say, place=place,
                    batch_size=512 if device.type == "cuda" else 32, progress=Progress(say, "questions asked"),
                ).to_json()  # fmt: skip

        def save(into: Path) -> None:
            save_adapter(model, base.tokenizer, into, record | {"steps": loop.taken}, instead_of=loop.best.directory)

        def ask_base() -> dict[str, Any]:
            say(f"asking the base {len(validation):,} questions before the first step (--base-score False skips this)")
            return ask(None)

        loop.resume()
        compared = not is_size(config.model) if config.base_score is None else config.base_score
        before = scored_once(output / "base_scores.json", place, ask_base) if compared else None
        if before is not None:
            say(f"base: {in_words(before)}")
        loop.record_end()
        limit = steps if stream is not None or config.max_steps is not None else None
        over = partial(loop.over, limit, stop_early=stream is not None)

        def evaluate_now(where: str) -> None:
            """Ask some held-out questions, unless this was done after this very step."""
            if not loop.evaluated:
                with loop.evaluating():
                    found = ask(config.eval_rows)
                loop.judge(where, found, in_words(found), save, told=TOLD)

        def has_time() -> bool:
            """Whether an evaluation that is not the last leaves the steps their time; asked for, it always does."""
            if config.minutes is None or config.eval_epochs is not None or config.patience:
                return True
            return bool(place.from_first(evaluation_budget.affordable(min(config.eval_rows, len(validation)))))

        for group in loop.groups(
            loader, config.accumulation, config.epochs if stream is None else None, over=over, evaluate=evaluate_now,
            every=min(per_epoch, STREAM_EVAL_STEPS) if stream is not None else 0,
            due=lambda epoch: epoch % (config.eval_epochs or 1) == 0 and has_time(),
        ):  # fmt: skip
            # Every supervised token counts the same, whichever batch or process it is in.
            shares = weights_in_step([supervised(batch) for batch in group], place.count)
            loop.step(group, shares, lambda batch: batch["attention_mask"].sum())

        # -- result --------------------------------------------------------------------------------------------------
        loop.finish()
        take_adapter(model, loop.best.directory)
        found = place.from_first(loop.best.scores)
        if found.get("questions") != len(validation):  # asked some of them only
            found = ask(None)
    result = Result(accuracy=found["accuracy"], answer_rate=found["answer_rate"], **loop.numbers())
    if place.first:
        rate = round(loop.logbook.rate)
        numbers = {**result.numbers(), "tokens_per_second": rate, "evaluations": loop.best.history}
        write_result(output, {"scores": found, "base": before, **numbers})
    if before is not None:
        say(f"base   {in_words(before)}")
    say(f"tuned  {in_words(found)}")
    say(f"Saved the best adapter to {loop.best.directory}. Try it: stayfinite sft chat --adapter {loop.best.directory}")
    return result


def main(arguments: Sequence[str]) -> None:
    """Run the program with these flags."""
    train(read_settings(Sft, arguments, "stayfinite train sft", settled))


def quick(arguments: Sequence[str]) -> Inspection:
    """One forward and backward pass and ten steps, with everything that is looked at; for ``check --quick sft``."""
    asked = read_settings(Sft, arguments, "stayfinite check --quick sft", settled)
    with TemporaryDirectory() as aside:
        config = replace(asked, output_dir=aside)  # whatever lies in --output-dir, nothing is written there
        refuse_impossible(config)
        with place_of_process(config.device) as place:
            found = _train(config, place, lambda _: None, None, look_only=True)
    assert isinstance(found, Inspection)
    return found


def build(run_dir: str | Path) -> tuple[Any, Callable[[Mapping[str, Tensor]], Tensor]]:
    """The model of a run and its forward pass, from the run directory alone; for ``stayfinite replay``."""
    config: Sft = settings_of(Sft, read_launch(run_dir, "sft") | {"output_dir": str(run_dir)})
    device = torch.device("cpu")
    base = base_of(config, Place(device=device), ())
    model = adapted(config, base, device, "fp32")
    plan_again(model, Path(run_dir))
    return model, loss_of(model, device)


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def refuse_impossible(config: Sft) -> None:
    """Look at the settings of a fine-tuning.

    Raises:
        UsageError: a value is outside what it may be, or a trained adapter would be written over.
    """
    refuse_fp16(config)
    require_usual(config)
    require(
        config, above_zero=("max_grad_norm",), at_least={8: ("max_length",)},
        shares={"[0, 1)": ("dropout", "val_share", "warmup_ratio")},
    )  # fmt: skip
    refuse_unshardable(config, bits=config.bits != "full", precision=is_planned(config.precision))
    refuse_untimed(config)
    refuse_written_over(config)


def refuse_fp16(config: Any) -> None:
    """Refuse to train in fp16."""
    if config.precision == "fp16":
        raise UsageError(
            "--precision fp16: training is not supported in fp16: activations and gradients overflow",
            fix="--precision bf16 if the GPU supports it, else fp32; fp16 is for `sft test` and `sft chat`",
        )


def refuse_written_over(config: Any) -> None:
    """Refuse validation without training data, a place that cannot be written, and one with a trained adapter."""
    if config.val and not config.train:
        raise UsageError("--val without --train", fix="give --train too, or neither for the built-in task")
    require_room(config.output_dir)
    output = Path(config.output_dir)
    if holds_trained(output / "best") and not any((output / "checkpoints").glob("step-*")):
        raise UsageError(
            f"{output / 'best'} holds a trained adapter without a checkpoint: a new run would overwrite it",
            fix="name another --output-dir, or move it away",
        )


def _is_small(names: Sequence[str]) -> bool:
    if any(map(is_hub, names)):
        return False
    try:
        return text_size(open_data(names)) < SMALL
    except StayfiniteError:  # which is raised again where the data is read
        return False
