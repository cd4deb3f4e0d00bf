"""Faults that are planted in the programs of ``programs/``, and changes after which they are as healthy as before.

A fault is a name, a program, texts that are replaced, and the causes that name it rightly.
"""

from __future__ import annotations

from typing import NamedTuple


class Planted(NamedTuple):
    """One program with one change."""

    name: str
    base: str
    edits: tuple[tuple[str, str], ...]
    causes: tuple[str, ...] = ()
    """Right answers; none for a healthy program."""


NOT_FINITE_FORMULA = ("loss-formula-singularity", "naive-exp", "where-nan-branch")
STEP = "    optimizer.step()\n"

FAULTS = (
    # --- not finite: a formula at its edge
    Planted("sqrt-of-zero", "triplet", ((".add(1e-9).sqrt()", ".sqrt()"), ("embed(centers[c] + torch.randn(48, 10))\n    negative", "anchor.clone()\n    negative")), NOT_FINITE_FORMULA),
    Planted("norm-at-zero", "triplet", (("((a - b) ** 2).sum(dim=1).add(1e-9).sqrt()", "(a - b).pow(2).sum(1) ** 0.5"), ("embed(centers[c] + torch.randn(48, 10))\n    negative", "anchor * 1.0\n    negative")), NOT_FINITE_FORMULA),
    Planted("log-of-zero", "clf_loader", (("loss = criterion(output, target)", "probs = F.softmax(output * 60, dim=1)\n        loss = -torch.log(probs[torch.arange(len(target)), target]).mean()"),), (*NOT_FINITE_FORMULA, "softmax-before-cross-entropy")),
    Planted("entropy-p-log-p", "gcn", (("loss = F.cross_entropy(out[train_mask], y[train_mask])", "p = F.softmax(out * 40, dim=1)\n    loss = F.cross_entropy(out[train_mask], y[train_mask]) - 0.1 * (p * torch.log(p)).sum(1).mean()"),), NOT_FINITE_FORMULA),
    Planted("exp-overflow", "diffusion", (("loss = ((pred - noise) ** 2).mean()", "loss = torch.log(torch.exp(((pred - noise) ** 2).sum(1) * 60).mean())"),), ("naive-exp", "loss-formula-singularity")),
    Planted("softmax-by-hand", "clf_loader", (("loss = criterion(output, target)", "e = torch.exp(output * 90)\n        p = e / e.sum(1, keepdim=True)\n        loss = F.nll_loss(torch.log(p + 1e-12), target)"),), ("naive-exp",)),
    Planted("empty-mean", "seq2seq", (("if not (tgt[:, t + 1:] != PAD).any():\n            break\n        ", ""), ("lengths = torch.randint(2, 7, (n,))", "lengths = torch.randint(2, 5, (n,))")), ("all-labels-masked", "empty-batch")),
    Planted("divide-by-count", "segment", (("return 1 - (2 * inter + eps) / (p.sum() + target.sum() + eps)", "picked = target * (p > 2)\n    return 1 - (p * picked).sum() / picked.sum()"),), ("loss-formula-singularity", "all-labels-masked")),
    Planted("std-of-one", "reinforce", (("if len(returns) > 1:\n        returns", "if True:\n        returns"), ("self.at, self.t = 3, 0", "self.at, self.t = 5, 0")), ("loss-formula-singularity", "norm-eps", "constant-feature")),
    Planted("acos-edge", "contrastive", (("logits = a @ b.t() / temperature", "logits = -torch.acos((a @ a.t()).clamp(-1, 1)) / temperature"),), NOT_FINITE_FORMULA),
    Planted("where-branch", "own_optimizer", (("loss = nn.functional.smooth_l1_loss(model(x[idx]), y[idx])", "out = model(x[idx])\n        safe = torch.where(out > 0, torch.sqrt(out), torch.zeros_like(out))\n        loss = nn.functional.smooth_l1_loss(out, y[idx]) + 0.01 * safe.mean()"),), ("where-nan-branch", "loss-formula-singularity")),
    Planted("log-sigma", "mdn", (("torch.nn.functional.softplus(s) + 1e-3", "torch.relu(s)"),), NOT_FINITE_FORMULA),
    Planted("exp-logvar", "vae", (("std = torch.exp(0.5 * logvar)", "std = torch.exp(60 * logvar + 90)"),), ("naive-exp", "loss-formula-singularity", "probability-loss-on-logits")),
    Planted("masked-attention", "char_gpt", (("att = att.masked_fill(self.mask[:T, :T] == 0, float(\"-inf\"))", "att = att.masked_fill(self.mask[:T, :T].t() == self.mask[:T, :T], float(\"-inf\")).masked_fill(self.mask[:T, :T] == 0, float(\"-inf\"))"),), ("attention-fully-masked-row",)),
    Planted("degree-zero", "gcn", ((" + torch.eye(n)", ""), ("< 0.02 + 0.10 * same", "< 0.004 + 0.010 * same")), (*NOT_FINITE_FORMULA, "nan-weights", "bad-data-row")),
    # --- not finite: data
    Planted("nan-row", "scheduled", (("y = x[:, :1] * 2", "x[101, 3] = float(\"nan\")\n    y = x[:, :1] * 2"),), ("bad-data-row",)),
    Planted("inf-row", "lstm_sign", (("target = (", "seqs[77, 2, 1] = float(\"inf\")\ntarget = ("),), ("bad-data-row",)),
    Planted("nan-target", "by_hand", (("w = torch.zeros", "Y[17] = float(\"nan\")\nw = torch.zeros"),), ("bad-data-row", "nan-weights")),
    Planted("zero-std-column", "clf_loader", (("mean, std = inputs.mean(0), inputs.std(0)", "inputs[:, 3] = 1.0\nmean, std = inputs.mean(0), inputs.std(0)"),), ("bad-data-row", "constant-feature")),
    # --- not finite: too high a rate
    Planted("rate-10-sgd", "mlp_plain", (("lr=0.2", "lr=30"), ("nn.Tanh()", "nn.ReLU()")), ("lr-too-high",)),
    Planted("rate-by-hand", "by_hand", (("lr = 0.1", "lr = 2.5"),), ("lr-too-high", "exploding-gradient", "loss-diverging")),
    Planted("rate-cnn", "cnn_main", (("default=0.05", "default=40.0"),), ("lr-too-high", "dead-units")),
    Planted("rate-trainer", "scheduled", (("\"lr\": 1e-2", "\"lr\": 30.0"),), ("lr-too-high", "dead-units", "loss-diverging")),
    Planted("rate-lbfgs", "lbfgs", (("lr=0.5", "lr=500.0"),), ("lr-too-high", "loss-diverging", "exploding-gradient")),
    Planted("rate-accumulate", "accumulate", (("lr=0.3", "lr=300.0"),), ("lr-too-high", "loss-diverging")),
    Planted("adam-eps-zero", "seq2seq", (("lr=5e-3)", "lr=5e-3, eps=0.0)"),), ("adam-eps-underflow",)),
    Planted("gan-log", "gan", (("nn.Linear(32, 1), nn.Sigmoid())", "nn.Linear(32, 1), nn.Sigmoid())\nD[2].weight.data *= 300"), ("errD_real = criterion(output, label)", "errD_real = -torch.log(output).mean()"), ("errG = criterion(output, label)", "errG = torch.log(1 - output).mean()")), NOT_FINITE_FORMULA),
    # --- order of the three lines
    Planted("no-zero-grad-plain", "mlp_plain", (("    optimizer.zero_grad()\n", ""),), ("no-zero-grad",)),
    Planted("no-zero-grad-function", "clf_loader", (("        optimizer.zero_grad()\n", ""),), ("no-zero-grad",)),
    Planted("no-zero-grad-trainer", "tabular_trainer", (("        self.optimizer.zero_grad()\n", ""),), ("no-zero-grad",)),
    Planted("zero-grad-once", "vae", (("        optimizer.zero_grad()\n", ""), ("    train_loss = 0\n", "    train_loss = 0\n    optimizer.zero_grad()\n")), ("no-zero-grad",)),
    Planted("zero-grad-by-hand", "by_hand", (("        w.grad.zero_()\n        b.grad.zero_()\n", ""),), ("no-zero-grad",)),
    Planted("zero-before-step", "lstm_sign", (("        opt.zero_grad()\n", ""), ("        opt.step()", "        opt.zero_grad()\n        opt.step()")), ("cleared-before-step",)),
    Planted("zero-before-step-trainer", "tabular_trainer", (("        loss.backward()\n", "        loss.backward()\n        self.optimizer.zero_grad()\n"),), ("cleared-before-step",)),
    Planted("step-before-backward", "diffusion", (("    loss.backward()\n    opt.step()\n", "    opt.step()\n    loss.backward()\n"),), ("cleared-before-step",)),
    Planted("two-steps", "scheduled", (("            optimizer.step()\n", "            optimizer.step()\n            optimizer.step()\n"),), ("double-step",)),
    Planted("accumulation-undivided", "accumulate", (("        loss = loss / accumulation_steps\n", ""), (" * accumulation_steps:", ":")), ("accumulation-unscaled",)),
    # --- what the optimizer holds
    Planted("optimizer-of-old-model", "clf_loader", (("optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\n", "optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)\nmodel = Net().to(device)\n"),), ("params-not-in-optimizer",)),
    Planted("decoder-only", "seq2seq", (("params = list(encoder.parameters()) + list(decoder.parameters())", "params = list(decoder.parameters())"),), ("params-not-in-optimizer",)),
    Planted("head-only", "lstm_sign", (("torch.optim.Adam(model.parameters(), lr=0.01)", "torch.optim.Adam(model.head.parameters(), lr=0.01)"),), ("params-not-in-optimizer",)),
    Planted("list-of-layers", "flow", (("layers = nn.ModuleList([Coupling(i % 2) for i in range(4)])\nopt = torch.optim.Adam(layers.parameters(), lr=3e-3)", "layers = [Coupling(i % 2) for i in range(4)]\nopt = torch.optim.Adam(layers[0].parameters(), lr=3e-3)"),), ("params-not-in-optimizer", "unregistered-module")),
    Planted("deepcopied-model", "tabular_trainer", (("        self.criterion = nn", "        import copy\n        self.model = copy.deepcopy(model)\n        self.criterion = nn"),), ("params-not-in-optimizer",)),
    Planted("all-frozen", "transfer", (("head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))\nmodel = nn.Sequential(backbone, head)\noptimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, model.parameters()), lr=5e-3)", "head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))\nmodel = nn.Sequential(backbone, head)\nfor p in model.parameters():\n    p.requires_grad = False\nhead[2].bias.requires_grad = True\noptimizer = torch.optim.Adam(head[0].parameters(), lr=5e-3)"),), ("params-frozen", "params-not-in-optimizer")),
    Planted("generator-not-held", "gan", (("torch.optim.Adam(G.parameters()", "torch.optim.Adam(D.parameters()"),), ("params-not-in-optimizer",)),
    # --- cut graphs
    Planted("loss-rebuilt", "scheduled", (("loss = loss_fn(pred, yb)\n", "loss = loss_fn(pred, yb)\n        if optimizer is not None:\n            loss = torch.tensor(loss.item(), requires_grad=True)\n"),), ("detached-loss",)),
    Planted("output-data", "cnn_main", (("loss = F.nll_loss(output, target)\n        loss.backward", "loss = F.nll_loss(output.data, target).requires_grad_()\n        loss.backward"),), ("detached-loss",)),
    Planted("loss-item", "clf_loader", (("loss = criterion(output, target)\n        loss.backward()", "loss = torch.tensor(criterion(output, target).item())\n        loss.backward()"),), ("detached-loss",)),
    Planted("no-grad-training", "lstm_sign", (("        logits = model(xb)\n", "        with torch.no_grad():\n            logits = model(xb)\n"),), ("detached-loss", "wrong-mode")),
    Planted("encoder-detached", "seq2seq", (("    _, hidden = encoder(src)\n", "    _, hidden = encoder(src)\n    hidden = hidden.detach()\n"),), ("detached-loss", "unused-parameters")),
    Planted("argmax-loss", "distill", (("loss = alpha * soft + (1 - alpha) * F.cross_entropy(s_logits, yb)", "loss = (s_logits.argmax(1).float() - yb.float()).abs().mean().requires_grad_()"),), ("detached-loss",)),
    # --- what a loss is given
    Planted("softmax-twice", "clf_loader", (("return self.fc2(x)", "return F.softmax(self.fc2(x), dim=1)"),), ("softmax-before-cross-entropy",)),
    Planted("softmax-layer", "transfer", (("nn.Linear(32, 2))\nmodel", "nn.Linear(32, 2), nn.Softmax(dim=1))\nmodel"),), ("softmax-before-cross-entropy",)),
    Planted("softmax-gpt", "char_gpt", (("loss = F.cross_entropy(logits.view", "logits = logits.softmax(-1)\n            loss = F.cross_entropy(logits.view"),), ("softmax-before-cross-entropy",)),
    Planted("sigmoid-twice", "lstm_sign", (("return self.head(h[-1])", "return torch.sigmoid(self.head(h[-1]))"),), ("softmax-before-cross-entropy",)),
    Planted("sigmoid-twice-trainer", "tabular_trainer", (("num], dim=1)).squeeze(1)", "num], dim=1)).squeeze(1).sigmoid()"),), ("softmax-before-cross-entropy",)),
    Planted("nll-on-logits", "cnn_main", (("return F.log_softmax(self.fc(x), dim=1)", "return self.fc(x)"),), ("probability-loss-on-logits",)),
    Planted("bce-on-logits", "gan", (("nn.Linear(32, 1), nn.Sigmoid())", "nn.Linear(32, 1))"),), ("probability-loss-on-logits",)),
    Planted("softmax-axis", "cnn_main", (("F.log_softmax(self.fc(x), dim=1)", "F.log_softmax(self.fc(x), dim=0)"),), ("softmax-axis", "probability-loss-on-logits")),
    Planted("mse-broadcast", "scheduled", (("y = x[:, :1] * 2 + torch.tanh(x[:, 1:2])", "y = x[:, 0] * 2 + torch.tanh(x[:, 1])"),), ("loss-broadcast",)),
    Planted("difference-broadcast", "by_hand", (("true_w = torch.tensor([[1.5], [-2.0], [0.7]])\nY = X @ true_w + 0.3 + 0.01 * torch.randn(100, 1)", "true_w = torch.tensor([1.5, -2.0, 0.7])\nY = X @ true_w + 0.3 + 0.01 * torch.randn(100)"),), ("loss-broadcast",)),
    Planted("dqn-broadcast", "dqn", (("F.smooth_l1_loss(q, expected.unsqueeze(1))", "F.smooth_l1_loss(q, expected)"),), ("loss-broadcast",)),
    Planted("negative-loss", "mlp_plain", (("loss = loss_func(prediction, y)", "loss = -loss_func(prediction, y)"),), ("flipped-sign", "lr-too-high", "loss-diverging")),
    Planted("negative-ce", "clf_loader", (("        loss.backward()", "        (-loss).backward()"),), ("flipped-sign",)),
    Planted("maximize", "scheduled", (("lr=cfg[\"lr\"])", "lr=cfg[\"lr\"], maximize=True)"),), ("flipped-sign",)),
    Planted("causal-leak", "char_gpt", (("att = att.masked_fill(self.mask[:T, :T] == 0, float(\"-inf\"))\n        ", ""),), ("causal-leak",)),
    # --- modes
    Planted("eval-left-on", "clf_loader", (("    model.train()\n    running", "    running"),), ("wrong-mode",)),
    Planted("eval-from-start", "segment", (("    net.train()\n", "    net.eval()\n"),), ("wrong-mode",)),
    Planted("no-eval", "clf_loader", (("    model.eval()\n", ""),), ("wrong-mode",)),
    Planted("no-eval-cnn", "cnn_main", (("    model.eval()\n", ""),), ("wrong-mode",)),
    Planted("no-eval-trainer", "tabular_trainer", (("        self.model.eval()\n", ""),), ("wrong-mode",)),
    Planted("no-eval-segment", "segment", (("    net.eval()\n", ""),), ("wrong-mode",)),
    # --- schedules and rates
    Planted("steplr-each-batch", "cnn_main", (("        scheduler.step()\n", ""), ("        optimizer.step()\n", "        optimizer.step()\n        args.scheduler.step()\n"), ("    for epoch in range(1, args", "    args.scheduler = scheduler\n    for epoch in range(1, args")), ("lr-schedule-bug",)),
    Planted("cosine-each-batch", "scheduled", (("            optimizer.step()\n", "            optimizer.step()\n            optimizer.schedule.step()\n"), ("            scheduler.step()\n", ""), ("    best = float", "    optimizer.schedule = scheduler\n    best = float")), ("lr-schedule-bug",)),
    Planted("exponential-each-batch", "lstm_sign", (("bce = nn", "sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.5)\nbce = nn"), ("        opt.step()\n", "        opt.step()\n        sched.step()\n")), ("lr-schedule-bug",)),
    Planted("onecycle-each-epoch", "bf16_amp", (("        sched.step()\n        step += 1\n", "        step += 1\n    sched.step()\n"),), ("lr-schedule-bug",)),
    Planted("rate-zero", "diffusion", (("lr=2e-3", "lr=0.0"),), ("lr-zero",)),
    Planted("rate-too-low", "clf_loader", (("lr=1e-3", "lr=1e-9"),), ("lr-too-low",)),
    Planted("rate-too-low-sgd", "mlp_plain", (("lr=0.2", "lr=1e-8"),), ("lr-too-low",)),
    Planted("rate-too-high-finite", "lstm_sign", (("lr=0.01", "lr=20.0"),), ("lr-too-high", "dead-units", "loss-diverging")),
    Planted("backward-not-called", "diffusion", (("    loss.backward()\n", "    loss.backward\n"),), ("step-missing",)),
    Planted("step-not-called", "scheduled", (("            optimizer.step()\n", "            optimizer.step\n"),), ("step-missing",)),
    Planted("time-first", "lstm_sign", (("nn.LSTM(3, hidden, batch_first=True)", "nn.LSTM(3, hidden)"), ("h[-1]", "out[:, -1]")), ("samples-leak",)),
    Planted("one-class", "clf_loader", (("self.fc2 = nn.Linear(64, 4)", "self.fc2 = nn.Linear(64, 1)"), ("dataset = Tensor", "labels = labels * 0\ndataset = Tensor")), ("zero-gradient",)),
    Planted("labels-not-shifted", "char_gpt", (("d[i + 1:i + block_size + 1]", "d[i:i + block_size]"),), ("causal-leak",)),
    Planted("softmax-over-batch", "transfer", (("nn.Linear(32, 2))\nmodel", "nn.Linear(32, 2), nn.Softmax(dim=0))\nmodel"),), ("softmax-axis", "softmax-before-cross-entropy")),
    # --- data
    Planted("labels-own-order", "clf_loader", (("dataset = Tensor", "labels = labels[torch.randperm(640)]\ninputs = inputs[torch.randperm(640)]\ndataset = Tensor"),), ("labels-shuffled",)),
    Planted("labels-shuffled-random", "transfer", (("pre_head = nn", "perm_x = torch.randperm(300)\nperm_y = torch.randperm(300)\nx = x[perm_x]\ny = y[perm_y]\npre_head = nn"),), ("labels-shuffled",)),
    Planted("two-loaders", "accumulate", (("loader = DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True, drop_last=True)", "lx = DataLoader(X, batch_size=16, shuffle=True)\nly = DataLoader(Y, batch_size=16, shuffle=True)"), ("enumerate(loader)", "enumerate(zip(lx, ly))")), ("labels-shuffled",)),
    Planted("one-batch", "accumulate", (("for i, (xb, yb) in enumerate(loader):", "for i in range(24):\n        xb, yb = next(iter(loader))"), ("shuffle=True", "shuffle=False")), ("duplicate-rows",)),
    Planted("one-slice", "distill", (("xb, yb = data[i:i + 64], hard[i:i + 64]", "xb, yb = data[0:64], hard[0:64]"),), ("duplicate-rows",)),
    Planted("sorted-classes", "clf_loader", (("train_set, val_set = random_split(dataset, [512, 128])\ntrain_loader = DataLoader(train_set, batch_size=32, shuffle=True)", "train_set, val_set = dataset, dataset\ntrain_loader = DataLoader(train_set, batch_size=32)"),), ("unshuffled",)),
    Planted("val-not-normalized", "cnn_main", (("Shapes(128, 1, normalize)", "Shapes(128, 1)"),), ("splits-scaled-differently",)),
    Planted("val-raw", "scheduled", (("    train = DataLoader", "    x[:384] = (x[:384] - 1) / 4\n    train = DataLoader"),), ("splits-scaled-differently",)),
    Planted("val-bytes", "segment", (("val_x, val_y = make(16)", "val_x, val_y = make(16)\nval_x = val_x * 255"),), ("splits-scaled-differently",)),
    Planted("unscaled-input", "lstm_sign", (("        logits = model(xb)", "        logits = model(xb * 3000 + 20000)"),), ("unscaled-input", "vanishing-gradient", "cannot-overfit-batch", "dead-units")),
    # --- metrics
    Planted("loss-never-reset", "clf_loader", (("    running_loss = 0.0\n", "    global running_loss\n"), ("def train(epoch)", "running_loss = 0.0\n\n\ndef train(epoch)")), ("metric-not-reset",)),
    Planted("loss-never-reset-vae", "vae", (("    train_loss = 0\n", ""), ("for epoch in range(1, 7):\n", "train_loss = 0\nfor epoch in range(1, 7):\n")), ("metric-not-reset",)),
    Planted("accuracy-broadcast", "lstm_sign", (("hits += ((logits > 0).float() == yb).sum().item()", "hits += ((logits > 0).float() == yb.squeeze(1)).sum().item()"),), ("metric-impossible",)),
    Planted("accuracy-by-batches", "clf_loader", (("total += target.size(0)", "total += 1"),), ("metric-impossible",)),
    Planted("correct-never-reset", "tabular_trainer", (("right = n = 0", "n = 0\n        right = getattr(self, 'right', 0)"), ("        return right / n", "        self.right = right\n        return right / n")), ("metric-impossible", "metric-not-reset")),
    # --- init
    Planted("zero-init", "scheduled", (("    optimizer = torch.optim.Adam", "    for p in model.parameters():\n        nn.init.zeros_(p)\n    optimizer = torch.optim.Adam"),), ("bad-init", "zero-gradient", "dead-units", "input-ignored", "cannot-overfit-batch")),
    Planted("huge-init", "clf_loader", (("criterion = nn", "nn.init.normal_(model.fc2.weight, std=80.0)\ncriterion = nn"), ("lr=1e-3", "lr=1e-4")), ("bad-init", "bad-initial-loss", "exploding-gradient")),
    Planted("dead-relu", "mlp_plain", (("nn.Tanh()", "nn.ReLU()"), ("optimizer = torch", "nn.init.constant_(net[0].bias, -10.0)\noptimizer = torch")), ("dead-units", "zero-gradient", "input-ignored", "cannot-overfit-batch")),
)  # fmt: skip

