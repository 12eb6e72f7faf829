#!/usr/bin/env python3
"""Programs under `ptdecode record --emulate`: the decode equals the ground truth, and perf agrees if the code is static.

Environment: PTDECODE, PTDECODE_PLUGIN, PTDECODE_SOURCE, LIBIPT_USER (optional), CC. Arguments: programs to record instead of the small ones (a command line each,
in quotes). Exit status 77 without qemu-x86_64.
"""
import collections
import glob
import itertools
import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

from checks import PLUGIN, PROGRAMS, PTDECODE, check, failures, is_part_in_order, perf_records


def build(name, folder, *flags):
    path = os.path.join(folder, name + ("-static" if "-static" in flags else ""))
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-w", "-pthread", *flags, os.path.join(PROGRAMS, name + ".c"), "-o", path], check=True)
    return path


def record(folder, command, *options):
    """Records, and verifies against the truth; returns the recording and the program's output."""
    out = os.path.join(folder, "perf.data")
    truth = os.path.join(folder, "truth")
    shutil.rmtree(out + ".jit", ignore_errors=True)
    shutil.rmtree(truth, ignore_errors=True)
    done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--truth", truth, *options, "--", *command],
                          capture_output=True, text=True)
    what = " ".join(list(options) + [os.path.basename(command[0])] + command[1:])[:80]
    check(f"record {what}", done.returncode == 0, done.stderr)
    check(f"flow never lost {what}", "flow was lost" not in done.stderr, done.stderr)
    files = sorted(glob.glob(truth + "/*.ptt"))
    verified = subprocess.run([PTDECODE, "verify", "-q", "-i", out, *files], capture_output=True, text=True)
    check(f"verify {what}", verified.returncode == 0 and len(files) != 0, verified.stdout + verified.stderr)
    for line in verified.stdout.splitlines():
        print("      ", line)
    findings = subprocess.run([PTDECODE, "check", "-i", out], capture_output=True, text=True).stdout
    check(f"the clock is sound {what}", "clock_contradicts" not in findings, findings[-500:])
    return out, done.stdout, len(files)


def addresses(command):
    """Returns, per thread, the addresses listed by a decoder: lines "TID IP"."""
    done = subprocess.run(command, capture_output=True, text=True)
    flows = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 2:
            flows.setdefault(int(words[0]), []).append(int(words[1], 16))
    return flows, done.stderr.strip()


