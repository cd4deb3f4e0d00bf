import torch
import torch.nn as nn

torch.manual_seed(6)


def make(n):
    img = torch.randn(n, 1, 16, 16) * 0.3
    mask = torch.zeros(n, 1, 16, 16)
    for k in range(n):
        r, c = torch.randint(0, 10, (2,)).tolist()
        mask[k, 0, r:r + 5, c:c + 5] = 1.0
    return img + mask, mask


class UNetish(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.mid = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2))
        self.up = nn.Conv2d(24, 1, 3, padding=1)

    def forward(self, x):
        d = self.down(x)
        return self.up(torch.cat([d, self.mid(d)], 1))


def dice_loss(logits, target, eps=1.0):
    p = torch.sigmoid(logits)
    inter = (p * target).sum()
    return 1 - (2 * inter + eps) / (p.sum() + target.sum() + eps)


net = UNetish()
optim = torch.optim.RMSprop(net.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
train_x, train_y = make(64)
val_x, val_y = make(16)
for ep in range(6):
    net.train()
    for i in range(0, 64, 8):
        xb, yb = train_x[i:i + 8], train_y[i:i + 8]
        out = net(xb)
        loss = bce(out, yb) + dice_loss(out, yb)
        optim.zero_grad()
        loss.backward()
        optim.step()
    net.eval()
    with torch.no_grad():
        val_loss = bce(net(val_x), val_y).item()
    print(f"ep {ep} train {loss.item():.4f} val {val_loss:.4f}")
