import torch
import torch.nn as nn

torch.manual_seed(7)
N, T = 256, 12
seqs = torch.randn(N, T, 3)
target = (seqs[:, :, 0].sum(1) > 0).float().unsqueeze(1)


class Classifier(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(3, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, s):
        out, (h, c) = self.lstm(s)
        return self.head(h[-1])


model = Classifier()
opt = torch.optim.Adam(model.parameters(), lr=0.01)
bce = nn.BCEWithLogitsLoss()
for epoch in range(6):
    perm = torch.randperm(N)
    total, hits = 0.0, 0
    for i in range(0, N, 32):
        idx = perm[i:i + 32]
        xb, yb = seqs[idx], target[idx]
        logits = model(xb)
        loss = bce(logits, yb)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        total += loss.item() * len(idx)
        hits += ((logits > 0).float() == yb).sum().item()
    print(f"epoch {epoch + 1} loss={total / N:.4f} acc={hits / N:.3f}")
