#!/usr/bin/env python3
"""The installed headers are those that lockstep/lockstep.h reaches, and they need no others.

usage: public_headers_test.py [--alone] SOURCE INCLUDES COMPILER

SOURCE: the folder of the sources; INCLUDES: the folder of the installed headers. Prints the public
headers. Each compiles with the installed headers only, after the headers from elsewhere, which are
precompiled. With --alone these are missing, so that a header which forgets one is found; it takes
ten times as long.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MOST = 63
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


def problems(source, folder, compiler, alone):
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

    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    elsewhere = sorted({name for header in public & installed
                        for kind, name in includes(folder / header) if kind == "<"})
    with tempfile.TemporaryDirectory() as scratch:
        before = []
        if not alone:
            first = pathlib.Path(scratch) / "elsewhere.h"
            first.write_text("".join(f"#include <{name}>\n" for name in elsewhere))
            subprocess.run([compiler, *flags, "-x", "c++-header", str(first)], check=True)
            before = ["-include", str(first), "-Winvalid-pch"]

        def compiled(header):
            text = f'#include "{header}"\n#include "{header}"\n'
            return header, subprocess.run(
                [compiler, *flags, *before, "-fsyntax-only", "-x", "c++", "-"],
                input=text, capture_output=True, text=True)

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for header, done in pool.map(compiled, sorted(public & installed)):
                if done.returncode != 0:
                    yield f"{header} does not compile alone:\n{done.stderr}"


def main():
    alone = sys.argv[1:2] == ["--alone"]
    source, folder, compiler = sys.argv[1 + alone:]
    found = list(problems(pathlib.Path(source), pathlib.Path(folder), compiler, alone))
    if found:
        sys.exit("\n".join(f"error: {problem}" for problem in found))


if __name__ == "__main__":
    main()
