"""A softmax on its way into cross entropy: names are followed, and nothing is said where the text cannot tell."""

import ast

import pytest

from stayfinite.readers.configs.course.uncalled import course_of_parts
from stayfinite.readers.configs.judges.losses import probabilities_given

NET = """
class Net(nn.Module):
    def __init__(self):
        self.last = nn.Linear(8, 4)
        self.act = nn.{layer}(dim=1)
    def forward(self, x):
        x = self.last(x)
        return self.act(x)
model = Net().to(device)
"""
CERTAIN = {
    "at once": "F.cross_entropy(torch.softmax(model(x), -1), y)",
    "a method": "F.cross_entropy(model(x).softmax(-1), y)",
    "by keyword": "F.cross_entropy(input=F.softmax(model(x)), target=y)",
    "a layer": "nn.CrossEntropyLoss()(nn.Softmax(1)(model(x)), y)",
    "by name": "p = F.softmax(model(x), 1)\nwith autocast():\n    loss = F.cross_entropy(p, y)",
    "a stack": "net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Softmax(1)))\nF.cross_entropy(net(x), y)",
    "a class": NET.format(layer="Softmax") + "out = model(x)\nloss_fn = nn.CrossEntropyLoss()\nloss_fn(out, y)",
    "in a loop": NET.format(layer="Softmax") + "def f(model):\n    for x in l:\n        F.cross_entropy(model(x), y)",
}
OPEN = {
    "logits": "F.cross_entropy(model(x), y)",
    "log-softmax by that name": NET.format(layer="LogSoftmax") + "F.cross_entropy(model(x), y)",
    "a soft target": "F.cross_entropy(model(x), F.softmax(teacher(x), -1))",
    "set anew": "p = F.softmax(z, 1)\np = z\nF.cross_entropy(p, y)",
    "in one branch only": "p = z\nif late:\n    p = F.softmax(z, 1)\nF.cross_entropy(p, y)",
    "another function's name": "def a():\n    p = F.softmax(z)\ndef b(p):\n    return F.cross_entropy(p, y)",
    "another loss": "criterion = nn.NLLLoss()\ncriterion(F.softmax(z, 1), y)",
    "one of two losses": "c = nn.CrossEntropyLoss() if hard else nn.BCELoss()\nc(F.softmax(z, 1), y)",
    "one of two models": "net = nn.Sequential(nn.Softmax(1))\nnet = build()\nF.cross_entropy(net(x), y)",
    "a function of its own": "def softmax(x):\n    return x\nF.cross_entropy(softmax(x), y)",
    "the logarithm of it": "F.cross_entropy(torch.log(F.softmax(z, 1)), y)",
    "itself": "net = net.to(device)\nF.cross_entropy(net(x), y)",
}


def given(code: str) -> list[ast.expr]:
    return list(probabilities_given(course_of_parts(ast.parse(code))))


@pytest.mark.parametrize("code", CERTAIN.values(), ids=CERTAIN)
def test_what_is_certain_is_found(code):
    assert len(given(code)) == 1


@pytest.mark.parametrize("code", OPEN.values(), ids=OPEN)
def test_what_is_open_or_right_is_left_alone(code):
    assert given(code) == []
