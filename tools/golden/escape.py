# SPDX-License-Identifier: Apache-2.0
"""One line of text for any bytes: printable UTF-8 as it is, the rest as \\xHH, a backslash as \\\\."""

import re


def escape(data: bytes) -> str:
    out = []
    for character in data.decode("utf-8", errors="surrogateescape"):
        if character == "\\":
            out.append("\\\\")
        elif 0xDC80 <= ord(character) <= 0xDCFF:
            out.append(f"\\x{ord(character) - 0xDC00:02x}")
        elif character == " " or character.isprintable():
            out.append(character)
        else:
            out.append("".join(f"\\x{byte:02x}" for byte in character.encode()))
    return "".join(out)


def unescape(line: str) -> bytes:
    return re.sub(
        rb"\\(\\|x[0-9a-f]{2})",
        lambda m: b"\\" if m[1] == b"\\" else bytes([int(m[1][1:], 16)]),
        line.encode(),
    )
