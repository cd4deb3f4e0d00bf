import torch

torch.manual_seed(9)
X = torch.randn(100, 3)
true_w = torch.tensor([[1.5], [-2.0], [0.7]])
Y = X @ true_w + 0.3 + 0.01 * torch.randn(100, 1)
w = torch.zeros(3, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
lr = 0.1

for epoch in range(60):
    y_hat = X @ w + b
    loss = ((y_hat - Y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad
        b -= lr * b.grad
        w.grad.zero_()
        b.grad.zero_()
    if epoch % 10 == 0:
        print("epoch", epoch, "loss", loss.item())
