"""Names of translation columns: language codes and English language names."""

from __future__ import annotations

CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el "
    "en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu "
    "ja jv ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na "
    "nb nd ne ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so "
    "sq sr ss st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu akk "
    "ara ben bul cat ces cmn dan deu ell eng est eus fas fin fra gle glg grc heb hin hit hrv hun hye ind isl ita jpn "
    "kat kaz khm kor lao lat lav lit mar mkd mon msa mya nep nld nob nor pan pol por pus ron rus san sin slk slv som "
    "spa sqi srp sux swa swe tam tel tha tur ukr urd uzb vie xho yor yue zho zul"
)
"""Two-letter and three-letter language codes."""
NAMES = (
    "afrikaans akkadian albanian amharic arabic armenian assyrian babylonian basque bengali bulgarian burmese catalan "
    "chinese croatian czech danish dutch egyptian english estonian farsi finnish french galician georgian german "
    "greek gujarati hausa hebrew hindi hittite hungarian icelandic indonesian irish italian japanese kannada kazakh "
    "khmer korean latin latvian lithuanian macedonian malay malayalam mandarin marathi mongolian nepali norwegian "
    "persian polish portuguese punjabi romanian russian sanskrit serbian sinhala slovak slovenian somali spanish "
    "sumerian swahili swedish tamil telugu thai tibetan turkish ugaritic ukrainian urdu uzbek vietnamese welsh yoruba "
    "zulu"
)
LANGUAGES = frozenset((*CODES.split(), *NAMES.split()))  # codes and English names
LONGEST_CODE, LONGEST_REGION = 3, 4


def is_a_language(cell: str) -> bool:
    """Whether a cell is `en`, `PT-br`, `French`; `No` and `El` are also words."""
    code, _, region = cell.replace("_", "-").partition("-")
    if cell.lower() in LANGUAGES and len(cell) > LONGEST_CODE:
        return True
    plain = code.lower() in LANGUAGES and not code.istitle()
    return plain and (not region or (region.isalpha() and len(region) <= LONGEST_REGION))
