"""Played on a stage: ``stayfinite train RECIPE --config FILE`` on each rank, the weights of every step written down.

On being asked to, every rank dies by SIGKILL after a step, as soon as there is a checkpoint to go on from.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from stage import Played, play
from stayfinite.cli import main as stayfinite
from stayfinite.guard.guard import Guard
from stayfinite.state.shards import local_part

NEVER = 0


LOADED_BY_CHAT = ["peft", "bitsandbytes", "transformers.models.llama.modeling_llama"]
LOADED_BY_T5 = ["transformers.models.t5.modeling_t5", "transformers.models.byt5.tokenization_byt5"]
LOADED_ON_THE_WAY = {
    "mmdit": [], "sft": LOADED_BY_CHAT, "grpo": LOADED_BY_CHAT, "translate": LOADED_BY_T5, "mt5": LOADED_BY_T5,
    "compare": ["transformers.models.llava.modeling_llava", "transformers.models.clip.modeling_clip"],
}  # fmt: skip
"""What a recipe loads when it comes to it; the stage loads it once for all runs."""


def play_recipe(
    recipe: str,
    runs: Mapping[str, tuple[Mapping[str, Any], int]],
    folder: Path,
    *,
    ranks: int | None,
    stage: Path | None = None,
    job: str = __name__,
) -> dict[str, Played]:
    """Train, one run after the other: the settings of each, and the step after which it is killed.

    In settings the word RANK stands for the number of each rank. A folder that is played in twice needs two stages.
    """
    acts = {}
    for name, (settings, kill_at) in runs.items():
        plain = {key: list(value) if isinstance(value, tuple) else value for key, value in settings.items()}
        (file := (stage or folder) / f"{name}.yaml").write_text(yaml.safe_dump(plain))
        acts[name] = (recipe, file, kill_at)
    loads = [f"stayfinite.recipes.{recipe}", *LOADED_ON_THE_WAY[recipe]]
    return play(job, acts, (stage or folder) / "stage", ranks=ranks, loads=loads, timeout=1000)


def weights_of_ranks(output: Path, ranks: int = 2) -> list[dict[int, str]]:
    """A digest of the weights after each step, on each rank; of a step that was taken twice, the second time."""
    lines = [(output / f"weights-{rank}.txt").read_text().splitlines() for rank in range(ranks)]
    return [{int(line.split()[0]): line.split()[1] for line in of_rank} for of_rank in lines]


def steps_of(output: Path) -> dict[int, float]:
    """The loss of each step; of one that was taken twice, the second time."""
    lines = map(json.loads, (output / "steps.jsonl").read_text().splitlines())
    return {line["step"]: line["loss"] for line in lines}


def weights_of(output: Path, part: str = "best") -> dict[str, torch.Tensor]:
    """The weights of the best model or adapter, or of another one that a run has left."""
    (file,) = (output / part).glob("*model.safetensors")
    return load_file(file)


def check_alike(one: Path, other: Path, *, steps: float, weights: float) -> None:
    """Two runs took the same steps to the same weights, up to rounding: relative for losses, absolute for weights."""
    assert steps_of(one) == pytest.approx(steps_of(other), rel=steps)
    mine, theirs = weights_of(one), weights_of(other)
    assert mine.keys() == theirs.keys()
    assert all(torch.allclose(mine[name], theirs[name], atol=weights) for name in mine)


def check_same_weights(one: Path, other: Path) -> None:
    """Two runs have left the same models, and each has the same bits in both."""
    left = [{path.parent.name for path in run.glob("*/*model.safetensors")} for run in (one, other)]
    assert left[0] == left[1] >= {"best"}
    for part in left[0]:
        mine, theirs = weights_of(one, part), weights_of(other, part)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def check_went_on(played: Mapping[str, Played], folder: Path, steps: int) -> None:
    """The run `killed` was, on both ranks; `again` took it up; each step left both with the weights of `whole`."""
    assert played["killed"].ends == [-signal.SIGKILL, -signal.SIGKILL]
    for name in ("whole", "again"):
        played[name].check()
    assert "resumed after step" in played["again"].said
    whole, killed = weights_of_ranks(folder / "whole"), weights_of_ranks(folder / "killed")
    assert whole[0] == whole[1] == killed[0] == killed[1]
    assert list(whole[0]) == list(range(1, steps + 1))
    assert steps_of(folder / "whole") == steps_of(folder / "killed")
    check_same_weights(folder / "whole", folder / "killed")


def quiet(_: str) -> None:
    return


def all_have_told(output: Path, step: int) -> bool:
    ranks = range(int(os.environ.get("WORLD_SIZE", "1")))
    files = [output / f"weights-{rank}.txt" for rank in ranks]
    return all(file.exists() and f"\n{step} " in f"\n{file.read_text()}" for file in files)


def main(recipe: str, config: str, kill_at: str) -> int:
    output = Path(yaml.safe_load(Path(config).read_text())["output_dir"])
    if "RANK" in (text := Path(config).read_text()):
        own = Path(f"{config}-{os.environ['RANK']}")
        own.write_text(text.replace("RANK", os.environ["RANK"]))
        config = str(own)
    step = Guard.step

    def step_and_tell(self: Guard, *args: Any, **kwargs: Any) -> None:
        step(self, *args, **kwargs)
        weights = sha256()
        for value in self._model.parameters():
            weights.update(local_part(value.detach()).numpy().tobytes())
        with (output / f"weights-{os.environ.get('RANK', '0')}.txt").open("a") as file:
            file.write(f"{self._step} {weights.hexdigest()}\n")
        if self._step == int(kill_at):
            # Not before the others have come as far: one that is left alone in the middle of a step ends by an error.
            while not (list((output / "checkpoints").glob("step-*")) and all_have_told(output, self._step)):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)

    Guard.step = step_and_tell  # type: ignore[method-assign]
    return stayfinite(["train", recipe, "--config", config])
