#!/usr/bin/env python3
"""Uploads to a real S3 store, trains from it and compares with the local folder. With boto3, objects are read back.

usage: real_s3_test.py PATH_OF_LOCKSTEP s3://BUCKET/PREFIX
with keys and endpoint in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL). Objects below
the prefix are replaced. Not part of ctest, because it needs a store.
"""

import json
import os
import shutil
import sys
import unittest

ADDRESS = sys.argv.pop(2).rstrip("/")

from s3_support import STRANGE  # noqa: E402
from support import JOB, CommandTest  # noqa: E402


class RealStore(CommandTest):
    def test_upload_train_evaluate(self):
        images = self.folder / "images"
        shutil.copytree(self.shared / "digits", images)
        for name, file in zip(STRANGE, sorted(images.rglob("*.png"))[::7]):
            file.rename(file.with_name(name + ".png"))
        environment = {"XDG_CACHE_HOME": str(self.folder / "cache")}

        def works(*arguments):
            done = self.run_command(*arguments, **environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout

        works("upload", "images", ADDRESS)
        self.assertIn("of which 200 were there already", works("upload", "images", ADDRESS))
        for name, data in {"here": "images", "there": ADDRESS, "again": ADDRESS}.items():
            self.write(JOB.replace('"digits"', f'"{data}"'))
            works("train", "job.toml", "--quiet", "--out", f"runs/{name}")
        receipts = [(self.folder / "runs" / name / "receipt.jsonl").read_bytes() for name in ("here", "there", "again")]
        self.assertEqual(receipts[0], receipts[1])
        self.assertEqual(receipts[0], receipts[2])
        shards = ADDRESS + "-shards"
        works("shard", "images", shards, "--megabytes", "1")
        self.write(JOB.replace('"digits"', f'"{shards}"'))
        for name, more in {"shards": [], "shards-2": ["--workers", "2"]}.items():
            works("train", "job.toml", "--quiet", "--out", f"runs/{name}", *more)
            self.assertEqual((self.folder / "runs" / name / "receipt.jsonl").read_bytes(), receipts[0])
        # A run in the store, stopped and continued elsewhere.
        out = ADDRESS + "-out-" + str(os.getpid())
        train = "train", "job.toml", "--quiet", "--out", out
        stopped = self.run_command(*train, "--set", "training.max_time=0.01", **environment)
        self.assertEqual(stopped.returncode, 130, stopped.stderr)
        works(*train, "--set", "training.max_time=0", "--resume", "--workers", "2")
        works("evaluate", out, ADDRESS)
        # A large object, in parts.
        (self.folder / "large").mkdir()
        (self.folder / "large/file").write_bytes(os.urandom((21 << 20) + 5))
        environment["LOCKSTEP_S3_PART_MB"] = "5"
        works("upload", "large", ADDRESS + "-large")
        self.assertIn("of which 1 were there already", works("upload", "large", ADDRESS + "-large"))
        works("upload", "runs/here", ADDRESS + "-run")
        there = json.loads(works("evaluate", ADDRESS + "-run", ADDRESS, "--json"))
        here = json.loads(works("evaluate", "runs/here", "images", "--json"))
        self.assertEqual({**there, "seconds": 0}, {**here, "seconds": 0})
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            return
        bucket, _, prefix = ADDRESS[len("s3://"):].partition("/")
        client = boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL"),
                              config=Config(s3={"addressing_style": "path"}))
        large = client.get_object(Bucket=bucket, Key=prefix + "-large/file")["Body"].read()
        self.assertEqual(large, (self.folder / "large/file").read_bytes())
        receipt = client.get_object(Bucket=bucket, Key=(prefix + out[len(ADDRESS):]) + "/receipt.jsonl")["Body"].read()
        self.assertEqual(receipt, receipts[0])
        for file in images.rglob("*.png"):
            key = prefix + "/" + file.relative_to(images).as_posix()
            self.assertEqual(client.get_object(Bucket=bucket, Key=key)["Body"].read(), file.read_bytes())


if __name__ == "__main__":
    unittest.main()
