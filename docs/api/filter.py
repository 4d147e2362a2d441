#!/usr/bin/env python3
"""Prints a header with the comments that describe something as Doxygen's comments.

usage: filter.py HEADER

The headers have plain comments. A comment directly before a declaration becomes `///`, a trailing
one on a member or an enumerator `///<`, and the one at the top describes the file. Comments in
function bodies, and comments followed by an empty line, stay as they are. Indented lines of a
comment are shown as they stand. Functions that follow a documented one directly and have its name,
or its last word (sgdm_update, adam_update), share its comment.
"""

import pathlib
import re
import sys

COMMENT = re.compile(r"^(\s*)//(?: (.*)|)$")


def split_line(line):
    """(code, comment or None) of a line; `//` in a text begins no comment."""
    quote = None
    i = 0
    while i < len(line):
        char = line[i]
        if quote:
            if char == "\\":
                i += 1
            elif char == quote:
                quote = None
        elif char == '"' or (char == "'" and not (i > 0 and line[i - 1].isalnum())):
            quote = char
        elif line.startswith("//", i):
            return line[:i].rstrip(), line[i + 2:].strip()
        i += 1
    return line.rstrip(), None


def without_texts(code):
    return re.sub(r"'(?:[^'\\]|\\.)'", "' '", re.sub(r'"(?:[^"\\]|\\.)*"', '""', code))


def escaped(text):
    """Text for Doxygen that means itself, but for `code`."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"([\\@<>#%&])", r"\\\1", parts[i])
        # Doxygen takes the full stop for the end of the first sentence.
        parts[i] = parts[i].replace(" et al. ", " et al.\\ ")
    return "".join(parts)


def formatted(lines):
    """The lines of a comment."""
    out = []
    i = 0
    while i < len(lines):
        indented = lines[i].startswith("  ")
        j = i
        while j < len(lines) and lines[j].startswith("  ") == indented:
            j += 1
            # An empty line between indented ones belongs to them.
            if indented and j + 1 < len(lines) and not lines[j] and lines[j + 1].startswith("  "):
                j += 1
        part = lines[i:j]
        if not indented:
            out += escaped("\n".join(part)).split("\n")
        else:
            code = any(line.rstrip().endswith((";", "{", "}")) for line in part)
            begin, end = ("@code{.cpp}", "@endcode") if code else ("@verbatim", "@endverbatim")
            out += [begin, *part, end]
        i = j
    return out


def siblings(lines, first):
    """The first lines of the declarations that share the comment before line `first`, the one
    there left out."""
    found = []
    here = first
    wanted = None
    while True:
        begin = here
        statement = ""
        while here < len(lines) and not statement.endswith(";"):
            code, comment = split_line(lines[here])
            if not code or comment:
                return found
            statement += " " + code.strip()
            here += 1
        match = re.match(r"[^(={~]*?(\w+)\([^{]*;$", statement.replace("{}", ""))
        if not match or statement.endswith(("delete;", "default;", " noexcept;")):
            return found
        name = re.sub(r"\d", "", match.group(1)).split("_")
        if wanted is None:
            wanted = name
        elif name == wanted or (len(name) == len(wanted) > 1 and name[-1] == wanted[-1]):
            found.append(begin)
        else:
            return found


class Scopes:
    """Follows the braces of the code: what encloses a line."""

    def __init__(self):
        self.stack = []
        self.pending = ""

    def inner(self):
        return self.stack[-1] if self.stack else "namespace"

    def kind(self):
        head = self.pending.strip()
        while re.match(r"(public|protected|private)\s*:", head):
            head = head.split(":", 1)[1].strip()
        while head.startswith("template"):
            depth, end = 0, len(head)
            for i, char in enumerate(head):
                depth += (char == "<") - (char == ">")
                if char == ">" and depth == 0:
                    end = i + 1
                    break
            head = head[end:].strip()
        if self.inner() == "body":
            return "body"
        if re.match(r"(inline\s+)?namespace\b", head):
            return "namespace"
        if re.match(r"(typedef\s+)?enum\b", head):
            return "enum"
        if re.match(r"(class|struct|union)\b", head) and "(" not in head:
            return "type"
        return "body"

    def read(self, code):
        for char in without_texts(code):
            if char == "{":
                self.stack.append(self.kind())
                self.pending = ""
            elif char == "}":
                if self.stack:
                    self.stack.pop()
                self.pending = ""
            elif char == ";":
                self.pending = ""
            else:
                self.pending += char
        self.pending += " "


def describes_a_member(code):
    """Whether a trailing comment belongs to what the line declares."""
    if code.lstrip().startswith(("}", "#")) or re.match(r"\s*(class|struct|template)\b[^;]*;", code):
        return False
    bare = without_texts(code)
    return bare.count("{") == bare.count("}") and bare.count("(") == bare.count(")")


def documented(text):
    lines = text.split("\n")
    out = []
    scopes = Scopes()
    i = 0
    top = True
    copies = {}  # comments by the line that they are repeated before
    trailing_at = None  # where the last line's trailing comment begins
    while i < len(lines):
        match = COMMENT.match(lines[i])
        if not match:
            out += copies.get(i, [])
            code, comment = split_line(lines[i])
            before = scopes.inner()
            trailing_at = None
            if comment and before != "body" and describes_a_member(code):
                trailing_at = lines[i].index("//", len(code))
                out.append(f"{code}  ///< {escaped(comment)}")
            else:
                out.append(lines[i])
            if not code.startswith("#"):
                scopes.read(code)
            top = top and not code
            i += 1
            continue
        indent = match.group(1)
        j = i
        block = []
        while j < len(lines):
            following = COMMENT.match(lines[j])
            if not following or following.group(1) != indent:
                break
            block.append(following.group(2) or "")
            j += 1
        next_line = lines[j].strip() if j < len(lines) else ""
        if trailing_at is not None and len(indent) == trailing_at:
            out += [f"{indent}///< {escaped(line)}" for line in block]
        elif top:
            out += ["/// " + line for line in ["@file", *formatted(block)]]
        elif scopes.inner() == "body" or not next_line or next_line[0] in "}#":
            out += lines[i:j]
        else:
            comment = [f"{indent}/// {line}" for line in formatted(block)]
            out += comment
            copies |= {number: comment for number in siblings(lines, j)}
        top = False
        i = j
    return "\n".join(out)


if __name__ == "__main__":
    sys.stdout.write(documented(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")))
