import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.default_rng(5)
torch.manual_seed(5)
N_USERS, N_ITEMS, K = 60, 40, 6

u = rng.normal(size=(N_USERS, 3))
v = rng.normal(size=(N_ITEMS, 3))
pairs = np.stack([rng.integers(0, N_USERS, 3000), rng.integers(0, N_ITEMS, 3000)], 1)
ratings = np.clip(3 + (u[pairs[:, 0]] * v[pairs[:, 1]]).sum(1) * 0.6, 1, 5).astype("float32")
pairs = torch.from_numpy(pairs)
ratings = torch.from_numpy(ratings)
order = torch.randperm(3000)
train_idx, val_idx = order[:2600], order[2600:]


class MF(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(N_USERS, K)
        self.item = nn.Embedding(N_ITEMS, K)
        self.user_bias = nn.Embedding(N_USERS, 1)
        self.item_bias = nn.Embedding(N_ITEMS, 1)
        self.mu = nn.Parameter(torch.tensor(3.0))
        nn.init.normal_(self.user.weight, std=0.1)
        nn.init.normal_(self.item.weight, std=0.1)
        nn.init.zeros_(self.user_bias.weight)
        nn.init.zeros_(self.item_bias.weight)

    def forward(self, ui):
        p, q = self.user(ui[:, 0]), self.item(ui[:, 1])
        return self.mu + (p * q).sum(1) + self.user_bias(ui[:, 0]).squeeze(1) + self.item_bias(ui[:, 1]).squeeze(1)


def rmse(model, idx):
    model.eval()
    with torch.no_grad():
        return torch.sqrt(F.mse_loss(model(pairs[idx]), ratings[idx])).item()


def fit(model, epochs=6, lr=0.03, batch_size=128):
    opt = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-5)
    for epoch in range(epochs):
        model.train()
        perm = train_idx[torch.randperm(len(train_idx))]
        for start in range(0, len(perm), batch_size):
            idx = perm[start:start + batch_size]
            pred = model(pairs[idx])
            loss = F.mse_loss(pred, ratings[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        print("epoch", epoch, "train rmse", round(rmse(model, train_idx), 3), "val rmse", round(rmse(model, val_idx), 3))


fit(MF())
