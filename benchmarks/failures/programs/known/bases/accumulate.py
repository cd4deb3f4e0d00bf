import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
X = torch.randn(384, 8)
W = torch.randn(8, 3)
Y = (X @ W).argmax(1)
loader = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(8, 48), nn.GELU(), nn.Linear(48, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
accumulation_steps = 4
opt.zero_grad()
for epoch in range(4):
    for i, (xb, yb) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(xb), yb)
        loss = loss / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0:
            opt.step()
            opt.zero_grad()
    print(f"epoch {epoch} loss {loss.item() * accumulation_steps:.4f}")
