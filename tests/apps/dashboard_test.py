#!/usr/bin/env python3
"""`lockstep dashboard` over HTTP: usage: dashboard_test.py COMMAND"""

import json
import re
import shutil
import socket
import time

from support import CommandTest, unittest

from dashboard_support import Dashboard, write_run, write_sweep


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

    def test_a_log_that_was_written_anew_while_a_page_was_away(self):
        write_run(self.folder / "runs" / "a", 100)
        with Dashboard(self.folder) as d:
            run = d.json("/api/runs")["runs"][0]["id"]
            log = d.json("/api/log?id=" + run)
            shutil.rmtree(self.folder / "runs" / "a")
            write_run(self.folder / "runs" / "a", 300, loss=lambda i: 3)  # longer than before

            def first_event(mark):
                connection, answer = d.connection("GET", f"/events?since=0&watch={run}:{log['position']}:{mark}")
                with connection:
                    while True:
                        line = answer.readline().decode()
                        self.assertNotEqual(line, "")
                        if line.strip() in ("event: log", "event: restart"):
                            return line.strip()

            self.assertEqual(first_event(log["mark"]), "event: restart")
            self.assertEqual(first_event(""), "event: log")

    def test_a_port_in_use_and_folders_that_do_not_exist(self):
        write_run(self.folder / "runs" / "a", 1)
        with Dashboard(self.folder) as d:
            done = self.run_command("dashboard", "--port", d.port)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"port {d.port} cannot be used", done.stderr)
        done = self.run_command("dashboard", "--runs", "nothing")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no folder nothing", done.stderr)


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


if __name__ == "__main__":
    unittest.main()
