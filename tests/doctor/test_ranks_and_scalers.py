"""Programs of several ranks, and programs with a GradScaler: no hang, no false alarm, the cause named."""

import json
import subprocess
import sys

import pytest

from plain_programs import causes, watch
from stayfinite.doctor.judges.course import doubt
from stayfinite.doctor.session import plain
from stayfinite.report.diagnosis import headline

RANKS = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(8):
    x, t = torch.randn(8, 4), torch.randn(8, 3)
    if step == 5 and rank == 1:
        t[2] = model.module(x[2:3]).detach()[0]
    loss = torch.sqrt(((model(x) - t) ** 2).sum(1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
dist.destroy_process_group()
"""

SCALED = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)
w = torch.randn(8, 1)
for step in range(40):
    x = torch.randn(64, 8)
    y = x @ w
    with torch.autocast("cpu", dtype=torch.float16):
        out = net(x)
        loss = ((out - y) ** 2).mean()
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
"""


@pytest.mark.slow
def test_rank_0_tells_what_rank_1_has_proved(tmp_path):
    (tmp_path / "train.py").write_text(RANKS)
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "stayfinite", "doctor", "--json", "train.py"]
    ended = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert ended.returncode == 1
    top = json.loads(ended.stdout)["findings"][0]
    assert (top["cause"], top["known_by"]) == ("loss-formula-singularity", "proved by re-run")
    assert "Seen on rank 1." in top["evidence"]
    assert ended.stderr.count("stayfinite doctor: watching train.py") == 1


def test_steps_that_are_skipped_while_the_scale_settles_are_not_sick(tmp_path):
    seen, _ = watch(tmp_path, SCALED)
    assert seen.program.skipped > 3
    assert causes(seen) == []
    assert seen.program.steps + seen.program.skipped == 40
    assert doubt(seen.program) == ""


def test_a_scale_that_keeps_falling_is_not_healthy(tmp_path):
    growing = SCALED.replace("loss = ((out - y) ** 2).mean()", "loss = ((out - y) ** 2).mean() * 1.25**step")
    seen, _ = watch(tmp_path, growing, examine=False)
    assert causes(seen) == []
    assert doubt(seen.program) == "the loss scale keeps falling"


def test_a_scale_that_grows_and_falls_back_is_healthy(tmp_path):
    often = SCALED.replace("init_scale=2.0**24", "init_scale=2.0**20, growth_interval=4").replace("(40)", "(80)")
    seen, _ = watch(tmp_path, often, examine=False)
    assert seen.program.skipped > 10
    assert doubt(seen.program) == ""


def test_skipped_steps_are_counted_in_the_first_line(tmp_path):
    seen, _ = watch(tmp_path, SCALED, examine=False)
    said = plain(seen)
    assert said["skipped_by_scaler"]["of"] == 40
    skipped, scale = seen.program.skipped, seen.program.scales.values[-1]
    assert f"{skipped} of 40 steps skipped by the loss scaler (scale now {scale:,.0f})" in headline(said)


def test_the_first_step_is_re_run_at_the_scale_it_had(tmp_path):
    seen, names = watch(tmp_path, SCALED)
    assert seen.replayed
    assert seen.why_not == ""
    assert names["scaler"].get_scale() == seen.program.scales.values[-1] < 2.0**24


def test_an_overflow_of_fp16_under_a_scaler_is_explained(tmp_path):
    seen, _ = watch(tmp_path, SCALED.replace("out = net(x)", "out = net(x) * (1e5 if step > 25 else 1)"))
    assert causes(seen)[0] == "fp16-overflow"
    assert seen.replayed


@pytest.mark.parametrize("at_every_scale", ["loss = loss * 1e30\n    opt.zero_grad()"])
def test_gradients_that_overflow_at_every_scale_are_named(tmp_path, at_every_scale):
    seen, _ = watch(tmp_path, SCALED.replace("opt.zero_grad()", at_every_scale).replace("2.0**24", "2.0**8"))
    assert causes(seen)[0] == "loss-scale-collapse"
    assert "step-missing" not in causes(seen)
