import torch
import torch.nn as nn

torch.manual_seed(12)
centers = torch.randn(6, 10) * 2
embed = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 8))
opt = torch.optim.Adam(embed.parameters(), lr=3e-3)
margin = 1.0


def distance(a, b):
    return ((a - b) ** 2).sum(dim=1).add(1e-9).sqrt()


for it in range(80):
    c = torch.randint(0, 6, (48,))
    other = (c + torch.randint(1, 6, (48,))) % 6
    anchor = embed(centers[c] + torch.randn(48, 10))
    positive = embed(centers[c] + torch.randn(48, 10))
    negative = embed(centers[other] + torch.randn(48, 10))
    loss = torch.relu(distance(anchor, positive) - distance(anchor, negative) + margin).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 20 == 0:
        print("iter %d triplet %.4f" % (it, loss.item()))
