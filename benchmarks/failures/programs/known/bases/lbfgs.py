import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.rand(80, 2)
y = (torch.sin(3 * x[:, :1]) + x[:, 1:]).double().float()
model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
criterion = nn.MSELoss()


def closure():
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    return loss


for i in range(15):
    loss = optimizer.step(closure)
    print("STEP:", i, "loss:", loss.item())
