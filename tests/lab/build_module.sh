#!/bin/sh
# Builds the AUX test module: build_module.sh HEADERS OUT. HEADERS holds unpacked linux-headers-ABI-amd64, linux-headers-ABI-common and
# linux-kbuild packages of the lab's kernel. OUT gets ptd_aux_test.ko.
set -eu
headers=$(cd "$1" && pwd) out=$2
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
cp "$here"/aux_module/* "$out"
amd64=$(echo "$headers"/usr/src/linux-headers-*-amd64)
# The packages name each other by where they are installed: links of them that stand elsewhere.
tree=$out/tree
rm -rf "$tree"
cp -r "$amd64" "$tree"
common=$(echo "$headers"/usr/src/linux-headers-*-common)
sed "s|/usr/src/linux-headers-[^ ]*-common|$common|" "$amd64/Makefile" > "$tree/Makefile"
rm -rf "$tree/scripts" "$tree/tools"
ln -s "$headers"/usr/lib/linux-kbuild-*/scripts "$tree/scripts"
ln -s "$headers"/usr/lib/linux-kbuild-*/tools "$tree/tools"
make -s -C "$tree" M="$out" CC="${CC:-gcc}" modules
