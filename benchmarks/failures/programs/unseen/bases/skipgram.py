import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(7)
words = ("king queen man woman royal crown dog cat puppy kitten pet fur car truck road wheel drive engine").split()
groups = [words[:6], words[6:12], words[12:]]
vocab = {w: i for i, w in enumerate(words)}
corpus = []
for _ in range(400):
    g = groups[torch.randint(0, 3, (1,)).item()]
    corpus.append([vocab[g[i]] for i in torch.randint(0, 6, (5,)).tolist()])

pairs = [(s[i], s[j]) for s in corpus for i in range(5) for j in range(5) if i != j]
pairs = torch.tensor(pairs)
pairs = pairs[torch.randperm(len(pairs))]

dim = 10
emb_in = nn.Embedding(len(vocab), dim)
emb_out = nn.Embedding(len(vocab), dim)
optim = torch.optim.Adagrad(list(emb_in.parameters()) + list(emb_out.parameters()), lr=0.2)

running, n = 0.0, 0
for step, batch in enumerate(pairs.split(100)):
    center, context = batch[:, 0], batch[:, 1]
    negative = torch.randint(0, len(vocab), (len(batch), 4))
    c = emb_in(center)
    pos = (c * emb_out(context)).sum(-1)
    neg = torch.bmm(emb_out(negative), c.unsqueeze(-1)).squeeze(-1)
    loss = -F.logsigmoid(pos).mean() - F.logsigmoid(-neg).sum(-1).mean()
    optim.zero_grad()
    loss.backward()
    optim.step()
    running += loss.item()
    n += 1
    if (step + 1) % 20 == 0:
        print(f"step {step + 1} loss {running / n:.4f}")
        running, n = 0.0, 0
