"""Command lines and shell scripts: `accelerate launch --mixed_precision fp16 train.py --fp16 optim.lr=3e-4`."""

from __future__ import annotations

import re
from typing import Any

from stayfinite.core.lazy_regex import lazy_regex
from stayfinite.core.settings import Expression, Setting, Settings
from stayfinite.readers.configs.files import Reader, kind_of
from stayfinite.readers.configs.literals import value_in_text
from stayfinite.readers.configs.scalars import number, scalar
from stayfinite.readers.configs.tree import MOST_SETTINGS

MOST_TOKENS = 5_000

# The search for a closing quote is bounded, so thousands of unclosed quotes stay cheap.
_TOKEN = lazy_regex(r"""(?:[^\s"'\\]|\\[^\n]|"(?:[^"\\]|\\.){0,9999}"|'[^']{0,9999}'|["'\\])+""", re.DOTALL)
_QUOTED = lazy_regex(r""""((?:[^"\\]|\\.){0,9999})"|'([^']{0,9999})'|\\(.)""", re.DOTALL)
_FLAG = lazy_regex(r"--?[A-Za-z][\w.\-/]*")
_PAIR = lazy_regex(r"(?:\+\+|\+|~)?([A-Za-z_][\w./@\-]*)=(.*)", re.DOTALL)
_NEGATION = lazy_regex(r"--?(?:no|disable)[_-]")
_VARIABLE = lazy_regex(r"\$\{?(\w+)(?::[-=]([^}]{0,500}))?\}?")
_PROGRAM = lazy_regex(
    r"(?:[\w.~/${}-]*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|fairseq-[\w-]+|fairseq|llamafactory-cli|axolotl|"
    r"tune|litgpt|swift|colossalai|horovodrun|mpirun|srun|onmt_train|composer|lightning|nemo|autotrain|trl|ipython|uv|"
    r"poetry|sh|bash|yolo|t5_mesh_transformer)|[\w./-]+\.(?:py|sh)"
)
_LEAD = lazy_regex(r"^[ \t]*(?:[$>+]\s+|!|%run\s+|\(\w+\)\s*\$?\s*|[\w.-]+@[\w.-]+:[^$#]*[$#]\s+)?")
_ENDS = frozenset({"|", ">", ">>", "2>&1", "&", "&>", "<", "2>", "|&"})
_SHELL = lazy_regex(r"(?:\S*/)?(?:ba|z|da)?sh")
_SCRIPT = lazy_regex(r"[^\s=]+\.(?:py|sh|ipynb)")
_CONFIG = lazy_regex(r"[^\s=]+\.(?:ya?ml|json|toml|py|cfg)")
_LAUNCHER = lazy_regex(r"torch\.distributed|deepspeed|accelerate|lightning\.fabric|horovod")
_TAKES_A_FILE = lazy_regex(r"script|file|path|config|cfg|entry|program|yaml|json|module", re.IGNORECASE)
_SWITCH = lazy_regex(
    r"(?:use[_-]|do[_-])\w+|(?:memory[_-]efficient[_-])?(?:fp16|bf16)|half|amp|gradient[_-]checkpointing|"
    r"(?:multi|single)[_-]?gpu|standalone|no[_-]\w+|lora|qlora|tf32|load[_-]in_[48]bit|find[_-]unused[_-]parameters",
    re.IGNORECASE,
)


def looks_like_command(text: str) -> bool:
    """Whether a line is a command that starts a program: `python train.py`, `torchrun ...`, `VAR=1 sh run.sh`."""
    tokens = _LEAD.sub("", text, count=1).split(None, 12)
    while tokens and re.fullmatch(r"[A-Z_][A-Z0-9_]*=\S*|sudo|nohup|time|exec|env|export", tokens[0]):
        tokens.pop(0)
    if len(tokens) < 2 or not _PROGRAM.fullmatch(tokens[0]):
        return False
    rest = tokens[1:]
    return any(token.startswith("-") or _SCRIPT.fullmatch(token) or "=" in token for token in rest) or (
        rest[0] in {"launch", "train", "sft", "finetune", "run"}
    )


def settings_of_command(
    text: str, source: str, line: int = 0, *, kind: str = "command", variables: dict[str, str] | None = None
) -> list[Setting]:
    """Every option, override and environment variable of one command; `--no-fp16` is `fp16` = False."""
    tokens = split_command(_LEAD.sub("", text, count=1))
    settings: list[Setting] = []
    known = dict(variables or {})
    index = 0
    script_seen = False
    while index < len(tokens):
        token, offset = tokens[index]
        before = tokens[index - 1][0] if index else ""
        index += 1
        bare = unquoted(token)
        name, value = "", None
        pair = _PAIR.fullmatch(bare)
        if _is_option(bare):
            name, equals, rest = bare.partition("=")
            values: list[str] = []
            while not equals and index < len(tokens) and _belongs(name, tokens[index][0], values):
                values.append(unquoted(tokens[index][0]))
                index += 1
            if name == "-c" and values and _SHELL.fullmatch(before):
                at = line + tokens[index - len(values)][1] if line else 0
                settings.extend(settings_of_command(values[0], source, at, kind=kind, variables=known))
                continue
            name, value = _option(name, [rest] if equals else values, known)
            script_seen = script_seen or (name == "module" and not _LAUNCHER.match(str(value)))
        elif pair:
            name, value = pair.group(1), _value(pair.group(2), known)
            known[name] = pair.group(2)  # LR=1e-4; python train.py --lr $LR
        elif _SCRIPT.fullmatch(bare) and not script_seen:
            name, value = "script", bare
            script_seen = True
        elif _CONFIG.fullmatch(bare):
            name, value = "config", bare
        if name:
            settings.append(Setting(name, value, source, line + offset if line else 0, kind))
    return settings


