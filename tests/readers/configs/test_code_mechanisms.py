"""Facts about code: each mechanism in several spellings, and beside it the healthy programs that resemble it."""

import ast

import pytest

from stayfinite.readers.configs import faults_in_lines
from stayfinite.readers.configs.course.uncalled import course_of_parts
from stayfinite.readers.configs.judges import faults_of_parts

HEAD = """
class Net(nn.Module):
    def __init__(self, width=64, classes={classes}):
        super().__init__()
        self.body = nn.Linear(20, width)
        self.head = nn.Linear(width, classes)
    def forward(self, x):
        h = torch.relu(self.body(x))
        return {returned}
model = Net().to(device)
"""
KERAS = "model = Sequential([Dense(64, activation='relu'), Dense({units}, activation='{function}')])\n"
KERAS += "model.compile(optimizer='adam', loss='{loss}')\n"
CROSS = (
    "criterion = nn.CrossEntropyLoss()\nfor x, y in loader:\n    loss = criterion(model(x), y)\n    loss.backward()\n"
)
METRIC = """
def compute_metrics(pred):
    logits, labels = pred
    return {{"accuracy": ({answer} == labels).mean()}}
model = AutoModelForSequenceClassification.from_pretrained(name, num_labels={labels})
trainer = Trainer(model=model, compute_metrics=compute_metrics)
"""
BATCHES = """
for ids in loader:
    {before}
    logits = model({asked})
    loss = F.cross_entropy(logits{cut}.reshape(-1, V), {target}.reshape(-1))
    loss.backward()
"""
OWN = """
class Small(nn.Module):
    def forward(self, input_ids, labels=None):
        logits = self.head(self.body(input_ids))
        {shift}
        return F.cross_entropy(logits.view(-1, self.size), labels.view(-1)), logits
def collate(rows):
    ids = torch.stack(rows)
    return {{"input_ids": ids, "labels": {labels}}}
"""
WINDOWS = """
def get_batch(data, T):
    i = torch.randint(len(data) - T, (1,))
    x = data[i:i + T]
    y = data[{start}:{start} + T]
    return x, y
x, y = get_batch(data, T)
loss = F.cross_entropy(net(x).view(-1, V), y.view(-1))
"""
WEIGHTS = "w = tf.Variable(tf.random_normal([64, 1]))\npred = tf.matmul(h, w) + b\n"
GPT = "model = GPT(n_layer=12, n_embd=768)\n"
GIVEN = """
class Small(nn.Module):
    def __init__(self):
        self.table = nn.Embedding(64, 32)
    def forward(self, ids, targets):
        logits = self.head(self.table({looked_up}))
        return F.cross_entropy(logits.view(-1, 64), targets.view(-1))
"""
LORA = """
from peft import LoraConfig, get_peft_model
config = LoraConfig(r=8)
model = AutoModelForCausalLM.from_pretrained(name)
{use}
trainer = Trainer(model=model, args=args{more})
trainer.train()
"""
TRL = """
model = AutoModelForCausalLM.from_pretrained(name, {quantized})
model = get_peft_model(model, LoraConfig(r=8))
trainer = SFTTrainer(model=model, args=args)
trainer.train()
"""
DEEP = "net = FullyConnectedNet([{width}] * {layers}, {name}={std})\n"
LINEAR = "body = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))\n"
BIASES = """
class Net(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(3, 64, 3)
        self.gn1 = nn.GroupNorm(8, 64)
def weight_init(net):
    for name, p in net.named_parameters():
        if {test}:
            {body}
"""
FOUND = {
    "softmax-axis": [
        HEAD.format(classes=1, returned="torch.softmax(self.head(h), dim=-1)"),
        HEAD.format(classes=1, returned="F.log_softmax(self.head(h), dim=1)"),
        HEAD.format(classes=1, returned="self.head(h)") + CROSS,
        HEAD.format(classes=10, returned="self.head(h)").replace("Net()", "Net(classes=1)") + CROSS,
        "model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1), nn.Softmax(dim=1))\n",
        "model.add(Dense(64))\nmodel.add(Dense(1))\nmodel.add(Activation('softmax'))\n",
        KERAS.format(units=1, function="softmax", loss="binary_crossentropy"),
        KERAS.format(units=1, function="sigmoid", loss="categorical_crossentropy"),
        HEAD.format(classes=1, returned="{'logits': self.head(h)}").replace("Net()", "AutoModel.from_pretrained(n, "
            "num_labels=1)") + "out = model(**batch)\nloss = F.cross_entropy(out['logits'], y)\n",
        WEIGHTS + "loss = tf.nn.softmax_cross_entropy_with_logits(logits=pred, labels=y)\nright = tf.argmax(pred, 1)\n",
        "logits = tf.layers.dense(h, 1)\nloss = tf.nn.softmax_cross_entropy_with_logits(labels=y, logits=logits)\n",
        "model.add(layer_dense(units=1, activation='softmax'))\n",
        "x = Dense(8)(x)\nout = Dense(1)(x)\nout = Activation('softmax')(out)\nmodel = Model(x, out)\n",
        "model = resnet18()\nmodel.fc = nn.Linear(512, 1)\n" + CROSS,
        "model = timm.create_model('vit', num_classes=1)\n" + CROSS,
        HEAD.format(classes=1, returned="self.last(self.head(h))").replace("h =", "self.last = nn.Softmax(); h ="),
        HEAD.format(classes=1, returned="self.head(h)").replace(
            "    def forward", "    def training_step(self, batch, place):\n        x, y = batch\n"
            "        return F.cross_entropy(self(x), y)\n    def forward",
        ),
        "clf = EEGClassifier('EEGNetv4', module__n_outputs=1, criterion=nn.CrossEntropyLoss)\n".replace("clf", "c"),
    ],
    "label-out-of-range": [
        KERAS.format(units=1, function="sigmoid", loss="sparse_categorical_crossentropy"),
        KERAS.format(units=1, function="softmax", loss="sparse_categorical_crossentropy"),
        "logits = nn.Dense(1)(x)\nloss = optax.softmax_cross_entropy_with_integer_labels(logits, y)\n",
        "model = nn.Linear(4, 1)\ny = torch.randint(0, 2, (8,))\nloss = F.cross_entropy(model(x), y)\n",
    ],
    "metric-stuck": [
        METRIC.format(answer="np.argmax(logits, axis=-1)", labels=1),
        METRIC.format(answer="logits.argmax(-1)", labels=1),
        HEAD.format(classes=1, returned="self.head(h)") + "out = model(x)\nright = (out.argmax(1) == y).sum()\n",
        HEAD.format(classes=1, returned="self.head(h)") + "_, answer = torch.max(model(x), 1)\n",
        METRIC.format(answer="found.argmax(1)", labels=1).replace("logits, labels = pred", "found = pred.predictions"),
        "out = net(x)\nloss = F.binary_cross_entropy_with_logits(out.squeeze(1), y)\nright = out.argmax(dim=1) == y\n",
        "model = EEGNetv4(n_chans=22, n_outputs=1)\nclf = EEGClassifier(model, criterion=nn.BCEWithLogitsLoss)\n",
    ],
    "target-out-of-step": [
        BATCHES.format(before="", asked="ids", cut="", target="ids"),
        BATCHES.format(before="labels = ids.clone()", asked="ids", cut="", target="labels"),
        BATCHES.format(before="peek = targets", asked="peek", cut="", target="targets"),
        BATCHES.format(before="labels = ids.clone()\n    labels[labels == pad] = -100", asked="ids", cut="",
                       target="labels"),
        OWN.format(shift="", labels="ids.clone()"),
        GIVEN.format(looked_up="targets"),
        WINDOWS.format(start="i"),
        BATCHES.format(before="", asked="batch['input_ids']", cut="", target="batch['input_ids'].to(device)"),
    ],
    "params-frozen": [
        LORA.format(use="", more=""),
        TRL.format(quantized="load_in_4bit=True"),
    ],
    "bad-init": [
        DEEP.format(width=100, layers=5, name="weight_scale", std=0.5),
        LINEAR + "for m in body.modules():\n    nn.init.normal_(m.weight, std=1.0)\n",
        LINEAR + "for m in body.modules():\n    m.weight.data.normal_(0, 1)\n",
        BIASES.format(test="p.dim() == 1", body="p.data.zero_()"),
        BIASES.format(test="len(p.size()) == 1", body="nn.init.zeros_(p)"),
        BIASES.format(test="p.dim() > 1", body="nn.init.xavier_uniform_(p)\n        else:\n            p.data.zero_()"),
        GPT + "if isinstance(m, (nn.Linear, nn.Embedding)):\n    nn.init.normal_(m.weight, std=0.2)\n",
        BIASES.format(test="p.ndim < 2", body="nn.init.constant_(p, 0)"),
    ],
}  # fmt: skip
HEALTHY = [
    HEAD.format(classes=1, returned="torch.sigmoid(self.head(h))") + "loss = F.binary_cross_entropy(model(x), y)\n",
    HEAD.format(classes=10, returned="torch.softmax(self.head(h), dim=-1)"),
    HEAD.format(classes=10, returned="self.head(h)") + CROSS,
    HEAD.format(classes=1, returned="self.head(h)") + "loss = nn.BCEWithLogitsLoss()(model(x), y)\n",
    HEAD.format(classes=1, returned="self.head(h)") + CROSS.replace("nn.Cross", "nn.BCE if one else nn.Cross"),
    KERAS.format(units=1, function="sigmoid", loss="binary_crossentropy"),
    KERAS.format(units=10, function="softmax", loss="sparse_categorical_crossentropy"),
    "model = AutoModelForSequenceClassification.from_pretrained(name, num_labels=1)\nloss = F.mse_loss(out, y)\n",
    "model = fasterrcnn_resnet50_fpn(num_classes=1)\n" + CROSS,
    """
class Attention(nn.Module):
    def __init__(self, width):
        self.score = nn.Linear(width, 1)
    def forward(self, states):
        weights = F.softmax(self.score(torch.tanh(states)), dim=1)
        return (weights * states).sum(dim=1)
""",
    """
class Reader(nn.Module):
    def __init__(self, width):
        self.attend = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 1), nn.Softmax(dim=1))
        self.head = nn.Linear(width, 4)
    def forward(self, states):
        return self.head((self.attend(states) * states).sum(1))
model = Reader(64)
""" + CROSS,
    """
class Unet(nn.Module):
    def __init__(self, n_classes):
        self.n_classes = n_classes
        self.out = nn.Conv2d(64, n_classes, 1)
    def forward(self, x):
        return self.out(x)
net = Unet(n_classes=1)
criterion = nn.CrossEntropyLoss() if net.n_classes > 1 else nn.BCEWithLogitsLoss()
for x, y in loader:
    out = net(x)
    if net.n_classes == 1:
        loss = criterion(out.squeeze(1), y)
    else:
        loss = criterion(out, y) + dice(F.softmax(out, dim=1), y)
""",
    "a = Dense(1, activation='tanh')(h)\na = Flatten()(a)\na = Activation('softmax')(a)\nm = Multiply()([h, a])\n",
    "a = F.softmax(self.linear(h), dim=1)\nself.linear = nn.Linear(64, 1)\nout = (a * h).sum(1)\n",
    "scores = Dense(1)(h)\nweights = tf.nn.softmax(scores, axis=1)\n",
    METRIC.format(answer="np.argmax(logits, axis=-1)", labels=2),
    METRIC.format(answer="(logits.squeeze() > 0)", labels=1),
    HEAD.format(classes=5, returned="self.head(h)") + "right = (model(x).argmax(1) == y).sum()\n",
    "model = EEGNetv4(n_chans=22, n_outputs=2)\nclf = EEGClassifier(model, criterion=nn.CrossEntropyLoss)\n",
    BATCHES.format(before="", asked="ids[:, :-1]", cut="", target="ids[:, 1:]"),
    BATCHES.format(before="", asked="ids", cut="[:, :-1]", target="ids[:, 1:]"),
    BATCHES.format(before="x, y = ids", asked="x", cut="", target="y"),
    BATCHES.format(before="labels = torch.roll(ids, -1, 1)", asked="ids", cut="", target="labels"),
    BATCHES.format(before="labels = ids.clone()\n    ids[chosen] = blank", asked="ids", cut="", target="labels"),
    BATCHES.format(before="masked = mask_tokens(ids)", asked="masked", cut="", target="ids"),
    "x = data[i:i + T]\ny = data[i + 1:i + 1 + T]\nlogits, loss = model(x, y)\n",
    "for ids in loader:\n    out = model(input_ids=ids, labels=ids)\n    out.loss.backward()\n",
    "for x in loader:\n    out = autoencoder(x)\n    loss = F.binary_cross_entropy(out, x)\n",
    BATCHES.format(before="", asked="ids", cut="", target="ids") + "model = TextVAE()\n",
    OWN.format(shift="logits, labels = logits[:, :-1], labels[:, 1:]", labels="ids.clone()"),
    OWN.format(shift="", labels="torch.stack(answers)"),
    GIVEN.format(looked_up="ids"),
    WINDOWS.format(start="i + 1"),
    "logits = tf.layers.dense(h, 1)\nloss = tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits)\n",
    LORA.format(use="", more="").replace("Trainer(", "Trainer(..., "),
    LINEAR + "if isinstance(m, nn.Embedding):\n    nn.init.normal_(m.weight, std=0.5)\n",
    BIASES.format(test="p.dim() > 1", body="nn.init.xavier_uniform_(p)\n        else:\n            p.requires_grad_()"),
    "out = net(x)\nloss = F.binary_cross_entropy_with_logits(out, y.float())\nright = out.argmax(dim=1) == y\n",
    LORA.format(use="model = get_peft_model(model, config)", more=""),
    LORA.format(use="", more=", peft_config=config"),
    LORA.format(use="model.add_adapter(config)", more=""),
    "config = LoraConfig(r=8)\n",
    "def make():\n    config = LoraConfig(r=8)\n    return config\nmodel = wrap(model, make())\nmodel.train()\n",
    TRL.format(quantized="device_map='auto'"),
    DEEP.format(width=100, layers=5, name="weight_scale", std=0.02),
    DEEP.format(width=100, layers=1, name="weight_scale", std=0.5),
    LINEAR + "nn.init.normal_(m.weight, std=0.02)\n",
    LINEAR + "nn.init.normal_(self.embed.weight, std=1.0)\n",
    LINEAR + "nn.init.normal_(norm.weight, mean=1.0, std=1.0)\n",
    LINEAR + "if isinstance(m, nn.Embedding):\n    nn.init.normal_(m.weight)\n",
    LINEAR + "std = 1 / math.sqrt(m.in_features)\nnn.init.normal_(m.weight, std=std)\n",
    BIASES.format(test="name.endswith('bias')", body="p.data.zero_()"),
    BIASES.format(test="p.dim() == 1 and 'bias' in name", body="p.data.zero_()"),
    BIASES.format(test="p.dim() > 1", body="nn.init.xavier_uniform_(p)"),
    BIASES.format(test="p.dim() == 1", body="no_decay.append(p)"),
    BIASES.format(test="p.dim() == 1", body="p.data.zero_()") + "nn.init.ones_(net.gn1.weight)\n",
]  # fmt: skip


