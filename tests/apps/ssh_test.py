#!/usr/bin/env python3
"""Trainings on hosts that are reached by ssh: this machine, by a separate server on the loopback.

usage: ssh_test.py PATH_OF_LOCKSTEP [unittest options]

Exits with 77 if there is no server (openssh-server) or it does not start.
"""

import os
import subprocess
import sys
import tempfile
import unittest

import ssh_server
from small_job import small_job

COMMAND = os.path.abspath(sys.argv.pop(1))
LIMIT = 120
JOB = small_job(max_epochs=3, validation_frequency="epoch")


def leave_out(why):
    print("left out:", why, flush=True)
    os._exit(77)  # which counts as skipped


class Ssh(unittest.TestCase):
    served = False  # whether a server has started

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        try:
            self.server = ssh_server.SshServer(self.path("ssh"))
        except RuntimeError as error:
            if Ssh.served:
                raise  # it worked before
            leave_out(error)
        Ssh.served = True
        self.addCleanup(self.server.stop)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path("ssh/stranger")],
                       check=True, timeout=LIMIT)
        self.write("job.toml", JOB)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def train(self, out, *more):
        return subprocess.run([COMMAND, "train", self.path("job.toml"), "--out", self.path(out),
                               "--quiet", *more], capture_output=True, text=True, timeout=LIMIT)

    def launch(self, key="key"):
        return f"ssh -F {self.path('ssh/client')} -i {self.path('ssh/' + key)} {{host}}"

    def receipt(self, out):
        with open(self.path(os.path.join(out, "receipt.jsonl")), "rb") as file:
            return file.read()

    def test_the_receipt_is_that_of_one_process(self):
        self.assertEqual(self.train("alone").returncode, 0)
        hosts = self.train("hosts", "--hosts", "localhost:1,127.0.0.1:1,127.0.0.2:2",
                           "--host-launch", self.launch())
        self.assertEqual(hosts.returncode, 0, hosts.stderr)
        self.assertEqual(self.receipt("hosts"), self.receipt("alone"))

    def test_what_ssh_says_is_told(self):
        for key, host, said in [("stranger", "127.0.0.2", "Permission denied"),
                                ("key", "127.0.0.3", "Connection refused"),
                                ("key", "no.such.host.invalid", "no.such.host.invalid")]:
            failed = self.train("failed-" + said, "--hosts", f"localhost:1,{host}:1",
                                "--host-launch", self.launch(key))
            self.assertEqual(failed.returncode, 1)
            self.assertIn(said, failed.stderr)


if __name__ == "__main__":
    if ssh_server.missing_tools():
        leave_out("there is no ssh server (openssh-server)")
    unittest.main()
