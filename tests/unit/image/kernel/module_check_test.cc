// A list of modules against names and against a copy of memory.
#include "image/source/kernel/module_check.h"

#include <gtest/gtest.h>

#include "image/source/code_bytes.h"

namespace ptd {
namespace {

const std::string kNames =
    "ffffffff81000000 T _stext\n"
    "ffffffff81c00000 T _etext\n"
    "ffffffffc0363000 t ring_add [ring]\n"
    "ffffffffc0364800 t ring_get [ring]\n"
    "ffffffffc0370000 t blk_read [blk]\n"
    "ffffffffc0371000 t blk_write [blk]\n"
    "ffffffffc0990000 d blk_table [blk]\n"    // since Linux 6.4, data are elsewhere
    "000000000001a000 A blk_counter [blk]\n"  // of each cpu
    "ffffffffc0800000 t bpf_prog_1 [bpf]\n";  // no module

WrongModules compared(const std::string& modules) { return compare_modules(parse_modules(modules), parse_kallsyms(kNames)); }

TEST(ModuleCheck, ModulesThatAgreeWithTheNames) {
  EXPECT_EQ(compared("ring 8192 0 - Live 0xffffffffc0363000\nblk 8192 0 - Live 0xffffffffc0370000\n").count, 0U);
  // The sizes include data, which are elsewhere.
  EXPECT_EQ(compared("ring 65536 0 - Live 0xffffffffc0363000\nblk 65536 0 - Live 0xffffffffc0370000\n").count, 0U);
  EXPECT_EQ(compared("").count, 0U);
  EXPECT_EQ(compared("ring 8192 0 - Live 0x0000000000000000\n").count, 0U);  // hidden from users
  EXPECT_EQ(compared("nameless 8192 0 - Live 0xffffffffc0500000\n").count, 0U);
}

TEST(ModuleCheck, AModuleThatIsBeingLoadedHasFunctionsElsewhere) {
  const std::string with_init = kNames + "ffffffffc0700000 t blk_init [blk]\n";
  EXPECT_EQ(compare_modules(parse_modules("blk 8192 0 - Loading 0xffffffffc0370000\n"), parse_kallsyms(with_init)).count, 0U);
  EXPECT_EQ(compare_modules(parse_modules("blk 8192 0 - Live 0xffffffffc0370000\n"), parse_kallsyms(with_init)).count, 1U);
}

TEST(ModuleCheck, ModulesThatContradictTheNames) {
  const WrongModules moved = compared("ring 8192 0 - Live 0xffffffffc0373000\nblk 8192 0 - Live 0xffffffffc0380000\n");
  EXPECT_EQ(moved.count, 2U);
  EXPECT_EQ(moved.first, 0xffffffffc0373000U);
  EXPECT_EQ(
      moved.what,
      "ring at 0xffffffffc0373000 does not contain 2 of its 2 functions, first ring_add at 0xffffffffc0363000; 1 other module is wrong "
      "too");
  EXPECT_EQ(compared("ring 8192 0 - Live 0xffffffffc0363000\nother 8192 0 - Live 0xffffffffc0364000\n").what,
            "other at 0xffffffffc0364000 is in module ring");
  EXPECT_EQ(compared("blk 8192 0 - Live 0xffffffffc0370000\nblk 8192 0 - Live 0xffffffffc0370000\n").count, 1U);
  EXPECT_EQ(compared("evil 18446744073709551615 0 - Live 0xffffffff81000000\n").what, "evil at 0xffffffff81000000 is in the kernel's text");
}

TEST(ModuleCheck, ModulesAgainstACopy) {
  const std::vector<std::byte> bytes(0x2000);
  const std::vector<MemoryRange> ranges{
      {Ip{0xffffffff81000000}, own_bytes(bytes)}, {Ip{0xffffffffc0363000}, own_bytes(bytes)}, {Ip{0xffffffffc0370000}, own_bytes(bytes)}};
  const auto count = [&](const std::string& modules) { return compare_modules(parse_modules(modules), ranges).count; };
  EXPECT_EQ(count("ring 8192 0 - Live 0xffffffffc0363000\nblk 8192 0 - Live 0xffffffffc0370000\n"), 0U);
  EXPECT_EQ(count("ring 65536 0 - Live 0xffffffffc0363000\nblk 8192 0 - Live 0xffffffffc0370000\n"), 0U);
  EXPECT_EQ(count("absent 8192 0 - Live 0xffffffffc0500000\n"), 0U);
  const WrongModules wrong =
      compare_modules(parse_modules("ring 8192 0 - Live 0xffffffffc0362000\nblk 8192 0 - Live 0xffffffffc036f000\n"), ranges);
  EXPECT_EQ(wrong.what, "ring at 0xffffffffc0362000 is in the copy from 0xffffffffc0363000 on only; 1 other module is wrong too");
}

}  // namespace
}  // namespace ptd
