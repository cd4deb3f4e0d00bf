"""Whatever a script does to itself, reading it ends, runs nothing, and opens nothing outside of its project."""

import time
from pathlib import Path

import pytest

from stayfinite.readers.configs import read_config

HOSTILE = {
    "a function that calls itself twice": "def f(n):\n    return f(n) + f(n)\nAdam(p, lr=f(1))\n",
    "functions that call each other": "def f(n):\n    return g(n)\ndef g(n):\n    return f(n)\nAdam(p, lr=f(1))\n",
    "calls that double with each name": "".join(
        f"def f{n}(x):\n    return f{n + 1}(x) + f{n + 1}(x)\n" for n in range(40)
    )
    + "Adam(p, lr=f0(1))\n",
    "rows of rows of rows": "a0 = [1] \n"
    + "".join(f"a{n + 1} = [{', '.join([f'a{n}'] * 20)}]\n" for n in range(20))
    + "b = list(a20)\nif x:\n    b = list(a19)\n",
    "a table that holds itself": "a = {}\na['a'] = a\nb = a.copy()\nAdam(p, lr=a['a']['a'])\nc = {**a, 'd': a}\n",
    "an instance that holds itself": "class A:\n    def __init__(self):\n        self.a = self\nx = vars(A())\n",
    "a class that is its own base": "class A: pass\nclass B(A): pass\nA = B\nclass A(A): lr = A.lr\nx = A().lr\n",
    "a text that grows": "s = 'ab'\n" + "s = s + s\n" * 200 + "t = f'{s}{s}'\n",
    "a number that grows": "n = 9\n" + "n = n ** n\n" * 20 + "m = max(n, 9 ** 64)\nk = pow(9, 10 ** 9)\n",
    "a loop in a loop in a loop": "".join(f"{'    ' * n}for a{n} in [1, 2, 3, 4]:\n" for n in range(15))
    + "    " * 15
    + "Adam(p, lr=1)\n",
    "a property that asks itself": "class A:\n    @property\n    def lr(self):\n        return self.lr\nx = A().lr\n",
    "two hundred branches in a row": "".join(f"if a{n}:\n    x{n} = {n}\nelse:\n    y = {n}\n" for n in range(200)),
    "branches in branches": "".join(f"{'    ' * n}if a{n}:\n" for n in range(90)) + "    " * 90 + "lr = 1\n",
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_script_that_leads_nowhere_is_read_in_a_moment(what: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"SGD(p, lr=0.5)\n{HOSTILE[what]}")
    began = time.process_time()
    settings = read_config(tmp_path / "train.py")
    assert time.process_time() - began < 3
    assert settings.find("SGD.lr").value == 0.5


def test_modules_that_import_each_other_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("from a import LR\nimport b\nAdam(p, lr=LR, eps=b.EPS)\n")
    (tmp_path / "a.py").write_text("from b import RATE\nLR = RATE\n")
    (tmp_path / "b.py").write_text("import a\nRATE = 0.5\nEPS = 1e-6\n")
    settings = read_config(tmp_path / "train.py")
    assert (settings.value("Adam.lr"), settings.value("Adam.eps")) == (0.5, 1e-6)


def test_an_imported_module_is_never_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "train.py").write_text("from helper import LR, touch\ntouch()\nAdam(p, lr=LR)\n")
    (tmp_path / "helper.py").write_text(
        f"open({str(mark)!r}, 'w')\nLR = 0.5\ndef touch():\n    __import__('os').system('touch {mark}')\ntouch()\n"
    )
    assert read_config(tmp_path / "train.py").value("Adam.lr") == 0.5
    assert not mark.exists()


def test_a_file_outside_of_the_project_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret.yaml").write_text("lr: 0.5\n")
    (tmp_path / "outside.py").write_text("LR = 0.25\n")
    (project / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (project / "train.py").write_text(
        "import yaml\nfrom ..outside import LR\n"
        f"a = yaml.safe_load(open({str(tmp_path / 'secret.yaml')!r}))\n"
        "b = yaml.safe_load(open('../secret.yaml'))\n"
        "c = yaml.safe_load(open('link.yaml'))\n"
        "Adam(p, lr=a['lr'], eps=b['lr'], weight_decay=c['lr'], betas=LR)\n"
    )
    monkeypatch.chdir(project)
    said = {setting.value for setting in read_config("train.py")}
    assert not said & {0.5, 0.25}


def test_a_bomb_of_aliases_in_a_file_that_a_script_loads_stays_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    (tmp_path / "bomb.yaml").write_text("\n".join([*lines, "lr: 0.5"]))
    (tmp_path / "train.py").write_text("import yaml\nc = yaml.safe_load(open('bomb.yaml'))\nSGD(p, lr=0.5)\n")
    monkeypatch.chdir(tmp_path)
    began = time.process_time()
    assert read_config("train.py").value("SGD.lr") == 0.5
    assert time.process_time() - began < 3
