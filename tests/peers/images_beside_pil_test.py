#!/usr/bin/env python3
"""Images of all formats and kinds are decoded as PIL decodes them: the same pixels, the same orientations, and
the same opinion of what is damaged, but for the differences that are named below.

usage: images_beside_pil_test.py PATH_OF_DECODE_IMAGES
"""

import io
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

import numpy as np
from PIL import Image

PROGRAM = sys.argv.pop(1)
SIZES = [(1, 1), (7, 5), (16, 16), (31, 33), (64, 48), (1, 40), (40, 1), (3, 257)]
# Ours are stricter: here damaged pixels would be invented.
STRICTER = {"before the end.jpg"}
# Ours drop transparency, so its values do not matter.
LESS_STRICT = {"short transparency.png"}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(kind, bits, raw, extra=b"", compressed=b"", behind=b""):
    """8 rows of 8 bytes."""
    header = struct.pack(">IIBBBBB", 8 if kind in (0, 3) else 2, 8, bits, kind, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(raw) + compressed)
            + chunk(b"IEND", b"") + behind)


def bmp(height, width, bits, compression, pixels, masks=b"", palette=b"", header=None):
    if header is None:
        header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(pixels), 0, 0,
                             len(palette) // 4, 0)
    start = 14 + len(header) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + header + masks + palette + pixels


def rows(pixels, kind):
    """Rows from the bottom, each padded to 4 bytes."""
    packed = [row.astype(kind).tobytes() for row in pixels[::-1]]
    return b"".join(row + b"\0" * (-len(row) % 4) for row in packed)


def runs(indices, random):
    """RLE8: runs, and pixels as they are."""
    out = b""
    for row in indices[::-1]:
        x = 0
        while x < len(row):
            length = 1
            while x + length < len(row) and row[x + length] == row[x] and length < 255:
                length += 1
            if length == 1 and len(row) - x >= 3 and random.integers(2):
                plain = int(min(len(row) - x, random.integers(3, 20)))
                out += bytes([0, plain]) + row[x:x + plain].tobytes() + b"\0" * (plain % 2)
                x += plain
            else:
                out += bytes([length, row[x]])
                x += length
        out += b"\0\0"
    return out[:-2] + b"\0\1"


