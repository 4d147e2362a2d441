"""Reads event files of TensorBoard, independently of Lockstep and of TensorBoard: record framing with
checksums, and the protocol buffer messages Event, Summary, Image, HistogramProto and TensorProto."""

import struct

# CRC-32C, bit by bit.
def crc32c(data):
    rest = 0xFFFFFFFF
    for byte in data:
        rest ^= byte
        for _ in range(8):
            rest = rest >> 1 ^ (0x82F63B78 if rest & 1 else 0)
    return rest ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    """The records of a TFRecord file. A checksum that does not fit raises ValueError."""
    while data:
        length, check = struct.unpack("<QI", data[:12])
        if masked(data[:8]) != check:
            raise ValueError("the checksum of a length is wrong")
        record, (check,) = data[12:12 + length], struct.unpack("<I", data[12 + length:16 + length])
        if masked(record) != check:
            raise ValueError("the checksum of a record is wrong")
        yield record
        data = data[16 + length:]


def fields(message):
    """(number, value) of a message: integers, 8 or 4 raw bytes, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        if key & 7 == 2:
            size = varint()
        if size is None or at + size > len(message):
            raise ValueError("a message is damaged")
        yield key >> 3, message[at:at + size]
        at += size


def single(message):
    return dict(fields(message))


def doubles(data):
    return list(struct.unpack(f"<{len(data) // 8}d", data))


def value_of(message):
    """(tag, value): a float, an image (height, width, PNG), a histogram (dict), or a text."""
    found = single(message)
    tag = found[1].decode()
    if 2 in found:
        return tag, struct.unpack("<f", found[2])[0]
    if 4 in found:
        image = single(found[4])
        return tag, (image[1], image[2], image[4])
    if 5 in found:
        histogram = single(found[5])
        names = {1: "min", 2: "max", 3: "num", 4: "sum", 5: "sum_squares"}
        read = {name: doubles(histogram[number])[0] for number, name in names.items()}
        return tag, read | {"limits": doubles(histogram[6]), "counts": doubles(histogram[7])}
    return tag, single(found[8])[8].decode()


def events(path):
    """(step, tag, value) of a file; (step, "start", None) where a training went on."""
    for number, record in enumerate(records(path.read_bytes())):
        event = single(record)
        if number == 0:
            assert event[3] == b"brain.Event:2", event
            continue
        step = event.get(2, 0)
        if 7 in event:
            yield step, "start", None
        for key, value in fields(event.get(5, b"")):
            assert key == 1
            yield (step, *value_of(value))
