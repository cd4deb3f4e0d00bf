"""``stayfinite train sft``: LoRA fine-tuning of a small chat model on questions and answers.

    stayfinite train sft                                             # the built-in task: minutes on two CPU cores
    stayfinite train sft --train questions.jsonl --model HuggingFaceTB/SmolLM2-360M-Instruct --output-dir runs/first
    stayfinite train sft --model smollm2                             # unit conversions with SmolLM2-135M, no hub needed
    stayfinite train sft --train questions/ --stream on --max-steps 50000     # files that do not fit memory
    stayfinite sft test --adapter runs/first/best                    # also: sft chat, sft datagen

The program reads top to bottom: settings, data, base, adapter, check, loop, result.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor

from stayfinite.core.policy import Policy
from stayfinite.errors import StayfiniteError
from stayfinite.guard.guard import Guard
from stayfinite.inspection.inspection import Inspection
from stayfinite.readers.data.beginnings import text_size
from stayfinite.readers.data.hub_rows import is_hub
from stayfinite.readers.data.opening import open_data
from stayfinite.recipes.chat.adapters import save_adapter, take_adapter
from stayfinite.recipes.chat.assembling import adapted, base_of, name_of_base, size_in_words
from stayfinite.recipes.chat.bases import Bits, is_size
from stayfinite.recipes.chat.batching import Padding, loader_of, rows_in_words, supervised
from stayfinite.recipes.chat.data import examples_of, questions_of, task_of
from stayfinite.recipes.chat.evaluating import evaluate, in_words, tokens_enough
from stayfinite.recipes.chat.fingerprints import fingerprint
from stayfinite.recipes.chat.looking import quick_look
from stayfinite.recipes.chat.losses import loss_of
from stayfinite.recipes.chat.prompts import Prompting
from stayfinite.recipes.chat.refusals import refuse_impossible
from stayfinite.recipes.chat.streaming import sampled_examples, streamed_questions
from stayfinite.recipes.running.accumulating import grouped, sending
from stayfinite.recipes.running.best import Best
from stayfinite.recipes.running.checking import Check, look_before_start
from stayfinite.recipes.running.continuing import goes_on, ranks_in_batch
from stayfinite.recipes.running.curve import first_and_last, losses_of, require_one_finite
from stayfinite.recipes.running.logbook import Logbook
from stayfinite.recipes.running.optimizing import optimizer_for, schedule_for, steps_of
from stayfinite.recipes.running.outcome import Outcome
from stayfinite.recipes.running.place import PlannedPrecision, choose_precision
from stayfinite.recipes.running.planned import before_plan, is_planned, plan_again, use_plan
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.running.progress import Progress
from stayfinite.recipes.running.records import figures, read_launch, settings_of, write_end, write_launch, write_result
from stayfinite.recipes.running.sharding import Team
from stayfinite.recipes.running.sharing import refuse_idle, weights_in_step
from stayfinite.recipes.running.sinks import Logger, telling
from stayfinite.recipes.running.tensor_plans import refuse_unsplittable
from stayfinite.recipes.running.timing import Clock, EvaluationBudget, TimedSchedule
from stayfinite.recipes.settings import read_settings
from stayfinite.recipes.streaming.choosing import Streaming, given, opened, streams
from stayfinite.recipes.streaming.files import note_files

SYSTEM = "Answer the question. Put the answer between tags, like this: <answer>12.5</answer>"


@dataclass(frozen=True, kw_only=True)
class Sft:
    """LoRA fine-tuning of a small chat model on questions and answers. Without --train: built-in unit conversions."""

    # -- data
    train: tuple[str, ...] = ()
    """JSON (also a list of pairs), JSONL, CSV, TSV, Parquet or Arrow: questions with answers, chats, Alpaca. Files,
    directories, patterns, or a hub's data set (hub:owner/name)."""
    val: tuple[str, ...] = ()
    """Evaluation data, same formats; by default a share of the training questions is held out."""
    question: str | None = None
    """Question column; guessed by default."""
    answer: str | None = None
    """Answer column; guessed by default."""
    reasoning: str | None = None
    """Reasoning column, which is learned too; `reasoning` if there is one."""
    val_share: float = 0.1
    """Share of the questions held out without --val."""
    task: Literal["auto", "metric", "units"] = "auto"
    """Built-in questions: `metric` is easier, `units` is all; auto depends on the model's size."""
    rows: int = 8000
    """Built-in training questions."""
    held_out: int = 500
    """Built-in evaluation questions, with other numbers."""
    system: str = SYSTEM
    """System text before every question, in training and in use; empty for the model's default."""
    max_length: int = 256
    """Most tokens per row and per question. Longer questions are truncated, answers never."""
    stream: Streaming = "auto"
    """Read the data as it is needed, whatever its size: on, off, or auto, which does so above 1 GiB of text."""
    shuffle_rows: int = 65_536
    """Rows that are shuffled together where the data is streamed."""
    workers: int = 0
    """Processes that read and tokenize where the data is streamed; 0 does it in between steps."""

    # -- model
    model: str = "tiny"
    """A size built here (tiny, small), smollm2 (from a package), a directory, a GGUF file, or a hub name."""
    adapter: str | None = None
    """Continue from this trained adapter, with its rank, alpha and dropout."""
    bits: Bits = "full"
    """How the base is stored: full, 8bit, or 4bit (QLoRA)."""
    base_dtype: Literal["auto", "fp32", "bf16"] = "auto"
    """Dtype of the frozen weights; auto is bf16 when computing in bf16, else fp32."""
    rank: int = 16
    """Rank of the adapter, on every linear layer."""
    alpha: float = 32.0
    """Adapter scale: alpha / rank."""
    dropout: float = 0.05
    """Dropout before the adapter; none for a small set, of which every step counts."""
    gradient_checkpointing: bool = True
    """Recompute activations to save memory; on a CPU only where they take over a quarter of it."""
    cache_dir: str | None = None
    """Cache directory for hub models."""
    output_dir: str = "runs/sft"
    """Output directory for everything: run, checkpoints, best adapter, result."""

    # -- training
    epochs: int = 3
    """Passes over the training questions."""
    minutes: float | None = None
    """Stop after this many minutes of training; a resumed run has the rest."""
    max_steps: int | None = None
    """Stop after this many steps."""
    batch_size: int = 8
    """Questions per batch and process."""
    accumulation: int = 4
    """Batches per step; 1 for a small set."""
    learning_rate: float = 2e-4
    """Peak learning rate; 5e-4 for a small set."""
    schedule: Literal["linear", "cosine", "inverse_sqrt", "constant"] = "cosine"
    """Decay of the learning rate after warmup."""
    warmup_ratio: float = 0.05
    """Share of the steps for warmup."""
    weight_decay: float = 0.0
    """Decay of the adapter's matrices."""
    max_grad_norm: float = 1.0
    """Clip gradients to this norm."""
    precision: PlannedPrecision = "auto"
    """Compute precision: auto, fp32, bf16, plan (make a precision plan), or FILE.json (a plan). auto is bf16 if the GPU
    supports it, else fp32. fp16 is for `sft test` and `sft chat`."""
    shard: bool = False
    """Shard weights, gradients and moments over ranks (FSDP2)."""
    tensor_parallel: int = 1
    """Ranks that compute each layer together, for layers too large for one GPU."""
    seed: int = 0
    """Seed for weights, order and dropout."""
    device: str = "auto"
    """cpu or cuda; by default the best available."""

    # -- looking on
    check: Check = "stop"
    """Check model and data before the first step: stop on errors, warn, or off."""
    base_score: bool | None = None
    """Evaluate before the first step, for comparison; by default unless the base has random weights."""
    eval_epochs: int | None = None
    """Epochs between evaluations, by default 1. With --minutes, slow ones (over a tenth of the time) are skipped."""
    eval_rows: int = 200
    """Questions per evaluation; the first and the last one take all."""
    new_tokens: int | None = None
    """Most tokens per answer; by default enough for the longest correct one."""
    patience: int = 0
    """Stop after this many evaluations without improvement; 0 to continue."""
    samples: int = 3
    """Answers shown per evaluation."""
    logging_steps: int = 20
    """Steps between log lines."""
    checkpoint_steps: int | None = None
    """Steps between checkpoints; by default one per epoch, and with --minutes every twentieth of the time."""
    keep_checkpoints: int = 2
    """Good checkpoints to keep."""
    log_to: tuple[Logger, ...] = ()
    """Loggers that get the curves: tensorboard, wandb, mlflow, aim, trackio."""


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


