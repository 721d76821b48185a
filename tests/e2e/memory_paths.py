"""Hostile and harmless memory paths with the exact answer for each: (path, None) is taken, (path, text) is refused with it (field case 92)."""

SLASH, EMPTY, DOTS = "must begin with a slash", "segment must not be empty", "must not be . or .."
CHAR, NFC, MANY, LONG = "it holds U+", "Normalization Form C", "at most 20 segments", "at most 1024 bytes"


def char(c):
    return f"it holds U+{ord(c):04X}"


def control(*codes):
    return [(f"/a{chr(c)}b", char(chr(c))) for c in codes]


# Control and format characters, line and paragraph separators.
CHARS = control(
    0x00, 0x01, 0x09, 0x0A, 0x0D, 0x1B, 0x1F, 0x7F, 0x80, 0x85, 0x9F, 0xAD, 0x061C, 0x06DD, 0x070F, 0x08E2, 0x180E, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F,
    0x2028, 0x2029, 0x202A, 0x202B, 0x202C, 0x202D, 0x202E, 0x2060, 0x2066, 0x2069, 0x206F, 0xFEFF, 0xFFF9, 0x110BD, 0x1BCA0, 0x1D173, 0xE0001, 0xE0020, 0xE007F,
)

SHAPES = [
    ("", SLASH),
    ("a", SLASH),
    ("a/b", SLASH),
    ("./a", SLASH),
    ("../a", SLASH),
    ("~/a", SLASH),
    ("C:\\x", SLASH),
    ("\\a", SLASH),
    ("/", EMPTY),
    ("//", EMPTY),
    ("//a", EMPTY),
    ("/a//b", EMPTY),
    ("/a/", EMPTY),
    ("/a//", EMPTY),
    ("/.", DOTS),
    ("/..", DOTS),
    ("/a/.", DOTS),
    ("/a/..", DOTS),
    ("/a/../b", DOTS),
    ("/a/./b", DOTS),
    ("/../../etc/passwd", DOTS),
    ("/" + "/".join("s" * 1 for _ in range(21)), MANY),
    ("/" + "x" * 1024, LONG),
    ("/" + "ä" * 512, LONG),
    ("/cafe\u0301", NFC),
    ("/A\u030a", NFC),
    ("/\u212b", NFC),  # the sign for angstrom is A with a ring in normal form
    ("/\u1100\u1161", NFC),  # jamo that make a syllable
    ("/q\u0323\u0307/\u0958", NFC),  # a composition that normal form takes apart
    ("/emoji/\U0001f468\u200d\U0001f469", char("\u200d")),
    ("/rtl/\u202etxt.exe", char("\u202e")),
]

TAKEN = [
    "/a",
    "/" + "/".join("s" for _ in range(20)),
    "/" + "x" * 1023,
    "/" + "é" * 511,
    "/caf\u00e9",
    "/Case",
    "/case",
    "/CASE",
    "/a.",
    "/a ",
    "/ a",
    "/...",
    "/.hidden",
    "/..x",
    "/x..",
    "/CON",
    "/nul.txt",
    "/%2e%2e%2fetc",
    "/%00",
    "/a\\b",
    "/a:b",
    "/a*b?",
    "/-rf",
    "/--",
    "/$(id)",
    "/`id`",
    "/'; DROP TABLE memories; --",
    '/"quoted"',
    "/{}",
    "/\U0001f600",
    "/日本語/メモ",
    "/עברית",
    "/\u00a0nbsp",
    "/\u3000",
    "/\ufffd",
    "/\U0010fffd",
    "/ﬀ",
]

REFUSED = CHARS + SHAPES
assert len(REFUSED) + len(TAKEN) >= 100
