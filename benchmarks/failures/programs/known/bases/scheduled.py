import json
import logging
import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(message)s")
logger = logging.getLogger(__name__)


def build_model(width):
    return nn.Sequential(nn.Linear(10, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def run_epoch(model, loader, loss_fn, optimizer=None):
    total, count = 0.0, 0
    for xb, yb in loader:
        pred = model(xb)
        loss = loss_fn(pred, yb)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item() * xb.shape[0]
        count += xb.shape[0]
    return total / count


def main():
    cfg = {"width": 32, "lr": 1e-2, "epochs": 8}
    torch.manual_seed(42)
    x = torch.randn(480, 10)
    y = x[:, :1] * 2 + torch.tanh(x[:, 1:2])
    train = DataLoader(TensorDataset(x[:384], y[:384]), batch_size=32, shuffle=True)
    valid = DataLoader(TensorDataset(x[384:], y[384:]), batch_size=96)
    model = build_model(cfg["width"])
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=cfg["epochs"])
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(cfg["epochs"]):
            model.train()
            train_loss = run_epoch(model, train, nn.MSELoss(), optimizer)
            model.eval()
            with torch.no_grad():
                valid_loss = run_epoch(model, valid, nn.MSELoss())
            scheduler.step()
            if valid_loss < best:
                best = valid_loss
                torch.save(model.state_dict(), os.path.join(folder, "best.pt"))
            logger.info(json.dumps({"epoch": epoch, "train_loss": train_loss, "valid_loss": valid_loss}))


if __name__ == "__main__":
    main()
