import math

import torch
import torch.nn as nn

torch.manual_seed(3)
x = torch.rand(400, 1) * 4 - 2
y = torch.sin(x) * 0.1 + 0.02 * torch.randn(400, 1)


class MDN(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(1, 32), nn.Tanh())
        self.pi, self.mu, self.s = nn.Linear(32, k), nn.Linear(32, k), nn.Linear(32, k)

    def forward(self, x):
        h = self.body(x)
        return self.pi(h), self.mu(h), self.s(h)


def nll(pi, mu, s, y):
    log_pi = torch.log_softmax(pi, dim=1)
    sigma = torch.nn.functional.softplus(s) + 1e-3
    log_n = -0.5 * ((y - mu) / sigma) ** 2 - sigma.log() - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(log_pi + log_n, dim=1).mean()


model = MDN()
opt = torch.optim.Adam(model.parameters(), lr=1e-2)
for i in range(150):
    loss = nll(*model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 30 == 0:
        print(i, float(loss))