def told(code: str, *, whole: bool) -> list[str]:
    """The causes of all faults of a program, or of parts of one."""
    return [each.cause for each in faults_of_parts(course_of_parts(ast.parse(code)), whole=whole)]


@pytest.mark.parametrize(("cause", "code"), [(cause, code) for cause, codes in FOUND.items() for code in codes])
def test_the_mechanism_is_named(cause: str, code: str) -> None:
    assert told(code, whole=True) == [cause]


@pytest.mark.parametrize("code", HEALTHY)
def test_what_resembles_it_is_left_in_peace(code: str) -> None:
    assert told(code, whole=True) == []


EXCERPTS = {
    "self.fc = nn.Linear(128, 1)\nout = self.fc(x)\nreturn F.log_softmax(out, dim=1)\n": "softmax-axis",
    "the last layer is `nn.Linear(512, 1)`, loss = nn.CrossEntropyLoss()(model(x), y)\n": "softmax-axis",
    "final layer Dense(1)\nmodel.compile('adam', loss='sparse_categorical_crossentropy')\n": "label-out-of-range",
    "the last layer is `nn.Linear(512, 2)`, loss = nn.CrossEntropyLoss()(model(x), y)\n": "",
    "final layer Dense(10)\nmodel.compile('adam', loss='sparse_categorical_crossentropy')\n": "",
}


