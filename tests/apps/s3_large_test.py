#!/usr/bin/env python3
"""Tests of large objects in an S3 store, of checksums, and of what commands write to a store or refuse.

usage: s3_large_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import base64
import hashlib
import random
import unittest
import zlib

from s3_support import S3Test

PARTS = {"LOCKSTEP_S3_PART_MB": "1"}  # objects above 4 MB are written in parts


class Parts(S3Test):
    def setUp(self):
        super().setUp()
        self.store.objects = {("data-1", "kept"): b"x"}
        (self.folder / "large").mkdir()
        self.bytes = random.Random(1).randbytes((9 << 20) + 17)
        (self.folder / "large/a b=c.bin").write_bytes(self.bytes)
        (self.folder / "large/small").write_bytes(b"small")

    def upload(self, **environment):
        return self.s3("upload", "large", "s3://data-1/x", **PARTS, **environment)

    def methods(self, name):
        return [method for method, path in self.store.log if name in path]

    def test_a_large_object_is_written_in_parts(self):
        done = self.upload()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.store.objects["data-1", "x/a b=c.bin"], self.bytes)
        self.assertEqual(self.methods("a%20b"), ["POST"] + ["PUT"] * 10 + ["POST"])
        self.assertRegex(self.store.tags["data-1", "x/a b=c.bin"], r"\A\w{32}-10\Z")
        self.assertEqual(self.store.uploads, {})
        # What is there is not written again; other contents are.
        self.store.log.clear()
        self.assertIn("of which 2 were there already", self.upload().stdout)
        self.assertEqual(self.methods("a%20b"), [])
        (self.folder / "large/a b=c.bin").write_bytes(self.bytes[:-1] + b"x")
        self.assertIn("of which 1 were there already", self.upload().stdout)
        self.assertEqual(self.store.objects["data-1", "x/a b=c.bin"], self.bytes[:-1] + b"x")
        self.refused("LOCKSTEP_S3_PART_MB is `0`", "upload", "large", "s3://data-1/x", LOCKSTEP_S3_PART_MB="0")

    def test_faults_and_lost_answers(self):
        chance = random.Random(3)
        self.store.fault = lambda method, path: chance.choice(["error", "cut", "slow down", "lost", "late", None, None])
        done = self.upload()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.store.objects["data-1", "x/a b=c.bin"], self.bytes)

    def test_a_failure_leaves_nothing(self):
        for bad in ("partNumber=7", "uploadId"):
            self.store.fault = lambda method, path, bad=bad: "error" if bad in path and method != "DELETE" else None
            self.refused(r"cannot write s3://data-1/x/a b=c.bin: .*InternalError", "upload", "large", "s3://data-1/x",
                         LOCKSTEP_S3_RETRY_SECONDS="0.3", **PARTS)
            self.assertNotIn(("data-1", "x/a b=c.bin"), self.store.objects)
            self.assertEqual(self.store.uploads, {})

    def test_a_model_in_parts(self):
        """The files of a run are written in parts, and read again, as others are."""
        self.store.put_folder("data-1", "all of it/", self.images)
        layer = '{ type = "fully_connected", units = 10 },'
        self.write((self.folder / "job.toml").read_text().replace(layer, layer.replace("10", "2000") + layer))
        done = self.s3("train", "job.toml", "--quiet", "--out", "s3://data-1/run", **PARTS)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(self.store.objects["data-1", "run/model.safetensors"]), 4 << 20)
        self.assertIn("-", self.store.tags["data-1", "run/model.safetensors"])
        done = self.s3("evaluate", "s3://data-1/run", "images")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("contains a run", self.s3("train", "job.toml", "--out", "s3://data-1/run").stderr)


def crc(data, polynomial, bits):
    value = mask = (1 << bits) - 1
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
    return (value ^ mask).to_bytes(bits // 8, "big")


class Checksums(S3Test):
    def test_they_are_verified(self):
        """Of objects whose ETag is not an MD5, as encrypted ones have."""
        self.trained("run")
        name = "data-1", "all of it/" + sorted(f.relative_to(self.images).as_posix() for f in self.images.rglob("*.png"))[0]
        data = self.store.objects[name]
        self.store.tags[name] = "no-md5"
        predict = "predict", "runs/run", f"s3://{name[0]}/{name[1]}"
        quick = {"LOCKSTEP_S3_RETRY_SECONDS": "0.2", "LOCKSTEP_S3_CACHE_GB": "0"}
        right = {"sha256": hashlib.sha256(data).digest(), "crc32": zlib.crc32(data).to_bytes(4, "big"),
                 "crc32c": crc(data, 0x82f63b78, 32), "crc64nvme": crc(data, 0x9a6c9329ac4bc9b5, 64)}
        self.assertEqual(crc(b"123456789", 0x9a6c9329ac4bc9b5, 64).hex(), "ae8b14860a799888")
        for kind, digest in right.items():
            with self.subTest(kind):
                self.store.checksums[name] = {f"x-amz-checksum-{kind}": base64.b64encode(digest).decode()}
                self.assertEqual(self.s3(*predict, **quick).returncode, 0)
                self.store.checksums[name] = {f"x-amz-checksum-{kind}": base64.b64encode(bytes(len(digest))).decode()}
                self.refused("do not fit the object's checksum", *predict, **quick)
        # Checksums of parts are none of the contents.
        self.store.checksums[name] = {"x-amz-checksum-crc32": "AAAAAA==-2", "x-amz-checksum-type": "COMPOSITE"}
        self.assertEqual(self.s3(*predict, **quick).returncode, 0)

    def test_written_objects_have_them(self):
        self.assertEqual(self.s3("upload", "images", "s3://data-1/y").returncode, 0)
        sent = [h for h in self.store.headers if "Content-MD5" in h or "content-md5" in h]
        self.assertTrue(sent)
        self.assertTrue(all("x-amz-checksum-sha256" in h for h in sent))


class Commands(S3Test):
    def test_predict_and_evaluate_read_archives(self):
        self.trained("run")
        self.assertEqual(self.s3("shard", "images", "s3://data-1/shards").returncode, 0)
        self.assertEqual(self.s3("shard", "images", "shards").returncode, 0)

        def rows(name):
            done = self.s3("predict", "runs/run", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.replace(name.rstrip("/") + "/", "images/")

        there = rows("s3://data-1/shards")
        self.assertEqual(there, rows("images"))
        self.assertEqual(rows("shards"), there)
        self.assertEqual(rows("s3://data-1/all of it"), there)

        def scores(name):
            done = self.s3("evaluate", "runs/run", name)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        self.assertEqual(scores("s3://data-1/shards"), scores("images"))

    def test_outputs(self):
        """What cannot be written to a store is refused with the reason, and no folder `s3:` is made."""
        job = (self.folder / "job.toml").read_text()
        self.write(job + "\n[sweep]\ntrials = 2\n[sweep.parameters]\nwidth = [2, 4]\n")
        self.refused("cannot be the folder of a sweep: its workers append to files there", "sweep", "job.toml",
                     "--out", "s3://data-1/sweep")
        self.refused("this output needs a local folder", "export-digits", "s3://data-1/digits")
        self.write(job)
        done = self.s3("submit", "job.toml", "--initial-model", "s3://data-1/none", LOCKSTEP_HOME=str(self.folder / "home"))
        self.assertEqual(done.returncode, 1)
        self.assertNotIn(str(self.folder), done.stderr.split("hint")[0].replace("job.toml", ""))
        self.assertFalse((self.folder / "s3:").exists())


if __name__ == "__main__":
    unittest.main()
