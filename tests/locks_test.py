#!/usr/bin/env python3
"""Checks the locks: only lockstep/base/threads/mutex.h uses the standard library's, and Clang finds no
access to guarded data without its mutex (-Wthread-safety).

usage: locks_test.py BUILD_FOLDER
  BUILD_FOLDER  has compile_commands.json, whose flags are used

Ends with status 77 where clang++ is not installed and all other checks have passed.
"""

import concurrent.futures
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
MUTEX_HEADER = "lockstep/base/threads/mutex.h"
SKIPPED = 77
CLANG = shutil.which("clang++")
# CMake has no compile commands for these where the CUDA toolkit is missing.
CUDA = "lockstep/engine/kernels/cuda/"
PROCESSES = 2

STANDARD_LOCK = re.compile(
    r"\bstd::(\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock|condition_variable\w*|"
    r"call_once|once_flag)\b|"
    r"#\s*include\s*<(mutex|shared_mutex|condition_variable)>|"
    r"\bpthread_(mutex|cond|rwlock|spin)_\w+")
OWN_LOCK = re.compile(r"\b(Mutex|MutexLock|MutexUnlock|ConditionVariable)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")

# A counter: the test leaves out one of its two locks.
COUNTER = """\
#include "lockstep/base/threads/mutex.h"

class Counter {
 public:
  void add() {
    const lockstep::MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  int wait_for_first() {
    const lockstep::MutexLock lock(mutex_);
    while (count_ == 0) changed_.wait(mutex_);
    return count_;
  }

 private:
  lockstep::Mutex mutex_;
  lockstep::ConditionVariable changed_;
  int count_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

int count() {
  Counter counter;
  counter.add();
  return counter.wait_for_first();
}
"""
LOCK = "    const lockstep::MutexLock lock(mutex_);\n"


def sources_of(root):
    """Texts of the library's and the command's files, by path from the root."""
    texts = {}
    for folder in ("lockstep", "apps"):
        for suffix in ("*.h", "*.cpp", "*.cu", "*.cuh"):
            for file in sorted((root / folder).rglob(suffix)):
                texts[file.relative_to(root).as_posix()] = file.read_text(encoding="utf-8")
    return texts


def standard_locks(texts):
    """Texts "file:line: what is wrong"."""
    found = []
    for path, text in texts.items():
        if path == MUTEX_HEADER:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            match = STANDARD_LOCK.search(COMMENT.sub("", line))
            if match:
                found.append(f"{path}:{number}: {match.group(0)}: use {MUTEX_HEADER}")
    return found


def sources_with_locks(texts):
    """Sources that use locks, and those that include a header which does: Clang checks a template
    only where it is used."""
    headers = {path for path, text in texts.items()
               if path.endswith((".h", ".cuh")) and path != MUTEX_HEADER and OWN_LOCK.search(text)}
    return [path for path, text in texts.items()
            if path.endswith((".cpp", ".cu")) and
            (OWN_LOCK.search(text) or headers & set(INCLUDE.findall(text)))]


def flags_of(command):
    """The flags that decide what a source means. Warnings, optimization and all that only GCC knows
    are left out."""
    flags = []
    words = iter(command)
    for word in words:
        if word in ("-D", "-I", "-isystem", "-include", "-x"):
            flags += [word, next(words)]
        elif word.startswith(("-D", "-I", "-std=")) or word in ("-fopenmp", "-pthread"):
            flags.append(word)
    return flags


def compile_commands(build, root):
    """(folder, flags, the compiled file) by path from the root."""
    commands = {}
    build = build.resolve()
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        words = entry.get("arguments") or shlex.split(entry["command"])
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if pathlib.Path(words[0]).name == "nvcc":
            continue
        # With LOCKSTEP_UNITY, a file in unity/ includes the sources that are compiled as one.
        united = path.is_relative_to(build / "unity")
        paths = [root / include for include in INCLUDE.findall(path.read_text())] if united else [path]
        for path in paths:
            if path.is_relative_to(root):
                commands.setdefault(path.relative_to(root).as_posix(),
                                    (entry["directory"], flags_of(words[1:]), entry["file"]))
    return commands


