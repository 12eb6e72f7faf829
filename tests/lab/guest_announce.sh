#!/bin/sh
# Init of the lab's machine for announce.sh: the recorder, or with LAB_USER_EVENTS stock perf, listens to a JIT that announces its code while both
# cpus are traced.
export PATH=/bin HOME=/tmp XDG_CACHE_HOME=/tmp/cache
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /out
mount -t tracefs tracefs /sys/kernel/tracing
exec < /dev/null > /dev/console 2>&1
for name in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
  [ ! -f /modules/$name.ko ] || insmod /modules/$name.ko
done
echo 0 > /proc/sys/kernel/printk
echo 1 > /proc/sys/kernel/kptr_restrict
[ -e /sys/kernel/tracing/user_events_data ] && echo "announce: this kernel has user_events"
if [ -n "$LAB_USER_EVENTS" ]; then # the event exists while a program has registered it
  four_slots 1 wait > /dev/null &
  sleep 1
  perf record -q -a -m 1024 -e user_events:ptd_code -o /out/announced.data -- \
    ptdecode record --sideband --kcore --no-stash --no-announce -a -o /out/recording -- traced lives "${LAB_LIVES:-200}" $LAB_MODE
else
  ptdecode record --sideband --kcore --no-stash -a -o /out/recording -- traced lives "${LAB_LIVES:-200}" $LAB_MODE
fi
echo "announce: status $?"
cd /out && tar cf /dev/vda .
sync
echo "announce: done"
poweroff -f
