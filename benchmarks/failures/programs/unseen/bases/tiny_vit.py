import torch
from torch import nn

torch.manual_seed(2)
device = torch.device("cpu")


class PatchEmbed(nn.Module):
    def __init__(self, patch=4, dim=32):
        super().__init__()
        self.proj = nn.Conv2d(1, dim, patch, patch)

    def forward(self, x):
        return self.proj(x).flatten(2).transpose(1, 2)


class ViT(nn.Module):
    def __init__(self, dim=32, depth=2, heads=4, classes=3):
        super().__init__()
        self.patch = PatchEmbed(dim=dim)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, 17, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = self.patch(x)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        x = self.blocks(x)
        return self.head(self.norm(x[:, 0]))


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    images = torch.rand(n, 1, 16, 16, generator=g) * 0.3
    labels = torch.randint(0, 3, (n,), generator=g)
    for i, c in enumerate(labels.tolist()):
        if c == 0:
            images[i, 0, 4:12, 7:9] += 1.0
        elif c == 1:
            images[i, 0, 7:9, 4:12] += 1.0
        else:
            images[i, 0, 5:11, 5:11] += 0.7
    return (images - 0.25) / 0.35, labels


train_x, train_y = make_images(320, 0)
test_x, test_y = make_images(96, 1)
model = ViT().to(device)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
steps_per_epoch = 320 // 32
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-3, total_steps=4 * steps_per_epoch)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)

for epoch in range(4):
    model.train()
    seen, right = 0, 0
    for ids in torch.randperm(320).split(32):
        x, y = train_x[ids].to(device), train_y[ids].to(device)
        logits = model(x)
        loss = loss_fn(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        right += (logits.argmax(1) == y).sum().item()
        seen += len(y)
    model.eval()
    with torch.inference_mode():
        test_acc = (model(test_x).argmax(1) == test_y).float().mean().item()
    print(f"epoch {epoch}: train acc {right / seen:.3f} test acc {test_acc:.3f}")
