"""What the tests of the dashboard have in common."""

import http.client
import json
import os
import re
import subprocess

from support import COMMAND


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


def write_run(folder, iterations, name="made", state="finished", loss=lambda i: 2 / (1 + i / 50), metrics=None, job=None, facts=None):
    """A run's folder without a training, with a validation each 100 iterations. `metrics` are functions of the iteration
    by name, `job` are further tables of job.json, `facts` are of run.json."""
    folder.mkdir(parents=True)
    (folder / "job.json").write_text(json.dumps({"name": name, "training": {"seed": iterations % 7}, **(job or {})}))
    with open(folder / "log.jsonl", "w", encoding="utf-8") as log:
        for i in range(1, iterations + 1):
            log.write('{"iteration":%d,"epoch":%d,"in_epoch":1,"loss":%.6f,"accuracy":%.4f,"learning_rate":0.1,'
                      '"elapsed":%.3f,"seconds":0.01,"observations":32}\n'
                      % (i, 1 + (i - 1) // 100, loss(i), 1 - 1 / (1 + i), i / 100))
            if i % 100 == 0:
                line = {"iteration": i, "epoch": i // 100, "validation_loss": round(loss(i), 5), "validation_accuracy": 0.5}
                if metrics:
                    line["validation_metrics"] = {metric: value(i) for metric, value in metrics.items()}
                log.write(json.dumps(line, separators=(",", ":")) + "\n")
    (folder / "state.json").write_text(json.dumps({"lockstep.state": "1", "state": state, "reason": "",
                                                   "iteration": iterations, "time": "2026-11-25T09:11:18Z"}))
    if facts:
        (folder / "run.json").write_text(json.dumps({"lockstep.run": "1", **facts}))


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
