"""``stayfinite train mmdit``: joint diffusion of texts and latents with a multimodal transformer.

    stayfinite train mmdit                                        # the built-in set: a few minutes on two CPU cores
    stayfinite train mmdit --data pairs --size medium --mode random --output-dir runs/first
    torchrun --nproc-per-node 8 -m stayfinite train mmdit --data pairs --size large --batch-size 16 --accumulation 4
    stayfinite train mmdit sample --run runs/first --latents some.npy       # text from latents, and back
    stayfinite train mmdit toy pairs                              # write the built-in set, to see the format

The program reads top to bottom: settings, data, model, check, loop, result.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from torch import Tensor, nn
from torch.utils.data import DataLoader

from stayfinite.core.policy import Policy
from stayfinite.errors import LoaderFailed, UsageError
from stayfinite.recipes.diffusion import drawing, toy, trained
from stayfinite.recipes.diffusion.drawing import GlobalBatches, Noise, NoisyRows
from stayfinite.recipes.diffusion.evaluation import Examiner, Scores, batch_in_words, most_frequent, show
from stayfinite.recipes.diffusion.model import MMDiT, Shape, Size, flops_of_row, measures_of
from stayfinite.recipes.diffusion.modes import (
    Batch,
    Freeze,
    Frozen,
    Mode,
    Objective,
    Prediction,
    Schedule,
    Weights,
    to_freeze,
)
from stayfinite.recipes.diffusion.sampling import Sampler
from stayfinite.recipes.diffusion.supply import BadRows, Supply, read_supply
from stayfinite.recipes.diffusion.trained import reader_for
from stayfinite.recipes.running.directories import require_room
from stayfinite.recipes.running.launch import Launch
from stayfinite.recipes.running.loop import grouped, guarded
from stayfinite.recipes.running.optimizing import optimizer_for, schedule_for
from stayfinite.recipes.running.options import Common
from stayfinite.recipes.running.place import is_planned, plan_again
from stayfinite.recipes.running.processes import Place, place_of_process
from stayfinite.recipes.running.records import Outcome, read_launch, settings_of, write_result
from stayfinite.recipes.running.sharding import Team, refuse_unshardable
from stayfinite.recipes.running.sharing import refuse_idle
from stayfinite.recipes.settings import read_settings, require, require_usual


@dataclass(frozen=True, kw_only=True)
class Mmdit(Common):
    """Train a joint diffusion model of texts and latents. Without --data: a built-in set, a small model.

    Sample from a trained model with `stayfinite train mmdit sample`, write the built-in set with
    `stayfinite train mmdit toy DIR`.
    """

    # -- data
    data: str | None = None
    """A directory with tokens/NAME.npz (input_ids, attention_mask) and latents/NAME.npy, paired by name."""
    val: str | None = None
    """Validation data, same format; by default a share of the files is held out."""
    val_share: float = 0.1
    """Share of the files held out for validation."""
    patch: int = 1
    """Split (channels, height, width) latents into patches of this side, one position each."""
    max_length: int | None = None
    """Truncate texts to this many tokens; by default the longest."""
    vocab_size: int | None = None
    """Vocabulary size; by default from the data or its vocab.json."""
    tokenizer: str | None = None
    """Directory or hub name, to show texts as words; by default the data's vocab.json, or numbers."""
    bad_rows: BadRows = "stop"
    """Rows with NaN, extreme latents or no token: stop and name them, skip them, or keep them for the guard."""
    workers: int = 0
    """Processes that read data."""
    output_dir: str = "runs/mmdit"

    # -- model
    size: Size = "tiny"
    """1M, 15M, 115M, 385M or 910M parameters, without the vocabulary."""
    width: int | None = None
    """Overrides the size's width."""
    depth: int | None = None
    """Overrides the size's number of blocks."""
    heads: int | None = None
    """Overrides the size's number of heads."""
    dropout: float = 0.0
    """Dropout."""
    start_from: str | None = None
    """Run directory whose best model to continue from."""

    # -- diffusion
    mode: Mode = "random"
    """unconditional: both from noise. l2t: text from latents. t2l: latents from text. sequential: rows alternate
    between the three. random: each row draws one."""
    freeze: Freeze = "unreached"
    """What l2t and t2l freeze: unreached (parts used only by the missing loss) or stream (all of the given side)."""
    noise_schedule: Schedule = "cosine"
    """Noise schedule, also for masked tokens."""
    prediction: Prediction = "v"
    """What the model predicts for a noisy latent: noise (epsilon), sample (x0), or velocity (v)."""
    text_weight: float = 1.0
    """Weight of the text loss."""
    latent_weight: float = 0.1
    """Weight of the latent loss."""
    loss_bound: float = 30.0
    """Soft upper bound of a row's loss; its gradient never becomes 0. 0 for none."""

    # -- training
    steps: Annotated[int, tyro.conf.arg(aliases=["--max-steps"])] = 10_000
    """Optimizer steps."""
    batch_size: int = 16
    """Rows per batch and process."""
    accumulation: int = 1
    """Batches per step."""
    learning_rate: float = 5e-5
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    """Decay of the learning rate after warmup."""
    warmup_steps: int = 500
    """Warmup steps; at most a tenth of all."""
    warmup_ratio: float | None = None
    """Instead of --warmup-steps: share of the steps."""
    max_grad_norm: float = 0.5
    shard: bool = False
    """Shard weights, gradients and moments over ranks (FSDP2)."""

    # -- looking on
    eval_steps: int = 500
    """Steps between evaluations."""
    eval_rows: int = 128
    """Validation rows per evaluation; the last one takes all."""
    sample_steps: int = 16
    """Time steps of the sampler."""
    samples: int = 2
    """Texts shown per evaluation."""
    checkpoint_steps: int = 500
    """Steps between checkpoints."""


