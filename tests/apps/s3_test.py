#!/usr/bin/env python3
"""Tests of the command with data in an S3 store: a small one of ours, which checks signatures itself.

usage: s3_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import hashlib
import http.server
import json
import mimetypes
import random
import re
import shutil
import subprocess
import threading
import time
import unittest

from s3_support import FAULTS, JOB, S3Test
from small_job import table_job


class Trainings(S3Test):
    def test_receipt_is_that_of_the_local_folder(self):
        local = self.trained_locally()
        self.store.page = 7
        self.assertEqual(self.trained("first"), local)
        self.assertEqual(len(set(self.reads())), 60)
        # The second start reads from the disk alone; a damaged file there counts as missing.
        self.store.log.clear()
        kept = sorted((self.folder / "cache/lockstep/objects").rglob("*"))
        kept = [file for file in kept if file.is_file()]
        self.assertEqual(len(kept), 60)
        kept[0].write_bytes(b"x" + kept[0].read_bytes()[1:])
        kept[1].write_bytes(kept[1].read_bytes()[:-1])
        self.assertEqual(self.trained("second"), local)
        self.assertEqual(len(self.reads()), 2)
        # Without a cache, with workers.
        self.store.log.clear()
        done = self.s3("train", "job.toml", "--quiet", "--out", "runs/third", "--workers", "2", LOCKSTEP_S3_CACHE_GB="0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "runs/third/receipt.jsonl").read_bytes(), local)
        self.assertGreaterEqual(len(self.reads()), 60)
        # A changed image changes the bits, as it does in a folder.
        key = "data-1", "all of it/3/g%20h.png"
        some = next(k for k in self.store.objects if k != key)
        self.store.objects[some] = next(v for v in self.store.objects.values() if v != self.store.objects[some])
        self.assertNotEqual(self.trained("fourth"), local)

    def test_evaluate_predict_tables_and_models(self):
        self.trained("run")
        model = self.folder / "runs/run"

        def result(done):
            self.assertEqual(done.returncode, 0, done.stderr)
            return {key: value for key, value in json.loads(done.stdout).items() if key != "seconds"}

        here = result(self.run_command("evaluate", "runs/run", "images", "--json"))
        self.assertEqual(result(self.s3("evaluate", "runs/run", "s3://data-1/all of it/", "--json")), here)
        self.store.put_folder("models", "runs/run/", model)
        self.assertEqual(result(self.s3("evaluate", "s3://models/runs/run", "images", "--json")), here)
        files = self.run_command("predict", "runs/run", "images").stdout
        done = self.s3("predict", "runs/run", "s3://data-1/all of it")
        self.assertEqual(done.stdout.replace("s3://data-1/all of it/", "images/"), files, done.stderr)
        one = self.s3("predict", "runs/run", "s3://data-1/all of it/0/a b.png")
        self.assertRegex(one.stdout, r"\As3://data-1/all of it/0/a b.png\t")

        rows = "".join(f"{i}.5,2,small\n1{i},3e0,large\n" for i in range(10))
        (self.folder / "table.csv").write_text("length,width,kind\n" + rows)
        self.store.objects["data-1", "table.csv"] = (self.folder / "table.csv").read_bytes()
        options = {"mini_batch_size": 5, "max_epochs": 2}
        self.write(table_job("table.csv", 2, **options))
        self.assertEqual(self.run_command("train", "job.toml", "--quiet", "--out", "runs/here").returncode, 0)
        self.write(table_job("s3://data-1/table.csv", 2, **options))
        self.assertEqual(self.trained("there"), (self.folder / "runs/here/receipt.jsonl").read_bytes())

    def test_images_are_written_to_a_store(self):
        """Output images: those of a local folder, each whole or not at all."""
        self.write("""
