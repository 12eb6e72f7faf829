#!/usr/bin/env python3
"""Completions: every command and every option in a command's --help, in bash; the same in zsh and fish if they are installed."""
import os
import pathlib
import re
import shutil
import subprocess
import unittest

PTDECODE = pathlib.Path(os.environ["PTDECODE"])
FOLDER = pathlib.Path(os.environ["PTDECODE_SOURCE"]) / "cli" / "completions"
COMMANDS = ("info", "script", "functions", "timeline", "flame", "export", "report", "coverage", "profile", "stat", "check", "image", "packets", "record", "sessions", "snapshot", "stop", "bundle", "demo", "verify", "stash", "doctor")


def shell(*words):
    environment = {**os.environ, "PATH": f"{PTDECODE.parent}:{os.environ['PATH']}"}
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout.split("\n")


def options(command):
    text = subprocess.run([PTDECODE, command, "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M))


class Completions(unittest.TestCase):
    def bash(self, *words):
        typed = " ".join(f"'{word}'" for word in words)
        return shell("bash", "-c", f'. "$0"; COMP_WORDS=(ptdecode {typed}); COMP_CWORD={len(words)}; _ptdecode; printf "%s\\n" "${{COMPREPLY[@]}}"',
                     FOLDER / "ptdecode.bash")

    def zsh(self, *words):
        typed = " ".join(f"'{word}'" for word in words)
        stand_ins = 'compadd(){ print -l -- "$@" }; _describe(){ print -l -- ${(P)2%%:*} }; _files(){ print files };'
        return shell("zsh", "-fc", f'{stand_ins} words=(ptdecode {typed}); CURRENT={len(words) + 1}; . "$0"', FOLDER / "_ptdecode")

    def fish(self, *words):
        return [line.split("\t")[0] for line in shell("fish", "-c", f'source {FOLDER / "ptdecode.fish"}; complete -C "ptdecode {" ".join(words)}"')]

    def check(self, complete):
        self.assertLessEqual({*COMMANDS}, {*complete("")})
        for command in COMMANDS:
            found = {*complete(command, "--")}
            self.assertEqual(options(command) - found, set(), command)
        self.assertIn("--slowest", complete("functions", "--slo"))

    def test_bash(self):
        self.check(self.bash)

    def test_zsh(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        self.check(self.zsh)

    def test_fish(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        self.check(self.fish)


if __name__ == "__main__":
    unittest.main(verbosity=2)
