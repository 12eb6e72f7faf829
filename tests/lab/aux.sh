#!/bin/sh
# Real AUX rings without trace hardware: boots the lab's kernel on two emulated cpus with the test PMU (aux_module) and reads it with the
# ring layer. aux.sh WORK; the exit status reports whether every byte was correct. Paths: LAB_BUILD (configured with -DPTDECODE_LAB=ON), LAB_QEMU, LAB_KERNEL and
# LAB_HEADERS (unpacked linux-headers-*-amd64, linux-headers-*-common, linux-kbuild of the same kernel).
set -eu
work=$1
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work/tree"
"$here/build_module.sh" "$LAB_HEADERS" "$work/module"
mkdir -p "$work/tree/proc" "$work/tree/sys" "$work/tree/dev"
cp "$LAB_BUILD/tests/lab/lab_aux" "$work/tree/init"
strip "$work/tree/init"
cp "$work/module/ptd_aux_test.ko" "$work/tree/"
(cd "$work/tree" && find . | cpio --quiet -o -H newc) | gzip -1 > "$work/initramfs.gz"
libraries=$LAB_QEMU/usr/lib/x86_64-linux-gnu:$LAB_QEMU/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries timeout "${LAB_TIMEOUT:-900}" "$LAB_QEMU/usr/bin/qemu-system-x86_64" -L "$LAB_QEMU/usr/share/qemu" \
  -L "$LAB_QEMU/usr/share/seabios" -machine pc -cpu Skylake-Client-v1 -m 512M -smp 2 -accel tcg,thread=single -icount shift=3,sleep=off -rtc clock=vm -nographic -no-reboot \
  -nic none -kernel "$LAB_KERNEL"/boot/vmlinuz-* -initrd "$work/initramfs.gz" -append "console=ttyS0 quiet panic=-1" < /dev/null | tee "$work/log"
grep -q "^aux: all equal" "$work/log"
