#!/usr/bin/env python3
"""Tests of batch jobs: wrong use, damage, kills of clients, many jobs.

usage: batch_damage_test.py PATH_OF_LOCKSTEP [unittest options]
"""

import os
import resource
import shutil
import signal
import subprocess
import time
import unittest

from batch_support import LONG, BatchTest
from support import COMMAND


def many_files(folder):
    """Copying them takes a while, also where a file system copies a large file at once."""
    folder.mkdir()
    for i in range(20000):
        (folder / str(i)).touch()


class Damage(BatchTest):
    def test_what_has_not_ended_stays(self):
        number = self.submit(*LONG)
        for action in (("rm", number), ("resume", number), ("fetch", number, "--out", "a")):
            done = self.run_command("jobs", *action)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"\Aerror: \[batch\] job {number} is (queued|running)\n"
                                          rf"hint: wait for it: lockstep jobs wait {number}")
        done = self.run_command("jobs", "run", number)
        self.assertIn(f"another process works on job {number}", done.stderr)

    def test_numbers_are_not_given_again(self):
        first = self.submit()
        self.wait(first)
        self.works("jobs", "rm", first)
        self.assertEqual(int(self.submit()), int(first) + 1)

    def test_many_submissions_at_once(self):
        environment = {**os.environ, "LOCKSTEP_HOME": str(self.home)}
        processes = [subprocess.Popen([COMMAND, "submit", "job.toml", "--set", "max_epochs=1"],
                                      cwd=self.folder, stdout=subprocess.PIPE, text=True,
                                      env=environment) for _ in range(6)]
        numbers = sorted(int(process.communicate(timeout=120)[0]) for process in processes)
        self.assertEqual(numbers, [1, 2, 3, 4, 5, 6])
        for number in numbers:
            self.assertEqual(self.wait(str(number)), "finished\n")

    def test_a_submission_that_was_killed_is_listed_and_removed(self):
        many_files(self.folder / "many")
        submitting = subprocess.Popen([COMMAND, "submit", "job.toml", "--attach", "many"], cwd=self.folder,
                                      env={**os.environ, "LOCKSTEP_HOME": str(self.home)})
        self.addCleanup(submitting.kill)
        attached = self.home / "jobs" / "1" / "attached"
        while not attached.exists() and submitting.poll() is None:
            pass
        submitting.send_signal(signal.SIGSTOP)
        # While its process lives, it is not listed.
        self.assertEqual(self.works("jobs", "list").stderr, "")
        submitting.kill()
        self.assertEqual(submitting.wait(), -signal.SIGKILL)
        self.assertFalse((self.home / "jobs" / "1" / "batch.json").exists())
        listed = self.works("jobs", "list")
        self.assertRegex(listed.stderr, r"\Anote: job 1: .*is incomplete: the process that submitted .*"
                                        r"lockstep jobs rm 1 removes")
        for action in ("show", "diary", "wait"):
            done = self.run_command("jobs", action, "1")
            self.assertIn("is incomplete", done.stderr)
            self.assertIn("lockstep jobs rm 1", done.stderr)
        # So does a copy of the executable that was never finished, when it is old.
        (self.home / "jobs" / "executables").mkdir(exist_ok=True)
        unfinished = [self.home / "jobs" / "executables" / f"x.making-{i}" for i in (1, 2)]
        for path in unfinished:
            path.touch()
        os.utime(unfinished[0], (1e9, 1e9))
        self.works("jobs", "rm", "1")
        self.assertEqual([path.exists() for path in unfinished], [False, True])
        self.assertFalse((self.home / "jobs" / "1").exists())
        self.assertEqual(self.works("jobs", "list").stderr, "")
        # Killed before it had its lock: a while later it is listed, too.
        (self.home / "jobs" / "5").mkdir()
        self.assertEqual(self.works("jobs", "list").stderr, "")
        os.utime(self.home / "jobs" / "5", (1e9, 1e9))
        self.assertIn("job 5", self.works("jobs", "list").stderr)
        self.works("jobs", "rm", "5")

    def test_what_a_killed_fetch_leaves_is_removed_by_the_next(self):
        number, other = self.submit(), self.submit()
        self.wait(number)
        self.wait(other)
        many = self.home / "jobs" / number / "run" / "many"
        many_files(many)
        hidden = self.folder / ".lockstep-fetch-a"
        fetching = subprocess.Popen([COMMAND, "jobs", "fetch", number, "--out", "a/"], cwd=self.folder,
                                    env={**os.environ, "LOCKSTEP_HOME": str(self.home)}, stderr=subprocess.PIPE,
                                    text=True)
        self.addCleanup(fetching.kill)
        while not (hidden / "copy" / "run" / "many").exists() and fetching.poll() is None:
            pass
        fetching.send_signal(signal.SIGSTOP)
        done = self.run_command("jobs", "fetch", other, "--out", "a")
        self.assertIn("another process fetches to a", done.stderr)
        fetching.kill()
        fetching.communicate()
        self.assertEqual(fetching.returncode, -signal.SIGKILL)
        self.assertTrue(hidden.exists())
        self.assertFalse((self.folder / "a").exists())
        shutil.rmtree(many)
        said = self.works("jobs", "fetch", number, "--out", "a").stderr
        self.assertIn("the remains of an interrupted fetch to a were removed", said)
        self.assertFalse(hidden.exists())
        self.assertEqual(self.receipt("a"), self.receipt(self.home / "jobs" / number / "run"))
        self.assertEqual(self.works("jobs", "fetch", number, "--out", "b").stderr, "")

    def test_a_damaged_job(self):
        number = self.submit()
        self.wait(number)
        for text in ("", "{", "[]", '{"lockstep.batch": "2"}', '{"lockstep.batch": 1}',
                     '{"lockstep.batch": "1"}', '{"lockstep.batch": "1", "name": 3}'):
            (self.home / "jobs" / number / "batch.json").write_text(text)
            done = self.run_command("jobs", "show", number)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, r"\Aerror: \[batch\] .*batch.json is damaged")
            listed = self.works("jobs", "list", "--json")
            self.assertEqual(listed.stdout, "[]\n")
            self.assertRegex(listed.stderr, rf"\Anote: job {number}: .*batch.json is damaged")
        self.works("jobs", "rm", number)
        self.assertFalse((self.home / "jobs" / number).exists())
        # What a killed client has left behind is not a job, and can be removed.
        (self.home / "jobs" / "7").mkdir()
        self.assertEqual(self.jobs(), [])
        self.works("jobs", "rm", "7")
        self.assertEqual(self.submit(), "8")
        self.wait("8")
        (self.home / "jobs" / "8" / "state.json").write_text("{")
        done = self.run_command("jobs", "wait", "8")
        self.assertRegex(done.stderr, r"state.json is damaged.*\n.*jobs rm removes it")

    def test_folders_that_cannot_be_used(self):
        (self.home / "jobs").write_text("a file")
        done = self.run_command("submit", "job.toml")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"\Aerror: .*/jobs.*(Not a directory|exists)")
        done = self.run_command("jobs", "list")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        (self.home / "jobs").unlink()

    def test_a_full_disk(self):
        """Files may have at most 2 MB, too little for the copy of the executable."""
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        done = self.run_command("submit", "job.toml", preexec_fn=limit)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"cannot write .*File too large")
        self.assertEqual(self.jobs(), [])
        left = [path for path in (self.home / "jobs").rglob("*") if path.is_file()]
        self.assertEqual([path for path in left if path.name != "last"], [])

    def test_two_clients_at_once(self):
        number = self.submit(*LONG)
        self.begins(number)
        os.kill(self.processes_of(number).pop(), signal.SIGKILL)
        self.wait(number, 1)
        environment = {**os.environ, "LOCKSTEP_HOME": str(self.home)}
        clients = [subprocess.Popen([COMMAND, "jobs", "resume", number], cwd=self.folder, text=True,
                                    stderr=subprocess.PIPE, env=environment) for _ in range(4)]
        said = [client.communicate(timeout=120)[1] for client in clients]
        self.assertEqual(sorted(client.returncode for client in clients), [0, 1, 1, 1])
        for client, text in zip(clients, said):
            if client.returncode == 1:
                self.assertRegex(text, rf"job {number} is (queued|running)")
        self.assertEqual(len(self.processes_of(number)), 1)
        self.begins(number)

    def test_many_jobs(self):
        number = self.submit("--set", "max_epochs=1")
        self.wait(number)
        job = self.home / "jobs" / number
        for other in range(2, 501):
            folder = self.home / "jobs" / str(other)
            folder.mkdir()
            for name in ("batch.json", "state.json"):
                shutil.copy(job / name, folder / name)
        begin = time.monotonic()
        self.assertEqual(len(self.jobs()), 500)
        self.assertLess(time.monotonic() - begin, 10)
        done = self.works("jobs", "wait", number, "7-9", "--timeout", "10")
        self.assertEqual(done.stdout, f"{number}: finished\n7: finished\n8: finished\n9: finished\n")
        self.fails(1, "error: [batch] there is no job 600 in " + str(self.home / "jobs")
                   + "\nhint: lockstep jobs list shows all jobs; --cluster NAME those of a cluster\n",
                   "jobs", "rm", "2-400", "600", "401-500")
        self.assertEqual([job["number"] for job in self.jobs()], [1])

    def test_progress_is_followed(self):
        number = self.submit("--set", "max_epochs=40")
        lines = self.works("jobs", "progress", number, "--follow").stdout.splitlines()
        self.assertRegex(lines[-1], r"\Afinished, epoch 40 of 40, iteration \d+, loss ")
        number = self.submit(*LONG)
        following = subprocess.Popen([COMMAND, "jobs", "progress", number, "--follow"], cwd=self.folder, text=True,
                                     stdout=subprocess.PIPE, env={**os.environ, "LOCKSTEP_HOME": str(self.home)})
        self.addCleanup(following.kill)
        self.assertRegex(following.stdout.readline(), r"\A(queued|running)")
        self.works("jobs", "cancel", number)
        self.assertRegex(following.communicate(timeout=120)[0].splitlines()[-1], r"\Acancelled")

    def test_wrong_arguments(self):
        self.fails(1, f"error: [batch] there is no job 7 in {self.home}/jobs\n"
                      "hint: lockstep jobs list shows all jobs; --cluster NAME those of a cluster\n",
                   "jobs", "show", "7")
        for arguments, error in (
                (("jobs", "nothing"), 'action: "nothing" is not an action of `lockstep jobs`'),
                (("jobs", "show"), "`lockstep jobs show` needs the number of a job"),
                (("jobs", "list", "1"), "`lockstep jobs list` takes no number"),
                (("jobs", "show", "one"), '"one" is not the number of a job'),
                (("jobs", "show", "-1"), ""),
                (("jobs", "fetch", "1"), "--out and `lockstep jobs fetch` need each other"),
                (("jobs", "rm", "3-1"), '"3-1" is not a range of numbers of jobs'),
                (("jobs", "show", "1", "--follow"), "--follow is for `lockstep jobs progress`"),
                (("jobs", "show", "1", "--timeout", "3"), "--timeout is for `lockstep jobs wait`")):
            done = self.run_command(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(error, done.stderr)

    def test_places(self):
        """Without LOCKSTEP_HOME the job lies in the user's state folder, readable by the user alone."""
        state = self.folder / "state"
        done = self.run_command("submit", "job.toml", LOCKSTEP_HOME="", XDG_STATE_HOME=str(state))
        number = done.stdout.strip()
        done = self.run_command("jobs", "wait", number, LOCKSTEP_HOME="", XDG_STATE_HOME=str(state))
        self.assertEqual(done.stdout, "finished\n")
        folder = state / "lockstep" / "jobs" / number
        self.assertEqual(folder.stat().st_mode & 0o777, 0o700)
        self.assertEqual(folder.parent.stat().st_mode & 0o777, 0o700)


if __name__ == "__main__":
    unittest.main()
