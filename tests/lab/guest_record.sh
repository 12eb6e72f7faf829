#!/bin/sh
# Init of the lab's machine for record_aux.sh: records the test PMU in every way that `ptdecode record` supports, and writes the results to
# the disk. LAB_ONLY: names of single runs, separated by commas.
export PATH=/bin HOME=/tmp XDG_CACHE_HOME=/tmp/cache
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /out
exec < /dev/null > /dev/console 2>&1
for name in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk ptd_aux_test; do insmod /modules/$name.ko; done
echo 0 > /proc/sys/kernel/printk

pmu=ptd_aux_test
pause() { usleep "${1}000"; }
# The reports of the PMU's areas follow the run's name in the kernel's log.
begin() {
  [ -z "$LAB_ONLY" ] || case ",$LAB_ONLY," in *",$1,"*) ;; *) return 1 ;; esac
  echo "record: $1"
  echo "run $1" > /dev/kmsg
}
ticks() { sed 's/ticks \([0-9]*\).*/\1/' /sys/devices/$pmu/counts; }
record() {  # NAME WORDS...: in the background, until the PMU has begun; its process is $recorder
  name=$1
  shift
  before=$(ticks)
  ptdecode record --no-stash -o "/out/$name.data" "$@" 2> "/out/$name.log" &
  recorder=$!
  while [ "$(ticks)" = "$before" ]; do pause 20; done
}
finish() { wait $recorder; echo "status $?" >> "/out/$name.log"; pause 300; }
burn() { while :; do :; done; }
work() { done=0; while [ $done -lt "$1" ]; do busybox true; done=$((done + 1)); done; }
snap() { ptdecode snapshot s -o "/out/$1.data" 2> "/out/$1.log"; echo "status $?" >> "/out/$1.log"; }
keeper() { ptdecode sessions | sed -n 's/.*keeper \([0-9]*\).*/\1/p'; }

if begin full_cpus; then
  record full_cpus -e $pmu/bytes=1000,period_ns=250000/ -a -m ,64K -- sleep 2
  finish
fi
if begin full_tree; then
  record full_tree -e $pmu/bytes=1000,period_ns=250000/ -m ,64K -- sh -c 'i=0; while [ $i -lt 100 ]; do busybox true; i=$((i + 1)); done'
  finish
fi
if begin attached; then
  (while :; do busybox true; done) &
  target=$!
  record attached -e $pmu/bytes=1000,period_ns=250000/ -p $target -m ,64K
  pause 800
  kill -INT $recorder
  finish
  kill -9 $target
fi
if begin thread; then
  burn &
  target=$!
  record thread -e $pmu/bytes=1000,period_ns=250000/ --per-thread -p $target -m ,64K
  pause 800
  kill -INT $recorder
  finish
  kill -9 $target
fi
# The recorder sleeps until the areas are full: each time the trace is cut, and continues after the cut.
if begin cut; then
  record cut -e $pmu/bytes=1000,period_ns=250000/ -a -m ,16K
  for i in 1 2 3 4 5; do
    kill -STOP $recorder
    pause 200
    kill -CONT $recorder
    pause 200
  done
  kill -INT $recorder
  finish
fi
if begin losses; then
  record losses -e $pmu/bytes=1000,period_ns=250000,lose_every=5,lose_bytes=777/ -a -m ,64K -- sleep 1
  finish
fi
if begin zipped; then
  record zipped -z -e $pmu/bytes=1000,period_ns=250000/ -a -m ,64K -- sleep 1
  finish
fi
if begin snapshot; then
  record snapshot -e $pmu/bytes=777,period_ns=100000/ --snapshot -a -m ,64K -- sleep 1
  finish
fi
if begin killed; then
  record killed -e $pmu/bytes=1000,period_ns=250000/ -a -m ,64K
  pause 700
  kill -9 $recorder
  finish
  pause 500
fi
for head in 0 1; do
  if begin detached$head; then
    ptdecode record --detach s -e $pmu/bytes=777,period_ns=100000,place=$head/ -a -m ,64K 2> /out/detached$head.log
    for i in 1 2 3 4 5 6 7 8; do
      work 5
      snap detached$head.$i
    done
    ptdecode stop s
    pause 300
  fi
done
if begin taken_over; then
  ptdecode record --detach s -e $pmu/bytes=777,period_ns=100000/ -a -m ,64K 2> /out/taken_over.log
  for i in 1 2 3 4; do
    work 5
    snap taken_over.$i
    kill -9 "$(keeper)"
    pause 200
  done
  work 5
  snap taken_over.5
  ptdecode stop s
  pause 300
fi
if begin outlived; then
  ptdecode record --detach s -e $pmu/bytes=777,period_ns=100000/ -m ,64K -- sh -c 'i=0; while [ $i -lt 50 ]; do busybox true; i=$((i + 1)); done' 2> /out/outlived.log
  while ! ptdecode sessions | grep -q ended; do pause 100; done
  snap outlived.1
  snap outlived.2
  ptdecode stop s
  pause 300
fi
if begin resumed; then
  ptdecode record --detach s -e $pmu/bytes=777,period_ns=100000,lose_every=1,lose_bytes=300/ -a -m ,64K 2> /out/resumed.log
  for i in 1 2 3 4; do
    pause 200
    snap resumed.$i
  done
  ptdecode stop s
  pause 300
fi
# The kernel's code before and after; in between a module is loaded, and a tracepoint is enabled.
if begin kcore; then
  mount -t tracefs tracefs /sys/kernel/tracing
  ptdecode record --no-stash --sideband --kcore -a -o /out/kcore.data -- sh -c 'insmod /modules/dummy.ko; echo 1 > /sys/kernel/tracing/events/sched/sched_switch/enable' 2> /out/kcore.log
  echo "status $?" >> /out/kcore.log
  echo 0 > /sys/kernel/tracing/events/sched/sched_switch/enable
fi
rmmod ptd_aux_test && echo "run unloaded" > /dev/kmsg
for process in /proc/[0-9]*; do
  grep -q ptdecode "$process/comm" 2> /dev/null && echo "record: left over: $(cat "$process/comm")" | tee -a /out/left_over
done
dmesg > /out/dmesg
cd /out && tar cf /dev/vda .
sync
echo "record: done"
poweroff -f
