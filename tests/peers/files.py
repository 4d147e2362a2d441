"""Reads and writes Lockstep's file formats, based only on their specifications."""

import json
import struct
import zlib

import numpy


def write_png(path, image):
    """Writes height x width x 3 bytes as a PNG file (W3C Portable Network Graphics, filter 0)."""
    height, width, channels = image.shape
    assert channels == 3 and image.dtype == numpy.uint8

    def chunk(kind, data):
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    rows = b"".join(b"\0" + row.tobytes() for row in image)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header))
        file.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def read_safetensors(path):
    """The tensors of a safetensors file by name: fp32 arrays."""
    with open(path, "rb") as file:
        data = file.read()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        assert entry["dtype"] == "F32", (name, entry)
        first, last = (begin + offset for offset in entry["data_offsets"])
        values = numpy.frombuffer(data[first:last], "<f4")
        tensors[name] = values.reshape(entry["shape"]).copy()
    return tensors


def read_json_lines(path):
    """The objects of a file with one JSON object a line."""
    with open(path) as file:
        return [json.loads(line) for line in file]
