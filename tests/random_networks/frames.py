"""Results of a program, case by case, as frame.h writes them."""

import json
import subprocess

import numpy

TYPES = {"f32": numpy.float32, "u8": numpy.uint8, "i32": numpy.int32}


class Frames:
    """The output of a command about cases, in order: for each its head and its arrays by name."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)

    def __iter__(self):
        out = self.process.stdout
        for line in iter(out.readline, b""):
            head = json.loads(line)
            blob, arrays, at = out.read(head["bytes"]), {}, 0
            for entry in head.get("arrays", []):
                count = int(numpy.prod(entry["shape"], dtype=int))
                array = numpy.frombuffer(blob, TYPES[entry["dtype"]], count, at)
                arrays[entry["name"]] = array.reshape(entry["shape"])
                at += array.nbytes
            yield head, arrays

    def end(self):
        """The exit code."""
        self.process.stdout.close()
        return self.process.wait(60)


def distance(a, b):
    return float(numpy.linalg.norm((a - b).ravel()))
