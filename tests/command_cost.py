"""What a command costs in a process of its own: the modules that it loads, and processor time."""

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
    """Which of the modules ``stayfinite ARGUMENTS`` loads, and the least seconds that it took in so many goes."""
    # As installed: with its bytecode beside it. Processor time, because tests run side by side.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", CODE, " ".join(modules), *map(str, arguments)]
    seconds = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return out.splitlines()[-1].split(), min(seconds)
