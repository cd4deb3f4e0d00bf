import torch
from torch import nn

torch.manual_seed(1)
x = torch.linspace(-1, 1, 200).unsqueeze(1)
y = x.pow(3) + 0.1 * torch.randn(x.size())

net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
loss_func = nn.MSELoss()

for t in range(120):
    prediction = net(x)
    loss = loss_func(prediction, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if t % 20 == 0:
        print(t, loss.item())
