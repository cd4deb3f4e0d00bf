"""Faults and harmless changes that are planted in the programs of ``bases/``."""

from __future__ import annotations

from benchmarks.failures.programs.record import NOT_FINITE_FORMULA, Planted

AUTHOR = "stayfinite, apart from the doctor"

FAULTS = (
    # --- not finite
    Planted("exposure-of-zero", "claims", (("exposure = torch.rand(n) * 0.9 + 0.1", "exposure = torch.rand(n) * 0.9 + 0.1\nexposure[1234] = 0.0"),), ("bad-data-row", *NOT_FINITE_FORMULA)),
    Planted("column-in-cents", "claims", (("claims = torch.poisson", "X[:, 4] = X[:, 4] * 300\nclaims = torch.poisson"), ("beta = torch.tensor([0.3, -0.2, 0.1, 0.0, 0.25, -0.1])", "beta = torch.tensor([0.3, -0.2, 0.1, 0.0, 0.0, -0.1])")), ("unscaled-input", "naive-exp", "lr-too-high")),
    Planted("rating-missing", "recsys", (("train_idx, val_idx = order[:2600], order[2600:]", "train_idx, val_idx = order[:2600], order[2600:]\nratings[train_idx[1700]] = float('nan')"),), ("bad-data-row",)),
    Planted("rmse-as-loss", "recsys", (("loss = F.mse_loss(pred, ratings[idx])", "loss = torch.sqrt((pred - ratings[idx]) ** 2).mean()"), ("ratings = np.clip", "ratings = 0 * np.clip"), ("torch.tensor(3.0)", "torch.tensor(0.0)"), ("nn.init.normal_(self.user.weight, std=0.1)", "nn.init.zeros_(self.user.weight)")), NOT_FINITE_FORMULA),
    Planted("log-by-hand", "skipgram", (("-F.logsigmoid(pos).mean()", "-torch.log(torch.sigmoid(30 * pos)).mean()"),), NOT_FINITE_FORMULA),
    Planted("cosine-of-zero", "verify", (("return F.normalize(self.layers(x), dim=1)", "z = F.relu(self.layers(x) - 3)\n        return z / z.norm(dim=1, keepdim=True)"),), (*NOT_FINITE_FORMULA, "norm-eps")),
    Planted("rate-denoise", "denoise", (("default=3e-3", "default=30.0"),), ("lr-too-high", "loss-diverging", "exploding-gradient")),
    Planted("gap-in-the-series", "forecast", (("cut = 560", "series[300] = float('inf')\ncut = 560"), ("mean, std = series[:cut].mean(), series[:cut].std()", "mean, std = 0.0, 0.75")), ("bad-data-row",)),
    # --- order of calls
    Planted("no-zero-grad-gru", "forecast", (("        optimizer.zero_grad()\n", ""),), ("no-zero-grad",)),
    Planted("no-zero-grad-object", "multitask", (("            self.opt.zero_grad()\n", ""),), ("no-zero-grad",)),
    Planted("zero-after-backward", "verify", (("        optimizer.zero_grad()\n", ""), ("        loss.backward()\n", "        loss.backward()\n        optimizer.zero_grad()\n")), ("cleared-before-step",)),
    Planted("step-left-out", "denoise", (("            optimizer.step()\n", ""),), ("step-missing",)),
    Planted("backward-left-out", "recsys", (("            loss.backward()\n", ""),), ("step-missing",)),
    # --- what the optimizer holds, cut graphs
    Planted("only-one-table", "skipgram", (("list(emb_in.parameters()) + list(emb_out.parameters())", "list(emb_in.parameters())"),), ("params-not-in-optimizer",)),
    Planted("heads-forgotten", "multitask", (("torch.optim.Adam(self.net.parameters()", "torch.optim.Adam(self.net.trunk.parameters()"),), ("params-not-in-optimizer",)),
    Planted("network-built-twice", "denoise", (("    for epoch in range(args.epochs):\n", "    net = Denoiser(12)\n    for epoch in range(args.epochs):\n"),), ("params-not-in-optimizer",)),
    Planted("trunk-detached", "multitask", (("z = self.trunk(x)", "z = self.trunk(x).detach()"),), ("detached-loss", "unused-parameters")),
    Planted("features-as-numpy", "tiny_vit", (("x = self.blocks(x)", "x = torch.from_numpy(self.blocks(x).detach().numpy())"),), ("detached-loss", "unused-parameters")),
    # --- what a loss is given
    Planted("probabilities-to-ce", "tiny_vit", (("return self.head(self.norm(x[:, 0]))", "return self.head(self.norm(x[:, 0])).softmax(dim=-1)"),), ("softmax-before-cross-entropy",)),
    Planted("sigmoid-before-bce", "verify", (("        logits = scale * similarity + shift\n", "        logits = torch.sigmoid(scale * similarity + shift)\n"),), ("softmax-before-cross-entropy",)),
    Planted("prices-broadcast", "multitask", (("self.price(z).squeeze(-1)", "self.price(z)"),), ("loss-broadcast",)),
    Planted("forecast-broadcast", "forecast", (("return self.out(h[:, -1]).squeeze(-1)", "return self.out(h[:, -1])"), ("(model(x) - y).abs() for", "(model(x) - y).abs().mean(1) for")), ("loss-broadcast",)),
    Planted("similarity-wrong-way", "verify", (("logits = scale * similarity + shift\n        loss = criterion(logits, y)", "logits = scale * similarity + shift\n        loss = -criterion(logits, y)"),), ("flipped-sign",)),
    # --- modes, schedules, rates
    Planted("vit-never-evaluates", "tiny_vit", (("    model.eval()\n", ""),), ("wrong-mode",)),
    Planted("eval-stays", "multitask", (("        self.net.train()\n", ""),), ("wrong-mode",)),
    Planted("steplr-in-the-loop", "forecast", (("    scheduler.step()\n    model.eval", "    model.eval"), ("        optimizer.step()\n", "        optimizer.step()\n        scheduler.step()\n")), ("lr-schedule-bug",)),
    Planted("rate-of-nothing", "skipgram", (("lr=0.2", "lr=2e-9"),), ("lr-too-low",)),
    Planted("rate-vit", "tiny_vit", (("max_lr=2e-3", "max_lr=3.0"),), ("lr-too-high", "loss-diverging")),
    # --- data, metrics, init
    Planted("kinds-shuffled", "multitask", (("return x, price, kind", "return x, price[torch.randperm(n)], kind[torch.randperm(n)]"),), ("labels-shuffled",)),
    Planted("test-not-scaled", "tiny_vit", (("test_x, test_y = make_images(96, 1)", "test_x, test_y = make_images(96, 1)\ntest_x = (test_x * 0.35 + 0.25) * 255"),), ("splits-scaled-differently",)),
    Planted("accuracy-of-pairs", "verify", (("    hits, count = 0, 0\n", ""), ("for epoch in range(6):\n", "hits, count = 0, 1\nfor epoch in range(6):\n"), ("            count += len(y)\n", "            count = len(y)\n")), ("metric-impossible", "metric-not-reset")),
    Planted("same-weights", "denoise", (("    optimizer = optim", "    for p in net.parameters():\n        nn.init.constant_(p, 0.0)\n    optimizer = optim"),), ("bad-init", "zero-gradient", "dead-units", "input-ignored")),
    Planted("same-batch", "recsys", (("idx = perm[start:start + batch_size]", "idx = train_idx[:batch_size]"),), ("duplicate-rows",)),
)  # fmt: skip

