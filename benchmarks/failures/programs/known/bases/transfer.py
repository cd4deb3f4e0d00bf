import copy

import torch
import torch.nn as nn

torch.manual_seed(8)
backbone = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 16))
x = torch.randn(300, 10)
y = (x[:, 0] * x[:, 1] > 0).long()

pre_head = nn.Linear(16, 3)
pre_opt = torch.optim.Adam(list(backbone.parameters()) + list(pre_head.parameters()), lr=1e-2)
for _ in range(20):
    loss = nn.functional.mse_loss(pre_head(backbone(x)), x[:, :3])
    pre_opt.zero_grad()
    loss.backward()
    pre_opt.step()

for p in backbone.parameters():
    p.requires_grad = False
backbone.eval()
head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
model = nn.Sequential(backbone, head)
optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3)
criterion = nn.CrossEntropyLoss()
best = copy.deepcopy(model.state_dict())
for epoch in range(40):
    head.train()
    logits = model(x)
    loss = criterion(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 10 == 0:
        print("finetune", epoch, round(loss.item(), 4))
