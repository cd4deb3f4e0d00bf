import torch
import torch.nn as nn


class SharedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 24), nn.ReLU())
        self.price = nn.Linear(24, 1)
        self.kind = nn.Linear(24, 3)

    def forward(self, x):
        z = self.trunk(x)
        return self.price(z).squeeze(-1), self.kind(z)


def data(n, generator):
    x = torch.randn(n, 12, generator=generator)
    price = x[:, :4].sum(1) + 0.1 * torch.randn(n, generator=generator)
    kind = (x[:, 4:7] + 0.2 * torch.randn(n, 3, generator=generator)).argmax(1)
    return x, price, kind


class Experiment:
    def __init__(self, lr=4e-3, weight=0.5):
        self.generator = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        self.net = SharedNet()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.mse, self.ce, self.weight = nn.MSELoss(), nn.CrossEntropyLoss(), weight
        self.train_data = data(480, self.generator)
        self.val_data = data(160, self.generator)

    def loss(self, x, price, kind):
        p, k = self.net(x)
        return self.mse(p, price) + self.weight * self.ce(k, kind)

    def epoch(self):
        self.net.train()
        total, count = 0.0, 0
        order = torch.randperm(480)
        for i in range(0, 480, 40):
            rows = order[i:i + 40]
            self.opt.zero_grad()
            loss = self.loss(*(each[rows] for each in self.train_data))
            loss.backward()
            self.opt.step()
            total += loss.item()
            count += 1
        return total / count

    def validate(self):
        self.net.eval()
        with torch.no_grad():
            x, price, kind = self.val_data
            p, k = self.net(x)
            return self.mse(p, price).item(), (k.argmax(1) == kind).float().mean().item()


if __name__ == "__main__":
    experiment = Experiment()
    for epoch in range(6):
        train_loss = experiment.epoch()
        val_mse, val_acc = experiment.validate()
        print(f"{epoch}: loss {train_loss:.3f}  val mse {val_mse:.3f}  val acc {val_acc:.3f}")