@pytest.mark.parametrize("text", EXCERPTS)
def test_quoted_parts_of_a_program_are_read_together(text: str) -> None:
    assert [each.cause for each in faults_in_lines(text.split("\n"), "notes.txt")] == [EXCERPTS[text]] * bool(
        EXCERPTS[text]
    )


@pytest.mark.parametrize(
    "picked",
    [
        "score = -losses['total']\nif score < best_score:\n    best_score = score\n    save()",
        "if val_loss > best_loss:\n    best_loss = val_loss",
        "if best_acc > acc:\n    best_acc = acc\n    torch.save(model.state_dict(), 'best.pt')",
        "if wer >= self.best_wer:\n    self.save_checkpoint('best.pt')",
    ],
)
def test_a_checkpoint_that_is_picked_by_the_wrong_end_is_told(picked: str) -> None:
    assert told(picked, whole=False) == ["flipped-sign"]


@pytest.mark.parametrize(
    "picked",
    [
        "score = -val_loss\nif score > best_score:\n    best_score = score\n    save()",
        "score = -val_loss\nif score < best_score + delta:\n    counter += 1\nelse:\n    save()",
        "if val_loss > best_loss:\n    patience -= 1",
        "if best_loss > val_loss:\n    best_loss = val_loss",
        "if acc > best_acc:\n    best_acc = acc",
        "if score < best:\n    best = score",
        "if loss_scale > best_acc:\n    best_acc = acc",
    ],
)
def test_a_checkpoint_that_is_picked_by_the_right_end_is_left_alone(picked: str) -> None:
    assert told(picked, whole=False) == []