def check_by_clang(paths, folder, flags):
    """Clang's messages about sources that are compiled as one; empty if it finds nothing."""
    text = "".join(f'#include "{path}"\n' for path in paths)
    result = subprocess.run(
        [CLANG, "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety",
         *flags, "-x", "c++", "-"], cwd=folder, input=text, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return ""
    return result.stderr or f"{paths}: clang++ ended with status {result.returncode}"


class StandardLocks(unittest.TestCase):
    def test_are_found(self):
        for line in ("std::mutex mutex_;", "const std::lock_guard lock(mutex_);",
                     "std::unique_lock<std::mutex> lock;", "std::condition_variable_any changed;",
                     "#include <mutex>", "std::recursive_mutex m;", "std::shared_timed_mutex m;",
                     "pthread_mutex_lock(&m);", "std::scoped_lock lock(a, b);"):
            self.assertEqual(len(standard_locks({"lockstep/base/a.h": "\n" + line + "\n"})), 1, line)
        for line in ("Mutex mutex_;", "const MutexLock lock(mutex_);  // no std::mutex",
                     "#include <memory>"):
            self.assertEqual(standard_locks({"lockstep/base/a.h": line}), [], line)

    def test_are_used_by_one_header_only(self):
        texts = sources_of(ROOT)
        self.assertIn(MUTEX_HEADER, texts)
        found = standard_locks(texts)
        self.assertFalse(found, "\n" + "\n".join(found))


@unittest.skipUnless(CLANG, "clang++ is not installed")
class GuardedData(unittest.TestCase):
    def check_text(self, text):
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "source.cpp")
            source.write_text(text)
            return check_by_clang([source], folder, ["-std=c++20", "-I", str(ROOT)])

    def test_is_not_reached_without_its_mutex(self):
        self.assertEqual(self.check_text(COUNTER), "")
        first, second = (match.start() for match in re.finditer(re.escape(LOCK), COUNTER))
        for at, errors in (
                (first, ["writing variable 'count_' requires holding mutex 'mutex_' exclusively"]),
                (second, ["reading variable 'count_' requires holding mutex 'mutex_'",
                          "calling function 'wait' requires holding mutex 'mutex_'"])):
            messages = self.check_text(COUNTER[:at] + COUNTER[at + len(LOCK):])
            for error in errors:
                self.assertIn(f"error: {error}", messages)
            self.assertIn("-Wthread-safety-analysis", messages)

    def test_of_the_project_is_not_reached_without_its_mutex(self):
        commands = compile_commands(BUILD, ROOT)
        united, left_out = {}, []
        for path in sources_with_locks(sources_of(ROOT)):
            if path in commands:
                folder, flags, file = commands[path]
                united.setdefault(file, (folder, flags, []))[2].append(path)
            else:
                left_out.append(path)
        with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
            checks = [pool.submit(check_by_clang, [ROOT / path for path in paths], folder, flags)
                      for folder, flags, paths in united.values()]
        self.assertEqual([path for path in left_out if not path.startswith(CUDA)], [],
                         "sources without a compile command")
        for path in left_out:
            print(f"not checked, because it is not compiled here: {path}")
        found = [check.result() for check in checks if check.result()]
        self.assertFalse(found, "\n" + "\n".join(found))
        checked = {path for _, _, paths in united.values() for path in paths}
        self.assertIn("lockstep/parallel/pool/pool_core.cpp", checked)
        print(f"clang++ has checked {len(checked)} sources")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    BUILD = pathlib.Path(sys.argv.pop())
    passed = unittest.main(exit=False).result.wasSuccessful()
    if passed and not CLANG:
        print("SKIPPED: clang++ is not installed, so what locks guard was not checked")
    sys.exit(1 if not passed else SKIPPED if not CLANG else 0)
