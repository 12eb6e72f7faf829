#!/bin/sh
# Installs the project below its build folder and builds the example program against it. Usage: install_test.sh SOURCE BUILD LIBDIR
set -eu
source=$1 build=$2 libdir=$3
work=$build/install-test
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" > "$work/install.log"

cmake -G Ninja -S "$source/docs/examples" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$work/prefix" > "$work/configure.log"
cmake --build "$work/cmake" > "$work/build.log" || { cat "$work/build.log"; exit 1; }
"$work/prefix/bin/ptdecode" --version
"$work/prefix/bin/ptdecode" demo > "$work/demo.txt"
grep -q "$work/prefix/share/ptdecode/kernel" "$work/demo.txt" || { cat "$work/demo.txt"; echo "demo: not the installed recording"; exit 1; }

# The pkg-config file names the prefix of configure time: set it to this one.
sed -i "s|^prefix=.*|prefix=$work/prefix|" "$work/prefix/$libdir/pkgconfig/ptdecode.pc"
flags=$(PKG_CONFIG_PATH=$work/prefix/$libdir/pkgconfig pkg-config --cflags --libs ptdecode)
# shellcheck disable=SC2086 # flags are several words
${CXX:-c++} -std=c++20 ${CXXFLAGS:-} "$source/docs/examples/hot_functions.cc" $flags -o "$work/hot_functions"

# Both say why a file that is no recording does not open, and exit with 1.
for program in "$work/cmake/hot_functions" "$work/hot_functions"; do
  status=0
  "$program" "$source/LICENSE" 2> "$work/refused.txt" || status=$?
  test "$status" -eq 1 && grep -q LICENSE "$work/refused.txt" || { cat "$work/refused.txt"; echo "$program: exit status $status"; exit 1; }
done

# Both count the instructions of the installed recording: what its ground truth says, summed over its cpus.
total=$(tail -q -n 1 "$work"/prefix/share/ptdecode/kernel/truth.cpu*.txt | awk '{ sum += $1 } END { print sum }')
for program in "$work/cmake/hot_functions" "$work/hot_functions"; do
  "$program" "$work/prefix/share/ptdecode/kernel/kernel.bundle" > "$work/hot_functions.txt"
  grep -q "^$total instructions, 0 of them marked uncertain, 0 gaps$" "$work/hot_functions.txt" || { cat "$work/hot_functions.txt"; echo "not $total"; exit 1; }
done
echo "installed, found by CMake and by pkg-config"
