import random

import torch
import torch.nn as nn

random.seed(1)
torch.manual_seed(1)
PAD, SOS, V, H = 0, 1, 12, 32


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, H, padding_idx=PAD)
        self.gru = nn.GRU(H, H, batch_first=True)

    def forward(self, src):
        return self.gru(self.emb(src))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, H, padding_idx=PAD)
        self.gru = nn.GRU(H, H, batch_first=True)
        self.out = nn.Linear(H, V)

    def forward(self, tok, hidden):
        o, hidden = self.gru(self.emb(tok), hidden)
        return self.out(o), hidden


encoder, decoder = Encoder(), Decoder()
params = list(encoder.parameters()) + list(decoder.parameters())
optimizer = torch.optim.Adam(params, lr=5e-3)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)


def make_batch(n=24):
    lengths = torch.randint(2, 7, (n,))
    src = torch.zeros(n, 6, dtype=torch.long)
    for i, l in enumerate(lengths):
        src[i, :l] = torch.randint(2, V, (int(l),))
    return src, src.clone()


for step in range(80):
    src, tgt = make_batch()
    optimizer.zero_grad()
    _, hidden = encoder(src)
    inp = torch.full((src.size(0), 1), SOS)
    loss = 0
    teacher = random.random() < 0.7
    for t in range(tgt.size(1)):
        out, hidden = decoder(inp, hidden)
        loss = loss + criterion(out[:, 0], tgt[:, t])
        if not (tgt[:, t + 1:] != PAD).any():
            break
        inp = tgt[:, t:t + 1] if teacher else out.argmax(-1)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    if step % 20 == 0:
        print(f"{step}: {loss.item():.3f}")
