#!/bin/sh
# A JIT that announces its code, traced with its kernel: announce.sh WORK. Its flow, and the kernel's, must equal the ground truth. LAB_BUILD, LAB_QEMU, LAB_KERNEL, LAB_BUSYBOX: as in README.md;
# LAB_KERNEL may also be a folder with boot/vmlinuz-* only, if the drivers of virtio are built in.
#
# LAB_WORDS="LAB_USER_EVENTS=1 LAB_LIVES=200": stock perf records the announcements, as samples of user_events:ptd_code, of a kernel that has user_events:
# tests/announce/user_events_vm.py builds one with all that this needs. Otherwise the recorder reads the ring. LAB_MODE=forks: see lives.c.
set -eu
work=$1
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../.." && pwd)
tree=$work/root
rm -rf "$tree" "$work/guest" "$work/out"
mkdir -p "$tree/bin" "$tree/proc" "$tree/sys" "$tree/dev" "$tree/tmp" "$tree/out" "$tree/modules" "$work/guest"
for name in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
  find "$LAB_KERNEL" -name "$name.ko" -exec cp {} "$tree/modules/" \;
done
cp "$LAB_BUSYBOX" "$tree/bin/busybox"
for name in sh tar mount insmod poweroff sync sleep; do ln -sf busybox "$tree/bin/$name"; done
for name in lives four_slots; do
  cc -O1 -static -I "$source/announce" "$source/tests/announce/programs/$name.c" "$source/announce/ptd_announce.c" -o "$tree/bin/$name"
done
cp "$(command -v perf)" "$tree/bin/perf"
cp "$LAB_BUILD/tests/lab/lab_traced" "$tree/bin/traced"
strip -o "$tree/bin/ptdecode" "$LAB_BUILD/cli/ptdecode"
ldd "$LAB_BUILD/cli/ptdecode" "$tree/bin/perf" | grep -o '/[^ :]* (' | tr -d ' (' | while read -r library; do
  mkdir -p "$tree$(dirname "$library")"
  cp -L "$library" "$tree$library"
done
cp "$here/guest_announce.sh" "$tree/init"
(cd "$tree" && find . | cpio --quiet -o -H newc) | gzip -1 > "$work/initramfs.gz"
truncate -s 0 "$work/disk.img"
truncate -s 1G "$work/disk.img"
libraries=$LAB_QEMU/usr/lib/x86_64-linux-gnu:$LAB_QEMU/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries timeout "${LAB_TIMEOUT:-1800}" "$LAB_QEMU/usr/bin/qemu-system-x86_64" -L "$LAB_QEMU/usr/share/qemu" \
  -L "$LAB_QEMU/usr/share/seabios" -machine pc -cpu Skylake-Client-v1 -m 3G -smp 2 -accel tcg,thread=single,tb-size=512 \
  -icount shift=3,sleep=off -rtc clock=vm -nographic -no-reboot -nic none -kernel "$LAB_KERNEL"/boot/vmlinuz-* -initrd "$work/initramfs.gz" \
  -append "console=ttyS0 quiet vdso=0 panic=-1 ${LAB_WORDS:-}" -drive "file=$work/disk.img,format=raw,if=virtio" \
  -plugin "$LAB_BUILD/capture/emulate/ptdecode-emulate-system.so,out=$work${LAB_PLUGIN:-}" < /dev/null | tee "$work/log"
tar xf "$work/disk.img" -C "$work/guest"
"$LAB_BUILD/tests/lab/lab_finish" "$work/guest" "$work" "$work/out"
"$LAB_BUILD/cli/ptdecode" check -i "$work/out/recording" --symfs "$tree" | tail -5
"$LAB_BUILD/cli/ptdecode" verify -i "$work/out/recording" --symfs "$tree" "$work"/out/truth.cpu*.ptt