def libipt_agrees(name, out, equal=True):
    """libipt's instruction decoder, given the code as of the end, finds the executed flow; if the code changes it cannot."""
    if "LIBIPT_USER" not in os.environ:
        return
    files = sorted(glob.glob(os.path.join(os.path.dirname(out), "truth", "*.ptt")))
    done = subprocess.run([os.environ["LIBIPT_USER"], out, *files], capture_output=True, text=True)
    check(f"{name}: libipt {'finds the same instructions' if equal else 'cannot know which code ran'}", done.returncode == (0 if equal else 3),
          done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        print("      ", line)


def perf_agrees(name, out):
    if not shutil.which("perf"):
        return
    theirs, said = addresses(["perf", "script", "-i", out, "--itrace=i1i", "-F", "tid,ip"])
    check("perf says nothing", said == "", said)
    ours, _ = addresses([PTDECODE, "script", "-q", "-i", out, "--itrace=i1i", "-F", "tid,ip"])
    check(f"{name}: perf finds the same instructions", ours == theirs and len(ours) != 0, f"{[(tid, len(flow), len(theirs.get(tid, []))) for tid, flow in ours.items()]}")


def witnesses(folder):
    """The flow equals that of the processor, single-stepped, and that of the emulator without our plugin."""
    step = build("step", folder, "-static")
    for name in ("plain", "patch"):
        program = os.path.join(folder, name + "-free")
        flags = "-O1 -static -nostdlib -ffreestanding -fno-stack-protector -fcf-protection=none".split()
        subprocess.run([os.environ.get("CC", "cc"), *flags, "-o", program, os.path.join(PROGRAMS, "../data_programs", name + ".c")], check=True)
        out, _, _ = record(folder, [program])
        libipt_agrees(name, out, equal=name == "plain")
        ours = list(addresses([PTDECODE, "script", "-q", "-i", out, "--itrace=i1i", "-F", "tid,ip"])[0].values())
        log = os.path.join(folder, "log")
        # Older versions (7.2) call the option -singlestep, newer ones (10.0) know only the other name.
        single = "-one-insn-per-tb" if "-one-insn-per-tb" in subprocess.run(["qemu-x86_64", "-h"], capture_output=True, text=True).stdout else "-singlestep"
        subprocess.run(["qemu-x86_64", single, "-d", "exec,nochain", "-D", log, program], capture_output=True)
        with open(log) as lines:
            emulator = [int(line.split("[")[1].split("/")[1], 16) for line in lines if line.startswith("Trace")]
        check(f"{name}: the emulator's own log says the same", ours == [emulator], f"{[len(flow) for flow in ours]} {len(emulator)}")
        stepped = subprocess.run([step, program], capture_output=True)
        native = list(struct.unpack(f"<{len(stepped.stderr) // 8}Q", stepped.stderr))
        if stepped.returncode != 0:
            print("skipped: this machine does not let one trace a process")
            continue
        check(f"{name}: the processor runs the same", ours == [native], f"{[len(flow) for flow in ours]} {len(native)}")


def long_streams(folder):
    """A stream of several AUXTRACE records: perf reads each separately, so none may end within a packet."""
    out, _, _ = record(folder, ["sh", "-c", "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); done"], "--psb-period", "2")
    starts = [trace[:16] for kind, _, _, trace in perf_records(out) if kind == 71]
    check("each record of a long stream begins with a PSB", len(starts) > 1 and set(starts) == {b"\x02\x82" * 8}, str(starts))
    if shutil.which("perf"):
        said = subprocess.run(["perf", "script", "-i", out, "--itrace=e"], capture_output=True, text=True)
        check("perf finds no error in a long stream", said.stdout + said.stderr == "", said.stdout[:400] + said.stderr[:400])


def vdso(folder):
    """QEMU 8.2 and later give programs a vdso. It is recorded as a file, for perf and without a jitdump too."""
    source = os.path.join(folder, "clock.c")
    with open(source, "w") as file:
        file.write("#include <time.h>\nint main(void) { struct timespec now; for (int i = 0; i < 500; ++i) clock_gettime(CLOCK_MONOTONIC, &now); return 0; }\n")
    program = os.path.join(folder, "clock")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-o", program, source], check=True)
    out, _, _ = record(folder, [program], "--no-ran-code")
    rows = subprocess.run([PTDECODE, "functions", "-q", "-i", out, "--limit", "0"], capture_output=True, text=True).stdout
    calls = [int(line.split()[0]) for line in rows.splitlines() if "vdso.so" in line]
    has_vdso = b"[vdso]" in subprocess.run(["qemu-x86_64", "/bin/cat", "/proc/self/maps"], capture_output=True).stdout
    check("each call of the vdso is found", calls == ([500] if has_vdso else []), rows[-500:])
    if shutil.which("perf"):
        said = subprocess.run(["perf", "script", "-i", out, "--itrace=e"], capture_output=True, text=True)
        check("perf finds no error in the vdso", said.stdout + said.stderr == "", said.stdout[:400] + said.stderr[:400])


def missing_library(folder):
    """A library's file is missing when the recording is decoded: the flow is output where code exists, and nothing that was not executed is
    output."""
    library = os.path.join(folder, "libplugin.so")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-Wl,--build-id=none", os.path.join(PROGRAMS, "plugin.c"), "-o", library], check=True)
    host = build("plugin_host", folder, "-Wl,--no-as-needed", library, "-Wl,-rpath," + folder)
    for options in ([], ["--no-retcomp"]):
        out, _, _ = record(folder, [host], *options)
        lister = [PTDECODE, "script", "-q", "-i", out, "--itrace=i1i", "-F", "tid,ip"]
        (whole,) = addresses(lister)[0].values()
        os.rename(library, library + ".away")
        (part,) = addresses(lister)[0].values()
        done = subprocess.run([PTDECODE, "stat", "-i", out], capture_output=True, text=True)
        said = done.stdout + done.stderr
        os.rename(library + ".away", library)
        known = set(part)
        inside = [ip for ip in whole if ip not in known]
        check("without the library nothing is given that did not run", is_part_in_order(part, whole), f"{len(part)} of {len(whole)}")
        check("without the library most of the rest is given", len(part) > 0.9 * (len(whole) - len(inside)), f"{len(part)} of {len(whole)}, {len(inside)} in the library")
        check("the library is named", "no_image" in said and library in said, said)
        print(f"       {len(part)} of {len(whole)} instructions, {len(whole) - len(inside)} of them outside of the library")


def unknown_emulators(folder):
    """An interface version, a target or a kind of emulation that the plugin does not support is refused with a message."""
    host = build("host", folder)
    for target, version, system, said in (("x86_64", 0, 0, "versions 0 to 0"), ("x86_64", 5, 0, "versions 5 to 5"), ("riscv64", 1, 0, "qemu-aarch64"),
                                          ("x86_64", 1, 1, "qemu-aarch64"), ("x86_64", 1, 0, "record --emulate"), ("x86_64", 4, 0, "record --emulate")):
        done = subprocess.run([host, PLUGIN, target, str(version), str(system)], capture_output=True, text=True)
        check(f"{target}, version {version}, system {system}: refused", done.stdout == "1\n" and said in done.stderr, done.stdout + done.stderr)


def code_that_other_threads_rewrite(folder, *options):
    """A thread on another core may see new bytes later: the order is unknown within the precision of the clock, and the decode may report
    single instructions as ambiguous. The flow is the same in all versions, so none is wrong without a mark. While a thread is off its cpu
    between two timing packets, more versions appear than the limit of work per segment allows, and flow can be lost there. At the end a thread
    spins in a loop without packets; with a short PSB period it contains whole segments."""
    out, truth = os.path.join(folder, "rewrite.data"), os.path.join(folder, "rewrite.truth")
    shutil.rmtree(truth, ignore_errors=True)
    done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--truth", truth, *options, "--", build("rewrite", folder)],
                          capture_output=True, text=True)
    check("the program's own status", done.returncode == 7, done.stderr)
    files = sorted(glob.glob(truth + "/*.ptt"))
    lines = subprocess.run([PTDECODE, "verify", "-q", "-i", out, *files], capture_output=True, text=True).stdout.splitlines()
    lines = [line for line in lines if line.startswith("tid")]
    check("three threads", len(lines) == 3, lines)
    for line in lines:
        numbers = re.search(r": (\d+) instructions: .* silently wrong 0; lost in gaps (\d+),", line)
        check("nothing wrong without a mark, little lost", numbers and int(numbers[2]) <= int(numbers[1]) / 50 and "nothing ran" not in line, line)
    gaps = subprocess.run([PTDECODE, "script", "-q", "-i", out, "--itrace=e"], capture_output=True, text=True).stdout.splitlines()
    check("what is lost is lost to the limit of work", all("gap: limit" in gap for gap in gaps if "gap:" in gap), str(gaps[:3]))


