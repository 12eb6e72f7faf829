#!/bin/sh
# Makes the recordings of data/user anew: make_data.sh PTDECODE OUT [PLUGIN]. Needs gcc and qemu-user. Addresses of the system, thread
# numbers and times differ from run to run, so the files do too; what they show does not.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ptdecode=$(realpath "$1") out=$(realpath "$2") plugin=${3:+$(realpath "$3")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for name in plain jit patch pair; do
  gcc -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fcf-protection=none -o $name "$here/data_programs/$name.c"
  ./$name >expected
  "$ptdecode" record --emulate ${plugin:+--plugin "$plugin"} --psb-period 1 --truth truth.$name -o $name.data -- ./$name >printed
  cmp expected printed
  "$ptdecode" bundle $name.data -o "$out/$name.bundle"
  rm -f "$out/$name".tid*.ptt
  for truth in truth.$name/truth.*.ptt; do cp "$truth" "$out/$name.${truth##*/truth.}"; done
done
