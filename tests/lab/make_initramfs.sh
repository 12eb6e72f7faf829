#!/bin/sh
# Makes the lab's initramfs: make_initramfs.sh LAB_INIT BUSYBOX KERNEL_ROOT OUT. KERNEL_ROOT contains an unpacked linux-image package.
set -eu
init=$1 busybox=$2 kernel=$3 out=$4
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/bin" "$tree/lib/modules" "$tree/dev" "$tree/proc" "$tree/sys" "$tree/tmp"
cp "$init" "$tree/init"
strip "$tree/init"
cp "$busybox" "$tree/bin/busybox"
ln -s busybox "$tree/bin/sh"
for name in virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk dummy veth; do
  cp "$(find "$kernel/lib/modules" -name "$name.ko")" "$tree/lib/modules/"
done
(cd "$tree" && find . | cpio --quiet -o -H newc) | gzip -1 >"$out"
