"""Text encoding of ByT5: ids 0 to 2 are special, the id of a byte is its value plus 3."""

from torch import Tensor

PAD, END, UNKNOWN = 0, 1, 2
START = PAD
"""The decoder starts from the pad id, as T5's does."""
MARKS = 3
VOCABULARY = MARKS + 256


def encode(text: str) -> list[int]:
    """Ids of the text's UTF-8 bytes, ending with END."""
    return [MARKS + byte for byte in text.encode()] + [END]


def decode(ids: Tensor) -> str:
    """Text of ids [T] up to the first END; invalid UTF-8 becomes replacement characters."""
    row: list[int] = ids.tolist()
    row = row[: row.index(END)] if END in row else row
    return bytes(i - MARKS for i in row if i >= MARKS).decode(errors="replace")


def character_at(ids: Tensor, place: int) -> str:
    """The character that contains the byte at `place` of ids [T]: a byte of "¿" gives "¿"."""
    row: list[int] = ids.tolist()
    if row[place] < MARKS:
        return {PAD: "<pad>", END: "</s>"}.get(row[place], "<unk>")
    first = place
    while first > 0 and 0x80 <= row[first] - MARKS < 0xC0:
        first -= 1
    last = first + 1
    while last < len(row) and 0x80 <= row[last] - MARKS < 0xC0:
        last += 1
    return bytes(i - MARKS for i in row[first:last]).decode(errors="replace")
