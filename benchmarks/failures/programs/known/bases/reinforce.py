import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Walk:
    """A corridor: go right to be paid."""

    def reset(self):
        self.at, self.t = 3, 0
        return self.state()

    def state(self):
        s = torch.zeros(7)
        s[self.at] = 1.0
        return s

    def step(self, action):
        self.at = max(0, min(6, self.at + (1 if action else -1)))
        self.t += 1
        done = self.at in (0, 6) or self.t > 20
        return self.state(), 1.0 if self.at == 6 else -0.1, done


policy = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 2), nn.Softmax(dim=-1))
optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
env = Walk()
for episode in range(60):
    state, done = env.reset(), False
    log_probs, rewards = [], []
    while not done:
        dist = Categorical(policy(state))
        action = dist.sample()
        log_probs.append(dist.log_prob(action))
        state, reward, done = env.step(action.item())
        rewards.append(reward)
    returns, g = [], 0.0
    for r in reversed(rewards):
        g = r + 0.99 * g
        returns.insert(0, g)
    returns = torch.tensor(returns)
    if len(returns) > 1:
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    loss = -(torch.stack(log_probs) * returns).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 10 == 0:
        print(f"Episode {episode}\treward: {sum(rewards):.2f}")
