#!/usr/bin/env python3
"""`lockstep dashboard` over HTTP and in real Chromium: usage: dashboard_test.py COMMAND"""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time

from support import COMMAND, CommandTest, unittest

from browser import Browser
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys


class Dashboard:
    """A context: a dashboard as a process."""

    def __init__(self, folder, *arguments):
        # A run store of the test's own.
        environment = {**os.environ, "LOCKSTEP_HOME": str(folder / ".home")}
        self.process = subprocess.Popen([COMMAND, "dashboard", *arguments], cwd=folder, env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().strip()
        self.port, self.token = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([0-9a-f]{32})", self.address).groups()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        self.process.stdout.close()

    def connection(self, method, path, body=None, token=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", int(self.port), timeout=20)
        token = self.token if token is None else token
        connection.request(method, path, body, {"Cookie": f"lockstep_{self.port}={token}", **headers})
        return connection, connection.getresponse()

    def ask(self, method, path, body=None, **options):
        """(status, text, headers)"""
        connection, answer = self.connection(method, path, body, **options)
        with connection:
            return answer.status, answer.read().decode(), dict(answer.getheaders())

    def json(self, path):
        status, text, _ = self.ask("GET", path)
        assert status == 200, (path, status, text)
        return json.loads(text)


# http.client's connections are not contexts.
http.client.HTTPConnection.__enter__ = lambda self: self
http.client.HTTPConnection.__exit__ = lambda self, *_: self.close()


def write_run(folder, iterations, name="made", state="finished", loss=lambda i: 2 / (1 + i / 50)):
    """A run's folder without a training."""
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"name": name, "training": {"seed": iterations % 7}}))
    with open(folder / "log.jsonl", "w", encoding="utf-8") as log:
        for i in range(1, iterations + 1):
            log.write('{"iteration":%d,"epoch":%d,"in_epoch":1,"loss":%.6f,"accuracy":%.4f,"learning_rate":0.1,'
                      '"elapsed":%.3f,"seconds":0.01,"observations":32}\n'
                      % (i, 1 + i // 100, loss(i), 1 - 1 / (1 + i), i / 100))
            if i % 100 == 0:
                log.write('{"iteration":%d,"epoch":%d,"validation_loss":%.5f,"validation_accuracy":0.5}\n'
                          % (i, i // 100, loss(i)))
    (folder / "state.json").write_text(json.dumps({"lockstep.state": "1", "state": state, "reason": "",
                                                   "iteration": iterations, "time": "2026-11-25T09:11:18Z"}))


def write_sweep(folder):
    """A sweep's folder without a sweep: six trials, two rungs, four pruned; names and values as text of others."""
    lines = [{"sweep": "1", "metric": "validation.accuracy", "goal": "maximize", "budget": 3, "options": {}},
             {"decision": 0, "what": "rung 1 of 2", "pruned": [], "goals": [],
              "starts": [{"trial": t, "parameters": {"rate": 0.001 * 4 ** t, "<b>kind": "<script>" if t % 2 else "b"}}
                         for t in range(1, 7)]}]
    lines += [{"result": {"trial": t, "repeat": 0, "budget": 1, "state": "reached", "reason": "", "value": 0.1 * t}}
              for t in range(1, 7)]
    lines += [{"decision": 1, "what": "rung 2 of 2", "starts": [], "goals": [], "pruned": [1, 2, 3, 4]},
              {"result": {"trial": 5, "repeat": 0, "budget": 3, "state": "reached", "reason": "", "value": 0.9}},
              {"result": {"trial": 6, "repeat": 0, "budget": 3, "state": "diverged", "reason": "loss is NaN", "value": None}}]
    for t in range(1, 7):
        write_run(folder / "trials" / str(t), 300 if t > 4 else 100)
    (folder / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"result":{"tri')
    (folder / "result.json").write_text(json.dumps({"best": 5, "value": 0.9, "test_accuracy": 0.875, "importance": {"rate": 0.4, "<b>kind": 0.1}}))


class Served(CommandTest):
    def test_only_those_with_the_token_of_this_page(self):
        write_run(self.folder / "runs" / "a", 10)
        with Dashboard(self.folder) as d:
            for path in ("/", "/api/runs", "/events?since=0", "/file/style.css", "/nothing", "/?token=" + "0" * 32):
                for token in ("", "0" * 32, d.token[:-1], d.token + "0"):
                    status, text, headers = d.ask("GET", path, token=token)
                    self.assertEqual(status, 403, path)
                    self.assertNotIn("Set-Cookie", headers)
                    self.assertNotIn(d.token, text)
            self.assertEqual(d.ask("POST", "/api/stop?id=1", token="")[0], 403)
            status, _, headers = d.ask("GET", "/?token=" + d.token, token="")
            self.assertEqual((status, headers["Location"]), (302, "/"))
            self.assertRegex(headers["Set-Cookie"], r"^lockstep_\d+=[0-9a-f]{32}; Path=/; HttpOnly; SameSite=Strict$")
            self.assertEqual(d.ask("GET", "/api/runs")[0], 200)
            self.assertIn("default-src 'none'", d.ask("GET", "/")[2]["Content-Security-Policy"])
            for host in ("evil.example", f"evil.example:{d.port}", "127.0.0.1", "127.0.0.1:1", ""):
                self.assertEqual(d.ask("GET", "/api/runs", Host=host)[0], 403, host)
            self.assertEqual(d.ask("GET", "/api/runs", Host=f"localhost:{d.port}")[0], 200)
            for origin in ("http://evil.example", "null", f"https://127.0.0.1:{d.port}"):
                self.assertEqual(d.ask("POST", "/api/notes?id=1", "{}", Origin=origin)[0], 403, origin)
            with open(f"/proc/{d.process.pid}/cmdline", "rb") as line:
                self.assertNotIn(d.token.encode(), line.read())
            # On loopback alone.
            with open(f"/proc/{d.process.pid}/net/tcp", encoding="utf-8") as connections:
                listening = [line.split()[1] for line in connections if line.split()[3] == "0A"]
            self.assertIn(f"0100007F:{int(d.port):04X}", listening)
            self.assertNotIn(f"00000000:{int(d.port):04X}", listening)

    def test_runs_of_the_store_are_shown(self):
        (self.folder / "runs").mkdir()
        self.works("train", "job.toml", "--set", "max_epochs=1", "--quiet", "--out", "elsewhere",
                   LOCKSTEP_HOME=str(self.folder / ".home"))
        with Dashboard(self.folder) as dashboard:
            listed = [run["folder"] for run in dashboard.json("/api/runs")["runs"]]
        self.assertEqual(listed, [str((self.folder / "elsewhere").resolve())])

    def test_runs_notes_and_requests_that_make_no_sense(self):
        write_run(self.folder / "runs" / "a" / "<script>", 250, name="<b>bold</b>")
        write_run(self.folder / "runs" / "b", 7)
        with open(self.folder / "runs" / "b" / "log.jsonl", "a", encoding="utf-8") as log:
            log.write('{"iteration":8,"lo')
        with Dashboard(self.folder) as d:
            listed = {run["folder"]: run for run in d.json("/api/runs")["runs"]}
            self.assertEqual(sorted(listed), ["runs/a/<script>", "runs/b"])
            a = listed["runs/a/<script>"]
            self.assertEqual((a["iteration"], a["status"], a["best_accuracy"]), (250, "finished", 0.5))
            self.assertEqual(listed["runs/b"]["iteration"], 7)
            note = json.dumps({"tags": ["good", "<i>"], "note": "a note"})
            self.assertEqual(d.ask("POST", "/api/notes?id=" + a["id"], note)[0], 200)
            self.assertEqual(json.loads((self.folder / "runs/a/<script>/notes.json").read_text())["tags"], ["<i>", "good"])
            again = {run["folder"]: run for run in d.json("/api/runs")["runs"]}["runs/a/<script>"]
            self.assertEqual((again["tags"], again["note"]), (["<i>", "good"], "a note"))
            for method, path, body in (("POST", "/api/notes?id=" + a["id"], "{"), ("POST", "/api/notes?id=../..", note),
                                       ("GET", "/api/run?id=../../etc", None), ("GET", "/api/run", None),
                                       ("GET", "/file/../../etc/passwd", None), ("GET", "/report?id=x", None),
                                       ("POST", "/api/stop?id=x", "")):
                status, text, _ = d.ask(method, path, body)
                self.assertEqual(status, 400, (path, text))
                self.assertIn("error", json.loads(text))
            self.assertEqual(d.ask("GET", "/nothing")[0], 404)
            self.assertEqual(d.ask("POST", "/api/notes?id=" + a["id"], "x" * 100000)[0], 413)
            with socket.create_connection(("127.0.0.1", int(d.port)), timeout=10) as raw:
                raw.sendall(b"\0\1 garbage\r\n\r\n")
                raw.recv(1000)
            self.assertEqual(d.ask("GET", "/api/runs")[0], 200)

    def test_streams_do_not_occupy_the_servers_threads(self):
        write_run(self.folder / "runs" / "a", 100)
        with Dashboard(self.folder) as d:
            run = d.json("/api/runs")["runs"][0]
            streams = [d.connection("GET", f"/events?since=0&watch={run['id']}:0") for _ in range(40)]
            began = time.monotonic()
            for _ in range(20):
                d.json("/api/runs")
            self.assertLess(time.monotonic() - began, 5)
            with open(self.folder / "runs" / "a" / "log.jsonl", "a", encoding="utf-8") as log:
                log.write('{"iteration":101,"epoch":2,"loss":0.125,"accuracy":0.5,"learning_rate":0.1,"elapsed":1,'
                          '"seconds":0.01,"observations":32}\n')
            for connection, answer in streams:
                self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
                text = ""
                while "0.125" not in text:
                    line = answer.readline().decode()
                    self.assertNotEqual(line, "", text)
                    text += line
                connection.close()
            with open(f"/proc/{d.process.pid}/status", encoding="utf-8") as status:
                threads = int(re.search(r"Threads:\s+(\d+)", status.read()).group(1))
            self.assertLess(threads, 20)

    def test_a_port_in_use_and_folders_that_do_not_exist(self):
        write_run(self.folder / "runs" / "a", 1)
        with Dashboard(self.folder) as d:
            done = self.run_command("dashboard", "--port", d.port)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"port {d.port} cannot be used", done.stderr)
        done = self.run_command("dashboard", "--runs", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no folder nothing", done.stderr)

    def test_two_thousand_runs_and_eight_long_ones(self):
        for i in range(2000):
            write_run(self.folder / "runs" / f"{i:04}", 3)
        write_run(self.folder / "runs" / "long-0", 100_000)
        for i in range(1, 8):
            shutil.copytree(self.folder / "runs" / "long-0", self.folder / "runs" / f"long-{i}")
        with Dashboard(self.folder) as d:
            began = time.monotonic()
            listed = d.json("/api/runs")["runs"]
            first = time.monotonic() - began
            self.assertEqual(len(listed), 2008)
            began = time.monotonic()
            d.json("/api/runs")
            again = time.monotonic() - began
            long = [run["id"] for run in listed if "long" in run["folder"]]
            began = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                logs = list(pool.map(lambda run: d.json("/api/log?id=" + run), long))
            curves = time.monotonic() - began
            self.assertEqual([len(log["loss"]) for log in logs], [100_000] * 8)
            print(f"2,008 runs: {first:.2f} s at first, {again:.3f} s again; 8 logs of 100,000 iterations: {curves:.2f} s")
            self.assertLess(first, 20)
            self.assertLess(again, 2)
            self.assertLess(curves, 30)
            b = Browser.of_all_tests()
            b.driver.get(d.address)
            b.wait("return document.querySelectorAll('tbody tr').length === 501")
            began = time.monotonic()
            b.js("const filter = document.querySelector('input[type=search]');"
                 "filter.value = 'folder ~ long'; filter.dispatchEvent(new Event('input'))")
            b.wait("return document.querySelectorAll('tbody tr').length === 8", 60)
            took = time.monotonic() - began
            began = time.monotonic()
            self.assertEqual(len(d.json("/api/filter?text=folder+~+long+and+iteration+>+50000")["ids"]), 8)
            again = time.monotonic() - began
            b.js("location.hash = '#/compare/' + arguments[0].join(',')", long)
            b.wait("return Lockstep.view?.charts?.length === 4", 60)
            redraw = b.js("const began = performance.now(); const slider = document.querySelector('input[type=range]');"
                          "slider.value = 0.5; slider.dispatchEvent(new Event('input')); return performance.now() - began")
            zoom = b.js("const began = performance.now(); Lockstep.view.charts[0].zoom(5000, 6000); return performance.now() - began")
            print(f"filter of 2,008 runs: {took:.2f} s, again {again:.2f} s; smoothing of 8 x 100,000: {redraw:.0f} ms, zoom: {zoom:.0f} ms")
            self.assertLess(took, 30)
            self.assertLess(again, 2)
            self.assertLess(redraw, 5000)
            self.assertLess(zoom, 2000)


class Strangers(CommandTest):
    """Files and connections of others."""

    def nested_files(self, run):
        """Each file of a run's folder with thousands of brackets, one run for each."""
        deep = {"list": "[" * 100_000 + "]" * 100_000, "object": '{"a":' * 100_000 + "1" + "}" * 100_000}
        for kind, inner in deep.items():
            for name in ("job.json", "state.json", "run.json", "notes.json", "confusion.json", "predictions.json",
                         "profile.json", "log.jsonl", "receipt.jsonl", "sweep.jsonl", "result.json"):
                folder = self.folder / "runs" / f"{name}-{kind}"
                shutil.copytree(run, folder)
                keys = {"log.jsonl": ('"event":"x","y"', '"iteration":9,"validation_loss"'),
                        "sweep.jsonl": ('"sweep"', '"decision":0,"starts"')}.get(name, ('"name"', '"validation"'))
                lines = "".join('{%s:%s}\n' % (key, inner) for key in keys)
                (folder / name).write_text(lines if name.endswith("l") else lines.splitlines()[0])

    def nested_models(self, model):
        """Models whose header, network and classes are such."""
        text = model.read_bytes()
        size = int.from_bytes(text[:8], "little")
        header = json.loads(text[8:8 + size])
        for key in header["__metadata__"]:
            changed = json.dumps({**header, "__metadata__": {**header["__metadata__"], key: "[" * 100_000 + "]" * 100_000}})
            yield key, len(changed).to_bytes(8, "little") + changed.encode() + text[8 + size:]
        changed = '{"__metadata__":' * 100_000 + "1" + "}" * 100_000
        yield "header", len(changed).to_bytes(8, "little") + changed.encode()

    def test_nested_json_ends_nothing(self):
        self.works("train", "job.toml", "--quiet", "--out", "first", "--profile", LOCKSTEP_HOME=str(self.folder / ".home"))
        self.nested_files(self.folder / "first")
        for key, text in self.nested_models(self.folder / "first" / "model.safetensors"):
            (self.folder / "nested.safetensors").write_bytes(text)
            done = self.run_command("evaluate", "nested.safetensors", "digits")
            self.assertEqual(done.returncode, 1, (key, done.stderr))
            self.assertIn("nested.safetensors", done.stderr)
        for name, text in (("j.json", '{"network":' * 100_000), ("j.toml", "a = " + "[" * 100_000), ("k.toml", "a" + ".a" * 100_000 + "=1"),
                           ("m.toml", "[" + "a." * 100_000 + "a]")):
            (self.folder / name).write_text(text)
            done = self.run_command("train", name, "--check")
            self.assertEqual(done.returncode, 1, (name, done.stderr))
            self.assertIn("nested", done.stderr)
        done = self.run_command("train", "job.toml", "--check", "--set", "a" + ".a" * 20_000 + "=1")
        self.assertIn(done.returncode, (1, 2), done.stderr)
        self.assertIn("a key has at most 64 parts", done.stderr)
        runs = sorted((self.folder / "runs").iterdir())
        home = {"LOCKSTEP_HOME": str(self.folder / ".home")}
        for run in runs:
            for arguments in (("report", run), ("info", run), ("diff", run, "first"),
                              ("evaluate", run, "digits")):
                done = self.run_command(*arguments, **home)
                self.assertIn(done.returncode, (0, 1), (arguments, done.stderr))
        for arguments in (("rebuild", "runs"), ("list", "--all"), ("list", "--all", "--where", "validation.loss < 100"),
                          ("list", "--all", "--json", "--columns", "name,max_epochs,note")):
            done = self.run_command("runs", *arguments, **home)
            self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        with Dashboard(self.folder, "--runs", "runs") as d:
            listed = d.json("/api/runs")
            self.assertEqual(len(listed["runs"]), len(runs))
            ids = [run["id"] for run in listed["runs"] + listed["sweeps"]]
            for one in ids:
                for path in ("/api/run", "/api/log", "/api/sweep", "/report"):
                    self.assertIn(d.ask("GET", f"{path}?id={one}")[0], (200, 400), (path, one))
            deep = "[" * 30_000
            for body in (deep, '{"tags":%s' % deep, '{"tags":[],"note":%s' % deep):
                self.assertEqual(d.ask("POST", "/api/notes?id=" + ids[0], body)[0], 400)
            for text in ("(" * 3000, "not " * 2000, "[" * 3000):
                self.assertIn("error", d.json("/api/filter?text=" + text.replace(" ", "+")))
            self.assertEqual(len(d.json("/api/runs")["runs"]), len(runs))

    def test_a_log_without_a_line_end(self):
        write_run(self.folder / "runs" / "a", 100)
        os.truncate(self.folder / "runs" / "a" / "log.jsonl", 20 << 30)
        write_run(self.folder / "runs" / "b", 100)
        for name in ("confusion.json", "predictions.json", "profile.json", "receipt.jsonl"):
            (self.folder / "runs" / "b" / name).write_text("{}")
            os.truncate(self.folder / "runs" / "b" / name, 5 << 30)
        write_sweep(self.folder / "runs" / "s")
        os.truncate(self.folder / "runs" / "s" / "sweep.jsonl", 5 << 30)
        with Dashboard(self.folder, "--runs", "runs") as d:
            def resident():
                with open(f"/proc/{d.process.pid}/status", encoding="utf-8") as status:
                    return int(re.search(r"VmHWM:\s+(\d+)", status.read()).group(1)) >> 10
            before = resident()
            for _ in range(4):
                listed = {run["folder"]: run for run in d.json("/api/runs")["runs"]}
                (self.folder / "runs" / "a" / "notes.json").write_text("{}")  # a change
            self.assertEqual(listed["runs/a"]["iteration"], 100)
            self.assertIn("log.jsonl has a line of more than 16 MiB", listed["runs/a"]["damage"])
            self.assertIsNone(listed["runs/b"]["damage"])
            log = d.json("/api/log?id=" + listed["runs/a"]["id"])
            self.assertEqual(len(log["loss"]), 100)
            self.assertIn("more than 16 MiB", log["events"][-1]["text"])
            d.json("/api/run?id=" + listed["runs/a"]["id"])
            notes = d.json("/api/run?id=" + listed["runs/b"]["id"])["notes"]
            self.assertEqual(len([note for note in notes if "is a hole without data" in note]), 4, notes)
            self.assertEqual(len(d.json("/api/sweep?id=" + d.json("/api/runs")["sweeps"][0]["id"])["trials"]), 6)
            self.assertEqual(len(d.json("/api/filter?text=iteration+=+100")["ids"]), 6)
            self.assertLess(resident() - before, 150)
        done = self.run_command("runs", "rebuild", "runs", LOCKSTEP_HOME=str(self.folder / ".home"))
        self.assertEqual((done.returncode, done.stdout), (0, "8 runs recorded\n"))

    def test_a_finished_batch_job_is_finished(self):
        write_run(self.folder / "jobs" / "1" / "run", 100)
        for name in ("batch.json", "job.json", "state.json"):
            (self.folder / "jobs" / "1" / name).write_text("{}")
        with Dashboard(self.folder, "--runs", "jobs") as d:
            listed = [(run["folder"], run["status"], run["iteration"]) for run in d.json("/api/runs")["runs"]]
        self.assertEqual(listed, [("jobs/1/run", "finished", 100)])

    def slow(self, port, count):
        """Connections that send a byte of a head now and then, made anew when they are closed."""
        ended = threading.Event()
        def send():
            open_ones = []
            while not ended.is_set():
                while len(open_ones) < count and not ended.is_set():
                    try:
                        open_ones.append(socket.create_connection(("127.0.0.1", port), timeout=1))
                    except OSError:
                        break
                kept = []
                for one in open_ones:
                    try:
                        one.send(b"G")
                        one.setblocking(False)
                        if one.recv(1, socket.MSG_PEEK) != b"":
                            kept.append(one)
                            continue
                    except BlockingIOError:
                        kept.append(one)
                        continue
                    except OSError:
                        pass
                    one.close()
                open_ones = kept
                ended.wait(1)
            for one in open_ones:
                one.close()
        thread = threading.Thread(target=send)
        thread.start()
        return lambda: (ended.set(), thread.join(30))

    def test_a_training_beside_slow_connections(self):
        """It serves its user, keeps its memory and descriptors, and ends."""
        training = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--json", "--out", "out", "--dashboard", "--set",
                                     "max_epochs=100000", "--set", "training.threads=1"], cwd=self.folder,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for end in (training.stdout.close, training.stderr.close, training.wait, training.kill):
            self.addCleanup(end)
        address = re.fullmatch(r"dashboard: http://127.0.0.1:(\d+)/\?token=(\S+)\n", training.stderr.readline())
        port, token = int(address.group(1)), address.group(2)

        def number(name):
            with open(f"/proc/{training.pid}/status", encoding="utf-8") as status:
                return int(re.search(name + r":\s+(\d+)", status.read()).group(1))

        def ask(path):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            with connection:
                connection.request("GET", path, headers={"Cookie": f"lockstep_{port}={token}"})
                answer = connection.getresponse()
                return answer.status, answer.read()

        def iterations():
            runs = json.loads(ask("/api/runs")[1])["runs"]
            return runs[0].get("iteration", 0) if runs else 0

        while iterations() < 10:
            time.sleep(0.1)
        descriptors = len(os.listdir(f"/proc/{training.pid}/fd"))
        memory = number("VmRSS")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        stop = self.slow(port, min(1000, hard // 2))
        try:
            began, first = time.monotonic(), iterations()
            while time.monotonic() - began < 6:
                before = time.monotonic()
                self.assertEqual(ask("/")[0], 200)
                self.assertLess(time.monotonic() - before, 2)
                self.assertLessEqual(len(os.listdir(f"/proc/{training.pid}/fd")), descriptors + 70)
                time.sleep(0.3)
            self.assertGreater(iterations(), first)
            self.assertLess((number("VmHWM") - memory) >> 10, 64)
            began = time.monotonic()
            training.terminate()
            self.assertEqual(training.wait(30), 130)
            self.assertLess(time.monotonic() - began, 2)
        finally:
            stop()

    def test_an_error_does_not_wait_for_a_browser(self):
        training = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--out", "out", "--dashboard", "--set",
                                     "max_epochs=100000"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        for end in (training.stderr.close, training.wait, training.kill):
            self.addCleanup(end)
        port = int(re.search(r":(\d+)/", training.stderr.readline()).group(1))
        with socket.create_connection(("127.0.0.1", port)) as silent, socket.create_connection(("127.0.0.1", port)) as slow:
            slow.send(b"GET / HTTP")
            while not (self.folder / "out" / "log.jsonl").exists():
                time.sleep(0.05)
            (self.folder / "out").rename(self.folder / "gone")
            limit = time.monotonic() + 15  # the next write of the log
            with contextlib.suppress(OSError):  # one that is closed in time
                while time.monotonic() < limit and training.poll() is None:
                    slow.send(b"x")
                    time.sleep(0.2)
            self.assertEqual(training.wait(max(0.1, limit - time.monotonic())), 1)
            self.assertIn("was removed or renamed", training.stderr.read())
            self.assertEqual(silent.recv(1), b"")


class StopOfATrial(CommandTest):
    def test_by_its_number(self):
        sweep = self.folder / "runs" / "sweep"
        write_sweep(sweep)
        with open(sweep / "sweep.jsonl", encoding="utf-8") as record:
            lines = [json.loads(line) for line in record.read().splitlines()[:-1]]
        lines = [line for line in lines if line.get("result", {}).get("trial") != 6]
        lines[1]["goals"] = [{"trial": trial, "budget": 1} for trial in range(1, 7)]
        (sweep / "sweep.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        with Dashboard(self.folder) as d:
            of = d.json("/api/runs")["sweeps"][0]["id"]
            trials = d.json("/api/sweep?id=" + of)["trials"]
            self.assertEqual([t["trial"] for t in trials if t["open"]], [6])
            for wrong in ("0", "x", ""):
                self.assertEqual(d.ask("POST", f"/api/stop-trial?id={of}&trial={wrong}")[0], 400)
            run = d.json("/api/runs")["runs"][0]["id"]
            self.assertEqual(d.ask("POST", f"/api/stop-trial?id={run}&trial=6")[0], 400)
            self.assertEqual(d.ask("POST", f"/api/stop-trial?id={of}&trial=6", token="")[0], 403)
            self.assertFalse((sweep / "requests").exists())
            self.assertEqual(d.ask("POST", f"/api/stop-trial?id={of}&trial=6")[0], 200)
            self.assertEqual([path.name for path in (sweep / "requests").iterdir()], ["stop-6"])


class Page(CommandTest):
    """With a browser."""

    def setUp(self):
        super().setUp()
        self.browser = Browser.of_all_tests()


class RunPage(Page):
    def test_a_training_grows_stops_and_shows_its_results(self):
        training = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--out", "runs/<script>", "--workers", "2",
                                     "--threads", "1", "--set", "max_epochs=100000"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self.addCleanup(training.wait)
        self.addCleanup(training.kill)
        run = self.folder / "runs" / "<script>"
        limit = time.monotonic() + 60
        while not (run / "run.json").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        b = self.browser
        with Dashboard(self.folder) as d:
            b.driver.get(d.address)
            b.wait("return document.querySelector('tbody a')")
            self.assertNotIn("token", b.driver.current_url)
            self.assertEqual(b.js("return document.cookie"), "")
            self.assertIn("runs/<script>", b.js("return document.querySelector('tbody').textContent"))
            b.js("document.querySelector('tbody a').click()")
            b.wait("return Lockstep.view?.logOf?.x.length > 0")
            first = b.js("return Lockstep.view.logOf.x.length")
            b.wait(f"return Lockstep.view.logOf.x.length > {first}")
            drawn = "return Number(document.querySelector('.chart').getAttribute('aria-label').match(/last ([\\d.]+)/)[1]) > 0"
            self.assertTrue(b.js(drawn))
            facts = b.js("return document.querySelector('.facts').textContent")
            for name in ("Elapsed", "Time left", "Epoch", "Iteration", "Learning rate", "Processors", "Memory"):
                self.assertIn(name, facts)
            workers = "[...document.querySelectorAll('section[aria-label=Workers] tbody tr')]"
            b.wait(f"return {workers}.filter(row => row.textContent.includes('computes')).length === 2")
            # Times of steps by worker: shards, milliseconds of a shard and of an iteration.
            times = f"return {workers}.map(row => [...row.querySelectorAll('td')].slice(-3).map(cell => parseFloat(cell.textContent.replace(/,/g, ''))))"
            b.wait(f"return ({times[7:]}).every(row => row.every(value => value > 0))")
            for shards, shard_ms, iteration_ms in b.js(times):
                self.assertLess(shard_ms, iteration_ms * 1.5 + 1)
            victim = next(event["pid"] for line in (run / "log.jsonl").read_text().splitlines()
                          for event in [json.loads(line)] if event.get("event") == "worker joined")
            os.kill(victim, signal.SIGKILL)
            b.wait(f"return {workers}.some(row => row.textContent.includes('lost: was killed by signal 9'))")
            b.wait(f"return {workers}.filter(row => row.textContent.includes('computes')).length === 2")
            b.js("document.querySelector('button.stop').click()")
            _, error = training.communicate(timeout=60)
            self.assertEqual(training.returncode, 130, error)
            b.wait("return document.querySelector('.state').textContent === 'stopped'")
            b.wait("return document.querySelector('section[aria-label=Log]')?.textContent.includes('a stop was requested')")
            b.wait("return document.querySelector('section[aria-label=Options]')")
            # The workers have ended with the training; the one that was lost stays lost.
            b.wait(f"return {workers}.filter(row => row.textContent.includes('ended')).length === 2")
            self.assertFalse(b.js(f"return {workers}.some(row => row.textContent.includes('computes'))"))
            self.assertTrue((run / "model.safetensors").exists())
            self.assertEqual(b.js("return document.querySelectorAll('script').length"), 7)
            for width in (1400, 390):
                b.look(width, dark=width == 390)
                time.sleep(0.3)
                self.assertLessEqual(b.js("return document.documentElement.scrollWidth"), width)
            self.assertEqual(b.problems(), [])

    def test_the_table_filters_and_remembers_its_view(self):
        for i, loss in enumerate((3.0, 1.0, 2.0)):
            write_run(self.folder / "runs" / f"r{i}", 100, loss=lambda _, loss=loss: loss)
        b = self.browser
        with Dashboard(self.folder) as d:
            b.driver.get(d.address)
            b.wait("return document.querySelectorAll('tbody tr').length === 3")
            b.js("[...document.querySelectorAll('thead button')].find(b => b.textContent === 'Best loss').click()")
            order = "return [...document.querySelectorAll('tbody tr td:nth-child(2) div')].map(n => n.textContent)"
            self.assertEqual(b.js(order), ["runs/r0", "runs/r2", "runs/r1"])
            b.js("const f = document.querySelector('input[type=search]'); f.value = 'validation.loss.best < 2.5 and state = finished'; f.dispatchEvent(new Event('input'))")
            b.wait("return document.querySelectorAll('tbody tr').length === 2")
            self.assertEqual(b.js(order), ["runs/r2", "runs/r1"])
            b.driver.get(f"http://127.0.0.1:{d.port}/")
            b.wait("return document.querySelectorAll('tbody tr').length > 0")
            self.assertEqual(b.js(order), ["runs/r2", "runs/r1"])
            # The language and the errors of `lockstep runs list`.
            message = "return document.querySelector('section[aria-label=Runs] p.message:not([hidden])')?.textContent ?? ''"
            for text, rows, said in (("name = made and seed = 2", 3, ""), ("seed = 3", 0, ""), ("not training.loss > 1", 1, ""),
                                     ("foo < 3", 1, "[filter] no run has a field `foo`"), ("staet = failed", 1, "did you mean `state`?"),
                                     ("made", 1, "text: name ~ made"), ("seed <", 1, "a number or a text is expected"), ("", 3, "")):
                b.js("const f = document.querySelector('input[type=search]'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))", text)
                limit = time.monotonic() + 20
                while time.monotonic() < limit:
                    now = b.js(order), b.js(message)
                    if len(now[0]) == rows and (said in now[1] if said else now[1] == ""):
                        break
                    time.sleep(0.05)
                self.assertEqual(len(now[0]), rows, (text, now))
                self.assertTrue(said in now[1] if said else now[1] == "", (text, now))
            b.js("document.querySelectorAll('tbody input').forEach(box => box.click()); document.querySelector('button.main').click()")
            b.wait("return Lockstep.view?.charts?.length === 4")
            self.assertEqual(b.problems(), [])
            b.driver.get(f"http://127.0.0.1:{d.port}/#/run/nothing")
            b.driver.refresh()
            b.wait("return document.body.textContent.includes('there is no such run')")

    def test_train_with_its_dashboard(self):
        training = subprocess.Popen([COMMAND, "train", "job.toml", "--quiet", "--out", "out", "--dashboard",
                                     "--set", "max_epochs=100000"], cwd=self.folder, stderr=subprocess.PIPE, text=True)
        self.addCleanup(training.stderr.close)
        self.addCleanup(training.wait)
        self.addCleanup(training.kill)
        address = re.fullmatch(r"dashboard: (http://\S+)\n", training.stderr.readline()).group(1)
        b = self.browser
        b.driver.get(address)
        b.wait("return document.querySelector('tbody a')")
        b.js("document.querySelector('tbody a').click()")
        b.wait("return Lockstep.view?.logOf?.x.length > 0")
        b.js("document.querySelector('button.stop').click()")
        self.assertEqual(training.wait(60), 130)


class SweepPage(Page):
    def check(self):
        b = self.browser
        b.wait("return document.querySelectorAll('path.trial').length === 6")
        self.assertEqual(b.js("return document.querySelectorAll('b, main script').length"), 0)
        self.assertIn("<b>kind", b.js("return document.querySelector('main').textContent"))
        rows = "return [...document.querySelectorAll('section[aria-label=Trials] tbody tr')].map(r => r.children[0].textContent).sort().join()"
        self.assertEqual(b.js(rows), "1,2,3,4,5,6")
        dim = "return [...document.querySelectorAll('path.trial')].filter(p => p.style.opacity < 0.5).length"
        self.assertEqual(b.js(dim), 4)
        # Brushing the upper half of the metric's axis leaves the best trial and those above the middle.
        axis = b.driver.find_elements("css selector", "rect.axis")[-1]
        b.js("arguments[0].scrollIntoView({block: 'center'})", axis)
        ActionChains(b.driver).move_to_element(axis).click_and_hold().move_by_offset(0, -140).release().perform()
        self.assertEqual(b.js(rows), "5")
        self.assertIn("1 of 6 trials", b.js("return document.querySelector('[aria-live]').textContent"))
        axis.send_keys(Keys.ESCAPE)
        self.assertEqual(b.js(rows), "1,2,3,4,5,6")
        axis.send_keys(Keys.ENTER)
        self.assertEqual(b.js(rows), "5")
        axis.send_keys(Keys.ESCAPE)
        for width, dark in ((1400, False), (390, True)):
            b.look(width, 900, dark)
            time.sleep(0.3)
            self.assertLessEqual(b.js("return document.documentElement.scrollWidth"), width)
        self.assertEqual(b.problems(), [])

    def test_report_and_dashboard(self):
        sweep = self.folder / "runs" / "sweep"
        write_sweep(sweep)
        done = self.run_command("report", "runs/sweep")
        self.assertEqual((done.returncode, done.stdout), (0, "runs/sweep/report.html\n"), done.stderr)
        self.assertTrue((sweep / "trials" / "3" / "report.html").exists())
        self.browser.driver.get((sweep / "report.html").as_uri())
        self.check()
        self.browser.look()
        with Dashboard(self.folder) as d:
            data = d.json("/api/sweep?id=" + d.json("/api/runs")["sweeps"][0]["id"])
            self.assertEqual([t["state"] for t in data["trials"]], ["pruned"] * 4 + ["reached", "diverged"])
            self.assertEqual([t["value"] for t in data["trials"]][4:], [0.9, None])
            self.assertEqual(len(data["trials"][4]["curve"]["x"]), 3)
            self.browser.driver.get(d.address)
            self.browser.wait("return document.querySelector('section[aria-label=Sweeps] a')")
            self.browser.js("document.querySelector('section[aria-label=Sweeps] a').click()")
            self.check()
            stop = "return document.querySelectorAll('section[aria-label=Trials] button.stop').length"
            self.assertEqual(self.browser.js(stop), 0)  # no trial is open
            with open(sweep / "sweep.jsonl", "a", encoding="utf-8") as record:
                record.write('al":6}}\n{"decision":2,"what":"rung 3","starts":[],"goals":[{"trial":5,"budget":9}],"pruned":[]}\n')
            self.browser.driver.refresh()
            self.browser.wait(stop)
            self.browser.js("document.querySelector('section[aria-label=Trials] button.stop').click()")
            self.browser.wait("return document.querySelector('section[aria-label=Trials] button.stop').textContent === 'Stop is requested'")
            limit = time.monotonic() + 10
            while not (sweep / "requests" / "stop-5").exists() and time.monotonic() < limit:
                time.sleep(0.05)
            self.assertEqual([path.name for path in (sweep / "requests").iterdir()], ["stop-5"])
            self.browser.js("document.querySelector('section[aria-label=Trials] tbody a').click()")
            self.browser.wait("return location.hash.startsWith('#/run/')")


if __name__ == "__main__":
    unittest.main(verbosity=2)