HEALTHY = (
    Planted("grads-to-none", "forecast", (("        optimizer.zero_grad()\n", "        for p in model.parameters():\n            p.grad = None\n"),)),
    Planted("zero-at-the-end", "denoise", (("            optimizer.zero_grad()\n", ""), ("            optimizer.step()\n", "            optimizer.step()\n            optimizer.zero_grad()\n"))),
    Planted("mean-frozen", "recsys", (("    opt = torch.optim.Adam(model.parameters()", "    model.mu.requires_grad_(False)\n    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad]"),)),
    Planted("accuracy-in-percent", "verify", (("round(hits / count, 4)", "round(100 * hits / count, 2)"),)),
    Planted("sum-of-losses", "skipgram", (("F.logsigmoid(pos).mean() - F.logsigmoid(-neg).sum(-1).mean()", "F.logsigmoid(pos).sum() - F.logsigmoid(-neg).sum()"),)),
    Planted("no-dropout-no-eval", "claims", (("epoch_loss += nll.item() * len(rows)", "epoch_loss += float(nll.detach()) * len(rows)"), ("momentum=0.9", "momentum=0.9, nesterov=True"))),
    Planted("heads-of-their-own-rate", "multitask", (("torch.optim.Adam(self.net.parameters(), lr=lr)", "torch.optim.Adam([{'params': self.net.trunk.parameters()}, {'params': [*self.net.price.parameters(), *self.net.kind.parameters()], 'lr': 3 * lr}], lr=lr)"),)),
    Planted("vit-with-noise", "tiny_vit", (("logits = model(x)\n", "logits = model(x + 0.1 * torch.randn_like(x))\n"),)),
    Planted("stopped-early", "forecast", (("    print(f\"epoch", "    if epoch == 3:\n        break\n    print(f\"epoch"),)),
    Planted("prices-in-thousands", "multitask", (("price = x[:, :4].sum(1)", "price = 20 * x[:, :4].sum(1)"), ("weight=0.5", "weight=50.0"))),
)  # fmt: skip