def files_that_are_rewritten(folder):
    """A file is mapped, rewritten, mapped and protected again, and replaced by others that may get its inode number: what ran each time is
    recorded, whatever the path contains at the end, with and without a stash."""
    program = build("remap", folder)
    stash = os.path.join(folder, "remap-stash")
    places = [folder] + (["/dev/shm"] if os.access("/dev/shm", os.W_OK) else [])
    for at, options in itertools.product(places, (["--no-stash"], ["--stash", stash], ["--no-stash", "--cyc"], ["--stash", stash, "--cyc"])):
        out, truth = os.path.join(folder, "remap.data"), os.path.join(folder, "remap.truth")
        shutil.rmtree(truth, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=at) as mapped:
            command = [program, os.path.join(mapped, "remapped")]
            free = subprocess.run(command, capture_output=True, text=True)
            done = subprocess.run([PTDECODE, "record", *options, "--emulate", "--plugin", PLUGIN, "-o", out, "--truth", truth, "--", *command],
                                  capture_output=True, text=True)
            check("remap: the same sum without the emulator", done.stdout.splitlines()[:1] == free.stdout.splitlines() and done.returncode == 0,
                  done.stdout + done.stderr)
            files = sorted(glob.glob(truth + "/*.ptt"))
            lines = subprocess.run([PTDECODE, "verify", "-q", "--stash", "off" if "--no-stash" in options else stash, "-i", out, *files],
                                   capture_output=True, text=True).stdout.splitlines()
            lines = [line for line in lines if line.startswith("tid")]
            check(f"remap in {at} {options}: nothing is wrong without a mark", len(lines) == 1 and "silently wrong 0;" in lines[0], lines)