[data]
train = "images"
targets = "inputs"
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [{ type = "convolution2d", filters = 1, kernel = 3, padding = "same" }]
loss = "mean_squared_error"
[training]
mini_batch_size = 20
max_epochs = 1
""")
        done = self.run_command("train", "job.toml", "--quiet", "--out", "runs/run")
        self.assertEqual(done.returncode, 0, done.stderr)
        here = self.run_command("predict", "runs/run", "images/3", "--out", "made")
        self.assertEqual(here.returncode, 0, here.stderr)
        made = {file.name: file.read_bytes() for file in (self.folder / "made").iterdir()}
        self.assertEqual(len(made), 6)
        predict = "predict", "runs/run", "images/3", "--out"
        self.store.objects["out-1", "kept"] = b"x"

        def written(prefix):
            return {key[len(prefix):]: data for (bucket, key), data in self.store.objects.items()
                    if bucket == "out-1" and key.startswith(prefix)}

        there = self.s3(*predict, "s3://out-1/a b/")
        self.assertEqual((there.returncode, there.stdout), (0, here.stdout.replace("\tmade/", "\ts3://out-1/a b/")),
                         there.stderr)
        self.assertEqual(written("a b/"), made)
        self.refused(r"s3://out-1/a b/.*\.png exists already", *predict, "s3://out-1/a b/")

        # A store that fails from the fourth image on.
        puts = []

        def fault(method, path):
            puts.extend([path] * (method == "PUT"))
            return "cut" if method == "PUT" and len(set(puts)) > 3 else None

        self.store.fault = fault
        self.refused(r"cannot write s3://out-1/half/.*\.png", *predict, "s3://out-1/half", LOCKSTEP_S3_RETRY_SECONDS="0.2")
        self.assertEqual(len(set(puts)), 4)
        left = written("half/")
        self.assertEqual(len(left), 3)
        self.assertEqual(left, {name: made[name] for name in left})
        self.assertEqual(self.store.uploads, {})

    def test_upload(self):
        self.store.objects = {("data-1", "all of it/kept.txt"): b"x"}
        chance = random.Random(5)
        self.store.fault = lambda method, path: chance.choice(["error", "cut", "slow down", None])
        done = self.s3("upload", "images", "s3://data-1/all of it/")
        self.assertEqual((done.returncode, done.stdout), (0, "60 files in s3://data-1/all of it/\n"), done.stderr)
        self.assertEqual(len(self.store.objects), 62)  # with the index
        self.store.fault = lambda method, path: None
        for file in self.images.rglob("*.png"):
            name = "all of it/" + file.relative_to(self.images).as_posix()
            self.assertEqual(self.store.objects["data-1", name], file.read_bytes())
        self.assertEqual(self.trained("uploaded"), self.trained_locally())
        # What is there, with the same contents, is not written again.
        names = sorted(name for name in self.store.objects if name[1].endswith(".png"))
        del self.store.objects[names[3]]
        self.store.objects[names[5]] = b"other"
        self.store.log.clear()
        done = self.s3("upload", "images", "s3://data-1/all of it/")
        self.assertEqual(done.stdout, "60 files in s3://data-1/all of it/, of which 58 were there already\n")
        self.assertEqual([method for method, _ in self.store.log].count("PUT"), 3)
        self.refused("there is no folder nowhere", "upload", "nowhere", "s3://data-1/x")
        self.refused("`there` is not an address", "upload", "images", "there")
        self.refused("cannot write s3://data-1/x/.*SignatureDoesNotMatch|cannot list", "upload", "images", "s3://data-1/x",
                     AWS_SECRET_ACCESS_KEY="wrong")

    def test_objects_have_the_content_type_of_their_names(self):
        """Those that Python's mimetypes knows, so that pages and pictures in a bucket are shown."""
        folder = self.folder / "pages"
        folder.mkdir()
        names = ["a.html", "b.JSON", "c.png", "d.css", "e.js", "f.svg", "g.csv", "h.txt", "i.webp", "j.tar", "k.md", "l.jpeg"]
        others = {"m.jsonl": "application/x-ndjson", "n.safetensors": "application/octet-stream",
                  "html": "application/octet-stream", ".png": "image/png", "large.html": "text/html"}
        for name in names + list(others):
            (folder / name).write_text("x")
        (folder / "large.html").write_bytes(b"x" * (5 << 20))  # in parts
        done = self.s3("upload", "pages", "s3://data-1/pages", LOCKSTEP_S3_PART_MB="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        right = {name: mimetypes.guess_type(name)[0] for name in names} | others
        self.assertEqual({name: self.store.types["data-1", "pages/" + name] for name in right}, right)
        for headers in self.store.headers:
            self.assertNotIn("form", headers.get("Content-Type", ""))
        done = self.s3("train", "job.toml", "--quiet", "--out", "s3://data-1/run")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.store.types["data-1", "run/report.html"], "text/html")
        self.assertEqual(self.store.types["data-1", "run/lockstep-run.json"], "application/json")

    def test_etags_are_compared_with_what_was_sent(self):
        (self.folder / "one").mkdir()
        (self.folder / "one/file").write_bytes(b"x" * 100)
        md5 = hashlib.md5(b"x" * 100).hexdigest()
        upload = "upload", "one", "s3://data-1/one"
        self.store.fault = lambda method, path: "other etag" if method == "PUT" else None
        self.refused(rf"cannot write s3://data-1/one/file: the store's ETag is the MD5 of other bytes \([0-9a-f]+\) than "
                     rf"those that were sent \({md5}\)", *upload, LOCKSTEP_S3_RETRY_SECONDS="0.2")
        self.refused("lockstep-run.json: the store's ETag is the MD5|files/.*: the store's ETag is the MD5", "train",
                     "job.toml", "--quiet", "--out", "s3://data-1/run", LOCKSTEP_S3_RETRY_SECONDS="0.2")
        # Once is repeated; encrypted objects have other ETags.
        once = ["other etag"]
        self.store.fault = lambda method, path: once.pop() if method == "PUT" and once else None
        self.assertEqual(self.s3(*upload).returncode, 0)
        self.store.objects.pop(("data-1", "one/file"))
        self.store.fault = lambda method, path: "encrypted" if method == "PUT" else None
        done = self.s3(*upload)
        self.assertEqual(done.returncode, 0, done.stderr)
        (self.folder / "one/file").write_bytes(b"x" * (5 << 20))
        for fault, pattern in {"other etag": "the store's ETag is the MD5 of other bytes",
                               "other joined etag": r"the store's ETag \(0{32}-5\) is not that of the parts"}.items():
            self.store.fault = lambda method, path, fault=fault: fault if method in ("PUT", "POST") else None
            self.refused(pattern, *upload, LOCKSTEP_S3_RETRY_SECONDS="0.2", LOCKSTEP_S3_PART_MB="1")
        self.assertEqual(self.store.uploads, {})

    def test_images_are_recognized_and_others_named_as_in_folders(self):
        folder = self.images
        files = sorted(folder.rglob("*.png"))
        files[3].rename(files[3].with_suffix(""))
        files[12].rename(files[12].with_suffix(".data"))
        (folder / "3" / ".ipynb_checkpoints").mkdir()
        shutil.copy(files[40], folder / "3" / ".ipynb_checkpoints" / "1.png")
        (folder / "4" / "old.tif").write_bytes(b"II*\0....")
        (folder / "4" / "nothing").write_bytes(b"")
        (folder / "list.json").write_bytes(files[40].read_bytes())
        self.store.objects = {("data-1", "kept"): b"x"}
        self.store.put_folder("data-1", "all of it/", folder)
        told = ": left out: 1 TIFF image (such as 4/old.tif), 1 hidden name (such as 3/.ipynb_checkpoints), " \
               "2 other files (1 .json, 1 no extension)\n"
        local = self.trained_locally()
        trained = self.s3("train", "job.toml", "--quiet", "--out", "runs/plain")
        copies, others = trained.stderr.splitlines(keepends=True)
        self.assertIn("copies of images in s3://data-1/all of it are not looked for", copies)
        self.assertEqual(others, "note: s3://data-1/all of it" + told)
        self.assertEqual((self.folder / "runs/plain/receipt.jsonl").read_bytes(), local)
        # The first bytes of what has no usual name, and nothing of what has another one.
        self.assertNotIn("list.json", "".join(path for method, path in self.store.log if method == "GET"))
        self.assertEqual(self.s3("predict", "runs/plain", "s3://data-1/all of it").stderr,
                         "note: s3://data-1/all of it" + told)
        for command in (("upload", "images", "s3://data-1/all of it"), ("shard", "images", "s3://data-1/shards")):
            done = self.s3(*command)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "note: images" + told)
        self.assertEqual(self.trained("indexed"), local)
        self.write(JOB.replace('"digits"', '"s3://data-1/shards"'))
        self.assertEqual(self.trained("shards"), local)
        del self.store.objects["data-1", "shards/lockstep-index"]
        self.assertEqual(self.trained("scanned"), local)

    def test_what_cannot_be_read_is_named(self):
        self.write(JOB.replace('"digits"', '"s3://nowhere/x"'))
        self.refused(r"cannot list s3://nowhere/x/: there is no such bucket")
        self.write(JOB.replace('"digits"', '"s3://data-1/other"'))
        self.refused(r"s3://data-1/other does not exist")
        self.write(JOB.replace('"digits"', '"s3://a/b"'))
        self.refused(r"`s3://a/b` has no valid bucket")
        self.write(JOB.replace('"digits"', '"gs://data-1/b"'))
        self.refused(r"URLs such as gs://data-1/b cannot be read")
        self.write(JOB.replace('"digits"', '"s3://data-1/all of it"'))
        self.refused(r"access is denied \(SignatureDoesNotMatch, status 403\)", AWS_SECRET_ACCESS_KEY="wrong")
        self.refused(r"no keys found", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
        self.refused(r"only one of AWS_ACCESS_KEY_ID and", AWS_SECRET_ACCESS_KEY="")
        self.refused(r"AWS_ENDPOINT_URL is not a valid address", AWS_ENDPOINT_URL="http://key:secret@host")
        self.refused(r"LOCKSTEP_S3_CACHE_GB is `x`", LOCKSTEP_S3_CACHE_GB="x")
        self.refused(r"cannot list s3://data-1/", AWS_ENDPOINT_URL="http://127.0.0.1:9", LOCKSTEP_S3_RETRY_SECONDS="0.3")
        self.store.objects["data-1", "all of it/0/empty.png"] = b""
        self.refused(r"all of it/0/empty.png")
        del self.store.objects["data-1", "all of it/0/empty.png"]
        self.store.objects["data-1", "all of it/none/"] = b""
        self.refused(r"s3://data-1/all of it/none holds no image")
        del self.store.objects["data-1", "all of it/none/"]
        # As in a folder.
        self.store.objects["data-1", "all of it/none/.DS_Store"] = b"x"
        self.refused(r"s3://data-1/all of it/none holds no image")
        del self.store.objects["data-1", "all of it/none/.DS_Store"]
        (self.images / "none").mkdir()
        (self.images / "none/.DS_Store").write_bytes(b"x")
        self.write(JOB.replace('"digits"', '"images"'))
        self.refused(r"images/none holds no image")
        shutil.rmtree(self.images / "none")
        self.write(JOB.replace('"digits"', '"s3://data-1/all of it"'))
        for key in list(self.store.objects):
            self.store.objects[key[0], key[1].replace("all of it/", "parts/train/")] = self.store.objects[key]
            self.store.objects[key[0], key[1].replace("all of it/", "parts/test/")] = self.store.objects[key]
        self.write(JOB.replace('"digits"', '"s3://data-1/parts"'))
        self.refused(r"s3://data-1/parts holds test and train: parts of a data set, not classes")


class Disturbances(S3Test):
    def test_random_ones_leave_the_bits(self):
        local = self.trained_locally()
        caused = self.disturb(7)
        runs = 0
        while len(caused) < 60:
            runs += 1
            self.assertEqual(self.trained(f"run-{runs}", LOCKSTEP_S3_CACHE_GB="0"), local)
        self.assertEqual(set(caused), set(FAULTS))

    def test_permanent_ones_are_errors(self):
        quick = {"LOCKSTEP_S3_RETRY_SECONDS": "0.2", "LOCKSTEP_S3_CACHE_GB": "0"}
        for fault, reason in {"damage": "do not fit the object's MD5", "short": r"received \d+ bytes of \d+",
                              "error": r"InternalError, status 500", "slow down": "SlowDown, status 503",
                              "redirect": "redirects to another endpoint, which is not followed"}.items():
            self.store.fault = lambda method, path, fault=fault: fault if ".png" in path else None
            self.refused(r"cannot read s3://data-1/all of it/.*png: .*" + reason, **quick)

    def test_an_object_that_changes_while_it_is_read(self):
        changed = "data-1", "all of it/5/" + sorted(p.name for p in (self.images / "5").iterdir())[0]

        def fault(method, path):
            if ".png" in path:
                self.store.objects[changed] = b"other"

        self.store.fault = fault
        self.refused(r"all of it/5/.*: the object has changed since it was listed")

    def test_a_server_that_starts_again(self):
        local, starts = self.trained_locally(), []

        def fault(method, path):
            if len(self.store.log) == 20:
                starts.append(threading.Thread(target=self.store.start_again, args=(1,)))
                starts[0].start()

        self.store.fault = fault
        self.assertEqual(self.trained("run"), local)
        self.assertEqual(len(starts), 1)
        starts[0].join()


class KeyServer:
    """Gives keys as a container's address and an instance's metadata do."""

    def __init__(self, answers):
        self.answers, self.log = answers, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.log.append((self.command, self.path, dict(self.headers.items())))
                body = outer.answers(self.command, self.path, self.headers)
                self.send_response(200 if body is not None else 401)
                self.end_headers()
                self.wfile.write((body or "").encode())

            do_PUT = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()


NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


class Keys(S3Test):
    def reads_with(self, **environment):
        before = len(self.store.log)
        done = self.s3("predict", self.model, "s3://data-1/all of it/0/a b.png", **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(len(self.store.log), before)

    def setUp(self):
        super().setUp()
        self.trained("run")
        self.model = "runs/run"
        self.store.keys = {"ASIATEMP": ("temporary-secret", "session/token+1=")}

    def keys(self, seconds=3600, access="ASIATEMP"):
        secret, token = self.store.keys[access]
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))
        return {"AccessKeyId": access, "SecretAccessKey": secret, "Token": token, "SessionToken": token,
                "Expiration": expires, "Version": 1}

    def test_environment_and_profiles(self):
        self.reads_with(AWS_ACCESS_KEY_ID="ASIATEMP", AWS_SECRET_ACCESS_KEY="temporary-secret",
                        AWS_SESSION_TOKEN="session/token+1=")
        # botocore's order.
        self.reads_with(AWS_ACCESS_KEY_ID="ASIATEMP", AWS_SECRET_ACCESS_KEY="temporary-secret",
                        AWS_SECURITY_TOKEN="session/token+1=", AWS_SESSION_TOKEN="of other keys")
        (self.folder / ".aws").mkdir()
        (self.folder / ".aws/credentials").write_text(
            "[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
            "[mine]\naws_access_key_id=ASIATEMP\naws_secret_access_key = temporary-secret\n"
            "aws_session_token = of other keys\naws_security_token = session/token+1=\n")
        (self.folder / ".aws/config").write_text(f"[profile mine]\nregion = eu-west-1\nendpoint_url = {self.store.url}\n")
        self.store.region = "eu-west-1"
        self.reads_with(AWS_PROFILE="mine", AWS_ENDPOINT_URL="", AWS_REGION="", **NO_KEYS)
        (self.folder / "other").write_text("[default]\naws_access_key_id = ASIATEMP\n"
                                           "aws_secret_access_key = temporary-secret\n"
                                           "aws_session_token = session/token+1=\n")
        self.reads_with(AWS_CONFIG_FILE="other", AWS_SHARED_CREDENTIALS_FILE="/dev/null", **NO_KEYS)

    def test_container(self):
        def answers(method, path, headers):
            return json.dumps(self.keys()) if headers.get("Authorization") == "let me in" and path == "/keys" else None

        keys = KeyServer(answers)
        (self.folder / "token").write_text("let me in\n")
        self.reads_with(AWS_CONTAINER_CREDENTIALS_FULL_URI=keys.url + "/keys",
                        AWS_CONTAINER_AUTHORIZATION_TOKEN="let me in", **NO_KEYS)
        self.reads_with(AWS_CONTAINER_CREDENTIALS_FULL_URI=keys.url + "/keys",
                        AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE="token", **NO_KEYS)

    def test_instance_and_renewal(self):
        self.store.keys["ASIANEXT"] = ("next-secret", "next-token")
        roles = "/latest/meta-data/iam/security-credentials/"
        given = []

        def answers(method, path, headers):
            if method == "PUT" and path == "/latest/api/token":
                return "instance-token" if headers.get("X-aws-ec2-metadata-token-ttl-seconds") else None
            if headers.get("X-aws-ec2-metadata-token") != "instance-token":
                return None
            if path == roles:
                return "my-role"
            given.append("ASIATEMP" if not given else "ASIANEXT")
            return json.dumps(self.keys(access=given[-1])) if path == roles + "my-role" else None

        keys = KeyServer(answers)

        def fault(method, path):  # the first keys end in the middle
            if len([1 for m, p in self.store.log if ".png" in p]) > 10:
                self.store.expired.add("ASIATEMP")

        self.store.fault = fault
        self.store.log.clear()
        instance = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": keys.url, "AWS_EC2_METADATA_DISABLED": "false", **NO_KEYS}
        self.assertEqual(self.trained("renewed", LOCKSTEP_S3_CACHE_GB="0", **instance), self.trained_locally())
        self.assertEqual(given, ["ASIATEMP", "ASIANEXT"])

    def test_anonymous_and_requester_pays(self):
        self.store.anonymous = True
        self.store.keys = {}
        self.reads_with(LOCKSTEP_S3_ANONYMOUS="1", **NO_KEYS)
        self.assertNotIn("Authorization", self.store.headers[-1])
        self.reads_with(LOCKSTEP_S3_ANONYMOUS="1", LOCKSTEP_S3_REQUESTER_PAYS="1", **NO_KEYS)
        self.assertEqual(self.store.headers[-1]["x-amz-request-payer"], "requester")

    def test_virtual_style(self):
        """The bucket in the host's name, which libcurl resolves below localhost."""
        self.store.keys = {"AKIDEXAMPLE": ("very-secret-key", None)}
        port = self.store.url.rpartition(":")[2]
        self.reads_with(AWS_ENDPOINT_URL=f"http://localhost:{port}", LOCKSTEP_S3_ADDRESSING="virtual",
                        LOCKSTEP_S3_CACHE_GB="0")
        self.assertEqual({k.lower(): v for k, v in self.store.headers[-1].items()}["host"], f"data-1.localhost:{port}")
        self.assertNotIn("data-1", self.store.log[-1][1])
        self.refused("LOCKSTEP_S3_ADDRESSING is `x`, but must be path or virtual", LOCKSTEP_S3_ADDRESSING="x")

    def test_region_and_clock_are_corrected(self):
        self.store.keys = {"AKIDEXAMPLE": ("very-secret-key", None)}
        self.store.region = "ap-south-1"
        self.reads_with()
        self.store.clock_shift = -7200
        self.reads_with()
        self.assertEqual(self.store.log[-1][0], "GET")

    def test_no_key_is_told(self):
        self.store.keys = {"ASIATEMP": ("temporary-secret", "session/token+1=")}
        secret = {"AWS_ACCESS_KEY_ID": "ASIATEMP", "AWS_SECRET_ACCESS_KEY": "temporary-secret",
                  "AWS_SESSION_TOKEN": "session/token+1="}
        environment = self.store.environment(HOME=str(self.folder), XDG_CACHE_HOME=str(self.folder / "other"), **secret)
        lists = []

        def fault(method, path):
            if ".png" in path and len(lists) < 3:
                lists.append(subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True).stdout)

        self.store.fault = fault
        done = self.run_command("train", "job.toml", "--out", "runs/told", "--workers", "2", **{**environment,
                                "LOCKSTEP_S3_CACHE_GB": "1"})
        self.assertEqual(done.returncode, 0, done.stderr)
        told = done.stdout + done.stderr + "".join(lists)
        # Runs and checkpoints in the store, what is uploaded, and a profile of the training.
        environment["LOCKSTEP_HOME"] = str(self.folder / "other")
        there = set(self.store.objects)
        for command in (["train", "job.toml", "--out", "s3://data-1/run", "--profile", "--tensorboard"],
                        ["train", "job.toml", "--out", "s3://data-1/run", "--resume", "--set", "max_epochs=2"],
                        ["evaluate", "s3://data-1/run", "s3://data-1/all of it"],
                        ["upload", "images", "s3://data-1/up"], ["shard", "images", "s3://data-1/shards"],
                        ["info", "runs/told"], ["runs", "list"], ["info", "--json"]):
            done = self.run_command(*command, **environment)
            told += done.stdout + done.stderr
            self.assertIn(done.returncode, (0, 1) if command[0] in ("info", "runs") else (0,), done.stderr)
        written = set(self.store.objects) - there
        self.assertTrue([key for _, key in written if "checkpoint" in key])
        for name in written:
            told += str(name) + self.store.objects[name].decode("latin-1")
        told += self.refused("access is denied", **{**secret, "AWS_SESSION_TOKEN": "wrong-token"},
                             LOCKSTEP_S3_CACHE_GB="0")
        for file in [f for part in ("runs", "other") for f in (self.folder / part).rglob("*") if f.is_file()]:
            told += file.read_bytes().decode("latin-1") + str(file)
        self.assertNotRegex(told, r"ASIATEMP|temporary-secret|session/token|wrong-token|AWS4-HMAC|"
                                  r"session%2Ftoken")
        self.assertTrue(re.search("lockstep", "".join(lists)))


if __name__ == "__main__":
    unittest.main()
