#!/usr/bin/env python3
"""Programs whose debug information refers to other files, or costs far more than its size: every command ends within the memory for a file
of that size, and opens no other file.

Environment: PTDECODE, PTDECODE_PLUGIN, CC. The programs are assembled here; without an emulator for this machine the test is skipped.
"""
import json
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PTDECODE = os.environ["PTDECODE"]
CC = os.environ.get("CC", "cc")
PLUGIN = ["--plugin", os.environ["PTDECODE_PLUGIN"]] if "PTDECODE_PLUGIN" in os.environ else []
MOST_BYTES = 2 << 30
MOST_SECONDS = 60  # for a command that ends at all
LIMIT = "its source lines are not used: its debug information needs more than"

CODE = """	.text
	.globl main
main:	xorl %eax, %eax
	movl $40, %ecx
1:	subl $1, %ecx
	jnz 1b
	ret
	.section .note.GNU-stack,"",@progbits
"""
# Units that share one list of ranges.
RANGES = """	.section .debug_abbrev,"",@progbits
.Lab:	.byte 1,0x11,0, 0x55,0x17, 0,0, 0
	.section .debug_rnglists,"",@progbits
	.long .Lre-.Lrs
.Lrs:	.value 5
	.byte 8,0
	.long 0
.Llist:	.byte 5
	.quad main
	.rept 100000
	.byte 4,1,120
	.endr
	.byte 0
.Lre:	.section .debug_info,"",@progbits
	.rept 20000
	.long 13
	.value 5
	.byte 1,8
	.long .Lab
	.byte 1
	.long .Llist
	.endr
"""


def leb(value):
    out = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return ",".join(map(str, out + [value]))


def unit(dies, files=1, length=10, abbrev="2,0x2e,0, 0x03,0x0e, 0x11,1, 0x12,0x0b, 0,0"):
    """Returns one unit with a string of `length` bytes, the DIEs `dies`, and `files` names in the folder of that name."""
    return f"""	.section .debug_abbrev,"",@progbits
.Lab:	.byte 1,0x11,1, 0x11,1, 0x12,7, 0x10,0x17, 0,0
	.byte {abbrev}
	.byte 0
	.section .debug_str,"",@progbits
.Lstr:	.fill {length},1,0x66
	.byte 0
	.section .debug_info,"",@progbits
.Lis:	.long .Lie-.Lis-4
	.value 5
	.byte 1,8
	.long .Lab
	.byte 1
	.quad main
	.quad 0x200
	.long .Lline
{dies}
	.byte 0
.Lie:	.section .debug_line,"",@progbits
.Lline:	.long .Lle-.Lls
.Lls:	.value 5
	.byte 8,0
	.long .Lhe-.Lhs
.Lhs:	.byte 1,1,1,-5,14,13,0,1,1,1,1,0,0,0,1,0,0,1
	.byte 1, 1,0x0e, 1
	.long .Lstr
	.byte 2, 1,0x0e, 2,0x0b
	.byte {leb(files)}
	.rept {files}
	.long .Lstr+{length - 1}
	.byte 0
	.endr
.Lhe:	.byte 0,9,2
	.quad main
	.byte 3,4,1,2,0x80,4,0,1,1
.Lle:
"""


def functions(count, length):
    return "\n".join(f"	.byte 2\n	.long .Lstr+{i % length}\n	.quad main+{i % 8}\n	.byte 1" for i in range(count))


def old_table(files, length):
    """Returns a line table of DWARF 4 whose program defines `files` files in one folder with a name of `length` bytes."""
    table = f"""	.section .debug_line,"",@progbits
.Lline:	.long .Lle-.Lls
.Lls:	.value 4
	.long .Lhe-.Lhs
.Lhs:	.byte 1,1,1,-5,14,13,0,1,1,1,1,0,0,0,1,0,0,1
	.fill {length},1,0x66
	.byte 0,0
	.asciz "a.c"
	.byte 1,0,0,0
.Lhe:	.byte 0,9,2
	.quad main
	.rept {files}
	.byte 0,6,3,0x66,0,1,0,0
	.endr
	.byte 3,4,1,2,0x80,4,0,1,1
.Lle:
"""
    text = unit("")
    return text[:text.index("	.section .debug_line")] + table


