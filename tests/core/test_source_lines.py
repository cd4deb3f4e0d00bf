"""A line is named as the person who wrote it would."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from child_processes import environment
from stayfinite.core.source_lines import line_in_words

IN_IPYTHON = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("1 + 1", store_history=True)
shell.run_cell('''
import sys
from stayfinite.core.source_lines import line_in_words
print(line_in_words(sys._getframe().f_code.co_filename, 4))
''', store_history=True)
"""


def test_a_line_of_a_script_and_of_a_cell_of_another_process():
    assert line_in_words("/home/me/train.py", 41) == "train.py:41"
    assert line_in_words("/tmp/ipykernel_17/290420.py", 5) == "a notebook cell, line 5"


@pytest.mark.skipif(find_spec("IPython") is None, reason="IPython is not installed")
def test_a_line_of_a_cell_has_the_number_of_the_cell():
    done = subprocess.run(
        [sys.executable, "-c", IN_IPYTHON], env=environment(), capture_output=True, text=True, check=False
    )
    assert "In[2], line 4" in done.stdout, done.stderr[-2000:]