class Corpus:
    def __init__(self, folder):
        self.folder = folder
        self.random = np.random.default_rng(1)
        for number, size in enumerate(SIZES):
            self.images(f"{number} ", *size)
        self.oriented()
        self.damaged()

    def pixels(self, height, width, channels):
        y, x = np.mgrid[0:height, 0:width]
        smooth = np.stack([(3 * x + 2 * y + 60 * c) % 256 for c in range(channels)], -1)
        noise = self.random.integers(-20, 21, (height, width, channels))
        return np.clip(smooth + noise, 0, 255).astype(np.uint8)

    def save(self, name, image, **options):
        image.save(self.folder / name, **options)

    def write(self, name, contents):
        (self.folder / name).write_bytes(contents)

    def images(self, name, height, width):
        color = Image.fromarray(self.pixels(height, width, 3))
        gray = Image.fromarray(self.pixels(height, width, 1)[:, :, 0])
        clear = Image.fromarray(self.pixels(height, width, 4))
        few, many = color.quantize(16), color.quantize(200)
        kinds = {"color": color, "gray": gray, "clear": clear, "few": few, "many": many, "bits": gray.convert("1")}
        for kind, image in kinds.items():
            for extension in ("png", "bmp", "gif", "webp", "jpg", "ppm"):
                try:
                    self.save(f"{name}{kind}.{extension}", image)
                except (OSError, KeyError):  # a kind that the format does not have
                    pass
        for exact in (False, True):
            self.save(f"{name}lossless {exact}.webp", clear, lossless=True, exact=exact)
        for quality in (1, 30, 75, 100):
            self.save(f"{name}{quality}.webp", color, quality=quality)
            self.save(f"{name}clear {quality}.webp", clear, quality=quality)
            self.save(f"{name}{quality}.jpg", color, quality=quality)
        for kind, image in (("color", color), ("clear", clear)):
            self.save(f"{name}film {kind}.webp", image, save_all=True, lossless=kind == "clear",
                      append_images=3 * [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)], duration=50)
        self.save(f"{name}film.gif", few, save_all=True, append_images=3 * [many], duration=50)
        self.save(f"{name}transparent.gif", few, transparency=3)
        self.save(f"{name}interlaced.gif", few, interlace=1)
        self.save(f"{name}progressive.jpg", color, progressive=True)
        self.save(f"{name}whole.jpg", color, subsampling=0)
        self.save(f"{name}deep.png", Image.fromarray(self.pixels(height, width, 1)[:, :, 0].astype(np.uint16) * 257))
        self.bitmaps(name, height, width, np.array(color), color.quantize(64))

    def bitmaps(self, name, height, width, pixels, indexed):
        red, green, blue = (pixels[:, :, c].astype(np.uint32) for c in range(3))
        words = red << 16 | green << 8 | blue
        self.write(f"{name}32.bmp", bmp(height, width, 32, 0, rows(words, "<u4")))
        self.write(f"{name}down.bmp", bmp(-height, width, 32, 0, rows(words[::-1], "<u4")))
        self.write(f"{name}masks.bmp", bmp(height, width, 32, 3, rows(words << 8, "<u4"),
                                           struct.pack("<III", 0xff000000, 0xff0000, 0xff00)))
        five = rows(red >> 3 << 10 | green >> 3 << 5 | blue >> 3, "<u2")
        six = rows(red >> 3 << 11 | green >> 2 << 5 | blue >> 3, "<u2")
        self.write(f"{name}555.bmp", bmp(height, width, 16, 0, five))
        self.write(f"{name}565.bmp", bmp(height, width, 16, 3, six, struct.pack("<III", 0xf800, 0x7e0, 0x1f)))
        indices = np.array(indexed)
        colors = np.array((indexed.getpalette() + 768 * [0])[:768], np.uint8).reshape(256, 3)[:, ::-1]
        self.write(f"{name}os2.bmp", bmp(height, width, 8, 0, rows(indices, np.uint8), palette=colors.tobytes(),
                                         header=struct.pack("<IHHHH", 12, width, height, 1, 8)))
        palette = np.pad(colors, ((0, 0), (0, 1))).tobytes()
        self.write(f"{name}runs.bmp", bmp(height, width, 8, 1, runs(indices, self.random), palette=palette))

    def oriented(self):
        image = Image.fromarray(self.pixels(6, 9, 3))
        for orientation in range(1, 9):
            exif = Image.Exif()
            exif[0x112] = orientation
            for extension in ("jpg", "webp", "png"):
                self.save(f"turned {orientation}.{extension}", image, exif=exif)

    def damaged(self):
        memory = io.BytesIO()
        Image.fromarray(self.pixels(32, 32, 3)).save(memory, "JPEG", quality=90)
        jpeg = memory.getvalue()
        second = 4 + struct.unpack(">H", jpeg[4:6])[0]
        frame, version = jpeg.index(b"\xff\xc0"), jpeg.index(b"JFIF") + 5
        self.write("between segments.jpg", jpeg[:second] + b"\x12\x34\x56" + jpeg[second:])
        self.write("behind.jpg", jpeg + b"behind")
        self.write("before the end.jpg", jpeg[:-2] + b"\x12\x34" + jpeg[-2:])
        self.write("without the end.jpg", jpeg[:-2])
        self.write("half.jpg", jpeg[:len(jpeg) // 2])
        self.write("another version.jpg", jpeg[:version] + b"\x09" + jpeg[version + 1:])
        deep = b"\xff\xc1" + jpeg[frame + 2:frame + 4] + b"\x0c"
        self.write("12 bits.jpg", jpeg[:frame] + deep + jpeg[frame + 5:])
        raw = b"".join(b"\0" + self.random.bytes(8) for _ in range(8))
        small = b"".join(b"\0" + bytes(self.random.integers(0, 4, 8, dtype=np.uint8)) for _ in range(8))
        palette = chunk(b"PLTE", bytes(range(12)))
        self.write("transparency beyond.png", png(0, 8, raw, chunk(b"tRNS", b"\x12\x34")))
        self.write("short transparency.png", png(0, 8, raw, chunk(b"tRNS", b"\x12")))
        self.write("long transparency.png", png(3, 8, small, palette + chunk(b"tRNS", bytes(40))))
        self.write("early transparency.png", png(3, 8, small, chunk(b"tRNS", bytes(4)) + palette))
        self.write("two transparencies.png", png(6, 8, raw, chunk(b"tRNS", bytes(6))))
        self.write("more compressed.png", png(0, 8, raw, compressed=b"more bytes"))
        self.write("more rows.png", png(0, 8, raw + bytes(50)))
        self.write("behind.png", png(0, 8, raw, behind=b"behind"))
        self.write("fewer rows.png", png(0, 8, raw[:60]))
        self.write("line behind.pgm", b"P5 8 8 255\n" + raw[:64] + b"\n")
        for name in ("4 clear 75.webp", "4 few.gif", "4 color.bmp"):
            contents = (self.folder / name).read_bytes()
            self.write("half " + name, contents[:len(contents) // 2])


def pixels_of(path):
    """PIL's pixels as ours, with 1 or 3 channels; nothing if it refuses the image."""
    try:
        image = Image.open(io.BytesIO(path.read_bytes()))
        image.load()
    except (OSError, SyntaxError, ValueError):
        return None, 1
    orientation = image.getexif().get(0x112, 1)
    if image.mode.startswith("I"):  # 16 bits
        return ((np.array(image).astype(np.int64) * 255 + 32767) // 65535).astype(np.uint8)[:, :, None], orientation
    if image.mode not in ("L", "RGB"):
        image = image.convert("RGB")
    pixels = np.array(image)
    return pixels if pixels.ndim == 3 else pixels[:, :, None], orientation


class BesidePil(unittest.TestCase):
    def test_everything(self):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place)
            Corpus(folder)
            files = sorted(folder.iterdir())
            done = subprocess.run([PROGRAM], input="".join(f"{file}\n" for file in files), capture_output=True,
                                  text=True, timeout=120, check=True)
            lines = done.stdout.splitlines()
            self.assertEqual(len(lines), len(files), done.stderr)
            compared = 0
            for file, line in zip(files, lines):
                with self.subTest(file.name):
                    theirs, orientation = pixels_of(file)
                    if line.startswith("error: "):
                        self.assertTrue(theirs is None or file.name in STRICTER, line)
                        continue
                    height, width, channels, turned = map(int, line.split())
                    ours = np.fromfile(f"{file}.raw", np.uint8).reshape(height, width, channels)
                    if theirs is None:
                        self.assertIn(file.name, LESS_STRICT)
                        continue
                    # Gray that PIL keeps gray is three equal channels in formats of colors.
                    theirs = np.broadcast_to(theirs, ours.shape) if theirs.shape[2] == 1 else theirs
                    ours = np.broadcast_to(ours, theirs.shape) if channels == 1 else ours
                    self.assertEqual(theirs.shape, ours.shape)
                    # PIL cuts what is below a whole number where 5 or 6 bits become 8.
                    most = 1 if file.name.endswith(("555.bmp", "565.bmp")) else 0
                    self.assertLessEqual(np.abs(theirs.astype(int) - ours).max(), most)
                    self.assertEqual(turned, orientation)
                    compared += 1
            self.assertGreater(compared, 450)


if __name__ == "__main__":
    unittest.main(verbosity=2)