def mapped_build_ids(out, path):
    """Returns the build ids in the MMAP2 records of a path, in their order, repeats left out."""
    ids = []
    for kind, misc, record_bytes, _ in perf_records(out):
        if kind == 10 and record_bytes[72:].split(b"\0")[0] == path.encode():
            build_id = record_bytes[44:44 + record_bytes[40]].hex() if misc & 1 << 14 else ""
            if not ids or ids[-1] != build_id:
                ids.append(build_id)
    return ids


def files_of_one_path(folder):
    """Each mapping's record has the build id that the file had then, as readelf shows it, however the path comes to name another file."""
    place = os.path.join(os.path.realpath(folder), "one-path")
    os.mkdir(place)
    compiler = [os.environ.get("CC", "cc"), "-O1", "-w", os.path.join(PROGRAMS, "reload.c")]
    # None of them has the id of another, and the third has none.
    for number, flag in enumerate(("-Wl,--build-id=sha1", "-Wl,--build-id=0x0123456789abcdef", "-Wl,--build-id=none")):
        subprocess.run([*compiler, "-shared", f"-DLIBRARY={number + 2}", flag, "-o", f"{place}/lib{number}"], check=True)
        subprocess.run([*compiler, flag, "-o", f"{place}/program{number}"], check=True)

    def id_of(name):
        text = subprocess.run(["readelf", "-n", os.path.join(place, name)], capture_output=True, text=True).stdout
        found = re.search(r"Build ID: (\w+)", text)
        return found.group(1) if found else ""

    for first, second in ((0, 1), (1, 2), (2, 0)):
        for way in ("rename", "write"):
            for source, name in ((first, "reload.so"), (second, "second.so")):
                shutil.copy(f"{place}/lib{source}", f"{place}/{name}")
            here = os.getcwd()
            os.chdir(place)
            out, text, _ = record(folder, [f"{place}/program0", way], "--no-stash")
            os.chdir(here)
            expected = [id_of(f"lib{first}"), id_of(f"lib{second}")]
            ids = mapped_build_ids(out, f"{place}/reload.so")
            check(f"dlopen of builds {first} and {second}, {way}: each mapping has its build id", ids == expected and text == f"{7 * (first + 2)} {7 * (second + 2)}\n",
                  f"{ids} {expected} {text}")
    for replace in ("cp program1 new; mv new program", "cat program1 > program"):
        script = f"cd {place}; rm -f program; cp program0 program; ./program no; {replace}; ./program no"
        out, _, _ = record(folder, ["/bin/sh", "-c", script], "--no-stash")
        ids = mapped_build_ids(out, f"{place}/program")
        check(f"exec, {replace}: each mapping has its build id", ids == [id_of("program0"), id_of("program1")], f"{ids}")


def faults_within_blocks(folder):
    """An instruction that faults does not retire, and the rest of its block does not run. The labels say where that is."""
    program = build("fault", folder, "-static", "-no-pie")
    labels = {words[2]: int(words[0], 16) for words in map(str.split, subprocess.run(["nm", program], capture_output=True, text=True).stdout.splitlines())
              if len(words) == 3}
    out, _, _ = record(folder, [program])
    (flow,) = addresses([PTDECODE, "script", "-q", "-i", out, "--itrace=i1i", "-F", "tid,ip"])[0].values()
    for name in ("load", "divide"):
        counts = [flow.count(labels[f"{place}_{name}"]) for place in ("before", "at", "after")]
        check(f"a fault within a block: {name}", counts == [6, 0, 0], str(counts))


