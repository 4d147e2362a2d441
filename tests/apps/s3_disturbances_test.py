#!/usr/bin/env python3
"""Uploads, packs, trains, checkpoints into an S3 store and resumes, while everything goes wrong: right bits or a clear error.

usage: s3_disturbances_test.py PATH_OF_LOCKSTEP [--in-full] [unittest options]

Between the command and the store stands a proxy that answers 503 and 500, cuts connections, loses answers, truncates,
damages and replaces objects, and refuses expired keys. The store itself is killed and started again, and the command is
killed, too. --in-full: 200 disturbances with Ceph's radosgw (see radosgw.py); otherwise fewer, with the store of the
other tests. LOCKSTEP_SEED changes what happens.
"""

import collections
import hashlib
import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.parse

IN_FULL = "--in-full" in sys.argv
if IN_FULL:
    sys.argv.remove("--in-full")

import support  # noqa: E402
from fake_s3 import Store, sha256, signature, start_server  # noqa: E402
from s3_support import JOB, STRANGE, S3Test  # noqa: E402

KEYS = {"AKIAFIRST": "first-secret", "AKIASECOND": "second-secret"}
OF_ALL = ["slow down", "error", "cut", "lost", "kill the store", "expire"]
OF_READS = ["truncate", "short", "damage", "change"]
KINDS = {*OF_ALL, *OF_READS, "kill the command"}


