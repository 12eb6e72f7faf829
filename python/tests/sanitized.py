"""Runs rounds of leak_test.py with AddressSanitizer and LeakSanitizer in the extension and in the library.

usage: sanitized.py SOURCE BUILD LIBDIR LIBRARY COMPILER
LIBRARY is a libptdecode with instrumented objects, COMPILER made it. Python's memory comes from malloc(). What the interpreter and the module
allocate once and never free is no leak; what each round leaves is one. Exit status 77: the packages that it needs cannot be downloaded.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
LIBDIR, LIBRARY, COMPILER = sys.argv[3:6]
ROUNDS = 100
OURS = re.compile(r"libptdecode\.so|\b_native\.|\bptd(_\w|::)|\bnative\.cc")
LEAK = re.compile(r"(?:Direct|Indirect) leak of \d+ byte\(s\) in (\d+) object\(s\)")


def build(work, python):
    """Returns a folder that has the package with an instrumented extension."""
    prefix, objects, packages = work / "prefix", work / "build", work / "packages"
    for folder in (prefix, packages):
        shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "-G", "Ninja", "-S", SOURCE / "python", "-B", objects, f"-DPython_EXECUTABLE={python}", f"-DCMAKE_CXX_COMPILER={COMPILER}",
                    f"-Dptdecode_DIR={prefix / LIBDIR / 'cmake' / 'ptdecode'}", "-DCMAKE_BUILD_TYPE=Debug",
                    "-DCMAKE_CXX_FLAGS=-fsanitize=address -fno-omit-frame-pointer -O1 -g1"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", objects], check=True, stdout=subprocess.DEVNULL)
    shutil.copytree(SOURCE / "python" / "src" / "ptdecode", packages / "ptdecode")
    subprocess.run(["cmake", "--install", objects, "--prefix", packages], check=True, stdout=subprocess.DEVNULL)
    shutil.copy(LIBRARY, packages / "ptdecode" / "lib" / "libptdecode.so.0")
    return packages


def runtime(name):
    """Returns the path of a library of the compiler."""
    found = subprocess.run([COMPILER, f"-print-file-name={name}"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return os.path.realpath(found)


def leaks_of(report):
    """Returns the leaks that each round, or most, left, with the extension or the library on the stack."""
    return [part for part in re.split(r"\n\n+", report) if (leak := LEAK.search(part)) and int(leak[1]) >= ROUNDS // 10 and OURS.search(part)]


def main() -> int:
    sys.argv = sys.argv[:3] + [LIBDIR]
    import run
    python = run.environment(BUILD / "python-test" / "venv")
    if python is None:
        return 77
    work = BUILD / "python-test" / "sanitized"
    packages = build(work, python)
    for log in work.glob("report.*"):
        log.unlink()
    # The sanitizer finds the functions of the C++ runtime that it wraps only if that is loaded with it.
    env = {**os.environ, "LD_PRELOAD": f"{runtime('libasan.so')}:{runtime('libstdc++.so.6')}", "PYTHONPATH": str(packages), "PYTHONMALLOC": "malloc",
           "PTDECODE_STASH": "off", "ASAN_OPTIONS": f"detect_leaks=1:exitcode=23:log_path={work / 'report'}:fast_unwind_on_malloc=0:malloc_context_size=20"}
    env.pop("LD_LIBRARY_PATH", None)
    done = subprocess.run([python, SOURCE / "python" / "tests" / "leak_test.py", SOURCE, str(ROUNDS)], check=False, env=env, cwd=work)
    report = "".join(log.read_text(errors="replace") for log in sorted(work.glob("report.*")))
    leaks = leaks_of(report)
    wrong = "ERROR: AddressSanitizer" in report or "runtime error:" in report
    print(f"exit status {done.returncode}, {len(leaks)} leaks, {'errors of AddressSanitizer' if wrong else 'no wrong access'}")
    if wrong or done.returncode not in (0, 23) or (done.returncode == 23 and "LeakSanitizer" not in report):
        print(report[:4000])
        return 1
    print(*leaks[:5], sep="\n\n")
    return 1 if leaks else 0


if __name__ == "__main__":
    sys.exit(main())
