import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(2)
base = torch.randn(256, 20)
encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
temperature = 0.2


def nt_xent(a, b):
    a = F.normalize(a, dim=1)
    b = F.normalize(b, dim=1)
    logits = a @ b.t() / temperature
    labels = torch.arange(len(a))
    return (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2


for epoch in range(12):
    order = torch.randperm(256)
    losses = []
    for chunk in order.split(64):
        v1 = base[chunk] + 0.3 * torch.randn(len(chunk), 20)
        v2 = base[chunk] + 0.3 * torch.randn(len(chunk), 20)
        loss = nt_xent(encoder(v1), encoder(v2))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print("epoch", epoch, "contrastive loss", sum(losses) / len(losses))
