#!/usr/bin/env python3
"""Trainings with the dashboard, alone and beside slow connections without its token.

usage: benchmarks/dashboard/slow_connections.py PATH_OF_LOCKSTEP [--connections 1000] [--rounds 6]

Each round trains the same job twice with `--dashboard`: alone, and while connections send a byte of a request
every second and are made anew whenever they are closed. Every other round begins with the connections, so that a
machine that becomes slower or faster favors neither. Prints the ratio of the times of the trainings (median over
the rounds, of the log: without start and evaluation) and of their processor seconds, which other programs disturb
less, the memory that the connections cost, and the time from SIGTERM to the end. The connections are made by this
process: on a machine without a core for it, the times contain its work, the processor seconds do not. Expected: a
ratio of at most 1.05, 64 MiB and 2 s.
"""

import argparse
import json
import os
import pathlib
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

JOB = """
[data]
train = "builtin:digits"
[network]
input = { height = 28, width = 28, channels = 1 }
layers = [
  { type = "convolution2d", filters = 16, kernel = 3, padding = "same" },
  { type = "batch_normalization" },
  { type = "relu" },
  { type = "fully_connected", units = 10 },
  { type = "softmax" },
]
[training]
mini_batch_size = 128
max_epochs = %d
"""


class SlowConnections:
    """A context: connections to a port that never finish the head of their request."""

    def __init__(self, port, count):
        self.port, self.count, self.ended, self.made = port, count, threading.Event(), 0
        self.thread = threading.Thread(target=self.work)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def work(self):
        connections = []
        while not self.ended.is_set():
            while len(connections) < self.count and not self.ended.is_set():
                try:
                    connections.append(socket.create_connection(("127.0.0.1", self.port), timeout=1))
                    connections[-1].setblocking(False)
                    self.made += 1
                except OSError:
                    break
            kept = []
            for connection in connections:
                try:
                    connection.send(b"G")
                    closed = connection.recv(1) == b""
                except BlockingIOError:
                    closed = False
                except OSError:
                    closed = True
                if closed:
                    connection.close()
                else:
                    kept.append(connection)
            connections = kept
            self.ended.wait(1)
        for connection in connections:
            connection.close()


class Training:
    def __init__(self, command, folder, epochs):
        (folder / "job.toml").write_text(JOB % epochs)
        self.folder = folder
        self.process = subprocess.Popen(
            [command, "train", "job.toml", "--out", "run", "--quiet", "--not-recorded", "--dashboard"], cwd=folder,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)/", self.process.stderr.readline()).group(1))

    def status(self, name):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(name + r":\s+(\d+)", text).group(1))

    def log(self):
        path = self.folder / "run" / "log.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.startswith('{"iteration"') and line.endswith("}")]

    def seconds(self):
        """Of the iterations after the first tenth; processor seconds of the whole process."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        assert self.process.returncode == 0, self.process.stderr.read()
        log = [line for line in self.log() if "seconds" in line]
        return sum(line["seconds"] for line in log[len(log) // 10:]), usage.ru_utime + usage.ru_stime

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", type=os.path.abspath)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=40)
    a = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, a.connections + 200), hard))
    ratios, of_processors, made = [], [], 0
    for number in range(a.rounds):
        times = {}
        for count in (0, a.connections) if number % 2 == 0 else (a.connections, 0):
            with tempfile.TemporaryDirectory() as folder, Training(a.command, pathlib.Path(folder), a.epochs) as training:
                with SlowConnections(training.port, count) as slow:
                    times[count] = training.seconds()
                made += slow.made
        (alone, alone_used), (beside, beside_used) = times[0], times[a.connections]
        ratios.append(beside / alone)
        of_processors.append(beside_used / alone_used)
        print(f"alone {alone:.2f} s ({alone_used:.2f} processor seconds), beside {a.connections} connections {beside:.2f} s "
              f"({beside_used:.2f}): {ratios[-1]:.3f} ({of_processors[-1]:.3f})", flush=True)
    with tempfile.TemporaryDirectory() as folder, Training(a.command, pathlib.Path(folder), 1_000_000) as training:
        while len(training.log()) < 20:
            time.sleep(0.1)
        before = training.status("VmRSS")
        with SlowConnections(training.port, a.connections):
            most = before
            end = time.monotonic() + 10
            while time.monotonic() < end:
                most = max(most, training.status("VmRSS"))
                time.sleep(0.05)
            memory = (most - before) / 1024
            began = time.monotonic()
            training.process.terminate()
            training.process.wait(60)
            end = time.monotonic() - began
    ratio = statistics.median(ratios)
    print(f"time {ratio:.3f}, processor seconds {statistics.median(of_processors):.3f}, memory {memory:.1f} MiB, end {end:.2f} s after SIGTERM; {made} connections were made")
    return 0 if ratio <= 1.05 and memory <= 64 and end <= 2 else 1


if __name__ == "__main__":
    sys.exit(main())
