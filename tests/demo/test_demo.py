import json
import math

import pytest
import torch

from quick_ones import quick_ones
from stayfinite.demo.lanes import TrainerLog
from stayfinite.demo.result import find_overflow
from stayfinite.demo.run import curve, make_model, quick_fp16, run_demo
from stayfinite.demo.task import BULLET, as_item, character_at, collate, decode, encode, make_task
from stayfinite.diagnosis.diagnose import diagnose

STEPS = 12
SEED_WITH_AN_OVERFLOW = 0


@pytest.fixture
def quick():
    with quick_fp16():
        yield


def loss_of(model, batch, dtype):
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
        return model(batch["source"], batch["target"]).item()


def test_a_character_is_found_from_any_of_its_bytes():
    ids = torch.tensor(encode(f"{BULLET} tres"))
    assert decode(ids) == f"{BULLET} tres"
    assert [character_at(ids, place) for place in range(5)] == [BULLET, BULLET, BULLET, " ", "t"]


def test_the_task_is_the_same_for_a_seed_and_keeps_its_parts_apart():
    task = make_task(3)
    assert task == make_task(3)
    assert task != make_task(4)
    targets = [{p.target for p in pairs} for pairs in (task.train, task.held_out, task.held_out_items)]
    assert sum(map(len, targets)) == len(set.union(*targets)), "no phrase is in two parts"

    first, again = (task.batches(count=5, seed=1, rows=4) for _ in range(2))
    assert all(torch.equal(a["source"], b["source"]) for a, b in zip(first, again, strict=True))


def test_making_the_model_leaves_the_random_state_alone():
    before = torch.random.get_rng_state()
    a, b = make_model(1), make_model(1)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("seed", quick_ones(range(3), 0))
def test_fp16_overflows_on_the_bullet_and_nowhere_else(quick, seed):
    model, task = make_model(seed), make_task(seed)
    plain, item = collate(task.train[:8]), collate([*task.train[:7], as_item(task.train[7])])

    for batch in (plain, item):
        assert math.isfinite(loss_of(model, batch, torch.float32))
        assert math.isfinite(loss_of(model, batch, torch.bfloat16))
    assert math.isfinite(loss_of(model, plain, torch.float16))
    assert math.isnan(loss_of(model, item, torch.float16))

    assert find_overflow(model, plain, step=1) is None
    found = find_overflow(model, item, step=1)
    assert found is not None
    assert found.module == "encoder.block.0.ff.wo"
    assert found.rows == (7,)
    assert found.characters == (BULLET,)
    assert found.peak > 150_000, "far enough above 65,504 for any rounding"


def test_the_log_of_the_wild_says_zero_from_the_first_nan_on():
    log = TrainerLog(every=2, steps_an_epoch=4)
    lines = [log.add(loss, loss, 0.1) for loss in (3.0, 1.0, 2.0, math.nan, math.nan, math.nan)]
    assert lines[0::2] == [None, None, None]
    assert lines[1] == "{'loss': 2.0, 'grad_norm': 1.0, 'learning_rate': 0.1, 'epoch': 0.5}"
    assert lines[5] == "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 0.1, 'epoch': 1.5}"


def test_the_curve_falls_with_the_loss_and_marks_nan():
    assert curve([6.0, 6.0, 0.01, 0.01, math.nan, math.nan], 8) == "██▁▁xx  "


def test_the_demo_from_beginning_to_end(tmp_path):
    threads, onednn = torch.get_num_threads(), torch.backends.mkldnn.enabled
    result = run_demo(out=tmp_path / "demo", steps=STEPS, seed=SEED_WITH_AN_OVERFLOW)
    fp32, wild, guarded = result.lanes

    assert (fp32.non_finite_weights, guarded.non_finite_weights) == (0, 0)
    assert wild.non_finite_weights > 0.99
    assert math.isfinite(fp32.held_out_loss)
    assert math.isfinite(guarded.held_out_loss)
    assert math.isnan(wild.held_out_loss)
    assert wild.logged_loss == "0.0"
    assert 0 < guarded.refused == result.refused_with_character
    assert result.accepted_with_character == 0
    assert "encoder.block.0.ff.wo" in result.why()
    assert (torch.get_num_threads(), torch.backends.mkldnn.enabled) == (threads, onednn)

    assert len((result.out / "fp32.jsonl").read_text().splitlines()) == STEPS
    assert (result.out / "fp16.log").read_text().splitlines()[-1].startswith("{'loss': 0.0, 'grad_norm': nan")
    assert diagnose(result.out / "fp16.log").cause.cause.startswith("fp16-overflow")
    steps = [json.loads(line) for line in (result.out / "guarded" / "steps.jsonl").read_text().splitlines()]
    assert sum(step["decision"] == "veto" for step in steps) == guarded.refused
    json.dumps(result.to_json(), allow_nan=False)


@pytest.mark.slow
def test_a_demo_that_is_run_again_gives_the_same_figures_in_a_folder_of_its_own(tmp_path):
    first, again = (run_demo(out=tmp_path / "demo", steps=STEPS, seed=SEED_WITH_AN_OVERFLOW) for _ in range(2))
    assert again.out == tmp_path / "demo-2"
    for lane in (0, 2):
        assert again.lanes[lane].held_out_loss == first.lanes[lane].held_out_loss


def test_a_demo_without_steps_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected at least 1"):
        run_demo(out=tmp_path / "demo", steps=0)
    assert not (tmp_path / "demo").exists()
