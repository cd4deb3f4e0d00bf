import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(11)


class Windows(Dataset):
    def __init__(self, series, width=24):
        self.series, self.width = series, width

    def __len__(self):
        return len(self.series) - self.width - 1

    def __getitem__(self, i):
        return self.series[i:i + self.width].unsqueeze(-1), self.series[i + self.width]


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h, _ = self.gru(x)
        return self.out(h[:, -1]).squeeze(-1)


t = torch.arange(700).float()
series = torch.sin(2 * math.pi * t / 24) + 0.3 * torch.sin(2 * math.pi * t / 7) + 0.05 * torch.randn(700)
cut = 560
mean, std = series[:cut].mean(), series[:cut].std()
train_set = Windows((series[:cut] - mean) / std)
test_set = Windows((series[cut:] - mean) / std)
train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
test_loader = DataLoader(test_set, batch_size=64)

model = Forecaster()
optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
criterion = nn.MSELoss()

for epoch in range(5):
    model.train()
    total = 0.0
    for x, y in train_loader:
        optimizer.zero_grad()
        y_hat = model(x)
        loss = criterion(y_hat, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item() * len(x)
    scheduler.step()
    model.eval()
    with torch.no_grad():
        errors = torch.cat([(model(x) - y).abs() for x, y in test_loader])
    print(f"epoch {epoch} train mse {total / len(train_set):.4f} test mae {errors.mean():.4f}")
