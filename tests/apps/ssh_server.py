"""A private ssh server on the loopback, with a client that reaches it by the name of any host."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

SERVER = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def missing_tools():
    return [name for name, path in (("sshd", SERVER), ("ssh", shutil.which("ssh")),
                                    ("ssh-keygen", shutil.which("ssh-keygen"))) if path is None]


class SshServer:
    """Started by the constructor, ended by stop(). `environment` is for what it runs.

    It listens at 127.0.0.1 and 127.0.0.2 and admits the owner of `key`. `client` configures ssh.
    `client_path()` is a folder with an `ssh` that uses the server's port and key; commands find it
    by PATH.
    """

    def __init__(self, folder, environment=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(exist_ok=True)
        for name in ("key", "host_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name],
                           check=True, timeout=60)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        variables = " ".join(f'"{name}={value}"' for name, value in (environment or {}).items())
        (self.folder / "server").write_text(f"""
            Port {self.port}
            ListenAddress 127.0.0.1
            ListenAddress 127.0.0.2
            HostKey {self.folder}/host_key
            AuthorizedKeysFile {self.folder}/key.pub
            PidFile none
            StrictModes no
            UsePAM no
            {"SetEnv " + variables if variables else ""}
            """)
        (self.folder / "client").write_text(f"""
            Host *
              Port {self.port}
              StrictHostKeyChecking no
              UserKnownHostsFile /dev/null
              LogLevel ERROR
              BatchMode yes
              IdentitiesOnly yes
            """)
        programs = self.folder / "bin"
        programs.mkdir()
        (programs / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/client '
                                      f'-i {self.folder}/key "$@"\n')
        (programs / "ssh").chmod(0o755)
        self.start()

    def client_path(self):
        return str(self.folder / "bin")

    def start(self):
        if os.geteuid() == 0:  # a server of root needs this folder, which Debian makes at boot
            pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with open(self.folder / "log", "a") as log:
            # It restarts itself for each connection, by its full path.
            self.process = subprocess.Popen([SERVER, "-D", "-e", "-f", self.folder / "server"],
                                            stderr=log)
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        self.stop()
        raise RuntimeError("the ssh server does not start: " + (self.folder / "log").read_text())

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