def far_transfers(folder):
    """Far transfers that stay in user mode: their targets are in the trace, and calls end as after near ones. A far CALL calls."""
    out, text, _ = record(folder, [build("far", folder, "-static", "-g")])
    libipt_agrees("far", out)
    listed = subprocess.run([PTDECODE, "functions", "-q", "-i", out, "--limit", "0", "--no-inline", "--json"], capture_output=True, text=True).stdout
    rows = {row["function"]: (row["calls"], row["no_start"], row["no_end"]) for row in map(json.loads, listed.splitlines()[1:])}
    called = {name: rows.get(name) for name in ("main", "round_of", "far_ret", "iret_away", "add_one", "far_jump_away", "far_call", "add_far")}
    expected = {name: (100, 0, 0) for name in called} | {"main": (1, 0, 0), "add_one": (200, 0, 0)}
    check("far transfers: each call begins and ends once", text == "35350\n" and called == expected, f"{text} {called}")
    steps = subprocess.run([PTDECODE, "script", "-q", "-i", out], capture_output=True, text=True).stdout
    far_calls = {" ".join(line.split()[5:]) for line in steps.splitlines() if " add_far" in line}
    check("a far CALL of a program is no system call", far_calls == {"add_far"}, far_calls)
    branches = subprocess.run([PTDECODE, "script", "-q", "-i", out, "--itrace=b", "-F", "ip,sym,addr"], capture_output=True, text=True).stdout
    targets = collections.Counter(re.findall(r"(far_\w+|iret_\w+|add_far) => +\w+ (\w+)", branches))
    pairs = [("far_ret_away", "add_one"), ("iret_away", "add_one"),
             ("far_jump_away", "drop"), ("far_call", "add_far"), ("add_far", "far_call"), ("iret_here", "iret_here")]
    check("far transfers: the trace has their targets", all(targets[pair] == 100 for pair in pairs), f"{targets}")
    profile = os.path.join(folder, "far.prof")
    subprocess.run([PTDECODE, "profile", "-q", "-i", out, "--format", "csspgo", "-o", profile], capture_output=True)
    with open(profile) as file:
        contexts = re.findall(r"^\[(.*round_of)\]", file.read(), re.M)
    check("far transfers: the caller's context goes on after them", contexts == ["main:2 @ round_of"], f"{contexts}")
    perf_agrees("far", out)


def outputs(folder):
    """In any form of the output path, the recorder's own files are not the program's; a thread that was not recorded is named."""
    os.makedirs(os.path.join(folder, "sub"), exist_ok=True)
    with open(os.path.join(folder, "x.data"), "w") as file:
        file.write("notes")
    for name in ("./x.data", "sub/../x.data", os.path.join(folder, "sub", "..", "x.data")):
        done = subprocess.run([PTDECODE, "record", "-q", "--no-stash", "--emulate", "--plugin", PLUGIN, "-o", name, "--", "/bin/true"], cwd=folder,
                              capture_output=True, text=True)
        check(f"record -o {name}", done.returncode == 0 and ".work-" not in done.stderr, done.stderr)
        if name.startswith("./"):
            with open(os.path.join(folder, "x.data.old")) as file:
                check("the file that was at the output is kept", file.read() == "notes")
        done = subprocess.run([PTDECODE, "check", "-i", "x.data", "--stash", "off"], cwd=folder, capture_output=True, text=True)
        check(f"record -o {name}: no file is missing", done.returncode == 0 and "file_missing" not in done.stdout, done.stdout)
    odd_name = os.path.join(folder, "new\nline")
    shutil.copy("/bin/true", odd_name)
    done = subprocess.run([PTDECODE, "record", "-q", "--no-stash", "--emulate", "--plugin", PLUGIN, "-o", "n.data", "--", odd_name], cwd=folder,
                          capture_output=True, text=True)
    done = subprocess.run([PTDECODE, "check", "-i", "n.data", "--stash", "off"], cwd=folder, capture_output=True, text=True)
    check("a program with a newline in its name is found", done.returncode == 0 and "file_missing" not in done.stdout, done.stdout)
    done = subprocess.run([PTDECODE, "image", "-i", "x.data", "--tid", "424242", "1000"], cwd=folder, capture_output=True, text=True)
    check("image --tid of no thread", done.returncode == 2 and "424242" in done.stderr and "needs --tid" not in done.stderr, done.stderr)


