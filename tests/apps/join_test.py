#!/usr/bin/env python3
"""Hosts that join a training by `lockstep worker`, and processes that may not.

usage: join_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest

from free_ports import free_ports
from small_job import small_job
from support import COMMAND

LIMIT = 120
VARIABLES = ("SLURM_PROCID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "JOB_COMPLETION_INDEX")


def family_of(pid):
    """The process and all processes below it."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = pathlib.Path(f"/proc/{entry}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents.setdefault(int(text.rsplit(")", 1)[1].split()[1]), []).append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += parents.get(found[-1], [])
    return found


def listening(pids):
    """(address, port) of the TCP sockets at which these processes listen."""
    inodes = set()
    for pid in pids:
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                match = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
                if match:
                    inodes.add(match[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in pathlib.Path(table).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                address, port = words[1].split(":")
                found.add((address, int(port, 16)))
    return found


class Join(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.processes = []
        self.addCleanup(self.end_all)
        (self.folder / "job.toml").write_text(small_job(max_epochs=3))
        (self.folder / "long.toml").write_text(small_job(max_epochs=300))
        self.port = free_ports(20)
        self.works("worker", "--new-key", "key")

    def end_all(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def environment(self, more):
        clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        return {**clean, "LOCKSTEP_PORTS": f"{self.port}-{self.port + 19}", **more}

    def works(self, *arguments, **environment):
        done = subprocess.run([COMMAND, *arguments], cwd=self.folder, capture_output=True, text=True,
                              timeout=LIMIT, env=self.environment(environment))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def begin(self, *arguments, **environment):
        process = subprocess.Popen([COMMAND, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=self.environment(environment))
        self.processes.append(process)
        return process

    def ends(self, process):
        out, error = process.communicate(timeout=LIMIT)
        return process.returncode, out + error

    def train(self, job, out, *more):
        return self.begin("train", job, "--out", out, "--quiet", "--hosts", "a:1,b:2",
                          "--host-launch", "join key", *more)

    def join(self, key="key", *more, **environment):
        return self.begin("worker", "--join", f"127.0.0.1:{self.port}", "--key-file", key,
                          *more, **environment)

    def refused(self, said, *arguments, **environment):
        code, text = self.ends(self.join(*arguments, **environment))
        self.assertEqual(code, 1, text)
        self.assertIn(said, text)

    def receipt(self, out):
        return (self.folder / out / "receipt.jsonl").read_bytes()

    def iterations(self, out, count, kind="\n"):
        """Waits for lines of the log."""
        log = self.folder / out / "log.jsonl"
        for _ in range(LIMIT * 20):
            if log.exists() and log.read_text().count(kind) >= count:
                return
            time.sleep(0.05)
        self.fail("the training does not advance")

    def test_the_receipt_is_that_of_one_process_by_every_engine(self):
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        training = self.train("job.toml", "joined")
        # A person reads what to start. The engines that follow do not wait for it.
        said = training.stderr.readline()
        self.assertIn("waits for hosts, of which 0 of 2 have joined; each needs: lockstep worker --join "
                      f"127.0.0.1:{self.port} --key-file key --index N, N from 0 to 1", said)
        hosts = [self.join(SLURM_PROCID="0", SLURM_NTASKS="2"),
                 self.join(JOB_COMPLETION_INDEX="1")]
        code, text = self.ends(training)
        self.assertEqual(code, 0, text)
        self.assertEqual(self.receipt("joined"), self.receipt("usual"))
        for host in hosts:
            self.assertEqual(self.ends(host)[0], 0)
        self.refused("nothing answers", "key", "--index", "0", "--patience", "1")

    def test_what_may_not_join_is_told_why(self):
        training = self.train("long.toml", "long")
        first = self.join(PMIX_RANK="0")
        second = self.join("key", "--index", "1")
        self.iterations("long", 3)
        # Twice, and by another number of hosts or another index.
        self.refused(f"member 1 has joined already: process {second.pid} on", OMPI_COMM_WORLD_RANK="1")
        self.refused("the job has no member 7", "key", "--index", "7")
        self.refused("it is one of 3 processes, but the job has 2", "key", "--index", "0",
                     "--size", "3")
        self.refused("SLURM_PROCID is not a number: x", SLURM_PROCID="x")
        # Another build: a byte of the build's number is changed.
        other = self.folder / "other"
        content = bytearray(pathlib.Path(COMMAND).read_bytes())
        at = content.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0") + 16
        content[at] ^= 1
        other.write_bytes(content)
        other.chmod(0o755)
        done = subprocess.run([other, "worker", "--join", f"127.0.0.1:{self.port}", "--key-file",
                               "key", "--index", "0"], cwd=self.folder, capture_output=True,
                              text=True, timeout=LIMIT, env=self.environment({}))
        self.assertIn("its executable is another build than the client's", done.stderr)
        # A foreign key, and what is not a key file.
        self.works("worker", "--new-key", "foreign")
        self.refused("refuses the key", "foreign", "--index", "0")
        mixed = (self.folder / "key").read_text().splitlines()
        foreign = (self.folder / "foreign").read_text().splitlines()
        (self.folder / "mixed").write_text("\n".join(mixed[:2] + foreign[2:4] + ["end", ""]))
        (self.folder / "mixed").chmod(0o600)
        self.refused("refuses the key", "mixed", "--index", "0")
        (self.folder / "text").write_text("text")
        (self.folder / "text").chmod(0o600)
        self.refused("text is not a key file", "text")
        (self.folder / "half").write_text("\n".join(mixed[:3]))
        (self.folder / "half").chmod(0o600)
        self.refused("half is damaged", "half")
        (self.folder / "key").chmod(0o640)
        self.refused("other users can read it", "key")
        # Garbage at every port, and nothing listens beyond the loopback.
        family = [p for process in (training, first, second) for p in family_of(process.pid)]
        places = listening(family)
        self.assertTrue(places)
        for address, port in places:
            self.assertEqual(address, "0100007F")
            self.assertIn(port, range(self.port, self.port + 20))
            for garbage in (b"\0" * 100, b"GET / HTTP/1.0\r\n\r\n", os.urandom(5000)):
                with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
                    try:
                        stranger.sendall(garbage)
                    except OSError:
                        pass
        for process in (training, first, second):
            self.assertIsNone(process.poll())
        secret = [line.split()[1].encode() for line in mixed if "secret" in line]
        for pid in family:
            for name in ("cmdline", "environ"):
                try:
                    content = pathlib.Path(f"/proc/{pid}/{name}").read_bytes()
                except OSError:
                    continue
                for word in secret:
                    self.assertNotIn(word, content)
        before = (self.folder / "long" / "log.jsonl").read_text().count("\n")
        self.iterations("long", before + 3)

    def test_a_host_that_is_lost_joins_anew(self):
        training = self.train("long.toml", "joined", "--set", "max_epochs=100000", "--json")
        self.join("key", "--index", "0")
        lost = self.join("key", "--index", "1")
        self.iterations("joined", 5)
        lost.send_signal(signal.SIGKILL)
        self.iterations("joined", 2, '"worker lost"')
        self.join("key", "--index", "1")
        self.iterations("joined", 5, '"worker joined"')
        training.send_signal(signal.SIGINT)
        code, text = self.ends(training)
        self.assertEqual(code, 130, text)
        # Notes may stand around it.
        workers = json.loads([line for line in text.splitlines() if line.startswith("{")][-1])["workers"]
        self.assertEqual(len([w for w in workers if w["lost"]]), 2)
        epochs = f"max_epochs={self.receipt('joined').count(b'{') // 90 + 1}"  # an epoch has 90 iterations
        self.works("train", "long.toml", "--out", "joined", "--quiet", "--set", epochs, "--resume")
        self.works("train", "long.toml", "--out", "usual", "--quiet", "--set", epochs)
        self.assertEqual(self.receipt("joined"), self.receipt("usual"))

    def test_key_files(self):
        mode = (self.folder / "key").stat().st_mode
        self.assertEqual(stat.S_IMODE(mode), 0o600)
        done = subprocess.run([COMMAND, "worker", "--new-key", "key"], cwd=self.folder,
                              capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("File exists", done.stderr)
        # Members need no secret of the training, and the training needs its own.
        text = (self.folder / "key").read_text()
        (self.folder / "key").write_text(re.sub("server-secret .*\n", "", text))
        code, said = self.ends(self.train("job.toml", "a"))
        self.assertEqual(code, 1)
        self.assertIn("the key file is one for members alone", said)

    def test_keys_in_files_for_a_launch_command(self):
        keys = self.folder / "keys"
        keys.mkdir()
        self.works("train", "job.toml", "--out", "usual", "--quiet")
        self.works("train", "job.toml", "--out", "a", "--quiet", "--hosts",
                   "localhost:1,127.0.0.2:1", "--host-launch", "env HOST={host}",
                   LOCKSTEP_KEY_FOLDER=str(keys))
        self.assertEqual(self.receipt("a"), self.receipt("usual"))
        self.assertEqual(list(keys.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
