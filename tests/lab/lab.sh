#!/bin/sh
# One run of the lab: lab.sh WORK [PLUGIN_ARGUMENTS [KERNEL_WORDS]]. Writes to WORK: guest/ (the guest's recording), cpuN.pt and cpuN.truth
# (the plugin's output), out/recording (both combined) and out/truth.cpuN.txt. Paths: LAB_BUILD (build folder, configured with
# -DPTDECODE_LAB=ON), LAB_QEMU (unpacked qemu-system-x86 10.0 and its dependencies), LAB_KERNEL (unpacked linux-image), LAB_BUSYBOX.
set -eu
work=$1 plugin_arguments=${2:-} kernel_words=${3:-}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$work/guest"
"$here/make_initramfs.sh" "$LAB_BUILD/tests/lab/lab_init" "$LAB_BUSYBOX" "$LAB_KERNEL" "$work/initramfs.gz"
truncate -s 1G "$work/disk.img"
libraries=$LAB_QEMU/usr/lib/x86_64-linux-gnu:$LAB_QEMU/lib/x86_64-linux-gnu
LD_LIBRARY_PATH=$libraries "$LAB_QEMU/usr/bin/qemu-system-x86_64" -L "$LAB_QEMU/usr/share/qemu" -L "$LAB_QEMU/usr/share/seabios" \
  -machine pc -cpu Skylake-Client-v1 -m 3G -smp 2 -accel tcg,thread=single,tb-size=512 -icount shift=3,sleep=off -rtc clock=vm \
  -nographic -no-reboot -nic none -kernel "$LAB_KERNEL"/boot/vmlinuz-* -initrd "$work/initramfs.gz" \
  -append "console=ttyS0 quiet vdso=0 panic=-1 LAB_CONFIG=0xe601 $kernel_words" \
  -drive "file=$work/disk.img,format=raw,if=virtio" \
  -plugin "$LAB_BUILD/capture/emulate/ptdecode-emulate-system.so,out=$work$plugin_arguments" | tee "$work/log"
tar xf "$work/disk.img" -C "$work/guest"
"$LAB_BUILD/tests/lab/lab_finish" "$work/guest" "$work" "$work/out"
# The executed user code, at its recorded paths.
mkdir -p "$work/root/bin"
cp "$LAB_BUILD/tests/lab/lab_init" "$work/root/init"
strip "$work/root/init"
cp "$LAB_BUSYBOX" "$work/root/bin/busybox"
