#!/bin/sh
# Makes the recordings of data/user and data/arm again: make_data.sh PTDECODE DATA [PLUGIN]. Needs gcc, clang, lld and qemu-user. System
# addresses, thread numbers and times differ from run to run, so the files differ too; the recorded behaviour is the same.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ptdecode=$(realpath "$1") out=$(realpath "$2") plugin=${3:+$(realpath "$3")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
flags="-O1 -static -nostdlib -ffreestanding -fno-stack-protector"

# record_it PROGRAM FOLDER WORD...: writes the program's bundle, and the executed instructions of each thread; WORD... are options of
# record.
record_it() {
  name=$1 folder=$out/$2
  shift 2
  "$ptdecode" record --emulate ${plugin:+--plugin "$plugin"} "$@" --truth truth.$name -o $name.data -- ./$name >printed
  head -c "$(wc -c <expected)" printed | cmp expected -  # qemu alone may not run the program that it executes
  "$ptdecode" bundle $name.data -o "$folder/$name.bundle"
  rm -f "$folder/$name".tid*.ptt "$folder/$name".cpu*.ptt
  for truth in truth.$name/truth.*.ptt; do mv "$truth" "$folder/$name.${truth##*/truth.}"; done
}

for name in plain jit patch pair; do
  gcc $flags -fcf-protection=none -o $name "$here/data_programs/$name.c"
  ./$name >expected
  record_it $name user --psb-period 1
done

# build_arm NAME SOURCE WORD...: for aarch64.
build_arm() {
  name=$1 source=$2
  shift 2
  clang --target=aarch64-linux-gnu $flags -fuse-ld=lld "$@" -o $name "$here/$source"
  qemu-aarch64 ./$name >expected
  record_it $name arm --psb-period 0
}
build_arm plain data_programs/plain.c
build_arm changes programs/arm.c -Wl,-e,begin
build_arm threads programs/arm_threads.c -mno-outline-atomics
