#!/bin/sh
# Builds the AUX test module: build_module.sh HEADERS OUT. HEADERS contains the unpacked linux-headers-ABI-amd64, linux-headers-ABI-common
# and linux-kbuild packages of the lab's kernel. ptd_aux_test.ko is written to OUT.
set -eu
headers=$(cd "$1" && pwd) out=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
cp "$here"/aux_module/* "$out"
amd64=$(echo "$headers"/usr/src/linux-headers-*-amd64)
# The packages refer to each other by their installed paths: replace these by links to the unpacked ones.
tree=$out/tree
rm -rf "$tree"
cp -r "$amd64" "$tree"
common=$(echo "$headers"/usr/src/linux-headers-*-common)
sed "s|/usr/src/linux-headers-[^ ]*-common|$common|" "$amd64/Makefile" > "$tree/Makefile"
rm -rf "$tree/scripts" "$tree/tools"
ln -s "$headers"/usr/lib/linux-kbuild-*/scripts "$tree/scripts"
ln -s "$headers"/usr/lib/linux-kbuild-*/tools "$tree/tools"
make -s -C "$tree" M="$out" CC="${CC:-gcc}" modules
