#!/usr/bin/env python3
"""Files of every kind that the command reads, damaged at random: each is read to the same values, or refused
with an error that names it. No crash, no hang, no other values, no more than 1 GiB of memory.

usage: damaged_files_test.py PATH_OF_LOCKSTEP NUMBER [SEED]

The same number and seed damage the same files in the same way. A failure keeps the file and says how to
repeat it.
"""

import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading

COMMAND, NUMBER = os.path.abspath(sys.argv[1]), int(sys.argv[2])
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
TIME_LIMIT, MEMORY_LIMIT = 120, 1 << 30

TRAINING = """
[training]
mini_batch_size = 16
shard_size = 8
max_epochs = 3
checkpoint_frequency = 2
checkpoints_kept = 3
threads = 1
"""
IMAGES_JOB = """
[data]
train = "images"
validation_fraction = 0.25
[variables]
width = 4
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = "width", kernel = 5, stride = 2 },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "fully_connected", units = 4 },
  { type = "softmax" },
]
""" + TRAINING
TABLE_JOB = """
[data]
train = "table.csv"
validation_fraction = 0.25
[network]
layers = [
  { type = "feature_input", features = 3, normalization = "z-score" },
  { type = "fully_connected", units = 3 },
  { type = "softmax" },
]
""" + TRAINING


class Defect(Exception):
    pass


