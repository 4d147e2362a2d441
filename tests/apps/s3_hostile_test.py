#!/usr/bin/env python3
"""Tests with a store that is endless, slow or lies: bounded time and memory, an answer to Ctrl-C, errors by name.

usage: s3_hostile_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import itertools
import os
import signal
import subprocess
import threading
import time
import unittest

import support
from fake_s3 import Store
from s3_support import JOB, S3Test

STOPPED = 130
MEBIBYTE = 1 << 20


class HostileStore(Store):
    """Behaves as a store until `evil(handler, bucket, key)` answers a request itself and returns True."""

    def __init__(self):
        self.evil = lambda h, bucket, key: False
        self.ended = threading.Event()
        super().__init__()

    def list(self, h, bucket, query):
        self.query = query
        return None if self.evil(h, bucket, "") else super().list(h, bucket, query)

    def object(self, h, bucket, key, body, fault):
        return None if self.evil(h, bucket, key) else super().object(h, bucket, key, body, fault)

    def send_page(self, h, contents, token=None, folders=()):
        """A page of a listing: (key, size) each."""
        text = ("<ListBucketResult>" + "".join(
            f"<Contents><Key>{key}</Key><ETag>&quot;{'0' * 32}&quot;</ETag><Size>{size}</Size></Contents>"
            for key, size in contents) + "".join(
            f"<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>" for folder in folders))
        if token:
            text += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
        self.answer(h, 200, (text + "</ListBucketResult>").encode())
        return True


    def drip(self, h, text, seconds=0.5):
        """A byte at a time, until the reader is gone or the test ends."""
        h.close_connection = True
        for byte in itertools.chain(text, itertools.repeat(ord("x"))):
            if self.ended.wait(seconds):
                return True
            h.wfile.write(bytes([byte]))
            h.wfile.flush()


class HostileTest(S3Test):
    def setUp(self):
        support.CommandTest.setUp(self)
        self.store = HostileStore()
        self.addCleanup(self.store.close)
        self.addCleanup(self.store.ended.set)
        self.store.put_folder("data-1", "all/", self.shared / "digits")
        self.write(JOB.replace('"digits"', '"s3://data-1/all"'))
        self.begun = threading.Event()

    def evil(self, act, when=lambda key: key == ""):
        """From now on `act(handler)` answers requests whose key fits; the listing has the key ""."""

        def answer(h, bucket, key):
            if not when(key) or act(h) is None:
                return False
            return True

        self.store.evil = answer

    def run_train(self, *more, stop=False, seconds=30, **environment):
        """Exit code, standard error, time to end after Ctrl-C or the start, and the largest memory in MiB."""
        given = {**os.environ, **self.store.environment(
            HOME=str(self.folder), LOCKSTEP_S3_CACHE_GB="0", LOCKSTEP_S3_RETRY_SECONDS="300" if stop else "0.2",
            XDG_CACHE_HOME=str(self.folder / "cache")), **environment}
        with open(self.folder / "errors", "wb") as errors:
            process = subprocess.Popen([support.COMMAND, "train", "job.toml", "--quiet", *more], cwd=self.folder, env=given,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors)
        killer = threading.Timer(seconds, process.kill)
        killer.start()
        try:
            if stop:
                self.assertTrue(self.begun.wait(20))
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
            watch = support.Stopwatch()
            _, status, usage = os.wait4(process.pid, 0)
            watch.stop()
            process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            killer.cancel()
        text = (self.folder / "errors").read_text()
        return process.returncode, text, watch, usage.ru_maxrss >> 10

    usual_memory = None

    def usual(self):
        """MiB of a training from a store that behaves."""
        if HostileTest.usual_memory is None:
            evil, self.store.evil = self.store.evil, lambda h, bucket, key: False
            code, text, _, HostileTest.usual_memory = self.run_train("--out", "runs/usual")
            self.assertEqual(code, 0, text)
            self.store.evil = evil
        return HostileTest.usual_memory

    def is_stopped(self, name, *more):
        """Ctrl-C ends the training within 2 seconds where it has a processor, and its memory has not grown."""
        with self.subTest(name):
            usual = self.usual()
            code, text, watch, memory = self.run_train("--out", f"runs/{name}", *more, stop=True)
            self.assertEqual(code, STOPPED, text)
            self.assertLess(watch.seconds, watch.limit(2), text)
            self.assertLess(memory, usual + 150)
            self.begun.clear()
            return text

    number = 0

    def is_refused(self, pattern, *more, out=None, **environment):
        HostileTest.number += 1
        usual = self.usual()
        code, text, _, memory = self.run_train("--out", out or f"runs/refused-{self.number}", *more, **environment)
        self.assertEqual(code, 1, text)
        self.assertRegex(text, pattern)
        self.assertNotRegex(text, "bug in Lockstep|Out of memory|bad_alloc")
        self.assertLess(memory, usual + 150)
        return text


class Endless(HostileTest):
    def pages(self, keys=lambda number: [], token=lambda number: f"token-{number}"):
        count = itertools.count()

        def act(h):
            number = next(count)
            if number > 3:
                self.begun.set()
            return self.store.send_page(h, [(key, 5) for key in keys(number)], token(number))

        self.evil(act)

    def test_listings_of_fresh_keys_end_by_a_stop_request(self):
        self.pages(lambda number: [f"all/{number:08}-{i:04}.png" for i in range(1000)])
        self.assertIn("stopped: [s3] cannot list s3://data-1/all/: a stop was requested", self.is_stopped("keys"))

    def test_pages_and_bodies_that_never_end(self):
        self.pages(token=lambda number: f"token-{number % 2}")
        self.is_refused("cannot list s3://data-1/all/: the store repeats its pages forever")
        self.pages()
        self.is_refused("the store keeps sending pages without keys")
        self.pages(lambda number: [f"all/{i:04}.png" for i in range(10)])
        self.is_refused("the store lists the key all/0000.png twice")

        def endless(h):
            h.send_response_only(200)
            h.end_headers()
            h.close_connection = True
            h.wfile.write(b"<ListBucketResult>")
            while not self.store.ended.is_set():
                h.wfile.write(b"<Contents>" * 100000)
            return True

        self.evil(endless)
        self.is_refused("the store sent more than the 16777216 bytes that were requested")

    def test_headers_that_never_end(self):
        def lines(h):
            h.wfile.write(b"HTTP/1.1 200 OK\r\n")
            h.close_connection = True
            for number in itertools.count():
                h.wfile.write(b"".join(b"X-%d: y\r\n" % (number * 1000 + i) for i in range(1000)))

        def line(h):
            h.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
            h.close_connection = True
            while True:
                h.wfile.write(b"x" * 100000)

        def interim(h):
            h.close_connection = True
            while True:
                h.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

        for act in (lines, line, interim):
            for when in (lambda key: key == ""), (lambda key: ".png" in key):
                self.evil(act, when)
                self.is_refused("the answer has more than 64 KiB of headers")


class Slow(HostileTest):
    """A byte at a time, at any place of an answer."""

    def test_ctrl_c_is_answered(self):
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nX-Long: " + b"x" * 1000

        def slow(text):
            def act(h):
                self.begun.set()
                h.wfile.write(text)
                return self.store.drip(h, b"")
            return act

        for name, text in {"header": head, "body": head + b"\r\n\r\n"}.items():
            for what, when in {"listing": lambda key: key == "", "image": lambda key: ".png" in key,
                               "last": lambda key: key.startswith("all/9/")}.items():
                self.evil(slow(text), when)
                self.is_stopped(f"{name}-{what}")
        self.evil(slow(head), lambda key: "lockstep-run" in key)
        code, text, watch, _ = self.run_train("--out", "s3://data-1/run", stop=True)
        self.assertEqual(code, STOPPED, text)
        self.assertLess(watch.seconds, watch.limit(2))

    def test_workers_answer_too(self):
        def act(h):
            self.begun.set()
            h.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            return self.store.drip(h, b"")

        self.evil(act, lambda key: key.startswith("all/9/"))
        code, text, watch, _ = self.run_train("--out", "runs/workers", "--workers", "2", stop=True)
        self.assertEqual(code, STOPPED, text)
        self.assertLess(watch.seconds, watch.limit(4))


class Lying(HostileTest):
    def listed(self, contents, folders=()):
        self.evil(lambda h: self.store.send_page(h, contents, folders=folders))

    def test_sizes_are_not_believed(self):
        real = sorted(key for bucket, key in self.store.objects)
        good = [(key, len(self.store.objects["data-1", key])) for key in real]
        self.listed(good + [("all/9/z.png", 10 ** 15)])
        self.is_refused(r"s3://data-1/all/9/z\.png has 1000000000000000 bytes by the store's listing; an image file has at most")
        self.listed([("all/a.tar", 10 ** 15)])
        self.is_refused(r"s3://data-1/all/a\.tar: it has 1000000000000000 bytes, more than this machine's memory")
        self.listed(good + [("all/lockstep-index", 10 ** 15)])
        self.is_refused(r"s3://data-1/all/lockstep-index: it has 1000000000000000 bytes, more than")
        self.listed([("all/9/z.png", "10 and more")])
        self.is_refused("an object without key or size")
        self.listed([("all/9/z.png", 1 << 64)])
        self.is_refused("an object without key or size")

    def test_answers_are_capped_at_what_was_asked_for(self):
        sent = []

        def more(h):
            h.send_response_only(200)
            h.send_header("Content-Length", str(3 << 30))
            h.end_headers()
            h.close_connection = True
            try:
                for _ in range(3 << 10):
                    h.wfile.write(bytes(MEBIBYTE))
                    sent.append(1)
            except OSError:
                pass
            return True

        self.evil(more, lambda key: ".png" in key)
        self.is_refused(r"\.png: the store sent more than the \d+ bytes that were requested")
        self.assertLess(max(sent.count(1), 0), 3 << 10)

        def head(h):
            h.send_response_only(200)
            h.send_header("Content-Length", str(10 ** 15))
            h.end_headers()
            return True

        self.evil(head, lambda key: key.endswith(".csv"))
        self.write(JOB.replace('"digits"', '"s3://data-1/table.csv"'))
        self.is_refused(r"s3://data-1/table.csv: it has 1000000000000000 bytes, more than this machine's memory")

    def test_foreign_and_doubled_keys_are_refused_by_name(self):
        def size(key):
            return len(self.store.objects["data-1", key])

        key = sorted(key for bucket, key in self.store.objects)[0]
        self.listed([("other/a.png", 5)])
        self.is_refused("cannot list s3://data-1/all/: the store lists the key other/a.png, which does not begin with all/")
        self.listed([("al", 5)])
        self.is_refused("the store lists the key al, which does not begin with all/")
        self.listed([(key, size(key))], folders=["all/x/"])
        self.is_refused("the store lists the folder all/x/, which was not asked for")
        self.listed([(key, size(key)), (key, size(key))])
        self.is_refused(f"the store lists the key {key} twice")
        self.listed([("all/b.png", 5), ("all/a.png", 5), ("all/c.png", 5), ("all/a.png", 5)])
        self.is_refused("the store lists the key all/a.png twice")
        self.listed([("all/" + "k" * 1021, 5)])
        self.is_refused("a key of 1025 bytes")

    def test_an_order_of_its_own_is_accepted(self):
        contents = [(key, len(self.store.objects["data-1", key])) for bucket, key in self.store.objects]
        contents.reverse()

        def act(h):
            rows = "".join(f"<Contents><Key>{key}</Key><ETag>{self.store.etag(('data-1', key))}</ETag><Size>{size}</Size>"
                           "</Contents>" for key, size in contents)
            self.store.answer(h, 200, f"<ListBucketResult>{rows}</ListBucketResult>".encode())
            return True

        self.evil(act)
        code, text, _, _ = self.run_train("--out", "runs/reversed")
        self.assertEqual(code, 0, text)
        self.store.evil = lambda h, bucket, key: False
        code, text, _, _ = self.run_train("--out", "runs/straight")
        self.assertEqual(code, 0, text)
        self.assertEqual((self.folder / "runs/reversed/receipt.jsonl").read_bytes(),
                         (self.folder / "runs/straight/receipt.jsonl").read_bytes())


if __name__ == "__main__":
    unittest.main()
