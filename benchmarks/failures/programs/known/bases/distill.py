import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(21)
teacher = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 5))
student = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 5))
teacher.eval()
data = torch.randn(512, 16)
with torch.no_grad():
    hard = teacher(data).argmax(1)
opt = torch.optim.Adam(student.parameters(), lr=5e-3)
T, alpha = 2.0, 0.7
for epoch in range(8):
    for i in range(0, 512, 64):
        xb, yb = data[i:i + 64], hard[i:i + 64]
        with torch.no_grad():
            t_logits = teacher(xb)
        s_logits = student(xb)
        soft = F.kl_div(F.log_softmax(s_logits / T, dim=1), F.softmax(t_logits / T, dim=1), reduction="batchmean") * T * T
        loss = alpha * soft + (1 - alpha) * F.cross_entropy(s_logits, yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"epoch {epoch}: distill loss = {loss.item():.4f}")
