#!/usr/bin/env python3
"""Announcements through a real kernel's user_events, recorded by stock perf: user_events_vm.py PTDECODE FOLDER [KERNEL_SOURCE.tar.xz]

Builds a small kernel with CONFIG_USER_EVENTS in FOLDER, unless it is there (10 minutes on two cores; default source: that of Debian's
linux-source-6.12), boots it under qemu-system-x86_64, and records two programs with `perf record -e user_events:ptd_code`: one that starts
while perf listens, and one with code from before. Then every version of the code in the recordings must be what the program wrote, in its
order. It also prints what a load of 4 KiB costs on each channel: in an emulator, only the ratios mean something. Not a part of the tests. Needs: linux-source-6.12 flex bison bc libelf-dev libssl-dev qemu-system-x86 busybox-static linux-perf cpio.
"""
import base64
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = HERE.parent.parent / "announce"
ROUNDS, SLOTS, SLOT_BYTES = 40, 4, 64
OPTIONS = """64BIT SMP PRINTK TTY SERIAL_8250 SERIAL_8250_CONSOLE BINFMT_ELF BINFMT_SCRIPT PROC_FS SYSFS TMPFS DEVTMPFS BLK_DEV_INITRD RD_GZIP FUTEX
EPOLL SIGNALFD TIMERFD EVENTFD SHMEM MEMFD_CREATE ADVISE_SYSCALLS POSIX_TIMERS MULTIUSER UNIX NET PERF_EVENTS FTRACE TRACEFS_FS USER_EVENTS KPROBES UPROBES
UPROBE_EVENTS HIGH_RES_TIMERS PCI ACPI KALLSYMS BUG FILE_LOCKING MEMBARRIER RSEQ JUMP_LABEL
BLOCK BLK_DEV VIRTIO_MENU VIRTIO VIRTIO_PCI VIRTIO_PCI_LEGACY VIRTIO_BLK PROC_KCORE PROC_SYSCTL KALLSYMS_ALL MODULES MODULE_UNLOAD BPF_SYSCALL BPF_JIT
INOTIFY_USER X86_TSC ELF_CORE""".split()  # the last two lines: for tests/lab/announce.sh
INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs d /dev; mount -t proc p /proc; mount -t sysfs s /sys; mount -t tracefs t /sys/kernel/tracing
export HOME=/tmp; cd /tmp
four_slots {ROUNDS} wait > late.txt &
sleep 1
perf record -q -a -e user_events:ptd_code -o late.data -- sleep 6
four_slots 1 wait > /dev/null &
sleep 1
perf record -q -e user_events:ptd_code -o started.data -- four_slots {ROUNDS} > started.txt
channel_cost idle; PTD_ANNOUNCE=ring channel_cost ring; PTD_ANNOUNCE=jitdump channel_cost jitdump
four_slots 1 wait > /dev/null &
sleep 1
perf record -q -m 1024 -e user_events:ptd_code -o cost.data -- channel_cost user_events
for file in late.txt late.data started.txt started.data; do echo "BEGIN $file"; base64 $file; echo "END $file"; done
poweroff -f
"""


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, **options)


def build_kernel(folder, source):
    image = folder / "bzImage"
    if image.exists():
        return image
    tree = folder / "kernel"
    tree.mkdir()
    run("tar", "xf", source, "-C", tree, "--strip-components=1")
    run("make", "-C", tree, "tinyconfig", stdout=subprocess.DEVNULL)
    run(tree / "scripts/config", "--file", tree / ".config", *(word for option in OPTIONS for word in ("-e", option)))
    run("make", "-C", tree, "olddefconfig", stdout=subprocess.DEVNULL)
    run("make", "-C", tree, f"-j{os.cpu_count()}", "bzImage", stdout=subprocess.DEVNULL)
    shutil.copy(tree / "arch/x86/boot/bzImage", image)
    return image


def libraries_of(program):
    return re.findall(r"(/\S+) \(0x", run("ldd", program, capture_output=True, text=True).stdout)


def make_initramfs(folder):
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    for name in ("bin", "proc", "sys", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    for program in ("four_slots", "channel_cost"):
        run(os.environ.get("CC", "cc"), "-O2", "-static", "-I", LIBRARY, HERE / f"programs/{program}.c", LIBRARY / "ptd_announce.c", "-o", root / "bin" / program)
    for program in ("busybox", "perf"):
        shutil.copy(shutil.which(program), root / "bin" / program)
    for library in libraries_of(root / "bin/perf"):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    (root / "init").write_text(INIT, encoding="utf-8")
    (root / "init").chmod(0o755)
    archive = folder / "initramfs.gz"
    run("sh", "-c", f"find . | cpio --quiet -o -H newc | gzip -1 > '{archive}'", cwd=root)
    return archive


def boot(folder, kernel, archive):
    """Returns the files that the guest printed."""
    text = run("qemu-system-x86_64", "-M", "q35", "-m", "1500", "-nographic", "-no-reboot", "-nic", "none", "-kernel", kernel, "-initrd", archive,
               "-append", "console=ttyS0 panic=-1 quiet", capture_output=True, text=True, errors="replace", timeout=600).stdout.replace("\r", "")
    (folder / "console.txt").write_text(text, encoding="utf-8")
    files = {}
    for name, body in re.findall(r"BEGIN (\S+)\n(.*?)^END \1$", text, re.M | re.S):
        files[name] = base64.b64decode(body)
        (folder / name).write_bytes(files[name])
    return files


def check(what, good, got=""):
    print(f"{'ok' if good else 'FAILED'}: {what}", "" if good else got)
    return good


def check_recording(ptdecode, folder, name, files):
    """Returns whether each place has the versions that the program wrote, in order, and nothing in between."""
    first = int(re.search(rb"slots at 0x([0-9a-f]+)", files[name + ".txt"]).group(1), 16)
    recording, good = folder / (name + ".data"), True
    events = run("perf", "script", "-i", recording, "-F", "tid,event", capture_output=True, text=True).stdout
    thread = re.search(r"(\d+)\s+user_events:ptd_code", events).group(1)
    for slot in range(1 + SLOTS):
        text = run(ptdecode, "image", "-i", recording, "--tid", thread, f"{first + slot * SLOT_BYTES:x}", "--versions", "--size", "6",
                   capture_output=True, text=True).stdout
        versions = text.partition(" was mapped ")[0] if "versions" in text else text.partition("\n     1 ")[2]  # 0: assumed before it is relisted
        seen = [struct.unpack("<I", bytes.fromhex(value))[0] for value in re.findall(r" b8 ((?:[0-9a-f]{2} ){4})c3$", versions, re.M)]
        want = [7] if slot == 0 else [base + i for i in range(slot - 1, ROUNDS, SLOTS) for base in (1000000, 2000000)]
        good &= check(f"{name}: place {slot} has {len(want)} versions as written", seen == want, f"{seen}, not {want}")
    return good


def main():
    ptdecode, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    source = sys.argv[3] if len(sys.argv) > 3 else "/usr/src/linux-source-6.12.tar.xz"
    folder.mkdir(parents=True, exist_ok=True)
    files = boot(folder, build_kernel(folder, source), make_initramfs(folder))
    if not check("the guest recorded", {"late.data", "started.data"} <= files.keys(), f"see {folder / 'console.txt'}"):
        return 1
    costs = {name: int(ns) for name, ns in re.findall(r"cost (\w+) (\d+)$", (folder / "console.txt").read_text(encoding="utf-8"), re.M)}
    print("a load of 4 KiB, in ns of the emulated machine:", costs)
    print("relative to the ring:", {name: round(ns / costs["ring"], 2) for name, ns in costs.items()})
    good = [check_recording(ptdecode, folder, name, files) for name in ("late", "started")]
    return 0 if all(good) else 1


sys.exit(main())