def with_rows(count, advancing):
    """Returns a unit whose line table has rows of one byte: at the next address each, or all at one address."""
    opcode = 14 + 5 + (14 if advancing else 0)  # of a special opcode
    text = unit("").replace("	.quad 0x200\n", "	.quad 0x40000000\n")
    return text.replace("	.byte 3,4,1,2,0x80,4", f"	.fill {count},1,{opcode}\n	.byte 3,4,1,2,0x80,4")


def altlink(path, build_id=b"\1" * 20):
    data = ",".join(map(str, build_id))
    return f'	.section .gnu_debugaltlink,"",@progbits\n	.string "{path}"\n	.byte {data}\n'


# A function that is inlined in main, whose name is at offset 5 of the strings of the other file.
INLINED_ABBREV = ("2,0x2e,0, 3, 0xa1, 0x3e, 0x20,0x0b, 0,0, 3,0x2e,1, 0x11,1, 0x12,0x0b, 0,0, "
                  "4,0x1d,0, 0x31,0x13, 0x11,1, 0x12,0x0b, 0x58,0x0b, 0x59,0x0b, 0,0")
INLINED = """.Linlined:	.byte 2
	.long 5
	.byte 1
	.byte 3
	.quad main
	.byte 16
	.byte 4
	.long .Linlined-.Lis
	.quad main+2
	.byte 10,1,6
	.byte 0"""
OTHER_ID = bytes(range(0xA0, 0xB4))
OTHER = """	.section .debug_str,"MS",@progbits,1
	.string "many"
	.string "in_the_other_file"
	.section .debug_info,"",@progbits
	.byte 0
"""


def range_list(entries, count):
    """Returns a section with one range list, .Llist, that has only `count` times `entries`."""
    return f"""	.section .debug_rnglists,"",@progbits
	.long .Lre-.Lrs
.Lrs:	.value 5
	.byte 8,0
	.long 0
.Llist:	.rept {count}
{entries}
	.endr
	.byte 0
.Lre:
"""


# Units of one byte that share a table of abbreviations and use its last one.
ABBREVIATIONS = """	.section .debug_abbrev,"",@progbits
.Lab:	.set code,1
	.rept 20000
	.uleb128 code
	.byte 0x11,0,0,0
	.set code,code+1
	.endr
	.byte 0
	.section .debug_info,"",@progbits
	.rept 20000
	.long 11
	.value 5
	.byte 1,8
	.long .Lab
	.uleb128 20000
	.endr
"""


def nested(count):
    """Returns a unit with `count` inlined copies in each other, which all have the code of main."""
    copy = "	.byte 4\n	.long .Linlined-.Lis\n	.quad main\n	.byte 16,1,6\n"
    return unit(f".Linlined:	.byte 2\n	.long .Lstr\n	.byte 1\n	.byte 3\n	.quad main\n	.byte 16\n{copy * count}	.fill {count + 1}",
                abbrev="2,0x2e,0, 3,0x0e, 0x20,0x0b, 0,0, 3,0x2e,1, 0x11,1, 0x12,0x0b, 0,0, "
                       "4,0x1d,1, 0x31,0x13, 0x11,1, 0x12,0x0b, 0x58,0x0b, 0x59,0x0b, 0,0")


