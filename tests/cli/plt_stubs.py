"""The stubs of a program's procedure linkage tables and their possible names, from binutils."""
import re
import subprocess


def _run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout


def _labelled(program):
    return {int(at, 16): {name} for at, name in re.findall(r"^([0-9a-f]+) <((?!\*ABS).*@plt)>:$", _run("objdump", "-d", "-C", program), re.M)}


def _resolved(program):
    """Those whose slots are filled by resolvers; objdump labels them with an address or not at all."""
    functions = {}
    for at, name in re.findall(r"^([0-9a-f]+) i (.*)$", _run("nm", program), re.M):
        functions.setdefault(int(at, 16), set()).add(name + "@plt")
    slots = {int(slot, 16): functions[int(resolver, 16)]
             for slot, resolver in re.findall(r"^([0-9a-f]+) +\S+ R_X86_64_IRELATIV\S* +([0-9a-f]+)$", _run("readelf", "-rW", program), re.M)}
    listing = _run("objdump", "-d", "-j", ".plt", "-j", ".plt.got", "-j", ".plt.sec", program) if slots else ""
    jumps = re.findall(r"^ +([0-9a-f]+):\t(?:f2 )?ff 25.*# ([0-9a-f]+)", listing, re.M)
    return {int(at, 16): slots[int(slot, 16)] for at, slot in jumps if int(slot, 16) in slots}


def stubs(program):
    """Returns the names by the address of the stub."""
    return _labelled(program) | _resolved(program)
