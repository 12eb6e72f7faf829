#!/usr/bin/env python3
"""The version is the same in every file that has it, and debian/ lists what the tree has. Usage: versions_test.py SOURCE"""
import pathlib
import re
import sys
import unittest

SOURCE = pathlib.Path(sys.argv[1])


def found(name, pattern):
    match = re.search(pattern, (SOURCE / name).read_text(encoding="utf-8"), re.MULTILINE)
    return match.group(1) if match else f"nothing that matches {pattern}"


class Versions(unittest.TestCase):
    def test_equal(self):
        versions = {
            "CMakeLists.txt": found("CMakeLists.txt", r"^project\(ptdecode VERSION (\S+)"),
            "CHANGELOG.md": found("CHANGELOG.md", r"^## (\S+)"),
            "python/pyproject.toml": found("python/pyproject.toml", r'^version = "(.*)"'),
            "debian/changelog": found("debian/changelog", r"\Aptdecode \((.*)-\d+\)"),
        }
        self.assertEqual(1, len(set(versions.values())), versions)
        self.assertRegex(versions["CMakeLists.txt"], r"^\d+\.\d+\.\d+$")

    def test_each_c_function_is_in_the_symbols_file(self):
        """The first version that has a function is the one that programs which use it depend on."""
        headers = "".join((SOURCE / "include/ptdecode" / name).read_text() for name in ("ptdecode.h", "ptdecode_plan.h"))
        declared = set(re.findall(r"^PTD_C_API [^;(]*?(ptd_\w+)\(", headers, re.MULTILINE))
        listed = set(re.findall(r"^ (PTDECODE_0|ptd_\w+)@PTDECODE_0 \d+\.\d+\.\d+$", (SOURCE / "debian/libptdecode0.symbols").read_text(), re.MULTILINE))
        self.assertTrue(declared)
        declared.add("PTDECODE_0")  # the version itself, which dpkg-gensymbols would add with Debian's revision
        version = found("CMakeLists.txt", r"^project\(ptdecode VERSION (\S+)")
        self.assertEqual([], [f" {name}@PTDECODE_0 {version}" for name in sorted(declared - listed)], "add these lines to debian/libptdecode0.symbols")
        self.assertEqual([], sorted(listed - declared), "the library has lost functions that it had")

    def test_each_function_of_the_announcing_library_is_in_its_symbols_file(self):
        declared = set(re.findall(r"^(?:[\w ]+\*? |extern .* )(ptd_announce_\w+)[(;]", (SOURCE / "announce/ptd_announce.h").read_text(), re.MULTILINE))
        inline = set(re.findall(r"^static inline \w+ (ptd_announce_\w+)\(", (SOURCE / "announce/ptd_announce.h").read_text(), re.MULTILINE))
        listed = set(re.findall(r"^ (\w+)@Base \d+\.\d+\.\d+$", (SOURCE / "debian/libptd-announce1.symbols").read_text(), re.MULTILINE))
        self.assertIn("ptd_announce_page", declared)
        self.assertEqual(declared - inline, listed)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
