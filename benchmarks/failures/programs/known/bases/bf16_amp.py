import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
xs = torch.randn(256, 32)
ys = (xs[:, :4].sum(1) > 0).long()
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=64)
step = 0
for epoch in range(8):
    for i in range(0, 256, 32):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(xs[i:i + 32])
            loss = F.cross_entropy(logits.float(), ys[i:i + 32])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        sched.step()
        step += 1
    print(f"| epoch {epoch} | step {step} | lr {sched.get_last_lr()[0]:.5f} | loss {loss.item():.4f} |")
