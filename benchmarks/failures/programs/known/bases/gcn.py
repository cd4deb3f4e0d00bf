import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
n, classes = 120, 3
y = torch.arange(n) % classes
same = (y[:, None] == y[None, :]).float()
adj = (torch.rand(n, n) < 0.02 + 0.10 * same).float()
adj = ((adj + adj.t()) > 0).float() + torch.eye(n)
deg = adj.sum(1)
a_hat = adj / deg.sqrt()[:, None] / deg.sqrt()[None, :]
features = torch.randn(n, 16) + F.one_hot(y, 16).float()
train_mask = torch.rand(n) < 0.5
test_mask = ~train_mask


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Linear(16, 32)
        self.w2 = nn.Linear(32, classes)

    def forward(self, x, a):
        x = F.relu(a @ self.w1(x))
        x = F.dropout(x, 0.5, training=self.training)
        return a @ self.w2(x)


model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(60):
    model.train()
    optimizer.zero_grad()
    out = model(features, a_hat)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()
    if epoch % 20 == 0:
        model.eval()
        pred = model(features, a_hat).argmax(dim=1)
        acc = (pred[test_mask] == y[test_mask]).float().mean().item()
        print(f"Epoch: {epoch:03d}, Loss: {loss.item():.4f}, Test: {acc:.4f}")
