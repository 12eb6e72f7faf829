#!/usr/bin/env python3
"""libptd-announce on its own: built, installed and used through CMake, pkg-config, and as copied files; shared and static; C and C++.

Usage: install_test.py FOLDER-OF-THE-LIBRARY
"""
import os
import subprocess
import sys
import tempfile

LIBRARY = os.path.abspath(sys.argv[1])
PROGRAM = """#include <ptd_announce.h>
int main(void) {
  struct ptd_announcement what = {0};
  what.runtime = ptd_announce_register("test", 0, 0);
  what.kind = PTD_ANNOUNCE_LOAD;
  what.phase = PTD_ANNOUNCE_END;
  ptd_announce_code(&what);
  return what.runtime == 1 ? 0 : 1;
}
"""
PROJECT = """cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(ptd-announce 1.0 REQUIRED)
add_executable(user user.c)
target_link_libraries(user ptd-announce::ptd-announce)
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def use(folder, prefix):
    with open(os.path.join(folder, "user.c"), "w") as file:
        file.write(PROGRAM)
    with open(os.path.join(folder, "user.cc"), "w") as file:
        file.write(PROGRAM)
    with open(os.path.join(folder, "CMakeLists.txt"), "w") as file:
        file.write(PROJECT)
    run("cmake", "-S", folder, "-B", folder + "/build", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", folder + "/build")
    places = [os.path.join(prefix, "lib", name) for name in ("", *os.listdir(os.path.join(prefix, "lib")))]
    paths = [place for place in places if os.path.isdir(os.path.join(place, "pkgconfig"))]
    environment = dict(os.environ, PKG_CONFIG_PATH=paths[0] + "/pkgconfig", LD_LIBRARY_PATH=paths[0])
    run(folder + "/build/user", env=environment)
    flags = run("pkg-config", "--cflags", "--libs", "ptd-announce", env=environment).split()
    for compiler, source in ((os.environ.get("CC", "cc"), "user.c"), (os.environ.get("CXX", "c++"), "user.cc")):
        run(compiler, os.path.join(folder, source), *flags, "-o", folder + "/user")
        run(folder + "/user", env=environment)


def main():
    for shared in ("ON", "OFF"):
        with tempfile.TemporaryDirectory() as folder:
            run("cmake", "-S", LIBRARY, "-B", folder + "/library", f"-DBUILD_SHARED_LIBS={shared}", f"-DCMAKE_INSTALL_PREFIX={folder}/first")
            run("cmake", "--build", folder + "/library")
            run("cmake", "--install", folder + "/library")
            os.rename(folder + "/first", folder + "/moved")
            os.mkdir(folder + "/use")
            use(folder + "/use", folder + "/moved")
            print(f"shared {shared}: ok")
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/user.c", "w") as file:
            file.write(PROGRAM)
        strict = "-std=c11 -Wall -Wextra -Werror -pedantic".split()
        run(os.environ.get("CC", "cc"), *strict, "-I", LIBRARY, folder + "/user.c", LIBRARY + "/ptd_announce.c", "-o", folder + "/user")
        run(folder + "/user")
        print("copied: ok")


if __name__ == "__main__":
    main()
