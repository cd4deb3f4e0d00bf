"""``stayfinite completion bash``: print a shell completion script for commands, programs and flags."""

import argparse
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from importlib import import_module

from stayfinite.core.lazy_regex import lazy_regex

_OPTION = lazy_regex(r"^(?:│ | {1,2})(-.*?)(?:  |$)", re.MULTILINE)
"""Options in a help text, without their descriptions, which may quote other programs' flags."""
_FLAG = lazy_regex(r"(?<![\w-])--[a-z][\w-]*")
_PROGRAM = lazy_regex(r"^  ([a-z]\w*)  ", re.MULTILINE)
_SCRIPT = """\
# stayfinite: completion for {shell}. Made by `stayfinite completion {shell}`; make it again after an upgrade.
{first}_stayfinite() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words
  case $COMP_CWORD:${{COMP_WORDS[1]}} in
    1:*) words="{commands}" ;;
{cases}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _stayfinite stayfinite
"""

_ZSH = """\
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i; }
autoload -Uz bashcompinit && bashcompinit
"""
"""zsh uses bash's script, after loading its own completion, which a fresh .zshrc does not do."""


def run(arguments: Sequence[str]) -> int:
    """Run the command: print the script."""
    about = 'Print a completion script. In ~/.bashrc: eval "$(stayfinite completion bash)"; in ~/.zshrc with zsh.'
    parser = argparse.ArgumentParser("stayfinite completion", description=about)
    parser.add_argument("shell", choices=("bash", "zsh"))
    print(script(parser.parse_args(list(arguments)).shell), end="")
    return 0


def script(shell: str) -> str:
    """Script for a shell; zsh uses bash's."""
    from stayfinite.cli import COMMANDS

    cases = "\n".join(f'    *:{name}) words="{" ".join(words_of(name))}" ;;' for name in COMMANDS)
    first = _ZSH if shell == "zsh" else ""
    commands = " ".join((*COMMANDS, "--help", "--version"))
    return _SCRIPT.format(shell=shell, first=first, commands=commands, cases=cases)


def words_of(command: str) -> list[str]:
    """Programs and flags of a command, from its help."""
    if command == "completion":
        return ["bash", "zsh"]
    if command == "schema":
        from stayfinite.core.schema_names import PRINTED, WRITTEN

        return [*PRINTED, *WRITTEN]
    shown = io.StringIO()
    with redirect_stdout(shown), redirect_stderr(shown), suppress(SystemExit):
        import_module(f"stayfinite.cli.{command}").run(["--help"])
    text = shown.getvalue()
    return [*_PROGRAM.findall(text), *sorted({*_FLAG.findall(" ".join(_OPTION.findall(text))), "--help"})]