HEALTHY = (
    Planted("clipped-rate-20", "mlp_plain", (("lr=0.2", "lr=20.0"), ("    optimizer.step()", "    nn.utils.clip_grad_norm_(net.parameters(), 0.005)\n    optimizer.step()"))),
    Planted("huge-scale", "scheduled", (("y = x[:, :1] * 2 + torch.tanh(x[:, 1:2])", "y = (x[:, :1] * 2 + torch.tanh(x[:, 1:2])) * 50"), ("\"lr\": 1e-2", "\"lr\": 5e-2"))),
    Planted("zero-grad-to-none", "vae", (("        optimizer.zero_grad()\n", "        for p in model.parameters():\n            p.grad = None\n"),)),
    Planted("module-zero-grad", "clf_loader", (("        optimizer.zero_grad()", "        model.zero_grad()"),)),
    Planted("zero-after-step", "lstm_sign", (("        opt.zero_grad()\n", ""), ("        opt.step()\n", "        opt.step()\n        opt.zero_grad()\n"))),
    Planted("eval-without-layers", "diffusion", (("for step in range(150):\n", "model.eval()\nfor step in range(150):\n"),)),
    Planted("frozen-batchnorm", "segment", (("    net.train()\n", "    net.train()\n    net.down[1].eval()\n"),)),
    Planted("train-on-all", "gcn", (("out[train_mask], y[train_mask]", "out, y"),)),
    Planted("sum-reduction", "cnn_main", (("loss = F.nll_loss(output, target)\n        loss.backward", "loss = F.nll_loss(output, target, reduction=\"sum\") / len(target)\n        loss.backward"),)),
    Planted("percent", "clf_loader", (("return correct / total", "return 100 * correct / total"),)),
    Planted("cumulative-mean", "vae", (("    train_loss = 0\n", ""), ("for epoch in range(1, 7):\n", "train_loss = 0\nfor epoch in range(1, 7):\n"), ("train_loss / len(loader.dataset)", "train_loss / len(loader.dataset) / epoch"))),
    Planted("sum-per-epoch", "clf_loader", (("return running_loss / len(train_loader)", "return running_loss"),)),
    Planted("n-critic", "gan", (("    G.zero_grad()\n", "    if i % 3:\n        continue\n    G.zero_grad()\n"),)),
    Planted("gan-minimax", "gan", (("label.fill_(1.0)\n    output = D(fake).view(-1)\n    errG = criterion(output, label)", "label.fill_(0.0)\n    output = D(fake).view(-1)\n    errG = -criterion(output, label)"),)),
    Planted("exponential-slow", "lstm_sign", (("bce = nn", "sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.995)\nbce = nn"), ("        opt.step()\n", "        opt.step()\n        sched.step()\n"))),
    Planted("cosine-per-batch", "lstm_sign", (("bce = nn", "sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=48)\nbce = nn"), ("        opt.step()\n", "        opt.step()\n        sched.step()\n"))),
    Planted("plateau", "scheduled", (("CosineAnnealingLR(optimizer, T_max=cfg[\"epochs\"])", "ReduceLROnPlateau(optimizer, patience=1)"), ("scheduler.step()", "scheduler.step(valid_loss)"))),
    Planted("warm-restarts", "scheduled", (("CosineAnnealingLR(optimizer, T_max=cfg[\"epochs\"])", "CosineAnnealingWarmRestarts(optimizer, T_0=2)"),)),
    Planted("probing-loaded", "transfer", (("for p in backbone.parameters():\n    p.requires_grad = False\n", ""), ("filter(lambda p: p.requires_grad, model.parameters())", "head.parameters()"))),
    Planted("image-of-a-network", "mlp_plain", (("optimizer = torch.optim.SGD(net.parameters(), lr=0.2)", "image = torch.randn(200, 1, requires_grad=True)\noptimizer = torch.optim.Adam([image], lr=0.1)"), ("prediction = net(x)", "prediction = net(image)"))),
    Planted("two-optimizers-one-loss", "seq2seq", (("optimizer = torch.optim.Adam(params, lr=5e-3)", "enc_opt = torch.optim.Adam(encoder.parameters(), lr=5e-3)\noptimizer = torch.optim.Adam(decoder.parameters(), lr=5e-3)"), ("    optimizer.zero_grad()\n", "    optimizer.zero_grad()\n    enc_opt.zero_grad()\n"), ("    optimizer.step()\n", "    optimizer.step()\n    enc_opt.step()\n"))),
    Planted("overfit-full-batch", "gcn", (("lr=0.01", "lr=0.05"),)),
    Planted("augmented", "clf_loader", (("        output = model(data)\n        loss", "        data = data + 0.1 * torch.randn_like(data)\n        output = model(data)\n        loss"),)),
    Planted("label-smoothing", "clf_loader", (("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(label_smoothing=0.1)"),)),
    Planted("noisy-labels", "clf_loader", (("dataset = Tensor", "labels[::4] = torch.randint(0, 4, (160,))\ndataset = Tensor"),)),
    Planted("one-permutation", "clf_loader", (("dataset = Tensor", "order = torch.randperm(640)\nlabels = labels[order]\ninputs = inputs[order]\ndataset = Tensor"),)),
    Planted("random-labels", "clf_loader", (("dataset = Tensor", "labels = torch.randint(0, 4, (640,))\ndataset = Tensor"),)),
    Planted("scripted-exit", "scheduled", (("if __name__ == \"__main__\":\n    main()", "if __name__ == \"__main__\":\n    import sys\n    main()\n    sys.exit(0)"),)),
    Planted("workers", "clf_loader", (("batch_size=32, shuffle=True)", "batch_size=32, shuffle=True, num_workers=1)"),)),
    Planted("pairwise-distances", "contrastive", (("logits = a @ b.t() / temperature", "logits = -((a[:, None] - b[None]) ** 2).sum(-1) / temperature"),)),
)  # fmt: skip