class HostileDwarf(unittest.TestCase):
    def setUp(self):
        self.tmp = pathlib.Path(tempfile.mkdtemp(prefix="ptd-dwarf-"))
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def run_limited(self, *words):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        return subprocess.run([PTDECODE, *map(str, words)], capture_output=True, text=True, timeout=MOST_SECONDS, preexec_fn=limit,
                              cwd=self.tmp, env={**os.environ, "DEBUGINFOD_URLS": "", "PTDECODE_STASH": "off"})

    def record(self, text):
        (self.tmp / "p.s").write_text(CODE + text)
        subprocess.run([CC, "-no-pie", "-o", "p", "p.s"], check=True, cwd=self.tmp)
        got = subprocess.run([PTDECODE, "record", "--emulate", *PLUGIN, "-q", "-o", "p.data", "--", "./p"], cwd=self.tmp,
                             capture_output=True, text=True, timeout=MOST_SECONDS, env={**os.environ, "PTDECODE_STASH": str(self.tmp / "stash")})
        self.assertEqual(got.returncode, 0, got.stderr)

    def both(self, text):
        self.record(text)
        coverage = self.run_limited("coverage", "--format", "lcov", "--keep-absent", "-i", "p.data")
        script = self.run_limited("script", "--itrace=b", "-F", "+srcline", "-i", "p.data")
        self.assertEqual(script.returncode, 0, script.stderr)
        return coverage, script

    def over_limit(self, text, what):
        for got in self.both(text):
            lines = [line for line in got.stderr.splitlines() if LIMIT in line]
            self.assertEqual(len(lines), 1, got.stderr[-2000:])
            self.assertIn(str(self.tmp / "p"), lines[0])
            self.assertTrue(lines[0].endswith(what), lines[0])

    def test_units_that_share_ranges(self):
        self.over_limit(RANGES, "address ranges")

    def test_functions_that_share_ranges(self):
        lists = RANGES[RANGES.index("	.section .debug_rnglists"):RANGES.index(".Lre:")] + ".Lre:\n"
        dies = "	.rept 2000\n	.byte 2\n	.long .Llist\n	.endr"
        self.over_limit(lists + unit(dies, abbrev="2,0x2e,0, 0x55,0x17, 0,0"), "address ranges")

    def test_ranges_that_are_empty(self):
        """An empty range, or a base address, is no range of a function."""
        for entries in ("	.byte 4,5,5", "	.byte 5\n	.quad main"):
            with self.subTest(entries=entries):
                dies = "	.rept 40000\n	.byte 2\n	.long .Llist\n	.endr"
                self.over_limit(range_list(entries, 40000) + unit(dies, abbrev="2,0x2e,0, 0x55,0x17, 0,0"), "address ranges")

    def test_attributes_without_bytes(self):
        """An entry of one byte has 40,000 flags (DW_FORM_flag_present)."""
        abbrev = "2,0x2e,0\n	.rept 40000\n	.byte 0x3f,0x19\n	.endr\n	.byte 0,0"
        self.over_limit(unit("	.fill 40000,1,2", abbrev=abbrev), "attributes")

    def test_units_that_share_abbreviations(self):
        self.over_limit(ABBREVIATIONS, "abbreviations")

    def test_functions_whose_origins_overlap(self):
        """The origin of each is a part of one long string."""
        dies = "	.set at,.Lorigins-.Lis\n	.rept 40000\n	.byte 3\n	.long at\n	.set at,at+1\n	.endr\n.Lorigins:	.fill 2000000,1,2\n	.byte 0"
        self.over_limit(unit(dies, abbrev="2,0x2e,0, 0x6e,8, 0,0, 3,0x2e,0, 0x31,0x13, 0,0"), "bytes of entries")

    def test_statements_in_nested_copies(self):
        """Each of a million statements is in 500 copies, and none of them declares its line."""
        declared = "	.rept 500\n	.byte 4\n	.quad main\n	.byte 16,0,3\n	.endr\n	.fill 500"
        text = unit(f"	.fill 0\n	.byte 3\n	.quad main\n	.byte 16,0,3\n{declared}\n	.byte 0\n	.rept 20000\n	.byte 2\n	.quad main+64\n	.byte 1,0,2\n	.endr",
                    abbrev="2,0x2e,0, 0x11,1, 0x12,0x0b, 0x3a,0x0b, 0x3b,0x0b, 0,0, 3,0x2e,1, 0x11,1, 0x12,0x0b, 0x3a,0x0b, 0x3b,0x0b, 0,0, "
                           "4,0x1d,1, 0x11,1, 0x12,0x0b, 0x3a,0x0b, 0x3b,0x0b, 0,0")
        self.record(text.replace("	.byte 3,4,1,2,0x80,4", "	.byte 3,1,1\n	.fill 1000000,1,19\n	.byte 2,0x80,4"))
        got = self.run_limited("coverage", "--format", "lcov", "--keep-absent", "-i", "p.data")
        self.assertEqual(got.stderr.count(LIMIT), 1, got.stderr)
        self.assertIn("steps between nested functions", got.stderr)

    def test_copies_in_many_copies(self):
        """Inlined copies 256 to 700 deep: all of the time is counted once. The innermost 32 have a known start, which makes them calls."""
        def rows(*options):
            got = self.run_limited("functions", "--limit", "0", "--format", "json", "-i", "p.data", *options)
            self.assertEqual(got.returncode, 0, got.stderr)
            return [row for row in map(json.loads, got.stdout.splitlines()) if "self_ns" in row]
        for count in (256, 257, 300, 511, 700):
            with self.subTest(count):
                self.record(nested(count))
                listed = rows()
                self.assertEqual([row["calls"] for row in listed if "ffff" in row["function"]], [32])
                self.assertEqual(sum(row["self_ns"] for row in listed), sum(row["self_ns"] for row in rows("--no-inline")))

    def test_file_names_in_a_long_folder(self):
        self.over_limit(unit("", files=60000, length=300000), "bytes of file names in line tables")

    def test_files_that_the_program_of_a_line_table_defines(self):
        self.over_limit(old_table(60000, 300000), "bytes of file names in line tables")

    def test_long_line_tables(self):
        """A byte is a row, which takes hundreds of bytes of memory. Other units of the file keep their lines."""
        self.record(with_rows(17_000_000, advancing=True))
        for got in (self.run_limited("coverage", "--format", "lcov", "--keep-absent", "-i", "p.data"),
                    self.run_limited("script", "--itrace=b", "-F", "+srcline", "-i", "p.data")):
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(got.stderr.count(f"{self.tmp / 'p'}: source lines of units whose line tables have more than 2097152 rows are not used"), 1, got.stderr)

    def test_units_with_many_rows(self):
        text = with_rows(2_000_000, advancing=True)
        info = text[text.index(".Lis:"):text.index("	.section .debug_line,")]
        more = "".join(re.sub(r"\.L(is|ie)\b", rf".L\g<1>{i}", info).replace(".quad main", f".quad main+{i}") for i in range(1, 9))
        self.over_limit(text.replace(info, info + more), "rows of line tables")

    def test_rows_at_one_address(self):
        """Each once: compared with each other, 2,000,000 rows would take hours."""
        self.record(with_rows(2_000_000, advancing=False))
        got = self.run_limited("coverage", "--format", "lcov", "--keep-absent", "-i", "p.data")
        self.assertEqual((got.returncode, got.stderr.count("not used")), (0, 0), got.stderr)

    def test_names_that_overlap(self):
        self.over_limit(unit(functions(30000, 200000), length=200000), "bytes of names")

    def test_entries_that_are_nested(self):
        """Once each: read once for each level above them, they would take 20 s."""
        self.record(unit("	.fill 6000000,1,2\n	.fill 6000000", abbrev="2,0x0b,1, 0,0"))
        with subprocess.Popen([PTDECODE, "functions", "-i", "p.data"], cwd=self.tmp, env={**os.environ, "PTDECODE_STASH": "off"}, stderr=subprocess.PIPE, text=True,
                              stdout=subprocess.DEVNULL, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (10, 10))) as child:
            self.assertNotIn(LIMIT, child.stderr.read())
        self.assertEqual(child.returncode, 0)

    def test_entries_in_many_blocks(self):
        """An inlined copy in 300 blocks, after types in types."""
        abbrev = ("2,0x2e,0, 3,0x0e, 0x20,0x0b, 0,0, 3,0x2e,1, 0x11,1, 0x12,0x0b, 0,0, 4,0x1d,0, 0x31,0x13, 0x11,1, 0x12,0x0b, 0x58,0x0b, 0x59,0x0b, 0,0, "
                  "5,0x0b,1, 0,0, 6,0x17,1, 0x0b,0x0b, 0,0, 7,0x0d,0, 0x0b,0x0f, 0x0b,0x21,5, 0,0")
        types = "	.byte 6,8, 6,8, 7,0x81,1, 7,0x82,1, 0, 0"
        copy = "	.byte 4\n	.long .Linlined-.Lis\n	.quad main+2\n	.byte 10,1,6"
        blocks = f"	.rept 300\n	.byte 5\n	.endr\n{types}\n{copy}\n	.fill 300\n"
        self.record(unit(f".Linlined:	.byte 2\n	.long .Lstr\n	.byte 1\n{types}\n	.byte 3\n	.quad main\n	.byte 16\n{blocks}	.byte 0", abbrev=abbrev))
        self.assertEqual(self.inlined_functions(), (["f" * 10], ""))

    def test_symbols_that_share_one_long_name(self):
        """800,000 symbols, all of whose names are one of 4,000 bytes: 3.2 GB if each had its copy."""
        self.record("	.text\n	.macro many\ns\\@:\n	.endm\n	.rept 800000\n	many\n	.endr\n	.globl " + "a" * 4000 + "\n" + "a" * 4000 + ":	ret\n")
        program = bytearray((self.tmp / "p").read_bytes())
        headers = subprocess.run(["readelf", "-SW", "p"], cwd=self.tmp, capture_output=True, text=True, check=True).stdout
        (table, table_size), (names, _) = ((int(at, 16), int(size, 16)) for at, size in
                                           re.findall(r"\.(?:symtab|strtab) +\w+ +\w+ (\w+) (\w+)", headers))
        long_name = program.index(b"a" * 4000 + b"\0", names) - names
        for at in range(table + 24, table + table_size, 24):
            program[at:at + 4] = long_name.to_bytes(4, "little")
        times = os.stat(self.tmp / "p")
        with open(self.tmp / "p", "r+b") as out:
            out.write(program)
        os.utime(self.tmp / "p", ns=(times.st_atime_ns, times.st_mtime_ns))
        got = self.run_limited("functions", "-i", "p.data")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("its names overlap and are not all read", got.stderr)

    def test_relocations_that_many_sections_share(self):
        """8,000 sections of relocations have the same 200,000 bytes, at an odd offset, so that libelf copies them: 1.6 GB and 67 million entries."""
        self.record("	.data\n	.fill 200000, 1, 7\n")
        program = bytearray((self.tmp / "p").read_bytes())
        (headers,), (count,) = struct.unpack_from("<Q", program, 40), struct.unpack_from("<H", program, 60)
        table = bytes(program[headers:headers + 64 * count])
        at = (program.index(b"\7" * 200000) | 7) + 2
        shared = struct.pack("<2I4Q2I2Q", 1, 4, 2, 0, at, 24 * 8000, 0, 0, 8, 24) * 8000
        program += b"\0" * (-len(program) % 8)
        struct.pack_into("<Q", program, 40, len(program))
        struct.pack_into("<H", program, 60, count + 8000)
        program += table + shared
        times = os.stat(self.tmp / "p")
        with open(self.tmp / "p", "r+b") as out:
            out.write(program)
        os.utime(self.tmp / "p", ns=(times.st_atime_ns, times.st_mtime_ns))
        with open(self.tmp / "out", "w+b") as out:
            child = subprocess.Popen([PTDECODE, "functions", "--limit", "0", "-i", self.tmp / "p.data"], stdout=out,
                                     env={**os.environ, "PTDECODE_STASH": "off"})
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(child.returncode, 0)
        self.assertIn("main (p)", (self.tmp / "out").read_text())
        self.assertLess(usage.ru_maxrss, 400 << 10)

    def test_below_the_limits(self):
        for text in (unit(functions(8, 10)), old_table(4, 10)):
            coverage, script = self.both(text)
            self.assertEqual(coverage.returncode, 0, coverage.stderr)
            self.assertIn("DA:5,", coverage.stdout)
            self.assertNotIn(LIMIT, coverage.stderr + script.stderr)

    def test_names_in_another_file_are_absent(self):
        """The other file is a FIFO, whose open() does not return."""
        os.mkfifo(self.tmp / "fifo")
        dies = "	.byte 2\n	.long 0\n	.quad main\n	.byte 16"
        named = {"strings": "2,0x2e,0, 3, 0xa1, 0x3e, 0x11,1, 0x12,0x0b, 0,0",      # DW_FORM_GNU_strp_alt
                 "references": "2,0x2e,0, 0x31, 0xa0, 0x3e, 0x11,1, 0x12,0x0b, 0,0",  # DW_FORM_GNU_ref_alt
                 "supplementary strings": "2,0x2e,0, 3, 0x1d, 0x11,1, 0x12,0x0b, 0,0"}  # DW_FORM_strp_sup
        for what, abbrev in named.items():
            with self.subTest(what):
                coverage, script = self.both(unit(dies, abbrev=abbrev) + altlink(self.tmp / "fifo"))
                self.assertEqual(coverage.returncode, 0, coverage.stderr)
                self.assertIn("DA:5,", coverage.stdout)

    def other_file(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        (self.tmp / "other.s").write_text(OTHER)
        subprocess.run([CC, "-shared", "-nostdlib", f"-Wl,--build-id=0x{OTHER_ID.hex()}", "-o", path, "other.s"], check=True, cwd=self.tmp)

    def inlined_functions(self):
        got = self.run_limited("functions", "--limit", "0", "-i", "p.data")
        self.assertEqual(got.returncode, 0, got.stderr)
        return re.findall(r"(\S+|\[unnamed function\]) \(inlined\) \(p\)", got.stdout), got.stderr

    def test_names_in_another_file_with_the_linked_build_id(self):
        """The link is absolute or relative, or the file is in the folder of build ids of the same tree."""
        id_text = OTHER_ID.hex()
        for link, place in ((self.tmp / "sub" / "other.sup", "sub/other.sup"), ("other.sup", "other.sup"), ("/usr/lib/debug/.dwz/o", "usr/lib/debug/.dwz/o"),
                            ("/absent/o", f".build-id/{id_text[:2]}/{id_text[2:]}.debug")):
            with self.subTest(link=str(link)):
                self.record(unit(INLINED, abbrev=INLINED_ABBREV) + altlink(link, OTHER_ID))
                names, said = self.inlined_functions()
                self.assertEqual(names, ["[unnamed function]"])
                self.assertRegex(said, re.escape(f"names of its functions and inlined calls are in {link} (.gnu_debugaltlink), which is missing"))
                self.other_file(self.tmp / place)
                names, said = self.inlined_functions()
                self.assertEqual(names, ["in_the_other_file"], said)
                self.assertNotIn("altlink", said)
                (self.tmp / place).unlink()

    def test_another_file_with_another_build_id_is_not_read(self):
        self.record(unit(INLINED, abbrev=INLINED_ABBREV) + altlink("other.sup", OTHER_ID[::-1]))
        self.other_file(self.tmp / "other.sup")
        names, said = self.inlined_functions()
        self.assertEqual(names, ["[unnamed function]"])
        self.assertIn("which is missing or has another build id", said)

    @unittest.skipUnless(shutil.which("dwz"), "no dwz")
    def test_programs_that_share_debug_information_by_dwz(self):
        """Names and counts are those from before dwz moved the names."""
        (self.tmp / "p.c").write_text("""
static int sink;
static inline __attribute__((always_inline)) int shared_square(int x) { return x * x + sink; }
static inline __attribute__((always_inline)) int shared_twice(int x) { return shared_square(x) + shared_square(x + 1); }
int main(void) { for (int i = 0; i < 9; i++) sink += shared_twice(i); return 0; }
""")
        for name in ("p", "q"):
            subprocess.run([CC, "-g", "-O1", "-no-pie", "-o", name, "p.c"], check=True, cwd=self.tmp)
        listed = []
        for step in ([], ["dwz", "-m", "p.sup", "p", "q"]):
            if step:
                subprocess.run(step, check=True, cwd=self.tmp)
                self.assertTrue((self.tmp / "p.sup").exists())
            subprocess.run([PTDECODE, "record", "--emulate", *PLUGIN, "-q", "--no-stash", "-o", "p.data", "--", "./p"], check=True, cwd=self.tmp)
            listed.append(sorted(self.inlined_functions()[0]))
        self.assertEqual(listed[0], ["shared_square", "shared_twice"])
        self.assertEqual(listed[1], listed[0])

    def test_verify_reads_regular_files(self):
        self.record("")
        os.mkfifo(self.tmp / "fifo")
        for path in (self.tmp / "fifo", "/dev/zero"):
            got = self.run_limited("verify", "-i", "p.data", path)
            self.assertNotEqual(got.returncode, 0)
            self.assertIn("not a regular file", got.stderr)


if __name__ == "__main__":
    if os.uname().machine != "x86_64":
        print("skipped: the programs are of x86-64")
        sys.exit(77)
    unittest.main()
