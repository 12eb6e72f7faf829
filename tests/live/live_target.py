"""What the tests record: loads and unloads BPF programs, maps a library, forks, runs a program, starts threads. Prints what it did as JSON."""
import ctypes
import json
import mmap
import os
import sys
import threading
import time

import live_support


def one_round(number):
    """BPF in and out, a child that maps code and runs another program, a thread."""
    did = {}
    try:
        fd = live_support.load_bpf(b"live%d" % (number % 10), number + 3)
        did["bpf"], code = live_support.bpf_info(fd)
        did["code"] = code.hex()
        time.sleep(0.15)  # both recorders copy its code while it exists
        os.close(fd)
    except OSError as error:
        did["bpf_error"] = str(error)
    area = mmap.mmap(-1, 8192, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.close()
    child = os.fork()
    if child == 0:
        ctypes.CDLL("libm.so.6")
        os.execv("/bin/true", ["true"])
    os.waitpid(child, 0)
    did["child"] = child
    thread = threading.Thread(target=lambda: did.update(thread=threading.get_native_id()))
    thread.start()
    thread.join()
    return did


def main():
    print(os.getpid(), flush=True)
    if sys.argv[1] == "maps":  # the requested number of code mappings, and an answer
        for line in sys.stdin:
            for _ in range(int(line)):
                mmap.mmap(-1, 8192, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
            print("done", flush=True)
    elif sys.argv[1] == "memory":  # MiB of code in memory only, and the requested number of mappings, at the pace of a busy loader
        megabytes, count = map(int, sys.stdin.readline().split())
        fd, block = os.memfd_create("large"), os.urandom(1 << 20)
        for i in range(megabytes):
            os.write(fd, block[i:] + block[:i])
        large = mmap.mmap(fd, megabytes << 20, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
        for i in range(count):
            mmap.mmap(-1, 8192, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC).close()
            if i % 500 == 499:
                time.sleep(0.015)
        print("done", flush=True)
        sys.stdin.readline()
        large.close()
    elif sys.argv[1] == "rounds":
        sys.stdin.readline()
        print(json.dumps([one_round(i) for i in range(int(sys.argv[2]))]), flush=True)
    else:  # "forever": forks and counts until it is killed
        count = 0
        while True:
            child = os.fork()
            if child == 0:
                os.execv("/bin/true", ["true"])
            os.waitpid(child, 0)
            count += 1
            sys.stdout.write(f"{count} {child}\n")
            sys.stdout.flush()


main()
