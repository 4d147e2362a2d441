#!/usr/bin/env python3
"""Doxygen makes the API reference from the public headers without a warning, and the pages say what
the comments say. The filter is tried on samples.

usage: api_reference_test.py CMAKE SOURCE FOLDER
"""

import html
import importlib.util
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def filtered(text):
    spec = importlib.util.spec_from_file_location("filter", SOURCE / "docs/api/filter.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.documented(text)


class Filter(unittest.TestCase):
    def test_comments_of_files_and_declarations(self):
        self.assertEqual(filtered("// A file.\n#pragma once\n\n// A value\n// of x < 2.\nint f();\n"),
                         "/// @file\n/// A file.\n#pragma once\n\n/// A value\n/// of x \\< 2.\n"
                         "int f();\n")

    def test_trailing_comments_of_members(self):
        self.assertEqual(filtered('#pragma once\nstruct A {\n  int a = 0;  // first\n'
                                  '              // more\n  B b;\n};  // end\n'),
                         '#pragma once\nstruct A {\n  int a = 0;  ///< first\n'
                         '              ///< more\n  B b;\n};  // end\n')
        self.assertEqual(filtered('#pragma once\nenum class E { a };\nenum F {\n  x,  // one\n};\n'),
                         '#pragma once\nenum class E { a };\nenum F {\n  x,  ///< one\n};\n')

    def test_bodies_headings_and_ends_of_scopes_stay(self):
        for text in ("inline int f() {\n  // why\n  return 1;  // so\n}\n",
                     "// ---- Heading ----\n\nint f();\n", "struct A {\n  int a;\n  // none\n};\n",
                     "class B;  // in b.h\n", '#include "a.h"  // for A\n',
                     'template <class T>\nvoid g() {\n  const char* t = "{//";  // c\n}\n'):
            self.assertEqual(filtered("#pragma once\n" + text), "#pragma once\n" + text)

    def test_indented_lines_stand_as_they_are(self):
        self.assertEqual(filtered("#pragma once\n// So:\n//\n//   a < b;\n//\n// Then.\nint f();\n"),
                         "#pragma once\n/// So:\n/// \n/// @code{.cpp}\n///   a < b;\n/// @endcode\n"
                         "/// \n/// Then.\nint f();\n")

    def test_overloads_share_a_comment(self):
        self.assertEqual(filtered("#pragma once\n// Updates.\nvoid a_update(int x = {});\n"
                                  "void b_update();\nvoid other();\n"),
                         "#pragma once\n/// Updates.\nvoid a_update(int x = {});\n/// Updates.\n"
                         "void b_update();\nvoid other();\n")


def text_of(page):
    text = re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))
    return re.sub(r"\s+", " ", html.unescape(text))


def main(cmake, source, folder):
    made = subprocess.run([cmake, f"-DSOURCE={source}", f"-DFOLDER={folder}", "-DVERSION=test", "-P",
                           f"{source}/docs/api/make.cmake"], capture_output=True, text=True)
    print(made.stdout + made.stderr)
    if made.returncode != 0:
        sys.exit("error: the API reference has warnings")
    pages = pathlib.Path(folder) / "html"
    for page, wanted in (
        ("index.html", "API reference"),
        ("classlockstep_1_1Network.html", "Sets parameters and state to their initial values"),
        ("structlockstep_1_1PrecisionOptions.html", "Power of two by which losses are multiplied"),
        ("classlockstep_1_1Pool.html", "Throws InvalidArgument for processes without a Runtime"),
        ("ops_8h.html", "Rectified linear unit"),
    ):
        if wanted not in text_of(pages / page):
            sys.exit(f"error: {page} does not say `{wanted}`")
    if list(pages.glob("*detail_1_1*")):
        sys.exit("error: details of the library are in the API reference")
    unittest.main(argv=sys.argv[:1])


if __name__ == "__main__":
    main(*sys.argv[1:])
