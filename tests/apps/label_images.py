"""Scenes with masks for tests and comparisons: discs and squares on noise, as PNG files."""

import random
import struct
import zlib

BACKGROUND, DISC, SQUARE = 0, 1, 2


def _chunk(kind, data):
    body = kind + data
    return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))


def png(rows, bits=8, palette=None, colors=False):
    """The PNG file of rows of values; with colors of (red, green, blue), with a palette of its indices."""
    color_type = 2 if colors else 3 if palette else 0
    lines = b""
    for row in rows:
        flat = [part for pixel in row for part in pixel] if colors else list(row)
        if bits == 16:
            line = b"".join(struct.pack(">H", value) for value in flat)
        else:
            packed, each = [], 8 // bits
            for at in range(0, len(flat), each):
                some = flat[at:at + each] + [0] * (each - len(flat[at:at + each]))
                packed.append(sum(value << (8 - bits * (k + 1)) for k, value in enumerate(some)))
            line = bytes(packed)
        lines += b"\0" + line
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), bits, color_type, 0, 0, 0)
    table = _chunk(b"PLTE", bytes(part for color in palette for part in color)) if palette else b""
    return (b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + table + _chunk(b"IDAT", zlib.compress(lines))
            + _chunk(b"IEND", b""))


def read_png(data):
    """Rows of the stored values of an 8-bit PNG file of one channel, and its palette, or None."""
    width, height = struct.unpack(">II", data[16:24])
    assert data[24] == 8 and data[25] in (0, 3) and data[28] == 0, "8 bits, gray or palette, not interlaced"
    at, packed, palette = 8, b"", None
    while at < len(data):
        size, kind = struct.unpack(">I", data[at:at + 4])[0], data[at + 4:at + 8]
        body = data[at + 8:at + 8 + size]
        if kind == b"IDAT":
            packed += body
        if kind == b"PLTE":
            palette = [tuple(body[i:i + 3]) for i in range(0, size, 3)]
        at += 12 + size
    raw, rows, before = zlib.decompress(packed), [], [0] * width
    for y in range(height):
        kind, line = raw[y * (width + 1)], list(raw[y * (width + 1) + 1:(y + 1) * (width + 1)])
        for x in range(width):
            left, up, corner = (line[x - 1] if x else 0), before[x], (before[x - 1] if x else 0)
            estimate = left + up - corner
            paeth = min((left, up, corner), key=lambda value: abs(estimate - value))
            line[x] = (line[x] + (0, left, up, (left + up) // 2, paeth)[kind]) & 255
        rows.append(line)
        before = line
    return rows, palette


def scene(seed, size=32):
    """Rows of colors, and rows of classes: one disc and one square on noise, which overlap sometimes."""
    dice = random.Random(seed)
    mask = [[BACKGROUND] * size for _ in range(size)]
    radius = dice.uniform(size / 8, size / 4)
    center = [dice.uniform(radius, size - radius) for _ in range(2)]
    side = dice.randint(size // 5, size // 3)
    corner = [dice.randint(0, size - side) for _ in range(2)]
    for y in range(size):
        for x in range(size):
            if (y - center[0]) ** 2 + (x - center[1]) ** 2 <= radius ** 2:
                mask[y][x] = DISC
            if corner[0] <= y < corner[0] + side and corner[1] <= x < corner[1] + side:
                mask[y][x] = SQUARE
    shades = {BACKGROUND: (90, 90, 90), DISC: (150, 110, 90), SQUARE: (100, 120, 160)}
    image = [[tuple(max(0, min(255, round(dice.gauss(shade, 30)))) for shade in shades[label]) for label in row]
             for row in mask]
    return image, mask
