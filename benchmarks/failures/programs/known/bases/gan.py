import torch
import torch.nn as nn

torch.manual_seed(5)
latent, batch = 4, 64
G = nn.Sequential(nn.Linear(latent, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
D = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizerD = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
optimizerG = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
fixed_noise = torch.randn(16, latent)

for i in range(80):
    angle = torch.rand(batch) * 6.28
    real = torch.stack([angle.cos(), angle.sin()], 1)
    D.zero_grad()
    label = torch.full((batch,), 1.0)
    output = D(real).view(-1)
    errD_real = criterion(output, label)
    errD_real.backward()
    noise = torch.randn(batch, latent)
    fake = G(noise)
    label.fill_(0.0)
    output = D(fake.detach()).view(-1)
    errD_fake = criterion(output, label)
    errD_fake.backward()
    optimizerD.step()
    G.zero_grad()
    label.fill_(1.0)
    output = D(fake).view(-1)
    errG = criterion(output, label)
    errG.backward()
    optimizerG.step()
    if i % 20 == 0:
        print("[%d/80] Loss_D: %.4f Loss_G: %.4f" % (i, errD_real.item() + errD_fake.item(), errG.item()))
        with torch.no_grad():
            sample = G(fixed_noise)
