#!/usr/bin/env python3
"""Tests of the index of images in an S3 store, of archives, and of runs that are written to a store.

usage: s3_shards_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import tarfile
import time
import unittest
import zlib

import support
from s3_support import JOB, S3Test


def with_comment(png):
    """The same image in other bytes."""
    chunk = b"tEXt" + b"Comment\0other"
    return png[:-12] + struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) + png[-12:]


class Index(S3Test):
    """Folder, objects and shards, with and without an index, give one receipt."""

    def upload(self):
        self.store.objects = {("data-1", "kept"): b"x"}
        done = self.s3("upload", "images", "s3://data-1/all of it/")
        self.assertEqual(done.returncode, 0, done.stderr)

    def shard(self, target):
        done = self.s3("shard", "images", target, "--megabytes", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"\A60 images in 1 shard in ")

    def data(self, name):
        self.write(JOB.replace('"digits"', f'"{name}"'))

    def test_objects(self):
        local = self.trained_locally()
        self.upload()
        self.store.log.clear()
        self.s3("train", "job.toml", "--check")
        self.assertEqual(self.reads(), [])
        self.assertEqual(self.trained("indexed"), local)
        self.assertEqual(len(self.reads()), len(set(self.reads())))  # each once
        self.assertEqual(self.trained("uncached", LOCKSTEP_S3_CACHE_GB="0"), local)
        # An image that is not the one of the index is read at the start: bits are those of a folder, also of a copy.
        key = min(k for k in self.store.objects if "/3/" in k[1])
        other = self.store.objects[min(k for k in self.store.objects if "/7/" in k[1])]
        changed = self.folder / "images" / key[1][len("all of it/"):]
        self.store.objects[key] = other
        changed.write_bytes(other)
        self.assertEqual(self.trained("changed"), self.trained_again())
        # Without the index, where copies are not looked for, and with a damaged one.
        self.store.objects[key] = with_comment(other)
        changed.write_bytes(with_comment(other))
        del self.store.objects["data-1", "all of it/lockstep-index"]
        self.assertEqual(self.trained("plain"), self.trained_again())
        self.store.objects["data-1", "all of it/lockstep-index"] = b"lockstep image index 1\nx"
        self.refused(r"s3://data-1/all of it/lockstep-index is damaged: it ends too early")

    def trained_again(self):
        shutil.rmtree(self.folder / "runs/local")
        return self.trained_locally()

    def test_shards(self):
        local = self.trained_locally()
        self.store.objects = {("data-1", "kept"): b"x"}
        self.shard("s3://data-1/shards")
        self.shard("shards")
        for name in ("shard-000000.tar", "lockstep-index"):
            self.assertEqual(self.store.objects["data-1", "shards/" + name], (self.folder / "shards" / name).read_bytes())
        self.data("s3://data-1/shards")
        for name, environment in {"blocks": {}, "parts": {"LOCKSTEP_S3_CACHE_GB": "0"}}.items():
            self.assertEqual(self.trained(name, **environment), local)
        done = self.s3("train", "job.toml", "--quiet", "--out", "runs/workers", "--workers", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "runs/workers/receipt.jsonl").read_bytes(), local)
        self.assertEqual(self.trained("again"), local)
        # A damaged block in the cache is read again.
        blocks = [f for f in (self.folder / "cache").rglob("*") if f.is_file() and f.stat().st_size > 50000]
        self.assertEqual(len(blocks), 1)
        blocks[0].write_bytes(bytes(byte ^ 1 for byte in blocks[0].read_bytes()))
        self.assertEqual(self.trained("damaged"), local)
        self.data("shards")
        self.assertEqual(self.trained("local-shards"), local)
        # Without an index.
        (self.folder / "shards/lockstep-index").unlink()
        index = self.store.objects.pop(("data-1", "shards/lockstep-index"))
        self.assertEqual(self.trained("local-scan"), local)
        self.data("s3://data-1/shards")
        self.assertEqual(self.trained("scan"), local)
        # Other shards than those of the index, and other contents.
        self.store.objects["data-1", "shards/lockstep-index"] = index
        shard = self.store.objects["data-1", "shards/shard-000000.tar"]
        self.store.objects["data-1", "shards/shard-000000.tar"] = shard + bytes(512)
        self.refused(r"shards/shard-000000.tar is not the one of the index")
        self.store.objects["data-1", "shards/shard-000000.tar"] = shard.replace(b"IDAT", b"IDAU")
        self.refused(r"the contents of s3://data-1/shards/.*\.png do not match the index")
        del self.store.objects["data-1", "shards/shard-000000.tar"]
        self.refused(r"shards/shard-000000.tar is missing")

    def test_webdataset_layout(self):
        self.shard("shards")
        with tarfile.open(self.folder / "shards/shard-000000.tar") as archive:
            members = {member.name: archive.extractfile(member).read() for member in archive}
        self.assertEqual(len(members), 120)
        classes = sorted({file.parent.name for file in self.images.rglob("*.png")})
        for file in self.images.rglob("*.png"):
            stem = file.stem.replace("%", "%25").replace(".", "%2E")
            key = f"{file.parent.name}/{stem}"
            self.assertEqual(members[key + ".png"], file.read_bytes())
            self.assertEqual(members[key + ".cls"], str(classes.index(file.parent.name)).encode())

    def test_processes_of_a_host_fetch_once_together(self):
        """Two workers read ahead through three epochs of one cache: each image, or block, is fetched once."""
        self.upload()
        self.store.objects["shards-1", "kept"] = b"x"
        self.shard("s3://shards-1/x")
        # A slow store: the workers' requests for what both need overlap.
        self.store.fault = lambda method, path: time.sleep(0.002)
        for data, wanted in {"s3://data-1/all of it": (".png", 60), "s3://shards-1/x": (".tar", 1)}.items():
            self.data(data)
            self.store.log.clear()
            done = self.s3("train", "job.toml", "--quiet", "--workers", "2", "--set", "max_epochs=3")
            self.assertEqual(done.returncode, 0, done.stderr)
            got = [path for method, path in self.store.log if method == "GET" and path.endswith(wanted[0])]
            self.assertEqual(len(set(got)), wanted[1])
            self.assertEqual(sorted(got), sorted(set(got)))

    def test_random_disturbances(self):
        local = self.trained_locally()
        self.upload()
        self.shard("s3://data-1/shards")
        caused = self.disturb(11)
        runs = 0
        while len(caused) < 60:
            runs += 1
            self.data(["s3://data-1/all of it", "s3://data-1/shards"][runs % 2])
            cache = {"LOCKSTEP_S3_CACHE_GB": "0"} if runs % 4 < 2 else {"XDG_CACHE_HOME": str(self.folder / f"c{runs}")}
            self.assertEqual(self.trained(f"run-{runs}", **cache), local)


class Outputs(S3Test):
    """Runs in the store."""

    OUT = "s3://runs-1/a b/run"
    LONG = JOB.replace('"digits"', '"s3://data-1/all of it"').replace("max_epochs = 1", "max_epochs = 12").replace(
        "[training]", "[training]\ncheckpoint_frequency = 20")

    def setUp(self):
        super().setUp()
        self.write(self.LONG)
        done = self.s3("train", "job.toml", "--quiet", "--out", "runs/here")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.receipt = (self.folder / "runs/here/receipt.jsonl").read_bytes()

    def stored(self, name):
        return self.store.objects["runs-1", "a b/run/" + name]

    def train(self, *arguments, machine="one", **environment):
        cache = str(self.folder / machine)
        return self.s3("train", "job.toml", "--quiet", "--out", self.OUT, *arguments, XDG_CACHE_HOME=cache, **environment)

    def test_a_run_in_the_store(self):
        chance = random.Random(3)
        self.store.fault = lambda method, path: chance.choice(["lost" if method == "PUT" else "cut", "slow down", None, None])
        done = self.train()
        self.store.fault = lambda method, path: None
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.stored("receipt.jsonl"), self.receipt)
        self.assertEqual(self.stored("model.safetensors"), (self.folder / "runs/here/model.safetensors").read_bytes())
        self.assertEqual(list((self.folder / "one/lockstep/runs").glob("*/*")), [])
        self.assertRegex(self.train("--resume", "--json", machine="other").stdout, r'"model":"s3://runs-1/a b/run/model.safetensors"')
        done = self.s3("evaluate", self.OUT, "images", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(self.train().stderr, r"s3://runs-1/a b/run contains a run")
        # Objects that the pointer does not name are nothing; a changed one is an error.
        named = json.loads(self.stored("lockstep-run.json"))["files"]
        objects = {key[len("a b/run/"):] for bucket, key in self.store.objects if bucket == "runs-1"}
        self.assertEqual({file["object"] for file in named}, {name for name in objects if name.startswith("files/")})
        checkpoint = next(file["object"] for file in named if file["name"].startswith("checkpoints/"))
        self.store.objects["runs-1", "a b/run/" + checkpoint] += b"x"
        self.assertRegex(self.train("--resume").stderr, r"is not the file that the run wrote")
        self.store.objects["runs-1", "a b/run/lockstep-run.json"] = json.dumps(
            {"version": 1, "files": [{"name": "../x", "object": "y", "bytes": 1, "digest": ""}]}).encode()
        self.assertRegex(self.train("--resume").stderr, r"lockstep-run.json is damaged: a file lies outside the run")

    def test_resume_on_another_machine(self):
        """Killed at a checkpoint, continued elsewhere with two workers."""
        pointers = []

        def fault(method, path):
            if method == "PUT" and path.endswith("/lockstep-run.json"):
                pointers.append(path)
            if len(pointers) == 1 and method == "PUT" and "/files/" in path and "checkpoint" in path:
                pointers.append("half-written")
            if "half-written" in pointers:
                process.kill()
                return "cut"
            return None

        environment = {**os.environ, **self.store.environment(HOME=str(self.folder), XDG_CACHE_HOME=str(self.folder / "one"))}
        self.write(self.LONG.replace("max_epochs = 12", "max_epochs = 600"))
        done = self.s3("train", "job.toml", "--quiet", "--out", "runs/long")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.store.fault = fault
        process = subprocess.Popen([support.COMMAND, "train", "job.toml", "--quiet", "--out", self.OUT],
                                   cwd=self.folder, env=environment, stderr=subprocess.DEVNULL)
        self.addCleanup(process.kill)
        # Stopped most of the time, so that a fast machine copies several checkpoints before the end.
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.04)
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
        self.assertIsNotNone(process.poll())
        self.store.fault = lambda method, path: None
        self.assertIn("half-written", pointers)
        self.assertNotIn(("runs-1", "a b/run/receipt.jsonl"), self.store.objects)
        self.store.log.clear()
        done = self.train("--resume", "--workers", "2", machine="two")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.stored("receipt.jsonl"), (self.folder / "runs/long/receipt.jsonl").read_bytes())
        self.assertTrue([1 for method, path in self.store.log if method == "GET" and "/files/" in path and "checkpoint-" in path])

    def test_in_a_store_that_compares_quotes(self):
        self.store.ceph = True
        done = self.train()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.stored("receipt.jsonl"), self.receipt)

    def folder_of(self, machine):
        return next(path for path in (self.folder / machine / "lockstep/runs").iterdir() if "." not in path.name)

    def failed(self, earlier):
        """A training whose writes the store refuses, all, or all after an earlier state. Returns standard error and the
        folder that stays on the machine."""
        if earlier:
            done = self.train("--set", "max_epochs=6")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.store.fault = lambda method, path: "error" if method == "PUT" else None
        done = self.train(*["--resume"] * earlier, LOCKSTEP_S3_RETRY_SECONDS="0.2")
        self.store.fault = lambda method, path: None
        self.assertEqual(done.returncode, 1, done.stderr)
        folder = self.folder_of("one")
        self.assertEqual((folder / "receipt.jsonl").read_bytes(), self.receipt)
        return done.stderr, folder

    def forget(self):
        for name in [name for name in self.store.objects if name[0] == "runs-1"]:
            del self.store.objects[name]

    def id_of(self, text):
        return json.loads(text)["id"]  # made at the first start

    def test_a_run_that_did_not_reach_the_store_is_not_lost(self):
        for earlier in (False, True):
            with self.subTest(earlier):
                error, folder = self.failed(earlier)
                self.assertRegex(error, r"cannot write s3://runs-1/a b/run/.*\n.*hint: the run is in .*; copy it with: "
                                        r"lockstep train (job.toml )?--out 's3://runs-1/a b/run' --resume\n")
                log, run = (folder / "log.jsonl").read_bytes(), self.id_of((folder / "run.json").read_text())
                again = self.train()
                self.assertEqual(again.returncode, 1)
                self.assertRegex(again.stderr, "contains a run" if earlier else
                                 rf"{folder} has a run that did not reach s3://runs-1/a b/run\n.*with --resume")
                self.assertEqual((folder / "log.jsonl").read_bytes(), log)
                resumed = self.train("--resume")
                self.assertEqual(resumed.returncode, 0, resumed.stderr)
                self.assertIn(f"the run continues from {folder}, whose state did not reach", resumed.stderr)
                self.assertEqual(self.stored("receipt.jsonl"), self.receipt)
                self.assertEqual(self.id_of(self.stored("run.json")), run)
                self.assertEqual([p for p in folder.parent.iterdir() if not p.name.endswith(".lock")], [])
                self.forget()

    def test_a_state_that_the_store_has_left_behind_is_moved_aside(self):
        for known in (True, False):
            with self.subTest(known):
                _, folder = self.failed(True)
                if not known:  # of an earlier version
                    folder.with_name(folder.name + ".json").unlink()
                log = (folder / "log.jsonl").read_bytes()
                if known:
                    self.assertEqual(self.train("--resume", machine="two").returncode, 0)
                done = self.train("--resume", "--set", "max_epochs=13")
                self.assertEqual(done.returncode, 0, done.stderr)
                aside = re.search(r"whose files are now in (\S+)", done.stderr)
                self.assertTrue(aside, done.stderr)
                self.assertEqual((pathlib.Path(aside[1]) / "log.jsonl").read_bytes(), log)
                self.assertTrue(self.stored("receipt.jsonl").startswith(self.receipt))
                self.forget()

    def test_the_run_store_knows_the_address(self):
        home = {"LOCKSTEP_HOME": str(self.folder / "home")}
        self.assertEqual(self.train(**home).returncode, 0)
        self.assertEqual(json.loads(self.stored("run.json"))["address"], self.OUT)
        listed = json.loads(self.s3("runs", "list", "--json", **home).stdout)
        self.assertEqual([(run["folder"], run["state"]) for run in listed], [(self.OUT, "finished")])
        self.assertIn(self.OUT, self.s3("runs", "list", "--csv", **home).stdout)
        self.assertRegex(self.s3("runs", "show", self.OUT + "/", **home).stdout, f"folder +{self.OUT}\n")
        done = self.s3("runs", "export", "1", **home)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(done.stdout.count("\n"), 12)
        # Continued on another machine it is the same run; a local run has no address.
        self.assertEqual(self.train("--resume", "--set", "max_epochs=13", machine="two", **home).returncode, 0)
        listed = json.loads(self.s3("runs", "list", "--json", "--columns", "number,epoch", **home).stdout)
        self.assertEqual([(run["folder"], run["number"], run["epoch"]) for run in listed], [(self.OUT, 1, 13)])
        self.assertEqual(json.loads((self.folder / "runs/here/run.json").read_text())["address"], "")
        done = self.s3("runs", "rm", "1", "--files", **home)
        self.assertRegex(done.stderr, rf"the files of run 1 are in {self.OUT}")
        self.assertEqual(self.s3("runs", "rm", "1", **home).returncode, 0)
        self.assertEqual(self.s3("runs", "list", **home).stdout, "no runs\n")

    def test_what_cannot_be_removed_is_removed_later(self):
        """A run does not fail where a store refuses to remove objects, and they are not forgotten."""
        self.store.fault = lambda method, path: "error" if method == "DELETE" else None
        done = self.train(LOCKSTEP_S3_RETRY_SECONDS="0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.train("--resume", "--set", "max_epochs=13", LOCKSTEP_S3_RETRY_SECONDS="0.1")
        self.assertEqual(done.returncode, 0, done.stderr)
        pointer = json.loads(self.stored("lockstep-run.json"))
        objects = lambda: {key[len("a b/run/"):] for bucket, key in self.store.objects if "/files/" in key}
        named = {file["object"] for file in pointer["files"]}
        self.assertTrue(objects() - named)
        self.assertEqual(objects() - named, set(pointer["replaced"]))
        # Nothing but contents of files is removed, whatever a pointer says.
        self.store.objects["runs-1", "a b/run/other"] = b"x"
        pointer["replaced"] += ["other", "../run/other", 7]
        self.store.objects["runs-1", "a b/run/lockstep-run.json"] = json.dumps(pointer).encode()
        self.store.fault = lambda method, path: None
        done = self.train("--resume", "--set", "max_epochs=14", machine="two")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(objects(), {file["object"] for file in json.loads(self.stored("lockstep-run.json"))["files"]})
        self.assertIn(("runs-1", "a b/run/other"), self.store.objects)

    def test_two_processes_cannot_write_one_run(self):
        def fault(method, path):
            if method == "PUT" and path.endswith("/lockstep-run.json"):
                self.store.objects["runs-1", "a b/run/lockstep-run.json"] = b"{}"
            return None

        self.store.fault = fault
        self.assertRegex(self.train().stderr, r"another process has written the run s3://runs-1/a b/run")
        # Files for other readers are those of the process that wrote the pointer.
        self.assertNotIn(("runs-1", "a b/run/receipt.jsonl"), self.store.objects)


if __name__ == "__main__":
    unittest.main()
