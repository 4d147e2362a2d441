#!/usr/bin/env python3
"""Runs the commands of a page of documentation, in order, in a separate folder.

usage: pages_test.py ROOT COMMAND PAGE
       pages_test.py --programs PAGE FOLDER

Lines `$ ...` in console blocks are run; one whose output is shown as `error: ...` must fail so, and
what `ls` shows must be what it prints. A toml block that begins with `# NAME.toml` is that file.
`cmake --install` installs what this build has made. What the README runs may use nothing of the
build but what scripts/quickstart makes.
--programs writes the page's C++ blocks, which must be whole programs, to FOLDER and prints their
paths: they are built and run as tests of their own. The README's one is an example's.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

import quickstart_test

# These commands install, build and test. Running this test means that they have worked.
NOT_HERE = ("scripts/quickstart", "scripts/test")

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.S | re.M)


def programs(page, folder):
    """C++ blocks of the page as files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if kind != "cpp":
            continue
        if "int main(" not in text:
            sys.exit(f"{page.name}: a C++ block is not a whole program:\n{text}")
        path = folder / f"{page.stem.replace('-', '_')}_{len(paths) + 1}.cpp"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        paths.append(str(path))
    print(";".join(paths), end="")


def check_example(root, text):
    blocks = [block for kind, block in BLOCK.findall(text) if kind == "cpp"]
    example = (root / "examples/train_digits.cpp").read_text(encoding="utf-8")
    if [block.strip() for block in blocks] != [example.strip()]:
        sys.exit("README.md: its program is not examples/train_digits.cpp")


def check_links(page, text):
    prose = re.sub(r"`[^`]*`", "", BLOCK.sub("", text))  # code has brackets of its own
    for target in re.findall(r"\]\(([^)#:]+)\)", prose):
        if not (page.parent / target).exists():
            sys.exit(f"{page.name}: a link leads nowhere: {target}")


def check_names(root, command, page, text):
    """The Lockstep names in the last column of a table must exist."""
    known = " ".join(path.read_text(encoding="utf-8") for path in root.glob("lockstep/**/*.h"))
    known += subprocess.run([command, "reference"], capture_output=True, text=True, check=True).stdout
    known += subprocess.run([command, "man"], capture_output=True, text=True, check=True).stdout
    known += " job.toml safetensors log.jsonl"
    words = set(re.findall(r"\w+", known))
    for row in re.findall(r"^\|.*\| (.*) \|$", text, re.M):
        for code in re.findall(r"`([^`]+)`", row):
            missing = [w for w in re.findall(r"[A-Za-z]\w{2,}", code) if w not in words]
            if missing:
                sys.exit(f"{page.name}: nothing is called {missing} (in `{code}`)")


def steps(text):
    """Files to write and commands to run, in order, with the output that is shown."""
    for kind, block in BLOCK.findall(text):
        lines = block.splitlines()
        if kind == "toml" and re.fullmatch(r"# \S+\.toml", lines[0]):
            yield "file", lines[0][2:], block
        if kind != "console":
            continue
        for number, line in enumerate(lines):
            if not line.startswith("$ "):
                continue
            shown = []
            for following in lines[number + 1:]:
                if following.startswith("$ "):
                    break
                shown.append(following)
            yield "command", line[2:], shown


def lay_out(root, built, page, folder):
    """A build folder as this one; for the README, with what scripts/quickstart makes."""
    if page.name != "README.md" or not (built / "build.ninja").exists():
        folder.parent.mkdir(parents=True)
        folder.symlink_to(built)
        return
    made = quickstart_test.made_by(built, quickstart_test.quickstart_targets(root))
    for path in sorted(made) + ["cmake_install.cmake"]:
        if not (built / path).is_file():
            continue  # a target without a file, or an object that was not kept
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(built / path)


def run(root, command, page):
    text = page.read_text(encoding="utf-8")
    check_links(page, text)
    if page.name == "README.md":
        check_example(root, text)
    if page.name == "coming-from.md":
        check_names(root, command, page, text)
    ran = 0
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "examples").symlink_to(root / "examples")
        lay_out(root, pathlib.Path(command).resolve().parent.parent, page, here / "build/release")
        path = f"PATH={here / 'build/release/bin'}:$PATH; "
        for kind, line, content in steps(text):
            if kind == "file":
                (here / line).write_text(content, encoding="utf-8")
                continue
            if line.startswith(NOT_HERE):
                continue
            print("$", line, flush=True)
            # Each page has a run store and batch jobs of its own.
            home = {**os.environ, "LOCKSTEP_HOME": str(here / ".home")}
            done = subprocess.run(["bash", "-c", path + line], cwd=here, env=home, text=True, timeout=500,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            print(done.stdout, flush=True)
            fails = bool(content) and content[0].startswith("error: ")
            if (done.returncode != 0) != fails:
                sys.exit(f"{page.name}: `{line}` ended with {done.returncode}")
            # Only output that is the same everywhere is compared: errors, and names of files.
            if (fails or line.startswith("ls ")) and done.stdout.splitlines() != content:
                sys.exit(f"{page.name}: `{line}` prints something else")
            ran += 1
    least = {"README.md": 5, "guide.md": 10, "job-file.md": 2}.get(page.name, 0)
    if ran < least:
        sys.exit(f"{page.name}: only {ran} commands found")
    print(f"{ran} commands ran")


if __name__ == "__main__":
    if sys.argv[1] == "--programs":
        programs(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    else:
        run(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