def limits(folder, odd):
    """Recording stops at --max-size, and before the disk is full; the program runs on, and the file has what ran until then and says so."""
    loop = [sys.executable, "-I", "-S", "-c", "for i in range(150000): pass\nprint(i)"]
    recorder = [PTDECODE, "record", "--emulate", "--no-stash", "--plugin", PLUGIN, "--no-mtc"]
    out = os.path.join(folder, "limit.data")
    small = os.path.join(folder, "small")
    os.mkdir(small)
    on_small_disk = (f"mount -t tmpfs -o size=20M none {shlex.quote(small)} && {shlex.join([*recorder, '-o', small + '/p.data', '--', *loop])}; r=$?; "
                     f"cp {small}/p.data {shlex.quote(out)}; df --output=avail -B1 {small} | tail -1 >&2; exit $r")
    for what, command in (("--max-size", [*recorder, "--max-size", "2M", "-o", out, "--", *loop]), ("a small disk", ["unshare", "-m", "/bin/sh", "-c", on_small_disk])):
        if what != "--max-size" and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            print(f"skipped: {what}: no right to mount one")
            continue
        done = subprocess.run(command, capture_output=True, text=True)
        check(f"{what}: the program runs on", done.returncode == 0 and done.stdout == "149999\n", done.stdout + done.stderr)
        check(f"{what}: the user learns of it", "recording stopped" in done.stderr, done.stderr)
        findings = subprocess.run([PTDECODE, "check", "-i", out], capture_output=True, text=True).stdout
        check(f"{what}: the file says it", "trace_lost" in findings, findings)
        if what == "--max-size":
            check(f"{what}: is kept", os.path.getsize(out) < 2 << 20, str(os.path.getsize(out)))
        else:
            check(f"{what}: a part of it stays free", int(done.stderr.split()[-1]) >= (20 << 20) // 20, done.stderr)


def programs_that_do_not_run(folder, recorder):
    """The exit status is that of env(1), a message names the file, and no recording is written; one of that name stays."""
    places = os.path.join(folder, "places" + recorder[1])
    os.mkdir(places)
    os.mkdir(os.path.join(places, "folder"))
    contents = {"text": "echo\n", "no-shell": "#!/no/such/shell\n", "folder-shell": "#!/tmp\n", "text-shell": f"#!{places}/text\n"}
    for name, content in contents.items():
        path = os.path.join(places, name)
        with open(path, "w") as file:
            file.write(content)
        os.chmod(path, 0o644 if name == "text" else 0o755)
    loop = os.path.join(places, "loop")
    os.symlink(loop, loop)
    os.mkfifo(os.path.join(places, "pipe"), 0o755)
    no_linker = os.path.join(places, "no-linker")
    subprocess.run([os.environ.get("CC", "cc"), os.path.join(PROGRAMS, "family.c"), "-Wl,--dynamic-linker=/no/such/ld.so", "-o", no_linker], check=True)
    contents["no-linker"] = ""
    environment = dict(os.environ, PATH=places + ":" + os.environ["PATH"])
    out = os.path.join(places, "perf.data")
    absolute = ["/tmp", "/no/such/program", "/etc/passwd/x", "/dev/null", *(os.path.join(places, name) for name in ("folder", "loop", "pipe", *contents))]
    for program in absolute + ["no-such-program-anywhere", "text", "folder", ""]:
        native = subprocess.run(["env", program], capture_output=True, env=environment)
        done = subprocess.run([PTDECODE, *recorder, "-o", out, "--", program], capture_output=True, text=True, env=environment)
        if recorder[1] != "--emulate":
            if "perf_event" in done.stderr:
                print(f"skipped: {recorder[1]}: no right to record")
                return
        check(f"record of {program.replace(places, '...')}: refused as by the system", native.returncode in (126, 127) and done.returncode == native.returncode and
              program in done.stderr and not os.path.exists(out), f"{native.returncode} {done.returncode} {done.stdout} {done.stderr}")
    with open(out, "w") as file:
        file.write("another recording")
    subprocess.run([PTDECODE, *recorder, "-o", out, "--", os.path.join(places, "no-shell")], capture_output=True)
    with open(out) as file:
        check(f"{recorder[1]} of a program that is refused: the recording of that name stays", file.read() == "another recording", out)


def odd_programs(folder):
    """Programs that change code unseen by the emulator, exec in unusual ways, or use up what the recorder needs: the flow equals the truth,
    and what could not be recorded is named."""
    odd = build("odd", folder)
    for what in ("alias", "vsyscall", "refused", "execs", "patch"):
        _, text, _ = record(folder, [odd, what])
        check(f"odd {what}: the program goes on as without the emulator", text == "done\n", text)
    out = os.path.join(folder, "limited.data")
    done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, "-o", out, "--", odd, "limited"], capture_output=True, text=True)
    check("a limit on files is not the program's death", done.returncode == 0 and done.stdout == "done\n", done.stderr)
    check("a thread that could not be recorded is named", "1 thread or program is not in the recording" in done.stderr, done.stderr)
    findings = subprocess.run([PTDECODE, "check", "-i", out], capture_output=True, text=True).stdout
    check("the file itself says that it is incomplete", re.search(r"^trace_lost: the recording is incomplete: process \d+ is not recorded", findings, re.M), findings)
    told = subprocess.run([PTDECODE, "info", "-i", out], capture_output=True, text=True).stdout
    check("info says that it is incomplete", re.search(r"^warning +the recording is incomplete: process \d+ is not", told, re.M), told)
    bundle = out + ".bundle"
    subprocess.run([PTDECODE, "bundle", "-q", "-i", out, "-o", bundle], check=True)
    for words in (["functions"], ["script"], ["stat"], ["flame", "-o", out + ".svg"], ["coverage"], ["export", "-o", out + ".db"]):
        said = subprocess.run([PTDECODE, *words, "-i", out], capture_output=True, text=True).stderr
        check(f"{words[0]} says that it is incomplete", re.search(r"^ptdecode: the recording is incomplete: process \d+ is not", said, re.M), said)
    told = subprocess.run([PTDECODE, "info", "-i", bundle], capture_output=True, text=True).stdout
    check("info of its bundle says that it is incomplete", re.search(r"^warning +the recording is incomplete: process \d+ is not", told, re.M), told)
    limits(folder, odd)
    for words, said in ((["-o", "-"], "standard output"), (["-o", "/dev/full"], "/dev/full"), (["-e", "intel_pt//", "-o", out], "cannot be combined with")):
        done = subprocess.run([PTDECODE, "record", "--emulate", "--plugin", PLUGIN, *words, "--", odd, "work"], capture_output=True, text=True)
        check(f"record --emulate {words}: refused", done.returncode == 2 and said in done.stderr and done.stdout == "", done.stdout + done.stderr)
    emulated = ["record", "--emulate", "--plugin", PLUGIN]
    scripts = [os.path.join(folder, name) for name in ("script", "script-of-script")]
    for path, interpreter in zip(scripts, ("/no/such/shell", scripts[0])):
        with open(path, "w") as file:
            file.write(f"#! {interpreter} -e\n")
        os.chmod(path, 0o755)
        for kind, said in ((emulated, f"{path}: cannot run its interpreter /no/such/shell: No such file"),
                           (["record", "--sideband"], f"cannot run {path}: the interpreter that the file names does not exist")):
            if kind != emulated and path != scripts[0]:
                continue  # the kernel returns another errno for it
            done = subprocess.run([PTDECODE, *kind, "-o", out, "--", path], capture_output=True, text=True)
            permitted = kind == emulated or "perf_event" not in done.stderr
            check(f"{kind[1]} of a script without its interpreter: named", not permitted or (done.returncode != 0 and said in done.stderr), done.stderr)
    programs_that_do_not_run(folder, emulated)
    programs_that_do_not_run(folder, ["record", "--sideband", "--no-stash"])
    bare = os.path.join(folder, "bare-script")
    with open(bare, "w") as file:
        file.write("echo $0 $1\nexit 5\n")
    os.chmod(bare, 0o755)
    done = subprocess.run([PTDECODE, *emulated, "-q", "-o", out, "--", bare, "word"], capture_output=True, text=True)
    check("a script without an interpreter line is run by the shell", (done.returncode, done.stdout) == (5, f"{bare} word\n"), done.stderr)
    limited = f"ulimit -f 64; {' '.join([PTDECODE, *emulated])} -o {out} -- /bin/true"
    done = subprocess.run(["/bin/bash", "-c", limited], capture_output=True, text=True)
    check("a limit of file sizes that leaves no working folder: named", done.returncode == 1 and "File too large" in done.stderr and "ulimit -f" in done.stderr,
          done.stderr)
    spaces = ["unshare", "-pf", odd, "work"]
    if shutil.which("unshare") and subprocess.run(["unshare", "-pf", "true"], capture_output=True).returncode == 0:
        script = " ".join(spaces) + " & " + " ".join(spaces) + " & wait"
        _, text, streams = record(folder, ["/bin/sh", "-c", script])
        check("two processes with the number 1 are two", text == "done\ndone\n" and streams == 5, f"{streams} {text}")


