"""Shell scripts: options that stand in arrays, in texts, in heredocs and in shells of their own, each with its line."""

from __future__ import annotations

from stayfinite.readers.configs.reading import settings_of_kind

SCRIPT = """\
rate=1e-6
ACTOR=(
    actor.optim.lr=${rate}  # tuned
    # actor.kind=dropped  (a "remark")
    actor.tokens=$((2 * (1024 + 1024)))
    +actor.clip=0.2
)
MORE="
    data.length=512 \\
    data.shuffle=False"
read -r -d '' words <<EOF
package.cli.train \\
   --model.beta 0.1
EOF
srun -w "$node" bash -c \\
"pip install it \\
&& python3 -m package.cli.other \\
    --lr 3e-4" &>> log
python -c "import torch; print(1 --x)"
"""


def test_options_are_read_wherever_a_script_holds_them() -> None:
    found = {each.name: (each.value, each.line) for each in settings_of_kind("shell", SCRIPT, "run.sh")}
    assert found["actor.optim.lr"] == (1e-6, 3)
    assert found["actor.clip"] == (0.2, 6)
    assert found["data.length"] == (512, 9)
    assert found["data.shuffle"] == (False, 10)
    assert found["--model.beta"] == (0.1, 13)
    assert found["--lr"] == (3e-4, 18)
    assert "actor.kind" not in found
    assert {"package.cli.train", "package.cli.other"} <= {
        each.value for each in settings_of_kind("shell", SCRIPT, "run.sh") if each.name == "module"
    }
