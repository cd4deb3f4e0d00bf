"""What a command costs in a process of its own: the modules that it loads, and how much more than nothing it takes."""

import os
import resource
import subprocess
import sys

CODE = """import sys
from stayfinite.cli import main
main(sys.argv[2:])
print(*sorted(set(sys.argv[1].split()) & set(sys.modules)))
"""


def command_cost(arguments, *, modules, times):
    """Which of the modules ``stayfinite ARGUMENTS`` loads, and how many bare starts of Python it takes as long as.

    The least in so many goes. A hundredth of a second a start is usual: a hundred of them are a second, on a machine
    that is slow or busy as well as on a quiet one.
    """
    # As installed: with its bytecode beside it. Processor time, because tests run side by side.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", CODE, " ".join(modules), *map(str, arguments)]
    starts = []
    for _ in range(times):
        bare, _ = _run([sys.executable, "-c", "pass"], environment)
        seconds, out = _run(command, environment)
        starts.append(seconds / bare)
    return out.splitlines()[-1].split(), min(starts)


def _run(command, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out
