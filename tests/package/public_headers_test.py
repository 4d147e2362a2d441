#!/usr/bin/env python3
"""The installed headers are those that lockstep/lockstep.h reaches, and they need no others.

usage: public_headers_test.py SOURCE INCLUDES COMPILER

SOURCE: the folder of the sources; INCLUDES: the folder of the installed headers. Prints the public
headers. Each compiles alone, with the installed headers only.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MOST = 62
# Details that are never public.
INTERNAL = ("lockstep/engine/kernels/", "lockstep/engine/plan/")
# What the headers may include besides the standard library's.
DEPENDENCIES = ("cereal/", "nlohmann/json_fwd.hpp")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def reached(source):
    found, waiting = set(), ["lockstep/lockstep.h"]
    while waiting:
        header = waiting.pop()
        if header not in found:
            found.add(header)
            waiting += [name for kind, name in includes(source / header) if kind == '"']
    return found


def problems(source, folder, compiler):
    public = reached(source)
    print(f"{len(public)} public headers:")
    print("\n".join(f"  {header}" for header in sorted(public)))
    if len(public) > MOST:
        yield f"more than {MOST} headers are public"
    for header in sorted(public):
        if header.startswith(INTERNAL):
            yield f"{header} is public"
    installed = {path.relative_to(folder).as_posix() for path in folder.glob("lockstep/**/*")
                 if path.is_file()}
    for header in sorted(installed - public):
        yield f"{header} is installed, but lockstep/lockstep.h does not reach it"
    for header in sorted(public - installed):
        yield f"{header} is not installed"
    for header in sorted(public & installed):
        for kind, name in includes(folder / header):
            if kind == '"' and name not in installed:
                yield f"{header} includes {name}, which is not installed"
            if kind == "<" and ("/" in name or "." in name) and not name.startswith(DEPENDENCIES):
                yield f"{header} includes <{name}>"

    def compiled(header):
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch) / "alone.cpp"
            file.write_text(f'#include "{header}"\n#include "{header}"\n')
            return header, subprocess.run(
                [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
                 f"-I{folder}", str(file)], capture_output=True, text=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, done in pool.map(compiled, sorted(public & installed)):
            if done.returncode != 0:
                yield f"{header} does not compile alone:\n{done.stderr}"


def main():
    source, folder = (pathlib.Path(path) for path in sys.argv[1:3])
    found = list(problems(source, folder, sys.argv[3]))
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))


if __name__ == "__main__":
    main()