def run(folder, *arguments):
    """Exit code, standard output and error; a Defect for a crash, a hang, and too much memory."""
    process = subprocess.Popen([COMMAND, *map(str, arguments)], cwd=folder, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    late = threading.Timer(TIME_LIMIT, process.kill)
    late.start()
    texts = {}
    reader = threading.Thread(target=lambda: texts.update(error=process.stderr.read()))
    reader.start()
    output = process.stdout.read()
    reader.join()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    hung = not late.is_alive()
    late.cancel()
    process.stdout.close()
    process.stderr.close()
    error = texts["error"].decode(errors="replace")
    if hung:
        raise Defect(f"it did not end in {TIME_LIMIT} s")
    if process.returncode not in (0, 1):
        raise Defect(f"it ended with {process.returncode}: {error}")
    if usage.ru_maxrss << 10 > MEMORY_LIMIT:
        raise Defect(f"it took {usage.ru_maxrss >> 10} MiB: {error}")
    for library in ("unexpected:", "exception.", "std::", "basic_string", "bad_alloc"):
        if library in error:
            raise Defect(f"raw text of a library: {error}")
    if process.returncode == 1 and not error.startswith(("error: ", "note: ")) and "\nerror: " not in error:
        raise Defect(f"no error is told: {error}")
    return process.returncode, output.decode(errors="replace"), error


def damaged(content, chance):
    """One to three changes: truncation, bits, inserted bytes, exchanged chunks, zeros, removed or repeated chunks."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.randrange(len(data) + 1)
        count = chance.choice((1, 2, 8, 64, 512))
        chunk = bytes(data[at:at + count])
        how = chance.randrange(8)
        if how == 0:
            del data[at:]
        elif how <= 2 and data:
            for _ in range(chance.choice((1, 1, 2, 8))):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        elif how == 3:
            data[at:at] = chance.randbytes(count)
        elif how == 4:
            other = chance.randrange(len(data) + 1)
            there = bytes(data[other:other + count])
            if len(there) == len(chunk):
                data[at:at + count], data[other:other + count] = there, chunk
        elif how == 5:
            data[at:at + count] = bytes(len(chunk))
        elif how == 6:
            del data[at:at + count]
        else:
            data[at:at] = chunk
    return bytes(data)


class Files:
    """A folder with data, jobs and a finished run of each."""

    def __init__(self, folder, chance):
        self.folder = folder
        self.works("export-digits", "all", "--per-class", "10")
        for label in "0123":
            shutil.copytree(folder / "all" / label, folder / "images" / label)
            for i in range(2):
                (folder / "images" / label / f"extra{i}.pgm").write_bytes(b"P5 28 28 255\n" + chance.randbytes(784))
        rows = ["a,b,c,class"]
        for i in range(60):
            rows.append(",".join(f"{chance.gauss(i % 3, 1):.3f}" for _ in range(3)) + f",{'xyz'[i % 3]}")
        (folder / "table.csv").write_text("\n".join(rows) + "\n")
        (folder / "images.toml").write_text(IMAGES_JOB)
        (folder / "table.toml").write_text(TABLE_JOB)
        for job in ("images", "table"):
            self.works("train", f"{job}.toml", "--out", job + "-run", "--quiet")
        self.evaluation = self.values("evaluate", "images-run", "images")
        self.checks = {job: self.works("train", job + ".toml", "--check") for job in ("images", "table")}

    def works(self, *arguments):
        code, output, error = run(self.folder, *arguments)
        if code != 0:
            raise Defect(f"{arguments}: {error}")
        return output

    def values(self, *arguments):
        return {k: v for k, v in json.loads(self.works(*arguments, "--json")).items() if k != "seconds"}

    # For each kind: the file, and the result for a damaged one: "same" or "refused".

    def model(self, path):
        code, output, error = run(self.folder, "evaluate", path, "images", "--json")
        if code == 1:
            return self.refused(error, path.name)
        got = {k: v for k, v in json.loads(output).items() if k != "seconds"}
        if got != self.evaluation or "note: " in error:
            raise Defect(f"another result: {output}{error}")
        return "same"

    def resume(self, job, out, *names):
        """The run ends with the same bytes as before."""
        (out / "model.safetensors").unlink()
        code, output, error = run(self.folder, "train", f"{job}.toml", "--out", out, "--resume", "--quiet")
        if code == 1:
            return self.refused(error, *names)
        for name in ("receipt.jsonl", "model.safetensors"):
            if (out / name).read_bytes() != (self.folder / f"{job}-run" / name).read_bytes():
                raise Defect(f"another {name}: {error}")
        # Line ends other than the line feed are JSON white space.
        for line in (out / "log.jsonl").read_bytes().rstrip(b"\n").split(b"\n"):
            json.loads(line)
        return "same"

    def job_file(self, path, job):
        """A job file with a changed number is another valid job."""
        code, output, error = run(self.folder, "train", path, "--check")
        if code == 1:
            return self.refused(error, path.name, "[")
        return "same" if output == self.checks[job] else "another job"

    def image(self, path):
        code, output, error = run(self.folder, "predict", "images-run", path, "--json")
        if code == 1:
            return self.refused(error, path.name)
        if output != self.prediction:
            raise Defect(f"another image: {output}")
        return "same"

    def refused(self, error, *names):
        if not any(name in error for name in names):
            raise Defect(f"the error names none of {names}: {error}")
        return "refused"

    def one(self, kind, chance, keep):
        """Damages one file of a kind, tests it, and restores it."""
        run_of = {"table": "table"}.get(kind, "images")
        out = self.folder / "copy"
        shutil.rmtree(out, ignore_errors=True)
        if kind not in ("model", "job file", "image"):
            shutil.copytree(self.folder / f"{run_of}-run", out)
        newest = sorted((self.folder / "images-run" / "checkpoints").iterdir())[-1].name
        picture = "images/{}/{}".format(chance.choice("0123"),
                                        chance.choice(("extra0.pgm", "{}.png".format(chance.randrange(10)))))
        source, target, names = {
            "model": ("images-run/model.safetensors", "bad.safetensors", ()),
            "checkpoint": (f"copy/checkpoints/{newest}",) * 2 + ((newest,),),
            "receipt": ("copy/receipt.jsonl",) * 2 + (("receipt.jsonl",),),
            "log": ("copy/log.jsonl",) * 2 + (("log.jsonl",),),
            "job.json": ("copy/job.json",) * 2 + (("copy",),),
            "job file": ("images.toml", "bad.toml", ()),
            "image": ("images/{}/{}.png".format(chance.choice("0123"), chance.randrange(10)), "bad.png", ()),
            "trained image": (picture,) * 2 + ((os.path.basename(picture), "data"),),
            "table": ("table.csv",) * 2 + (("table.csv", "table.toml", "data"),),
        }[kind]
        content = (self.folder / source).read_bytes()
        if kind == "image":
            self.prediction = self.works("predict", "images-run", source, "--json").replace(source, str(
                self.folder / target))
        bad = damaged(content, chance)
        (self.folder / target).write_bytes(bad)
        keep.write_bytes(bad)
        try:
            path = self.folder / target
            if kind == "model":
                return self.model(path)
            if kind == "job file":
                return self.job_file(path, "images")
            if kind == "image":
                return self.image(path)
            return self.resume(run_of, out, *names)
        finally:
            (self.folder / target).write_bytes(content)


KINDS = ("model", "checkpoint", "receipt", "log", "job.json", "job file", "image", "trained image", "table")


def main():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
    keep = folder / "kept"
    results = collections.Counter()
    defects = []
    try:
        files = Files(folder, random.Random(SEED))
        for i in range(NUMBER):
            kind = KINDS[i % len(KINDS)]
            try:
                results[kind, files.one(kind, random.Random(f"{SEED} {i}"), keep)] += 1
            except (Defect, ValueError, OSError) as defect:
                kept = pathlib.Path(tempfile.gettempdir()) / f"damaged-{SEED}-{i}"
                shutil.copy(keep, kept)
                defects.append(f"number {i}, a {kind}, kept as {kept}: {defect}")
                print(defects[-1], file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for (kind, result), count in sorted(results.items()):
        print(f"{kind:15} {result:12} {count:5}")
    print(f"{NUMBER} damaged files, seed {SEED}: {len(defects)} defects")
    sys.exit(1 if defects or sum(results.values()) != NUMBER else 0)


main()
