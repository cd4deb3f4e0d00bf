import torch
import torch.nn as nn
from torch.optim import Optimizer


class SignMomentum(Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9):
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                state["m"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                p.add_(state["m"].sign(), alpha=-group["lr"])


def main():
    torch.manual_seed(0)
    x = torch.randn(200, 12)
    y = (x[:, :3] ** 2).sum(1, keepdim=True)
    model = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 1))
    opt = SignMomentum(model.parameters(), lr=2e-3)
    for epoch in range(60):
        idx = torch.randperm(200)[:64]
        loss = nn.functional.smooth_l1_loss(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if epoch % 15 == 0:
            print("epoch=%d loss=%.4f" % (epoch, loss))


if __name__ == "__main__":
    main()
