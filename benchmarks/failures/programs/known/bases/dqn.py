import random
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)
policy_net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target_net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
target_net.load_state_dict(policy_net.state_dict())
target_net.eval()
optimizer = torch.optim.RMSprop(policy_net.parameters(), lr=1e-3)
memory = deque(maxlen=500)
GAMMA = 0.9
state = torch.randn(4)
for step in range(150):
    if random.random() < max(0.1, 1 - step / 100):
        action = random.randrange(2)
    else:
        with torch.no_grad():
            action = policy_net(state.unsqueeze(0)).argmax(1).item()
    reward = 1.0 if (state[0] > 0) == bool(action) else -1.0
    next_state = torch.randn(4)
    memory.append((state, action, next_state, reward))
    state = next_state
    if len(memory) >= 32:
        batch = random.sample(memory, 32)
        s = torch.stack([m[0] for m in batch])
        a = torch.tensor([[m[1]] for m in batch])
        s2 = torch.stack([m[2] for m in batch])
        r = torch.tensor([m[3] for m in batch])
        q = policy_net(s).gather(1, a)
        with torch.no_grad():
            next_q = target_net(s2).max(1)[0]
        expected = r + GAMMA * next_q
        loss = F.smooth_l1_loss(q, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        for p in policy_net.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        if step % 50 == 0:
            target_net.load_state_dict(policy_net.state_dict())
            print("step", step, "loss", loss.item())
