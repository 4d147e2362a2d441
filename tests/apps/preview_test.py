#!/usr/bin/env python3
"""lockstep preview: a picture of training images as the network gets them.

usage: preview_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import struct
import unittest
import zlib

from support import CommandTest


def read_png(path):
    """Height, width and rows of bytes of a PNG file with 8 bits and any filters."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, head = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"IHDR":
            head = struct.unpack(">IIBBBBB", body)
        if kind == b"IDAT":
            packed += body
        at += 12 + length
    width, height, bits, color = head[:4]
    assert bits == 8
    step = {0: 1, 2: 3}[color]
    raw, rows, before = zlib.decompress(packed), [], bytes(width * step)
    for y in range(height):
        line = raw[y * (width * step + 1):(y + 1) * (width * step + 1)]
        kind, row = line[0], bytearray(line[1:])
        for i, _ in enumerate(row):
            a = row[i - step] if i >= step else 0
            b, c = before[i], before[i - step] if i >= step else 0
            p = a + b - c
            nearest = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            row[i] = (row[i] + (0, a, b, (a + b) // 2, nearest)[kind]) % 256
        rows.append(bytes(row))
        before = row
    return height, width, rows


class Preview(CommandTest):
    FACTOR, GAP = 3, 4  # of images of 28 x 28

    def tile(self, rows, row, draw):
        """The pixels of an image of the sheet."""
        side = 28 * self.FACTOR
        top, left = (self.GAP + n * (side + self.GAP) for n in (row, draw))
        return [line[left:left + side:self.FACTOR] for line in rows[top:top + side:self.FACTOR]]

    def test_each_row_is_an_image_and_its_draws(self):
        said = self.succeed("preview", "job.toml", "--rows", 3, "--epochs", 2)
        lines = said.splitlines()
        self.assertEqual(lines[0].split(), ["image", "file", "class"])
        self.assertEqual(len(lines), 5)
        self.assertIn("job-preview.png: 268 x 268 pixels, 3 images without random changes, and as drawn in 2 epochs",
                      lines[4])
        height, width, rows = read_png(self.folder / "job-preview.png")
        self.assertEqual((height, width), (268, 268))
        for i in range(3):
            number, file, label = lines[1 + i].split()
            self.assertEqual((number, label), (str(i + 1), file.split("/")[0]))
            _, _, original = read_png(self.folder / "digits" / file)
            self.assertEqual(self.tile(rows, i, 0), original)
            moved = self.tile(rows, i, 1)
            # translate_x = 1 moves by -1, 0 or 1 columns, and fills with 0.
            shifts = [[bytes(max(d, 0)) + line[max(-d, 0):28 - max(d, 0)] + bytes(max(-d, 0)) for line in original]
                      for d in (-1, 0, 1)]
            self.assertIn(moved, shifts)

    def test_nothing_random_is_the_same_in_all_epochs(self):
        self.succeed("preview", "job.toml", "--set", "translate_x=0", "--rows", 2, "--output", "a.png")
        _, _, rows = read_png(self.folder / "a.png")
        for draw in range(1, 5):
            self.assertEqual(self.tile(rows, 1, draw), self.tile(rows, 1, 0))
        self.succeed("preview", "job.toml", "--set", "rotation=30", "--rows", 2, "--output", "b.png")
        _, _, rows = read_png(self.folder / "b.png")
        self.assertNotEqual(self.tile(rows, 1, 1), self.tile(rows, 1, 2))

    def test_crops_and_columns(self):
        said = self.succeed("preview", "job.toml", "--set", "data.crop=random_resized", "--rows", 2, "--columns", 3,
                            "--epochs", 0, "--output", "plain.png")
        self.assertEqual(len(said.splitlines()), 8)
        height, width, _ = read_png(self.folder / "plain.png")
        self.assertEqual((height, width), (2 * 88 + 4, 3 * (88 + 16) - 16 + 4))

    def test_what_cannot_be_shown_is_refused(self):
        self.succeed("preview", "job.toml", "--rows", 1)
        self.assertIn("job-preview.png exists already", self.refuse("preview", "job.toml"))
        self.succeed("preview", "job.toml", "--rows", 1, "--force")
        self.assertIn("--output is sheet.jpg", self.refuse("preview", "job.toml", "--output", "sheet.jpg"))
        self.assertIn("the sheet would have", self.refuse("preview", "job.toml", "--epochs", 1000, "--force"))
        self.assertIn("--rows", self.refuse("preview", "job.toml", "--rows", 0))
        self.assertIn("none.toml", self.refuse("preview", "none.toml"))
        self.put("t.csv", "a,b,kind\n" + "".join(f"{i},{i * i},{'xy'[i % 2]}\n" for i in range(40)))
        self.put("table.toml", """
[data]
train = "t.csv"
[network]
layers = [{ type = "feature_input", features = 2 }, { type = "fully_connected", units = 2 }, { type = "softmax" }]
[training]
mini_batch_size = 8
""")
        error = self.refuse("preview", "table.toml")
        self.assertIn("a preview shows images", error)
        self.assertIn("rows", error)
        self.assertFalse((self.folder / "table-preview.png").exists())


if __name__ == "__main__":
    unittest.main()