def split_command(text: str) -> list[tuple[str, int]]:
    """Split a command into words with their quotes and line offsets, up to a pipe or redirection.

    An empty word separates two commands (`&&`, `;`).
    """
    tokens: list[tuple[str, int]] = []
    line = position = 0
    for match in _TOKEN.finditer(text):
        token = match.group()
        line += text.count("\n", position, match.start())
        position = match.start()
        if not token.strip("\\\n"):
            continue
        if token in _ENDS or token.startswith("#"):
            break
        word = "" if token in {"&&", "||"} else token.removesuffix(";")
        tokens.append((word, line))
        if word and word != token:
            tokens.append(("", line))
        if len(tokens) >= MOST_TOKENS:
            break
    return tokens


def unquoted(token: str) -> str:
    """The word as the program sees it, without variable expansion."""
    return _QUOTED.sub(lambda match: next(group for group in match.groups() if group is not None), token)


def with_variables(text: str, variables: dict[str, str]) -> str:
    """Expand `$LR` and `${LR:-1e-4}`; unknown variables stay as written."""
    return _VARIABLE.sub(lambda match: variables.get(match.group(1), match.group(2) or match.group()), text)


def _belongs(name: str, token: str, before: list[str]) -> bool:
    """Whether a word is a value of the preceding option, not another option, the script, or an argument."""
    bare = unquoted(token)
    if not token or _is_option(bare):
        return False
    if not before:
        if _SCRIPT.fullmatch(bare) and not _TAKES_A_FILE.search(name):
            return False
        if _SWITCH.fullmatch(name.lstrip("-")):
            return not isinstance(scalar(bare), str) or bare.startswith("$") or bare.lower() in {"fp16", "bf16", "auto"}
        return not (_PAIR.fullmatch(bare) and "." in bare.partition("=")[0])
    if name in {"-m", "--module"}:
        return False
    first = number(unquoted(before[0]))
    if first is not None:
        return number(bare) is not None
    return not (
        "/" in bare or "=" in bare or _SCRIPT.fullmatch(bare) or number(bare) is not None or bare.startswith("$")
    )


def _is_option(word: str) -> bool:
    return _FLAG.match(word) is not None and number(word) is None


def _option(name: str, values: list[str], variables: dict[str, str]) -> tuple[str, Any]:
    if name == "-m" and values:
        return "module", values[0]
    if not values:
        negated = _NEGATION.match(name)
        return (f"--{name[negated.end() :]}", False) if negated else (name, True)
    plain = [_value(each, variables) for each in values]
    return name, plain[0] if len(plain) == 1 else plain


def _value(text: str, variables: dict[str, str]) -> Any:
    if "$" in text:
        text = with_variables(text, variables)
        if "$" in text:
            return Expression(text[:500])
    return value_in_text(text) if text[:1] in "[{(\"'" and text else scalar(text)


MOST_LINES = 20_000
MOST_WIDTH = 20_000
_ASSIGNMENT = lazy_regex(
    r"\s*(?:export\s+|declare\s+(?:-\w+\s+)*|local\s+|readonly\s+)?([A-Za-z_]\w*)\+?=(.*)", re.DOTALL
)
_HEREDOC = lazy_regex(r"<<-?\s*[\"']?(\w+)[\"']?")
_DIRECTIVE = lazy_regex(r"#(?:SBATCH|PBS|BSUB|\$)\s+(-.*)")
_COMMENT = lazy_regex(r"(?:^|\s)#")
_ECHOED = lazy_regex(r"\s*(?:echo\b|printf\b|#)")
_OPTIONS = lazy_regex(r"(?:^|\s)(?:--?[A-Za-z]|(?:\+\+|\+|~)?[A-Za-z_]\w*(?:\.\w+)+=)")
"""A flag, or an override such as `actor.optim.lr=1e-6`: a variable that holds some is part of a command."""
_MODULE = lazy_regex(r"\s*[A-Za-z_]\w*(?:\.\w+)+\s+(?:\\\s*)?--?[A-Za-z]")


