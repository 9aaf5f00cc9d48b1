"""Hostile texts for tokenizers, the same for every run: what users paste, what attackers send.

The texts are drawn from a seeded generator, so that golden ids need not carry them twice.
"""

import random

WORDS = """the of and capital France is Paris hello world tokenizer don't it's we'll I'VE they'RE café naïve
straße İstanbul ſeason Kelvin ﬁne Ǆ 東京 北京市 你好，世界！ こんにちは カタカナ 안녕하세요 สวัสดี नमस्ते مرحبا שלום Привет Γειά
def return 0x7f 3.14159 1e-10 12345678901234567890 ½ ² Ⅷ ٣٤٥ १२३ user@example.com https://example.org/?q=%20&x=1#y
<|im_start|> <|im_end|> <|endoftext|> <s> </s> <bos> <eos> <start_of_turn> <|begin_of_text|> <|eot_id|> <think> </think>
<tool_call> [INST] <0x0A> <0xE2> ▁ ▁▁ Ġ Ċ ĠĠ <|im_star |im_start|> <|unknown|>""".split()

PIECES = [
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", "\u00a0", "\u3000", "\u2003", "\u200b", "\u2028",
    "\x00", "\x01", "\x1b[0m", "\x7f", "\x85", "\x0b", "\x0c", "\x1c", "\ufeff", "\ufffd", "\ufffe", "\U0010ffff",
    "😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷", "👍🏽", "é", "e\u0301", "o\u0308\u0323", "\u1e9b\u0323", "각", "\u1100\u1161\u11a8", "q\u0307\u0323",
    "\u0915\u093c", "\u0f71\u0f72", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍", "𝕳𝖊𝖑𝖑𝖔", "𠜎", "ﷺ", "\u202e", "…", "—", "''", "'S", "'\u017f", "'ll", "'LL", "\u2019s",
    "!!!", "...", "????", "$$$", "==>", "{}", "[[", "\\n", "//", "/*", "`", "```", "~~~", "#", "__", "-" * 7, "=" * 33,
]


def text(draw):
    """One text: a mix, a long run, or characters of anywhere."""
    kind = draw.random()
    if kind < 0.1:
        run = draw.choice(PIECES + WORDS)
        return run * draw.choice([2, 3, 7, 31, 64, 200]) + draw.choice(["", "x", "\n", " x"])
    if kind < 0.25:
        planes = [(1, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x400, 0xFFF), (0x1100, 0x11FF), (0x3000, 0x9FFF),
                  (0xAC00, 0xD7A3), (0xE000, 0xFFFF), (0x10000, 0x1F9FF), (0x20000, 0x2FA1F), (0xE0000, 0x10FFFF)]
        low, high = draw.choice(planes)
        return "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 40)))
    if kind < 0.4:
        # What is left of text that was cut anywhere.
        whole = "".join(draw.choice(PIECES + WORDS) for _ in range(draw.randint(1, 8))).encode()
        start = draw.randint(0, max(0, len(whole) - 1))
        return whole[start:draw.randint(start, len(whole))].decode(errors="replace")
    parts = []
    for _ in range(draw.randint(1, 30)):
        parts.append(draw.choice(WORDS if draw.random() < 0.6 else PIECES))
        if draw.random() < 0.5:
            parts.append(" ")
    return "".join(parts)


def texts(count, seed=20):
    """So many texts; the first are those at the edges."""
    draw = random.Random(seed)
    edges = ["", " ", "\n", " " * 5000, "\n" * 3000, " \n" * 1000, "a" * 20000, "1" * 9999, "é" * 3000, "😀" * 500,
             "\t" * 777 + "x", " " * 4999 + "x", "’" * 999, "\u0301" * 999, "'" * 2000]
    return (edges + [text(draw) for _ in range(count)])[:count]
