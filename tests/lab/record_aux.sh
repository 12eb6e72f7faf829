#!/bin/sh
# `ptdecode record`, `--detach` and `snapshot` with real AUX rings: boots the lab's kernel with the test PMU (aux_module), records there
# (guest_record.sh), and compares the results with the PMU's report of the bytes written (check_recorded.py). record_aux.sh WORK; the exit
# status reports whether every byte was correct. Paths: as for aux.sh, and LAB_BUSYBOX.
set -eu
work=$1
here=$(cd "$(dirname "$0")" && pwd)
tree=$work/tree
rm -rf "$tree" "$work/out"
mkdir -p "$tree/bin" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/tmp" "$tree/out" "$tree/modules" "$work/out"
"$here/build_module.sh" "$LAB_HEADERS" "$work/module"
for name in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk dummy; do
  cp "$(find "$LAB_KERNEL/lib/modules" -name "$name.ko")" "$tree/modules/"
done
cp "$work/module/ptd_aux_test.ko" "$tree/modules/"
cp "$LAB_BUSYBOX" "$tree/bin/busybox"
for name in sh true sleep tar mount insmod rmmod dmesg kill cat grep sed mkdir poweroff usleep sync; do ln -sf busybox "$tree/bin/$name"; done
strip -o "$tree/bin/ptdecode" "$LAB_BUILD/cli/ptdecode"
ldd "$LAB_BUILD/cli/ptdecode" | grep -o '/[^ ]*' | while read -r library; do
  mkdir -p "$tree$(dirname "$library")"
  cp -L "$library" "$tree$library"
done
cp "$here/guest_record.sh" "$tree/init"
(cd "$tree" && find . | cpio --quiet -o -H newc) | gzip -1 > "$work/initramfs.gz"
truncate -s 0 "$work/disk.img"
truncate -s 512M "$work/disk.img"
libraries=$LAB_QEMU/usr/lib/x86_64-linux-gnu:$LAB_QEMU/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries timeout "${LAB_TIMEOUT:-1800}" "$LAB_QEMU/usr/bin/qemu-system-x86_64" -L "$LAB_QEMU/usr/share/qemu" \
  -L "$LAB_QEMU/usr/share/seabios" -machine pc -cpu Skylake-Client-v1 -m 2G -smp 2 -accel tcg,thread=single,tb-size=512 \
  -icount shift=3,sleep=off -rtc clock=vm -nographic -no-reboot -nic none -kernel "$LAB_KERNEL"/boot/vmlinuz-* -initrd "$work/initramfs.gz" \
  -append "console=ttyS0 quiet panic=-1 ${LAB_WORDS:-}" -drive "file=$work/disk.img,format=raw,if=virtio" < /dev/null | tee "$work/log"
tar xf "$work/disk.img" -C "$work/out"
python3 "$here/check_recorded.py" "$work/out"