STREAM_EVAL_STEPS = 1000
"""Steps between evaluations of a stream, whose passes may take days."""
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
        return _train(config, place, place.voice(say), dataset)


def _train(config: Sft, place: Place, say: Callable[[str], None], dataset: Any) -> Result:
    output, device = Path(config.output_dir), place.device
    resuming = place.by_first(
        lambda: goes_on(output, "sft", config, FIXED, say, ranks=place.row_ranks, per_rank=PER_RANK)
    )
    in_batch = ranks_in_batch(output, config, place.row_ranks, PER_RANK, resuming=resuming)
    torch.manual_seed(config.seed)

    # -- data --------------------------------------------------------------------------------------------------------
    files = place.together(lambda: opened(config.train, open_data, dataset))
    stream = None
    if streams(config.stream, files):
        stream = place.together(lambda: streamed_questions(config, files, output if resuming else None, say))
        training, validation = stream.training, stream.validation
    else:
        training, validation = place.together(lambda: questions_of(config, say))
        refuse_idle(len(training), config.batch_size * in_batch, place.row_ranks)
    place.require_alike("questions", [*training, *validation])

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
    record: dict[str, Any] = {
        "base": {"model": name_of_base(config), "fingerprint": mark, "bits": config.bits},
        "system": config.system, "max_length": config.max_length, "task": None if config.train else task_of(config),
        "new_tokens": config.new_tokens or tokens_enough(examples, 0 if is_size(config.model) else TALKATIVE),
        "seed": config.seed,
    }  # fmt: skip

    # -- batches, optimizer, schedule --------------------------------------------------------------------------------
    loader: Any
    if stream is not None:
        in_one = max(1, config.batch_size * in_batch // place.row_ranks)
        loader = stream.loader(config, prompting, place, say, batch_size=in_one)
        batches = stream.batches(in_one, place.row_ranks, steps=config.max_steps)
    else:
        loader = loader_of(
            examples, base.tokenizer.pad_token_id, size=config.batch_size * in_batch, rank=place.row_rank,
            count=place.row_ranks, seed=config.seed, pin=device.type == "cuda",
        )  # fmt: skip
        batches = len(loader)
    optimizer = optimizer_for(model, lr=config.learning_rate, weight_decay=config.weight_decay, device=device)
    first_batch = Padding(pad=base.tokenizer.pad_token_id)(examples[: config.batch_size])
    if is_planned(config.precision):
        precision = use_plan(
            config.precision, model, optimizer, first_batch, loss_of(model, device), directory=output, say=say,
            several=place.count > 1,
        )  # fmt: skip
    per_epoch = steps_of(batches, config.accumulation, 1)
    steps = min(per_epoch * config.epochs, config.max_steps or per_epoch * config.epochs)
    if stream is not None:
        say(f"about {per_epoch:,} steps a pass over the data; training takes {steps:,} steps (--max-steps for another)")
    clock = Clock(place.from_first if place.count > 1 else None)
    scheduler = _schedule(config, optimizer, steps, clock)
    left = scheduler.left if isinstance(scheduler, TimedSchedule) else lambda: None
    logbook = Logbook(say, steps=steps, every=config.logging_steps, until=left, total=place.total_of_rows)
    best = Best(output, metric="merit", patience=config.patience)
    checkpoint_steps = config.checkpoint_steps or (per_epoch if config.minutes is None else None)
    policy = Policy(
        precision=precision,
        checkpoint_steps=checkpoint_steps,
        checkpoint_minutes=None if config.minutes is None else max(0.2, config.minutes / 20),
        keep_checkpoints=config.keep_checkpoints,
        keep_frozen=False,  # the base is loaded by this program, every time
    )

    # -- the check ---------------------------------------------------------------------------------------------------
    if place.first:
        write_launch(
            output,
            "sft",
            config,
            steps=steps,
            data=figures(training, validation, streamed=stream is not None),
            ranks_in_batch=in_batch,
        )
        if stream is not None:
            note_files(files, output)
    place.wait()
    place.by_first(
        lambda: look_before_start(
            model, optimizer, first_batch, loss_of(model, device), precision=precision, scaler=None,
            then=config.check, directory=output, say=say,
        ) and None
    )  # fmt: skip

    evaluation_budget = EvaluationBudget()

    def ask(rows: int | None, autocast: Any) -> dict[str, Any]:
        """Evaluate, each process its part; all have the scores of the whole, and no random numbers are touched."""
        asked = validation[:rows]
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), evaluation_budget.of(len(asked)):
            return evaluate(
                model, prompting, asked, new_tokens=record["new_tokens"], limit=config.max_length,
                autocast=autocast, samples=config.samples, say=say, batch_size=512 if device.type == "cuda" else 32,
                place=place, progress=Progress(say, "questions asked"),
            ).to_json()  # fmt: skip

    def save(into: Path) -> None:
        save_adapter(model, base.tokenizer, into, record | {"steps": logbook.steps_taken}, instead_of=best.directory)

    # -- the loop ----------------------------------------------------------------------------------------------------
    start = time.monotonic()
    team = Team(model, optimizer, place, shard=config.shard)
    shared = team.trained
    compute_loss = loss_of(shared, device)
    place.seed(config.seed)
    with telling(config.log_to if place.first else (), output) as tell, Guard(
        shared, optimizer, scheduler, max_norm=config.max_grad_norm, policy=policy, run_dir=output,
        forward=compute_loss, describe=lambda batch: rows_in_words(base.tokenizer, batch),
    ) as guard:  # fmt: skip
        resumed = guard.resume()
        if resumed:
            say(f"resumed after step {resumed}")
            logbook.resume(resumed)
            best.recall(resumed)
        compared = not is_size(config.model) if config.base_score is None else config.base_score

        def ask_base() -> dict[str, Any]:
            say(f"asking the base {len(validation):,} questions before the first step (not with --base-score False)")
            return ask(None, guard.autocast)

        before = _base_scores(output, place, ask_base) if compared else None
        if before is not None:
            say(f"base: {in_words(before)}")
        if place.first and isinstance(scheduler, TimedSchedule):
            write_end(output, config.minutes, used=scheduler.seconds / 60)

        def over() -> bool:
            """Whether it ends here: by the first process's clock, or by the steps."""
            if isinstance(scheduler, TimedSchedule):
                clock.agree()
                if scheduler.over:
                    return True
            if stream is not None and place.from_first(best.over):
                return True
            return logbook.steps_taken >= steps and (stream is not None or config.max_steps is not None)

        def evaluate_now(where: str) -> None:
            """Ask some held-out questions, unless this was done after this very step."""
            if place.from_first(best.knows(logbook.steps_taken)):
                return
            guard.flush()
            team.gather()
            with logbook.rest():
                found = ask(config.eval_rows, guard.autocast)
            if place.first:
                better = best.judge(logbook.steps_taken, found, save)
                tell(logbook.steps_taken, {name: found[name] for name in ("accuracy", "answer_rate", "loss")})
                say(f"{where}: {in_words(found)}{'  (best so far)' if better else ''}")

        def has_time() -> bool:
            """Whether an evaluation that is not the last leaves the steps their time; asked for, it always does."""
            if config.minutes is None or config.eval_epochs is not None or config.patience:
                return True
            return bool(place.from_first(evaluation_budget.affordable(min(config.eval_rows, len(validation)))))

        # The steps of a stream are estimated: another pass begins where they are not over. It evaluates by steps.
        every = min(per_epoch, STREAM_EVAL_STEPS) if stream is not None else 0
        if every and resumed and resumed % every == 0:
            evaluate_now(f"step {resumed}")  # the process may have ended just before it
        for epoch in range(config.epochs) if stream is None else count():
            trained = False
            for group in grouped(guard.batches(loader), config.accumulation, over=over):
                # Every supervised token counts the same, whichever batch or process it is in.
                shares = weights_in_step([supervised(batch) for batch in group], place.count)
                for number, (batch, share) in enumerate(zip(group, shares, strict=True), 1):
                    with sending(shared, now=number == len(group)):
                        loss = guard.forward(batch)
                        guard.backward(loss * share)
                    logbook.add(loss, batch["attention_mask"].sum(), weight=share)
                guard.step()
                trained = True
                logbook.step(scheduler.get_last_lr()[0])
                if every and logbook.steps_taken % every == 0:
                    evaluate_now(f"step {logbook.steps_taken}")
            last = (stream is None and epoch + 1 == config.epochs) or over()
            killed_before = resumed == per_epoch * (epoch + 1)  # just before its evaluation
            due = stream is None and (trained or killed_before) and (epoch + 1) % (config.eval_epochs or 1) == 0
            if last or (due and has_time()):
                evaluate_now(f"epoch {epoch + 1}" if stream is None else f"step {logbook.steps_taken}")
            if last or place.from_first(best.over):
                break

        # -- result --------------------------------------------------------------------------------------------------
        logbook.finish()
        kept = config.minutes is None and checkpoint_steps is not None and logbook.steps_taken % checkpoint_steps == 0
        if logbook.steps_taken > resumed and not kept:
            guard.checkpoint()  # also says how much time was used
        place.wait()
        take_adapter(model, best.directory)
        found = place.from_first(best.scores)
        if found.get("questions") != len(validation):  # asked some of them only
            found = ask(None, guard.autocast)
    first, last_loss = first_and_last(losses_of(output))
    result = Result(
        accuracy=found["accuracy"], answer_rate=found["answer_rate"], first_loss=first,
        last_loss=last_loss, steps=logbook.steps_taken, seconds=time.monotonic() - start, directory=output,
    )  # fmt: skip
    if place.first:
        require_one_finite(output, logbook.steps_taken)
        _write_result(result, found, before, best, logbook)
    if before is not None:
        say(f"base   {in_words(before)}")
    say(f"tuned  {in_words(found)}")
    say(f"Saved the best adapter to {best.directory}. Try it: stayfinite sft chat --adapter {best.directory}")
    return result


