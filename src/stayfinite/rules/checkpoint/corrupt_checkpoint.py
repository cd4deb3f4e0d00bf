"""The checkpoint file is truncated or damaged.

## What it means
The reader cannot make sense of the bytes: the archive's directory is missing, the pickle ends in the middle, the header
announces more than the file holds, or the hash differs. No weight was loaded.

## Why it happens
- The writer was stopped half-way: disk full, quota, a job killed at its time limit, a second process writing to the
  same name.
- The download was: a broken connection, a proxy's error page (the file begins with `<`), a Git LFS pointer instead of
  the file (begins with `version https://git-lfs`, hence `invalid load key, 'v'`).
- A copy in text mode, or an archive that was unpacked and repacked (`.tar` of a `.pth`).
- A reader older than the writer: torch before 1.6 cannot read zip archives; an old safetensors does not know a new
  dtype.

## How to recognize it
- `PytorchStreamReader failed reading zip archive: failed finding central directory`,
  `invalid magic number; corrupt file?`, `unexpected EOF`, `pickle data was truncated`, `invalid load key`,
  `Ran out of input`, `Error while deserializing header: HeaderTooLarge`, `MetadataIncompleteBuffer`,
  `invalid hash value`.
- While writing: `[enforce fail at inline_container.cc] unexpected pos 960 vs 854`, `No space left on device`.
- `ls -l`: a size of 0, of some hundred bytes, or smaller than its neighbors'. `head -c 100 file` shows what it is.

## How to fix it
1. Look at the size and the first bytes; `stayfinite scan PATH` tells short, damaged and good apart and names the newest
   good one.
2. Download: delete the file *and* its cache entry, fetch again (`hf download REPO --force-download`, `git lfs pull`),
   compare the hash.
3. Own checkpoint: take the one before. Delete the broken one, or automatic resuming will choose it again.
4. Make it impossible: write to a temporary name, `fsync`, then `os.replace`; leave room for two checkpoints
   (`save_total_limit=2` in transformers, `save_top_k` in Lightning); let one rank write.
5. Killed at the time limit: save on the signal early enough (`#SBATCH --signal=B:USR1@300`).

## When it is a false alarm
`invalid load key` also comes from loading a *data* pickle or a TensorFlow file with `torch.load`.
`Weights only load failed` is a refusal for safety (a pickle with code in it) and no damage.
"""

from stayfinite.rules.facts import Facts
from stayfinite.rules.rule import FAIR, HINT, PROOF, STRONG, Clues, Rule, quote

_READING = (
    r"pytorchstreamreader failed|failed finding central directory|invalid magic number; corrupt file|"
    r"pickle data was truncated|unpickling stack underflow|invalid load key|unexpected eof, expected \d+ more bytes|"
    r"the file might be corrupted|error while deserializing header|headertoo(?:large|small)|metadataincompletebuffer|"
    r"invalidheader|invalid hash value \(expected|"
    r"(?:hash|checksum|sha256|md5)\w* (?:mismatch|does ?n[o']t match|differs)|not a zip ?archive|badzipfile|"
    r"file is not a zip file|unable to load weights from (?:pytorch )?checkpoint|"
    r"(?:checkpoint|model|weights?|ckpt)\b.{0,40}\b(?:is |seems? |appears? |may be |might be )?(?:corrupt(?:ed)?|"
    r"truncated|incomplete|damaged)\b|"
    r"unable to open (?:file|object).{0,40}(?:truncated|signature)|file signature not found|not an? hdf5|"
    r"data ?_?loss\w*: .{0,60}(?:checkpoint|sstable|index|table)|checksum does not match|unable to synchronously open|"
    r"storage has wrong (?:byte )?size|eof when reading|protobuf parsing failed|invalid (?:header|json) in header|"
    r"incomplete (?:metadata|read|download)|tarfile\.readerror|central directory not found|"
    r"truncated (?:file|tar|archive)|safetensors_?rust\.SafetensorError"
)
_WRITING = (
    r"inline_container\.cc.{0,60}(?:unexpected pos|fail)|pytorchstreamwriter failed|"
    r"\[enforce fail at .{0,30}inline_container"
)
_NO_ROOM = r"no space left on device|disk quota exceeded|errno 28|disk (?:is )?full"


def judge(facts: Facts) -> Clues:
    """Clues: an error of the reader or the writer, which is proof."""
    yield from quote(facts.said(_READING), PROOF)
    yield from quote(facts.said(r"EOFError: Ran out of input"), STRONG + FAIR)
    yield from quote(facts.said(_WRITING), PROOF, "the file was not fully written: {}")
    yield from quote(facts.said(_NO_ROOM), STRONG + HINT)


RULE = Rule(
    code="SF703",
    fix=(
        "delete it (and its cache entry) and use the previous one or download it again; save checkpoints under a "
        "temporary name and rename them"
    ),
    beats=("nan-loss", "environment", "architecture-mismatch", "resume-state-missing", "bad-data-row"),
)
