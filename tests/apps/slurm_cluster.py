"""A real Slurm of several nodes on this machine, as one user, with all its files in one folder."""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

from free_ports import free_ports

ATTEMPTS = 3
TOOLS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "srun", "sinfo")
PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=1
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
KillWait=2
KillOnBadExit=0
SlurmctldTimeout=30
SlurmdTimeout=5
MessageTimeout=10
PluginDir={plugins}
PlugStackConfig={folder}/plugstack.conf
Prolog={folder}/prolog
"""


def missing_tools():
    return [tool for tool in TOOLS if shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None]


class PortsTaken(RuntimeError):
    pass


class SlurmCluster:
    """Started by the constructor, ended by stop(). `environment` is for its commands."""

    def __init__(self, folder, nodes, cpus):
        self.folder, self.nodes = pathlib.Path(folder), nodes
        self.host = socket.gethostname().split(".")[0]
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf"),
                            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
        self.daemons = {}
        self.folder.chmod(0o755)  # munge asks for it
        (self.folder / "plugstack.conf").write_text("")
        (self.folder / "prolog").write_text(f"#!/bin/sh\n[ ! -e {self.folder}/no_launch ]\n")
        (self.folder / "prolog").chmod(0o755)
        try:
            self.start_munge()
            for attempt in range(ATTEMPTS):
                try:
                    self.begin(cpus)
                    return
                except PortsTaken:  # between the search and the start
                    if attempt + 1 == ATTEMPTS:
                        raise
                    self.stop_slurm()
        except BaseException:
            self.stop()
            raise

    def start_munge(self):
        munge = self.folder / "munge"
        munge.mkdir(mode=0o755)
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        self.start("munged", "munged", "--foreground", f"--key-file={munge}/key",
                   f"--socket={munge}/socket", f"--pid-file={munge}/pid", f"--log-file={munge}/log",
                   f"--seed-file={munge}/seed")
        for _ in range(100):
            if (munge / "socket").exists():
                break
            time.sleep(0.1)

    def begin(self, cpus):
        for name in ("state", "spool"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir(mode=0o755)
        port = free_ports(self.nodes + 1)
        text = CONFIGURATION.format(host=self.host, port=port, folder=self.folder, plugins=PLUGINS,
                                    user=subprocess.check_output(["id", "-un"], text=True).strip())
        for node in self.names():
            (self.folder / "spool" / node).mkdir()
            text += (f"NodeName={node} NodeHostname={self.host} NodeAddr=127.0.0.1 "
                     f"Port={port + int(node[1:])} CPUs={cpus} RealMemory=1000 State=UNKNOWN\n")
        text += f"PartitionName=debug Nodes=n[1-{self.nodes}] Default=YES MaxTime=INFINITE State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        self.start_controller()
        for node in self.names():
            self.start_node(node)
        self.wait_until_idle()

    def names(self):
        return [f"n{i}" for i in range(1, self.nodes + 1)]

    def start(self, name, *command):
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons[name] = subprocess.Popen(command, env=self.environment, stdout=out,
                                                  stderr=out, stdin=subprocess.DEVNULL)

    def start_controller(self):
        self.start("slurmctld", "slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))

    def start_node(self, node):
        self.start(node, "slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", node)

    def kill(self, name):
        self.daemons[name].send_signal(signal.SIGKILL)
        self.daemons[name].wait()

    def let_launches_fail(self, fail):
        """Nodes then fail to launch jobs: Slurm drains the node and holds the job."""
        if fail:
            (self.folder / "no_launch").write_text("")
            return
        (self.folder / "no_launch").unlink(missing_ok=True)
        for node in self.names():
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        self.wait_until_idle()

    def run(self, *command, check=True):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True,
                              timeout=60)
        if check and done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def wait_until_idle(self, seconds=60):
        for _ in range(seconds * 10):
            idle = self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False)
            if len(idle.split()) == self.nodes:
                return
            for name, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    said = (self.folder / f"{name}.out").read_text()
                    raise (PortsTaken if "Address already in use" in said else RuntimeError)(
                        f"{name} has ended: {said}")
            time.sleep(0.1)
        raise RuntimeError("Slurm does not come up:\n" + self.run("sinfo", "-N", "-l", check=False))

    def stop(self):
        self.run("scancel", "--state=PENDING,RUNNING,SUSPENDED", "--user",
                 subprocess.check_output(["id", "-un"], text=True).strip(), check=False)
        self.stop_slurm()
        self.end("munged")

    def stop_slurm(self):
        self.end(*self.names(), "slurmctld")

    def end(self, *names):
        for name in names:
            daemon = self.daemons.get(name)
            if daemon is None or daemon.poll() is not None:
                continue
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