def main(arguments: Sequence[str]) -> None:
    """Run the program with these flags."""
    train(read_settings(Sft, arguments, "stayfinite train sft", settled))


def quick(arguments: Sequence[str]) -> Inspection:
    """One forward and backward pass and ten steps, with everything that is looked at; for ``check --quick sft``."""
    asked = read_settings(Sft, arguments, "stayfinite check --quick sft", settled)
    with TemporaryDirectory() as place:
        config = replace(asked, output_dir=place)  # whatever lies in --output-dir, nothing is written there
        refuse_impossible(config)
        return quick_look(config)


def build(run_dir: str | Path) -> tuple[Any, Callable[[Mapping[str, Tensor]], Tensor]]:
    """The model of a run and its forward pass, from the run directory alone; for ``stayfinite replay``."""
    config: Sft = settings_of(Sft, read_launch(run_dir, "sft") | {"output_dir": str(run_dir)})
    device = torch.device("cpu")
    base = base_of(config, Place(device=device), ())
    model = adapted(config, base, device, "fp32")
    plan_again(model, Path(run_dir))
    return model, loss_of(model, device)


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def _is_small(names: Sequence[str]) -> bool:
    if any(map(is_hub, names)):
        return False
    try:
        return text_size(open_data(names)) < SMALL
    except StayfiniteError:  # which is raised again where the data is read
        return False


def _schedule(config: Sft, optimizer: torch.optim.Optimizer, steps: int, clock: Clock) -> Any:
    """Over the steps; with --minutes over whatever ends first, so that the rate reaches its end with the time."""
    if config.minutes is None:
        return schedule_for(optimizer, config.schedule, warmup=int(config.warmup_ratio * steps), steps=steps)
    return TimedSchedule(
        optimizer, config.schedule, warmup=config.warmup_ratio, minutes=config.minutes, steps=steps, clock=clock
    )


def _base_scores(output: Path, place: Place, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """How the base does, asked once in a run, before its first step."""
    path = output / "base_scores.json"
    known: dict[str, Any] | None = place.from_first(json.loads(path.read_text("utf-8")) if path.exists() else None)
    if known is None:
        known = ask()
        if place.first:
            path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    return known


def _write_result(
    result: Result, tuned: Mapping[str, Any], base: Mapping[str, Any] | None, best: Best, logbook: Logbook
) -> None:
    record = {
        "scores": dict(tuned), "base": None if base is None else dict(base), **result.numbers(),
        "tokens_per_second": round(logbook.rate), "evaluations": best.history,
    }  # fmt: skip
    write_result(result.directory, record)