def small(folder):
    odd_programs(folder)
    witnesses(folder)
    files_that_are_rewritten(folder)
    files_of_one_path(folder)
    code_that_other_threads_rewrite(folder)
    code_that_other_threads_rewrite(folder, "--psb-period", "0")
    missing_library(folder)
    unknown_emulators(folder)
    faults_within_blocks(folder)
    far_transfers(folder)
    long_streams(folder)
    vdso(folder)
    signals = build("signals", folder, "-static")
    record(folder, [signals])
    record(folder, [signals], "--cyc", "--no-retcomp", "--short-tnt", "--psb-period", "0", "--mtc-period", "3")
    out, text, _ = record(folder, [build("storm", folder, "-static")])  # signals at one time
    check("no signal is lost", text == "200 200 50\n", text)
    out, text, _ = record(folder, [build("chained", folder, "-O2", "-static")])
    listed = subprocess.run([PTDECODE, "script", "-q", "-i", out, "--itrace=e"], capture_output=True, text=True).stdout
    check("handlers that jump to others", text == f"100 100 {100 * (10 + 28)}\n" and "gap" not in listed, text + listed[:300])
    threads = build("threads", folder)
    out, text, streams = record(folder, [threads])
    libipt_agrees("threads", out)
    perf_agrees("threads", out)
    check("five threads have a stream each", streams == 5 and text == "37671\n", f"{streams} {text}")
    jit = build("jit", folder)
    out, text, _ = record(folder, [jit], "--psb-period", "0")
    native = subprocess.run([jit], capture_output=True, text=True).stdout
    check("the JIT computes what it computes natively", text == native, text)
    record(folder, [jit], "--work-clock")  # changes within a few ticks
    flips = build("flips", folder)
    native = subprocess.run([flips], capture_output=True, text=True).stdout
    for options in ([], ["--work-clock"], ["--cyc"]):
        out, text, _ = record(folder, [flips], *options)
        check("code that is never both writable and executable", text == native, text)
    family = build("family", folder, "-static")
    out, text, streams = record(folder, [family])
    libipt_agrees("fork and exec", out)
    perf_agrees("fork and exec", out)
    check("fork and exec stay in the emulator", streams == 3 and text == "again 144\n0 0 89\n", f"{streams} {text}")
    record(folder, [signals], "--ovf", "20000")


def main():
    if not shutil.which("qemu-x86_64"):
        print("skipped: qemu-x86_64 is not installed (apt install qemu-user)")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            for command in sys.argv[1:]:
                record(folder, shlex.split(command))
        else:
            small(folder)
            outputs(folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
