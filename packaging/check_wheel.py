"""Installs a wheel into an empty virtual environment, tests it there, and removes it again. Uses no network.

usage: check_wheel.py SOURCE WHEEL WHEELHOUSE
"""
import pathlib
import re
import subprocess
import sys
import tempfile

SOURCE, WHEEL, WHEELHOUSE = map(pathlib.Path, sys.argv[1:4])
# Libraries of the system that a manylinux wheel may use.
OF_THE_SYSTEM = re.compile(r"(ld-linux-.*|lib(c|m|dl|rt|pthread|util|gcc_s|z|stdc\+\+))[.-].*")
LOADED = """
import os, sys, ptdecode
recording = ptdecode.open(ptdecode.demo_path())
rows = sum(1 for _ in recording.calls(time="10%-12%"))
assert rows > 100, rows
recording.disassemble(recording.versions().to_columns()["ip"][0], recording.streams[0].first_ns)
print(*sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}), sep="\\n")
"""


def output(*words):
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def files(folder):
    """All files of a virtual environment but compiled ones, which Python makes while it runs."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if "__pycache__" not in path.parts}


def check_libraries(paths, venv, what):
    """Each library comes from the virtual environment, from the interpreter, or is one that every Linux has."""
    base = pathlib.Path(sys.base_prefix).resolve() / "lib"
    for path in paths:
        own = path.is_relative_to(venv)
        interpreter = "lib-dynload" in path.parts or re.match(r"lib(python|ffi|z|expat|ssl|crypto|bz2|lzma|uuid|sqlite3|readline|tinfo)", path.name)
        if not own and not OF_THE_SYSTEM.fullmatch(path.name) and not (interpreter and (path.is_relative_to("/usr/lib") or path.is_relative_to(base))):
            raise SystemExit(f"{what} loads {path}, which is not bundled")


def main():
    with tempfile.TemporaryDirectory(prefix="wheel-") as temporary:
        venv = (pathlib.Path(temporary) / "venv").resolve()
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        python = venv / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir"]
        before = files(venv)
        output(*pip, "install", "--no-index", WHEEL)
        # Alone: no other package is needed.
        version = output(python, "-m", "ptdecode", "--version")
        if output("env", f"PATH={venv / 'bin'}:/usr/bin:/bin", "ptdecode", "--version") != version:
            raise SystemExit("ptdecode and python -m ptdecode have different versions")
        if "instructions" not in output(venv / "bin" / "ptdecode", "demo"):
            raise SystemExit("ptdecode demo shows nothing")
        package = pathlib.Path(output(python, "-c", "import ptdecode; print(ptdecode.__path__[0])").strip())
        loaded = {pathlib.Path(line) for line in output(python, "-c", LOADED).splitlines()}
        check_libraries(loaded, venv, "the package")
        if not any(path.is_relative_to(package.parent / "ptdecode.libs") for path in loaded):
            raise SystemExit("no bundled library is loaded")
        needed = set(re.findall(r"=> (/\S+)", output("ldd", package / "bin" / "ptdecode")))
        if "not found" in output("ldd", package / "bin" / "ptdecode"):
            raise SystemExit("the command line lacks a library")
        check_libraries({pathlib.Path(path).resolve() for path in needed}, venv, "the command line")
        bundled = next(package.parent.glob("ptdecode-*.dist-info/licenses/BUNDLED.md")).read_text(encoding="utf-8")
        missing = [path.name for path in (package.parent / "ptdecode.libs").iterdir() if path.name not in bundled]
        if missing:
            raise SystemExit(f"BUNDLED.md does not list {', '.join(missing)}")
        output(*pip, "uninstall", "--yes", "ptdecode")
        left = files(venv) ^ before
        if left:
            raise SystemExit(f"uninstalling leaves {', '.join(sorted(left))}")
        # With the libraries that take tables.
        output(*pip, "install", "--no-index", "--find-links", WHEELHOUSE, WHEEL, "pyarrow", "polars", "pandas", "duckdb", "tqdm", "matplotlib")
        env = ["env", f"PATH={venv / 'bin'}:/usr/bin:/bin", "PTDECODE_STASH=off"]
        subprocess.run([*env, python, SOURCE / "python" / "tests" / "package_test.py", SOURCE], check=True, cwd=temporary)
        print(f"{WHEEL.name}: installed, tested and removed without remains")


if __name__ == "__main__":
    main()
