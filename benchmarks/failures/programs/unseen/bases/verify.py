import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(4)
people = torch.randn(12, 20)
ids_a = torch.randint(0, 12, (600,))
same = torch.rand(600) < 0.5
ids_b = torch.where(same, ids_a, torch.randint(0, 12, (600,)))
A = people[ids_a] + 0.4 * torch.randn(600, 20)
B = people[ids_b] + 0.4 * torch.randn(600, 20)
Y = (ids_a == ids_b).float()
train = DataLoader(TensorDataset(A[:480], B[:480], Y[:480]), batch_size=40, shuffle=True)
val = DataLoader(TensorDataset(A[480:], B[480:], Y[480:]), batch_size=60)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(20, 40), nn.LeakyReLU(0.1), nn.Dropout(0.2), nn.Linear(40, 16))

    def forward(self, x):
        return F.normalize(self.layers(x), dim=1)


encoder = Encoder()
scale = nn.Parameter(torch.tensor(5.0))
shift = nn.Parameter(torch.tensor(0.0))
params = [{"params": encoder.parameters()}, {"params": [scale, shift], "lr": 1e-2}]
optimizer = torch.optim.Adam(params, lr=3e-3)
criterion = nn.BCEWithLogitsLoss()

for epoch in range(6):
    encoder.train()
    for a, b, y in train:
        optimizer.zero_grad()
        similarity = (encoder(a) * encoder(b)).sum(1)
        logits = scale * similarity + shift
        loss = criterion(logits, y)
        loss.backward()
        optimizer.step()
    encoder.eval()
    hits, count = 0, 0
    with torch.no_grad():
        for a, b, y in val:
            logits = scale * (encoder(a) * encoder(b)).sum(1) + shift
            hits += ((logits > 0) == (y > 0.5)).sum().item()
            count += len(y)
    print("epoch", epoch, "loss", round(loss.item(), 4), "val accuracy", round(hits / count, 4))
