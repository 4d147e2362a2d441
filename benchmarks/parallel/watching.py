#!/usr/bin/env python3
"""What watching costs: trainings of S3, depth 1, by two threads, alone and with receipt, log, run store, report
and a dashboard that a page follows.

Both alternate, with the same checkpoints and validations. Processor seconds count, because other programs
change the wall time; those of the dashboard's process are included.
"""

import argparse
import http.client
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = TOP / "build" / "release"


def processor_seconds(process):
    """Of a process that lives."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Followed:
    """A dashboard of a folder, with a page that follows the run there."""

    def __init__(self, folder):
        environment = {**os.environ, "LOCKSTEP_HOME": os.path.join(folder, "home")}
        self.process = subprocess.Popen([BUILD / "bin" / "lockstep", "dashboard", "--runs", folder], cwd=folder, env=environment,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        found = re.search(r":(\d+)/\?token=(\w+)", self.process.stdout.readline())
        self.port, self.token = int(found[1]), found[2]
        self.bytes = 0
        threading.Thread(target=self.follow, daemon=True).start()

    def ask(self, path, timeout):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.request("GET", path, headers={"Cookie": f"lockstep_{self.port}={self.token}"})
        return connection.getresponse()

    def follow(self):
        try:
            runs = []
            while not runs:
                time.sleep(0.3)
                runs = json.loads(self.ask("/api/runs", 10).read())["runs"]
            answer = self.ask(f"/events?since=0&watch={runs[0]['id']}:0", 600)
            while chunk := answer.read1(1 << 16):
                self.bytes += len(chunk)
        except OSError:
            pass  # the dashboard has ended

    def end(self):
        """Its processor seconds."""
        used = processor_seconds(self.process.pid)
        self.process.terminate()
        self.process.wait(20)
        return used


def train(arguments, every):
    """Processor seconds, wall seconds, of the dashboard and of the report."""
    settings = [f"max_epochs={arguments.epochs}", "threads=2", "device=cpu"]
    with tempfile.TemporaryDirectory() as folder:
        dashboard = Followed(folder) if every else None
        line = [BUILD / "benchmarks" / "watching", TOP / "examples" / "jobs" / "cifar10_s3.toml", folder,
                "all" if every else "alone", *settings]
        done = subprocess.run(line, check=True, capture_output=True, text=True,
                              env={**os.environ, "LOCKSTEP_DATA": arguments.data})
        result = json.loads(done.stdout.splitlines()[-1])
        result["dashboard"] = dashboard.end() if every else 0
        if every and dashboard.bytes == 0:
            raise SystemExit("the page got nothing")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("LOCKSTEP_TEST_DATA"), help="holds cifar10/")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} before")
    results = {True: [], False: []}
    for number in range(arguments.rounds):
        for every in ((True, False) if number % 2 == 0 else (False, True)):
            one = train(arguments, every)
            results[every].append(one)
            print(f"{'all  ' if every else 'alone'} {one['iterations']} iterations: {one['processor_seconds']:.2f} processor "
                  f"seconds, {one['seconds']:.2f} s; dashboard {one['dashboard']:.2f}, report "
                  f"{one['report_processor_seconds']:.2f} processor seconds", flush=True)
    middle = {every: {key: statistics.median(one[key] for one in results[every]) for key in results[every][0]}
              for every in results}
    alone = middle[False]["processor_seconds"]
    print(f"training {100 * (middle[True]['processor_seconds'] / alone - 1):+.2f} %, dashboard "
          f"{100 * middle[True]['dashboard'] / alone:+.2f} %, report at the end "
          f"{100 * middle[True]['report_processor_seconds'] / alone:+.2f} % of the processor seconds; wall time "
          f"{100 * (middle[True]['seconds'] / middle[False]['seconds'] - 1):+.2f} %")


if __name__ == "__main__":
    main()