def read_shell(text: str, source: str, read: Reader) -> Settings:
    """Every command with options, and every variable; ``read`` reads the files that the script writes."""
    reader = _Script(source, read)
    lines = [line[:MOST_WIDTH] for line in text.split("\n")[:MOST_LINES]]
    index = 0
    while index < len(lines) and len(reader.settings) < MOST_SETTINGS:
        index += max(1, reader.take(lines, index))
    return Settings(reader.settings[:MOST_SETTINGS], reader.notes)


class _Script:
    def __init__(self, source: str, read: Reader) -> None:
        self.source = source
        self._read = read
        self.settings: list[Setting] = []
        self.notes: list[tuple[str, str]] = []
        self._variables: dict[str, str] = {}

    def take(self, lines: list[str], index: int) -> int:
        """Read the statement that starts at a line; return the number of lines consumed."""
        line = lines[index]
        directive = _DIRECTIVE.match(line)
        if directive:
            self.settings.extend(settings_of_command(directive.group(1), self.source, index + 1))
            return 1
        if not line.strip() or _ECHOED.match(line):
            return 1
        statement, taken = _statement(lines, index)
        heredoc = _HEREDOC.search(statement)
        if heredoc:
            return taken + self._heredoc(lines, index + taken, heredoc.group(1))
        assignment = _ASSIGNMENT.fullmatch(statement)
        if assignment and not _is_prefix(assignment.group(2)):
            self._assign(assignment.group(1), assignment.group(2).strip(), index + 1)
        elif " -" in statement or looks_like_command(statement) or "=" in statement:
            self._command(statement, index + 1)
        return taken

    def _assign(self, name: str, text: str, line: int) -> None:
        if text.startswith("("):
            text = text[1:].rpartition(")")[0].strip(" \t")
        plain = unquoted(text).rstrip() if text[:1] in "\"'" else text
        plain = with_variables(plain, self._variables)
        self._variables[name] = plain[:20_000]
        if _OPTIONS.search(plain):
            self._command(plain, line)
        elif plain and "$(" not in plain and "`" not in plain:
            self.settings.append(Setting(name, scalar(plain), self.source, line, "command"))

    def _command(self, text: str, line: int) -> None:
        found = settings_of_command(text, self.source, line, variables=self._variables)
        if found:
            self.settings.extend(found)
            self.notes.append((f"{self.source}:{line}", " ".join(text.split())[:4000]))

    def _heredoc(self, lines: list[str], start: int, mark: str) -> int:
        """`cat > ds_config.json <<EOF`: the text up to the mark is a separate file, or a module with its options."""
        end = next((index for index in range(start, len(lines)) if lines[index].strip() == mark), len(lines))
        text = "\n".join(lines[start:end])
        if _MODULE.match(text):  # read -r -d '' command <<EOF, and later: deepspeed --module $command
            self._command("-m " + text.replace("\\\n", "\n"), start + 1)
            return end - start + 1
        kind = kind_of("", text[:4096].encode())
        if kind in {"json", "yaml", "script", "notes"}:
            found = self._read(kind, text, self.source)
            self.settings.extend(
                Setting(each.name, each.value, self.source, each.line + start if each.line else start, each.kind)
                for each in found
            )
        return end - start + 1


def _statement(lines: list[str], index: int) -> tuple[str, int]:
    """A statement with its continuation lines, including open quotes and arrays."""
    text = lines[index]
    taken = 1
    while index + taken < len(lines) and taken < 500 and len(text) < MOST_WIDTH:
        stripped = _without_comment(text).rstrip(" \t\r")
        if stripped.endswith("\\"):
            text = stripped[:-1] + "\n" + lines[index + taken].strip()
        elif _is_open(stripped):
            text = stripped + "\n" + _inside(stripped, lines[index + taken])
        else:
            break
        taken += 1
    return _without_comment(text), taken


def _without_comment(text: str) -> str:
    """Strip a trailing comment. One before the last quote is not recognized, so the text is scanned once."""
    found = _COMMENT.search(text, max(0, *(text.rfind(mark) for mark in "\n\"'")))
    return text if found is None else text[: found.start()]


def _inside(text: str, line: str) -> str:
    """A further line of an open array or string; arrays may contain comment lines."""
    found = _ASSIGNMENT.fullmatch(text)
    array = found is not None and found.group(2).lstrip().startswith("(")
    return "" if array and line.lstrip().startswith("#") else _without_comment(line)


def _is_open(text: str) -> bool:
    match = _ASSIGNMENT.fullmatch(text)
    if match is None:
        return False
    value = match.group(2).lstrip()
    if value.startswith("("):
        return value.count("(") > value.count(")")
    quote = value[:1]
    return quote in {'"', "'"} and value.count(quote) - value.count("\\" + quote) == 1


def _is_prefix(value: str) -> bool:
    """`CUDA_VISIBLE_DEVICES=0 python train.py`: a variable for one command."""
    word = re.match(r"(?:\"[^\"]*\"|'[^']*'|\S*)\s+(.*)", value, re.DOTALL)
    return value[:1] not in "(\"'" and word is not None and looks_like_command(word.group(1))