class Proxy:
    """Forwards requests to a store as they are, and disturbs some of them while `chance` is set."""

    def __init__(self, store, keys_file):
        self.store, self.keys_file = store, keys_file
        self.chance, self.often = None, 0.15
        self.caused = collections.Counter()
        self.lock = threading.Lock()
        self.restarting = None
        self.use_keys("AKIAFIRST")
        self.server = start_server(0, self.serve)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def close(self):
        self.calm()
        self.server.shutdown()
        self.server.server_close()

    def use_keys(self, access):
        """Only these are valid from now on; they are in the credentials file."""
        self.valid = access
        new = self.keys_file.with_suffix(".new")
        new.write_text(f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {KEYS[access]}\n")
        new.replace(self.keys_file)

    def calm(self):
        self.chance = None
        if self.restarting:
            self.restarting.join()

    def next(self, kinds):
        with self.lock:
            if self.chance is None or self.chance.random() > self.often:
                return None
            kind = self.chance.choice(kinds)
            if kind == "kill the store" and (self.restarting and self.restarting.is_alive() or self.chance.random() < 0.6):
                kind = "cut"
            self.caused[kind] += 1
            if kind == "expire":
                self.use_keys(next(name for name in KEYS if name != self.valid))
            if kind == "kill the store":
                self.restarting = threading.Thread(target=self.store.restart)
                self.restarting.start()
            return kind

    def serve(self, h):
        body = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        is_object = h.command == "GET" and "list-type" not in h.path
        kind = self.next(OF_ALL + OF_READS if is_object else OF_ALL)
        if kind == "slow down":
            return self.answer(h, 503, [], b"<Error><Code>SlowDown</Code></Error>")
        if kind == "error":
            return self.answer(h, 500, [], b"<Error><Code>InternalError</Code></Error>")
        if kind == "cut":
            h.close_connection = True
            return None
        if self.chance and f"Credential={self.valid}/" not in h.headers.get("Authorization", ""):
            return self.answer(h, 400, [], b"<Error><Code>ExpiredToken</Code></Error>")
        try:
            status, headers, answer = self.forward(h.command, h.path, h.headers.items(), body)
        except (OSError, http.client.HTTPException):  # the store is being killed
            h.close_connection = True
            return None
        if kind == "lost":
            h.close_connection = True
            return None
        return self.changed(h, status, headers, answer, kind if status in (200, 206) and answer else None)

    def changed(self, h, status, headers, answer, kind):
        length = len(answer)
        if kind in ("truncate", "short"):
            answer = answer[:length // 2]
            h.close_connection = kind == "truncate"
        if kind in ("damage", "change"):
            answer = bytes([answer[0] ^ 1]) + answer[1:]
        if kind == "change":
            headers = [(k, v) for k, v in headers if k.lower() != "etag"]
            headers.append(("ETag", f'"{hashlib.md5(answer).hexdigest()}"'))
        return self.answer(h, status, headers, answer, length if kind == "truncate" else None)

    def forward(self, method, path, headers, body):
        connection = http.client.HTTPConnection(self.store.place, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in headers:
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def answer(self, h, status, headers, body, length=None):
        h.send_response_only(status)
        told = None
        for name, value in headers:
            if name.lower() == "content-length":
                told = value
            elif name.lower() not in ("connection", "transfer-encoding"):
                h.send_header(name, value)
        h.send_header("Content-Length", told if h.command == "HEAD" and told else str(length or len(body)))
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def request(self, method, path):
        """A signed request of the test itself, undisturbed."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {"host": self.store.place, "x-amz-content-sha256": sha256(b""), "x-amz-date": stamp}
        names = sorted(headers)
        signed = signature(KEYS[self.valid], method, path, [], headers, names, sha256(b""), "us-east-1", stamp)
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.valid}/{stamp[:8]}/us-east-1/s3/aws4_request, "
                                    f"SignedHeaders={';'.join(names)}, Signature={signed}")
        return self.forward(method, urllib.parse.quote(path), headers.items(), b"")


class SmallStore(Store):
    """The store of the other tests."""

    def __init__(self):
        super().__init__()
        self.keys = {access: (secret, None) for access, secret in KEYS.items()}
        self.place = f"127.0.0.1:{self.server.server_port}"

    def restart(self):
        self.start_again(0.5)

    def make_bucket(self, _, name):
        self.objects[name, "kept"] = b"x"


class RealStore:
    def __init__(self):
        from radosgw import Radosgw
        self.radosgw = Radosgw()
        self.place = self.radosgw.url[len("http://"):]
        for access, secret in KEYS.items():
            self.radosgw.add_keys(access, secret)

    def restart(self):
        self.radosgw.kill()
        time.sleep(1)
        self.radosgw.start()

    def make_bucket(self, proxy, name):
        status, _, answer = proxy.request("PUT", f"/{name}")
        assert status == 200, answer

    def close(self):
        self.radosgw.close()


class EverythingGoesWrong(S3Test):
    WANTED = 200 if IN_FULL else 30

    def setUp(self):
        super().setUp()
        self.store.close()
        store = RealStore() if IN_FULL else SmallStore()
        self.addCleanup(store.close)
        self.proxy = Proxy(store, self.folder / "keys")
        self.addCleanup(self.proxy.close)
        seed = int(os.environ.get("LOCKSTEP_SEED", "1"))
        print(f"seed {seed}", file=sys.stderr)
        self.chance = random.Random(seed)
        self.errors = []
        self.job = JOB.replace("max_epochs = 1", "max_epochs = 10").replace("[training]", "[training]\ncheckpoint_frequency = 6")

    def environment(self, machine):
        return {**{k: v for k, v in os.environ.items() if not k.startswith("AWS_")},
                "AWS_ENDPOINT_URL": f"http://{self.proxy.address}", "AWS_CONFIG_FILE": "/dev/null",
                "AWS_SHARED_CREDENTIALS_FILE": str(self.folder / "keys"), "AWS_REGION": "us-east-1",
                "AWS_EC2_METADATA_DISABLED": "true", "HOME": str(self.folder), "LOCKSTEP_S3_PART_MB": "5",
                "XDG_CACHE_HOME": str(self.folder / machine), "LOCKSTEP_S3_RETRY_SECONDS": "20"}

    def repeat(self, arguments, again, machine=lambda attempt: "machine", killable=False):
        """Runs the command until it succeeds. Every failure must name what cannot be read or written."""
        for attempt in range(20):
            self.proxy.chance = self.chance
            process = subprocess.Popen([support.COMMAND, *(again if attempt else arguments)], cwd=self.folder, text=True,
                                       env=self.environment(machine(attempt)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            killed = killable and self.chance.random() < 0.4
            if killed:
                time.sleep(self.chance.uniform(0.2, 1))
                killed = process.poll() is None
                process.kill()
            output, errors = process.communicate(timeout=300)
            if process.returncode == 0:
                return output
            if killed:
                self.proxy.caused["kill the command"] += 1
                continue
            self.assertEqual(process.returncode, 1, errors)
            self.assertRegex(errors, r"error: .*s3://bucket")
            self.assertNotRegex(errors, "-secret|internal error|this is a bug")
            self.errors.append(errors.strip().splitlines()[0])
        raise AssertionError(f"no success: {self.errors[-1]}")

    def test_right_bits_or_a_clear_error(self):
        (self.folder / "local.toml").write_text(self.job.replace('"digits"', '"images"'))
        done = self.run_command("train", "local.toml", "--quiet", "--out", "runs/local")
        self.assertEqual(done.returncode, 0, done.stderr)
        receipt = (self.folder / "runs/local/receipt.jsonl").read_bytes()
        model = (self.folder / "runs/local/model.safetensors").read_bytes()
        (self.folder / "images/0/large.bin").write_bytes(random.Random(2).randbytes(22 << 20))
        cycles = 0
        while self.proxy.caused.total() < self.WANTED:
            cycles += 1
            bucket = f"bucket-{cycles}"
            self.proxy.calm()
            self.proxy.store.make_bucket(self.proxy, bucket)
            upload = "upload", "images", f"s3://{bucket}/all of it"
            self.repeat(upload, upload, killable=True)
            pack = "shard", "images", f"s3://{bucket}/shards", "--megabytes", "1"
            self.repeat(pack, pack)
            data = f"s3://{bucket}/{['all of it', 'shards'][cycles % 2]}"
            (self.folder / "job.toml").write_text(self.job.replace('"digits"', f'"{data}"'))
            train = ["train", "job.toml", "--quiet", "--out", f"s3://{bucket}/run"]
            if cycles % 3 == 0:
                train += ["--workers", "2"]
            # Every attempt on another machine: nothing local remains.
            self.repeat(train, [*train, "--resume"], lambda attempt, c=cycles: f"machine-{c}-{attempt}", killable=True)
            self.proxy.calm()
            self.assertEqual(self.proxy.request("GET", f"/{bucket}/run/receipt.jsonl")[2], receipt)
            self.assertEqual(self.proxy.request("GET", f"/{bucket}/run/model.safetensors")[2], model)
            for name in STRANGE:
                file = next((self.folder / "images").rglob(f"{name}.png"))
                key = f"/{bucket}/all of it/{file.relative_to(self.folder / 'images').as_posix()}"
                self.assertEqual(self.proxy.request("GET", key)[2], file.read_bytes())
            large = self.proxy.request("GET", f"/{bucket}/all of it/0/large.bin")[2]
            self.assertEqual(large, (self.folder / "images/0/large.bin").read_bytes())
        if IN_FULL:
            self.assertEqual(set(self.proxy.caused), KINDS)
        print(f"{self.proxy.caused.total()} disturbances in {cycles} cycles: {dict(self.proxy.caused)}; "
              f"{len(self.errors)} attempts ended with a clear error, all others with the right bits", file=sys.stderr)
        for error in self.errors:
            print("  " + error, file=sys.stderr)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the store ends
    unittest.main()
