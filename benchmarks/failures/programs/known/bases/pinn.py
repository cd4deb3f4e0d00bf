import torch
import torch.nn as nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
t0 = torch.zeros(1, 1, requires_grad=True)
for it in range(120):
    t = torch.rand(64, 1, requires_grad=True)
    u = net(t)
    du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
    residual = ((du + u) ** 2).mean()
    boundary = ((net(t0) - 1.0) ** 2).mean()
    loss = residual + boundary
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if it % 30 == 0:
        print(f"it {it} total {loss.item():.3e} res {residual.item():.3e} bc {boundary.item():.3e}")
