import torch
import torch.nn as nn

torch.manual_seed(31)


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 2))

    def forward(self, x):
        a, b = x[:, :1], x[:, 1:]
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * torch.exp(s) + t
        out = torch.cat([b, a], 1) if self.flip else torch.cat([a, b], 1)
        return out, s.sum(1)


layers = nn.ModuleList([Coupling(i % 2) for i in range(4)])
opt = torch.optim.Adam(layers.parameters(), lr=3e-3)
for it in range(100):
    x = torch.randn(128, 2) * 0.05
    x[:, 1] += x[:, 0] ** 2
    z, logdet = x, 0
    for layer in layers:
        z, ld = layer(z)
        logdet = logdet + ld
    loss = (0.5 * (z ** 2).sum(1) - logdet).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 25 == 0:
        print(f"iter {it:4d} nll {loss.item():.3f}")
