import argparse

import torch
import torch.nn as nn
import torch.optim as optim


def clean_signals(n):
    grid = torch.linspace(0, 6.28, 32)
    a, f, p = torch.rand(n, 1) + 0.5, torch.randint(1, 4, (n, 1)).float(), torch.rand(n, 1) * 6.28
    return a * torch.sin(f * grid + p)


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv1d(1, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, width, 5, padding=2, stride=2), nn.ReLU())
        self.dec = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.Conv1d(width, 1, 5, padding=2))

    def forward(self, x):
        return self.dec(self.enc(x.unsqueeze(1))).squeeze(1)


def evaluate(net, noisy, clean):
    net.eval()
    with torch.no_grad():
        return ((net(noisy) - clean) ** 2).mean().item()


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--noise", type=float, default=0.3)
    args = parser.parse_args(argv)
    torch.manual_seed(9)
    train_clean, test_clean = clean_signals(512), clean_signals(128)
    test_noisy = test_clean + args.noise * torch.randn_like(test_clean)
    net = Denoiser(12)
    optimizer = optim.RMSprop(net.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        net.train()
        sum_loss = 0.0
        for index in torch.randperm(512).view(-1, 32):
            clean = train_clean[index]
            noisy = clean + args.noise * torch.randn_like(clean)
            loss = ((net(noisy) - clean) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sum_loss += float(loss)
        print(f"Epoch {epoch + 1}/{args.epochs} loss={sum_loss / 16:.4f} test={evaluate(net, test_noisy, test_clean):.4f}")


if __name__ == "__main__":
    main()
