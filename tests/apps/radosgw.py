"""A real S3 store on this machine: Ceph's radosgw with one monitor and one memory store (Debian: ceph-mon, ceph-osd,
radosgw). Only the loopback interface, only for tests."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
import uuid

from fake_s3 import sha256, signature
from free_ports import free_ports

ACCESS, SECRET = "testkey", "testsecret"
CONFIGURATION = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon}/0]
mon initial members = a
public network = 127.0.0.0/8
auth cluster required = none
auth service required = none
auth client required = none
ms mon client mode = crc
ms cluster mode = crc
ms service mode = crc
ms client mode = crc
ms bind ipv6 = false
ms bind msgr1 = false
ms bind port min = {low}
ms bind port max = {high}
run dir = {folder}/run
admin socket = {folder}/run/$name.asok
pid file = {folder}/run/$name.pid
log file = {folder}/log/$name.log
keyring = {folder}/keyring
debug ms = 0/0
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon max pg per osd = 1000
[mon]
paxos propose interval = 0.05
paxos min wait = 0.01
mon data = {folder}/mon
mon data avail crit = 1
mon data avail warn = 2
mon pg warn min per osd = 0
[osd]
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 8589934592
osd class update on start = false
osd fast shutdown = false
osd crush update on start = true
osd max object name len = 1024
[client]
rgw frontends = beast endpoint=127.0.0.1:{port} tcp_nodelay=1
rgw enable usage log = false
rgw enable ops log = false
rgw run sync thread = false
rgw enable apis = s3, admin
rgw thread pool size = 16
"""


class Radosgw:
    """Starts the daemons; close() ends them. kill() and start() end and start the gateway alone; objects stay."""

    def __init__(self):
        missing = [name for name in ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool") if not shutil.which(name)]
        if missing:
            raise RuntimeError(f"{', '.join(missing)} not found: install Debian's ceph-mon, ceph-osd, radosgw")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="radosgw_"))
        self.port = free_ports(13)
        mon, low = self.port + 1, self.port + 2
        self.url = f"http://127.0.0.1:{self.port}"
        for name in ("mon", "osd", "run", "log"):
            (self.folder / name).mkdir()
        (self.folder / "keyring").touch()
        fsid, self.file = str(uuid.uuid4()), str(self.folder / "ceph.conf")
        (self.folder / "ceph.conf").write_text(CONFIGURATION.format(
            fsid=fsid, folder=self.folder, mon=mon, port=self.port, low=low, high=low + 10))
        self.processes, self.gateway = [], None
        try:
            self.do("monmaptool", "--create", "--clobber", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon}/0]",
                    self.folder / "monmap")
            self.do("ceph-mon", "-c", self.file, "--mkfs", "-i", "a", "--monmap", self.folder / "monmap")
            self.processes.append(self.daemon("ceph-mon", "-i", "a"))
            osd = str(uuid.uuid4())
            self.do("ceph", "-c", self.file, "--connect-timeout", "20", "osd", "new", osd, "0")
            self.do("ceph-osd", "-c", self.file, "-i", "0", "--mkfs", "--osd-uuid", osd)
            self.processes.append(self.daemon("ceph-osd", "-i", "0"))
            self.do("radosgw-admin", "-c", self.file, "user", "create", "--uid=test", "--display-name=test",
                    f"--access-key={ACCESS}", f"--secret-key={SECRET}")
            self.start()
        except BaseException:
            self.close()
            raise

    def do(self, *command):
        subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=120)

    def daemon(self, *command):
        return subprocess.Popen([command[0], "-c", self.file, "-f", *command[1:]], stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def start(self):
        self.gateway = self.daemon("radosgw", "-n", "client.rgw")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                urllib.request.urlopen(self.url, timeout=5).read()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("radosgw does not answer")

    def kill(self):
        self.gateway.send_signal(signal.SIGKILL)
        self.gateway.wait()

    def add_keys(self, access, secret):
        self.do("radosgw-admin", "-c", self.file, "key", "create", "--uid=test", "--key-type=s3",
                f"--access-key={access}", f"--secret-key={secret}")

    def make_bucket(self, name):
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {"host": self.url[len("http://"):], "x-amz-content-sha256": sha256(b""), "x-amz-date": stamp}
        signed = signature(SECRET, "PUT", f"/{name}", [], headers, sorted(headers), sha256(b""), "us-east-1", stamp)
        headers["authorization"] = (f"AWS4-HMAC-SHA256 Credential={ACCESS}/{stamp[:8]}/us-east-1/s3/aws4_request, "
                                    f"SignedHeaders={';'.join(sorted(headers))}, Signature={signed}")
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/{name}", method="PUT", headers=headers), timeout=60).read()

    def close(self):
        for process in [self.gateway, *reversed(self.processes)]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def environment(self):
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}


if __name__ == "__main__":
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    store = Radosgw()
    print("".join(f"export {name}={value}\n" for name, value in store.environment().items()), end="", flush=True)
    try:
        signal.sigwait(signals)
    finally:
        store.close()
        os._exit(0)
