import torch
import torch.nn as nn

torch.manual_seed(11)
T = 50
betas = torch.linspace(1e-4, 0.1, T)
alphas_bar = torch.cumprod(1 - betas, 0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(T, 32)
        self.inp = nn.Linear(2, 32)
        self.out = nn.Sequential(nn.SiLU(), nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x, t):
        return self.out(self.inp(x) + self.time(t))


model = Denoiser()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(150):
    theta = torch.rand(128) * 6.28
    x0 = torch.stack([theta.cos(), theta.sin()], dim=1)
    t = torch.randint(0, T, (128,))
    noise = torch.randn_like(x0)
    a = alphas_bar[t].unsqueeze(1)
    xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
    pred = model(xt, t)
    loss = ((pred - noise) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0:
        print(f"step {step} loss {loss.item():.4f}")
