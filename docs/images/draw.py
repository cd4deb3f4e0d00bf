"""Draws the pictures of the README again: ``python docs/images/draw.py`` (needs playwright and a Chromium)."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import torch
from playwright.sync_api import sync_playwright
from torch import nn

from stayfinite import Guard, Policy
from stayfinite.demo.run import run_demo
from stayfinite.guard.telling.showing import shown_runs
from stayfinite.report.page.data import page_data
from stayfinite.report.page.html import write_page

HERE = Path(__file__).resolve().parent


class Block(nn.Module):
    """One layer of a residual stack."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[N, width] -> [N, width]."""
        return x + self.down(torch.relu(self.up(self.norm(x))))


def train_with_one_layer_too_fast(directory: Path) -> None:
    """Block 3 learns far too fast, and nobody refuses a step: where it starts is what the heat map shows."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(16, 32), *(Block(32) for _ in range(6)), nn.Linear(32, 4))
    fast = list(model[3].parameters())
    slow = [p for p in model.parameters() if all(p is not other for other in fast)]
    optimizer = torch.optim.SGD([{"params": slow, "lr": 0.02}, {"params": fast, "lr": 0.02}])
    # Its rate grows and grows, until its weights do.
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [lambda _: 1.0, lambda step: 1.045**step])
    goal = torch.randn(16, 4)
    policy = Policy.watch(sample_every=2)
    with Guard(model, optimizer, schedule, max_norm=None, policy=policy, run_dir=directory) as guard:
        lost = 0
        while lost < 14:
            x = torch.randn(64, 16)
            loss = nn.functional.mse_loss(model(x), x @ goal)
            guard.step(loss)
            lost += not loss.isfinite()


def main() -> None:
    """Train, draw, and cut the pictures out."""
    place = Path(tempfile.mkdtemp())
    os.chdir(place)  # so that the pictures show no path of this machine
    run_demo(out=Path("demo"))
    train_with_one_layer_too_fast(Path("too-fast"))
    write_page(page_data(shown_runs([Path("demo/guarded")])), Path("guarded.html"))
    pictures = (
        ("curves", "demo/report.html", "#curves"),
        ("incident", "guarded.html", "#incidents"),
        ("layers", "too-fast/report.html", "#layers .plot"),
        ("report", "guarded.html", None),
    )
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, page, part in pictures:
            tab = browser.new_page(viewport={"width": 1000, "height": 860})
            tab.goto((place / page).as_uri())
            tab.wait_for_selector("html[data-ready]")
            if name == "layers":
                tab.get_by_role("button", name="update ratio").click()
            if part is None:
                tab.screenshot(path=HERE / f"{name}.png")
            else:
                tab.locator(part).screenshot(path=HERE / f"{name}.png")
        browser.close()
    shutil.rmtree(place)


if __name__ == "__main__":
    main()
