import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.cat = torch.randint(0, 5, (n,), generator=g)
        self.num = torch.randn(n, 6, generator=g)
        self.y = ((self.num[:, 0] + (self.cat == 2).float() * 2 - 0.4) > 0).float()

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"cat": self.cat[i], "num": self.num[i], "label": self.y[i]}


class TabNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(5, 4)
        self.mlp = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def forward(self, cat, num):
        return self.mlp(torch.cat([self.emb(cat), num], dim=1)).squeeze(1)


class Trainer:
    def __init__(self, model, train_loader, valid_loader, lr=3e-3):
        self.model = model
        self.train_loader = train_loader
        self.valid_loader = valid_loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.BCEWithLogitsLoss()
        self.history = []

    def train_step(self, batch):
        self.optimizer.zero_grad()
        logits = self.model(batch["cat"], batch["num"])
        loss = self.criterion(logits, batch["label"])
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        right = n = 0
        for batch in self.valid_loader:
            p = torch.sigmoid(self.model(batch["cat"], batch["num"])) > 0.5
            right += (p == batch["label"].bool()).sum().item()
            n += len(p)
        return right / n

    def fit(self, epochs):
        for epoch in range(epochs):
            self.model.train()
            losses = [self.train_step(batch) for batch in self.train_loader]
            self.history.append(sum(losses) / len(losses))
            print({"epoch": epoch, "loss": round(self.history[-1], 4), "valid_acc": round(self.validate(), 4)})


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(TabNet(), DataLoader(Rows(512, 1), 64, shuffle=True), DataLoader(Rows(128, 2), 64))
    trainer.fit(6)