BUILT_IN: dict[str, Any] = {
    "steps": 1500, "batch_size": 32, "learning_rate": 2e-3, "warmup_steps": 100, "patch": 3, "prediction": "x0",
    "latent_weight": 1.0, "eval_steps": 300, "checkpoint_steps": 300,
}  # fmt: skip
"""Defaults of the built-in data."""
FIXED = (
    "data", "val", "val_share", "patch", "max_length", "vocab_size", "bad_rows", "size", "width", "depth", "heads",
    "mode", "freeze", "noise_schedule", "prediction", "batch_size", "seed", "eval_rows",
)  # fmt: skip
"""Settings that must not change on resume."""
PER_RANK = ("batch_size",)
"""Settings per rank; their total over ranks must not change on resume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Outcome):
    """The result of a training."""

    scores: Scores


def train(config: Mmdit, say: Callable[[str], None] = print) -> Result | None:
    """Train, evaluate, keep the best model. Returns None on ranks other than 0."""
    refuse_impossible(config)
    with place_of_process(config.device) as place:
        return _train(config, place, place.voice(say))


def _train(config: Mmdit, place: Place, say: Callable[[str], None]) -> Result | None:
    launch = Launch.of("mmdit", config, place, say, FIXED, PER_RANK)
    output, device, whole_batch = launch.output, place.device, config.batch_size * launch.in_batch

    # -- data --------------------------------------------------------------------------------------------------------
    data, supply = place.by_first(lambda: _data(config, output, say))
    read, words = reader_for(data, config.tokenizer)
    noise = Noise(mode=config.mode, schedule=config.noise_schedule)
    rows = NoisyRows(supply.corpus, supply.scale, noise, strict=config.bad_rows != "keep")
    refuse_idle(len(supply.training), whole_batch, place.count)
    order = GlobalBatches(supply.training, whole_batch, rank=place.rank, ranks=place.count, seed=config.seed)
    loader = DataLoader(rows, batch_sampler=order, num_workers=config.workers, pin_memory=device.type == "cuda")

    # -- model -------------------------------------------------------------------------------------------------------
    about = _about(config, supply, words)
    model = MMDiT(about.shape).to(device)
    if config.start_from is not None:
        trained.load_weights(model, trained.model_directory(config.start_from))
    frozen = Frozen(model, to_freeze(model, config.mode, config.freeze))
    say(frozen.in_words())
    optimizer = optimizer_for(model, lr=config.learning_rate, weight_decay=config.weight_decay, device=device)
    few = min(config.warmup_steps, config.steps // 10)
    warmup = few if config.warmup_ratio is None else int(config.warmup_ratio * config.steps)
    scheduler = schedule_for(optimizer, config.schedule, warmup=warmup, steps=config.steps)

    # -- check -------------------------------------------------------------------------------------------------------
    judged = _objective(config, model)
    first = next(drawing.fixed_batches(rows, supply.training, config.batch_size))
    precision, scaler = launch.settle(config.precision, model, optimizer, first, judged)
    if place.first:
        trained.write_about(output, about)
    launch.look(model, optimizer, first, judged, precision=precision, scaler=scaler, again=True)
    launch.record(config.steps, supply.training, supply.validation)

    # -- the loop ----------------------------------------------------------------------------------------------------
    parts: dict[str, Tensor] = {}
    team = Team(model, optimizer, place, shard=config.shard)
    cost = flops_of_row(about.shape) * whole_batch
    examiner = Examiner(
        corpus=supply.corpus, scale=supply.scale, rows=rows, objective=judged, place=place,
        frequent=most_frequent(supply.corpus, supply.training, about.shape.vocabulary),
    )  # fmt: skip
    policy = Policy(
        precision=precision, checkpoint_steps=config.checkpoint_steps, keep_checkpoints=config.keep_checkpoints
    )
    with guarded(
        launch, team, optimizer, scheduler, scaler, forward=_objective(config, team.trained, parts.update),
        describe=lambda batch: batch_in_words(batch, supply.corpus, read), policy=policy, steps=config.steps,
        metric="loss", lowest=True, max_norm=config.max_grad_norm,
    ) as loop:  # fmt: skip
        sampler = Sampler(
            model=model, schedule=about.schedule, prediction=about.prediction, steps=config.sample_steps,
            autocast=loop.guard.autocast,
        )  # fmt: skip

        def evaluate() -> None:
            with loop.evaluating():
                frozen.check(loop.taken)
                scores = examiner.examine(sampler, supply.validation[: config.eval_rows])
                save = partial(trained.save, model, about)
                loop.judge(f"step {loop.taken}", scores.to_json(), str(scores), save)
                show(scores, supply.corpus, read, config.samples, say)
                place.wait()

        resumed = loop.resume()
        empty = 0
        if resumed:
            team.gather()
            frozen.renew()
            if resumed % config.eval_steps == 0 and not loop.evaluated:
                evaluate()
        while loop.taken < config.steps:  # one epoch each; empty for epochs a resumed run has finished
            before = loop.taken
            for group in grouped(loop.guard.batches(loader), config.accumulation):
                # Every row counts the same, even if ranks have different numbers of rows.
                shares = [len(batch["ids"]) * place.count / (whole_batch * len(group)) for batch in group]
                loop.step(
                    group, shares, drawing.tokens_in,
                    signals=lambda share: {"parts": {name: part * share for name, part in parts.items()}},
                    parts=parts, flops=cost,
                )  # fmt: skip
                if loop.taken % config.eval_steps == 0 or loop.taken == config.steps:
                    evaluate()
                if loop.taken >= config.steps:
                    break
            empty = empty + 1 if loop.taken == before else 0
            if empty > resumed + 1:
                raise LoaderFailed(f"no batches left after step {loop.taken}", fix="see events.jsonl")
        loop.finish(checkpoint=False)

    # -- result ------------------------------------------------------------------------------------------------------
    trained.load_weights(model, loop.best.directory)
    scores = examiner.examine(sampler, supply.validation)
    if not place.first:
        return None
    logbook = loop.logbook
    result = Result(scores=scores, **(loop.numbers() | {"last_loss": logbook.last}))
    record = {"scores": scores.to_json(), **result.numbers(), "tokens_per_second": round(logbook.rate)}
    record |= {"flops_per_second": round(logbook.flops_rate), "evaluations": loop.best.history}
    write_result(output, record)
    say(f"{scores}. Saved the best model to {loop.best.directory}.")
    return result


def main(arguments: Sequence[str]) -> None:
    """Train, `sample` from a trained model, or write the `toy` data."""
    if arguments and arguments[0] == "sample":
        trained.main(arguments[1:])
    elif arguments and arguments[0] == "toy":
        toy.main(arguments[1:])
    else:
        train(read_settings(Mmdit, arguments, "stayfinite train mmdit", settled))


def build(run_dir: str | os.PathLike[str]) -> tuple[nn.Module, Callable[[Batch], Tensor]]:
    """Model with random weights and loss of a run, for ``stayfinite replay``."""
    config: Mmdit = settings_of(Mmdit, read_launch(run_dir, "mmdit"))
    model = MMDiT(trained.read_about(Path(run_dir)).shape)
    Frozen(model, to_freeze(model, config.mode, config.freeze))
    plan_again(model, Path(run_dir))
    return model, _objective(config, model)


# -- the parts, in the order in which they are used ------------------------------------------------------------------


def refuse_impossible(config: Mmdit) -> None:
    """Raise UsageError if a setting, or a combination, is invalid."""
    require_usual(config)
    require(
        config, above_zero=("max_grad_norm",),
        at_least={
            1: ("sample_steps", "max_length", "vocab_size", "patch"),
            0: ("text_weight", "latent_weight", "loss_bound"),
        },
        shares={"(0, 1)": ("val_share",), "[0, 1)": ("dropout", "warmup_ratio")},
    )  # fmt: skip
    refuse_unshardable(config, precision=is_planned(config.precision))
    counted = {"l2t": config.text_weight, "t2l": config.latent_weight}
    if not counted.get(config.mode, config.text_weight + config.latent_weight):
        raise UsageError(f"--mode {config.mode}: all of its losses have weight 0", fix="--text-weight 1.0")
    require_room(config.output_dir)


def settled(config: Mmdit) -> Mmdit:
    """Apply the defaults of the built-in data if it is used."""
    return replace(config, **BUILT_IN) if config.data is None else config


def _data(config: Mmdit, output: Path, say: Callable[[str], None]) -> tuple[Path, Supply]:
    data = output / "data" if config.data is None else Path(config.data)
    if config.data is None and not (data / "vocab.json").exists():  # written last
        toy.write_toy_set(data, seed=config.seed)
    return data, read_supply(config, data, say)


def _about(config: Mmdit, supply: Supply, words: list[str] | None) -> trained.About:
    """The model for these settings and data, with everything needed to use it.

    Raises:
        UsageError: the vocabulary is too small for the data, or the sizes are inconsistent.
    """
    known = max(supply.highest_id + 1, len(words or ()))
    if config.vocab_size is not None and config.vocab_size <= supply.highest_id:
        raise UsageError(
            f"--vocab-size {config.vocab_size}: the data has token id {supply.highest_id}",
            fix=f"--vocab-size {known}, or the tokenizer of the data",
        )
    measures = measures_of(config.size, config.width, config.depth, config.heads)
    layout = supply.corpus.layout
    shape = Shape(
        vocabulary=config.vocab_size or known, length=supply.corpus.ids.shape[1], positions=layout.positions,
        channels=layout.channels, dropout=config.dropout, **asdict(measures),
    )  # fmt: skip
    return trained.About(
        shape=shape, layout=layout, schedule=config.noise_schedule, prediction=config.prediction, scale=supply.scale,
        lengths=supply.lengths, words=None if words is None else tuple(words), tokenizer=config.tokenizer,
    )  # fmt: skip


def _objective(
    config: Mmdit, model: nn.Module, latest: Callable[[dict[str, Tensor]], None] = lambda _: None
) -> Objective:
    weights = Weights(text=config.text_weight, latent=config.latent_weight, bound=config.loss_bound)
    return Objective(
        model, mode=config.mode, schedule=config.noise_schedule, prediction=config.prediction, weights=weights,
        latest=latest,
    )  # fmt: skip
