# Poisson regression of insurance claims with an exposure offset
import torch

torch.manual_seed(21)
n, d = 2000, 6
X = torch.randn(n, d)
exposure = torch.rand(n) * 0.9 + 0.1
beta = torch.tensor([0.3, -0.2, 0.1, 0.0, 0.25, -0.1])
claims = torch.poisson(exposure * torch.exp(X @ beta + 0.2))

weight = torch.zeros(d, requires_grad=True)
bias = torch.zeros((), requires_grad=True)
opt = torch.optim.SGD([weight, bias], lr=0.1, momentum=0.9)

for epoch in range(8):
    epoch_loss = 0.0
    for rows in torch.randperm(n).split(200):
        eta = X[rows] @ weight + bias + torch.log(exposure[rows])
        nll = (torch.exp(eta) - claims[rows] * eta).mean()
        opt.zero_grad()
        nll.backward()
        opt.step()
        epoch_loss += nll.item() * len(rows)
    print(f"epoch {epoch:2d}  nll {epoch_loss / n:.4f}  bias {bias.item():.3f}")
