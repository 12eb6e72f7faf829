"""Builds the package against an installed prefix, installs it into a virtual environment, and runs its tests and the notebook there.

usage: run.py SOURCE BUILD LIBDIR
Exit status 77: the packages that it needs cannot be downloaded.
"""
import os
import pathlib
import shutil
import subprocess
import sys

SOURCE, BUILD = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
LIBDIR = sys.argv[3]
NEEDED = ["scikit-build-core>=0.10", "nanobind>=2.4", "pyarrow", "polars", "pandas", "duckdb", "tqdm",
          "matplotlib", "nbclient", "nbconvert", "ipykernel", "distributed", "fsspec", "aiohttp"]


def environment(venv: pathlib.Path) -> "pathlib.Path | None":
    """Returns the interpreter of a virtual environment with the packages of NEEDED; None: they cannot be downloaded."""
    python = venv / "bin" / "python"
    stamp = venv / "needed.txt"
    if not stamp.exists() or stamp.read_text() != "\n".join(NEEDED):
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        made = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", *NEEDED], check=False)
        if made.returncode != 0:
            print("skipped: pip cannot install", *NEEDED)
            return None
        stamp.write_text("\n".join(NEEDED))
    return python


def main() -> int:
    work = BUILD / "python-test"
    prefix, venv, wheels = work / "prefix", work / "venv", work / "wheels"
    for folder in (prefix, wheels):
        shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
    python = environment(venv)
    if python is None:
        return 77
    settings = [f"--config-settings=cmake.define.ptdecode_DIR={prefix / LIBDIR / 'cmake' / 'ptdecode'}", f"--config-settings=build-dir={work / 'build'}"]
    subprocess.run([python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation", "-w", wheels, *settings,
                    SOURCE / "python"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall",
                    *wheels.glob("*.whl")], check=True)
    # The tests must not find the library of the prefix, nor a ptdecode of this machine.
    shutil.rmtree(prefix)
    env = {**os.environ, "PATH": f"{venv / 'bin'}:/usr/bin:/bin", "PTDECODE_STASH": "off", "MALLOC_ARENA_MAX": "1",
           "PTDECODE_MIX_GUESTS": str(BUILD / "tests" / "guests" / "mix_guests")}
    env.pop("LD_LIBRARY_PATH", None)
    tests = SOURCE / "python" / "tests"
    return max(subprocess.run([python, tests / name, SOURCE], check=False, env=env, cwd=work).returncode
               for name in ("package_test.py", "equality.py", "notebook.py", "leak_test.py", "fleet_test.py"))


if __name__ == "__main__":
    sys.exit(main())
