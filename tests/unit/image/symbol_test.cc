// Symbolizer: named ranges over time, ELF symbols through sections, demangling.
#include <gtest/gtest.h>

#include "image/symbols/pick_steps.h"
#include "ptdecode/symbols.h"
#include "ptdecode/timeline_builder.h"
#include "source_support.h"

namespace ptd {
namespace {

using image_test::SmallElf;
using image_test::TempDir;

constexpr Ip kSymbolText{0xffffffff81000000};

NamedRange range(uint64_t offset, uint64_t size, const char* name, Interval live = {}) {
  return {kKernelSpace, kSymbolText + offset, size, live, name, "[kernel]"};
}

TEST(SymbolRanges, UpToTheNextNameWithoutASize) {
  Symbolizer symbols{Timeline()};
  symbols.add_range(range(0x100, 0, "second"));
  symbols.add_range(range(0x000, 0, "first"));
  const auto inside = symbols.find(kKernelSpace, kSymbolText + 0xff, kTimeMin);
  ASSERT_TRUE(inside);
  EXPECT_EQ(inside->name, "first");
  EXPECT_EQ(inside->offset_bytes, 0xffU);
  EXPECT_EQ(symbols.find(kKernelSpace, kSymbolText + 0x100, kTimeMin)->name, "second");
  EXPECT_FALSE(symbols.find(kKernelSpace, Ip{kSymbolText.value - 1}, kTimeMin));
}

TEST(SymbolRanges, KernelAddressesAreTheKernelsInEverySpace) {
  Symbolizer symbols{Timeline()};
  symbols.add_range(range(0, 16, "first"));
  EXPECT_TRUE(symbols.find(SpaceId{7}, kSymbolText, kTimeMin));
}

TEST(SymbolRanges, AnAddressReusedOverTimeHasTheNameOfItsTime) {
  Symbolizer symbols{Timeline()};
  symbols.add_range(range(0, 64, "bpf_prog_a", {TimeNs{100}, TimeNs{199}}));
  symbols.add_range(range(0, 64, "bpf_prog_b", {TimeNs{200}, TimeNs{299}}));
  EXPECT_FALSE(symbols.find(kKernelSpace, kSymbolText + 4, TimeNs{50}));
  EXPECT_EQ(symbols.find(kKernelSpace, kSymbolText + 4, TimeNs{150})->name, "bpf_prog_a");
  EXPECT_EQ(symbols.find(kKernelSpace, kSymbolText + 4, TimeNs{250})->name, "bpf_prog_b");
  EXPECT_FALSE(symbols.find(kKernelSpace, kSymbolText + 4, TimeNs{300}));
}

TEST(SymbolRanges, TheInnermostRangeWins) {
  Symbolizer symbols{Timeline()};
  symbols.add_range(range(0, 0x1000, "page"));
  symbols.add_range(range(0x100, 0x10, "slot"));
  EXPECT_EQ(symbols.find(kKernelSpace, kSymbolText + 0x108, kTimeMin)->name, "slot");
  EXPECT_EQ(symbols.find(kKernelSpace, kSymbolText + 0x200, kTimeMin)->name, "page");
  EXPECT_FALSE(symbols.find(kKernelSpace, kSymbolText + 0x1000, kTimeMin));
}

TEST(SymbolRanges, AForkedSpaceHasThoseOfItsParent) {
  constexpr Ip kJit{0x7f0000000000};
  TimelineBuilder builder;
  const SpaceId parent = builder.add_space(), between = builder.fork_space(parent, TimeNs{20}),
                child = builder.fork_space(between, TimeNs{30});
  Symbolizer symbols{builder.build()};
  const auto add = [&](SpaceId space, uint64_t offset, uint64_t size, Interval live, const char* name) {
    symbols.add_range({space, kJit + offset, size, live, name, "[jit]"});
  };
  add(parent, 0, 16, {kTimeMin, TimeNs{24}}, "a");
  add(parent, 0, 16, {TimeNs{25}, kTimeMax}, "b");
  add(child, 8, 8, {TimeNs{50}, kTimeMax}, "");
  add(child, 0, 8, {TimeNs{40}, TimeNs{59}}, "c");
  const auto name_at = [&](const Symbolizer& of, uint64_t offset, uint64_t when, Interval* valid = nullptr) {
    const auto symbol = of.find(child, kJit + offset, TimeNs{when}, valid);
    return symbol ? std::string(symbol->name) : "";
  };
  Interval valid;
  EXPECT_EQ(name_at(symbols, 8, 35, &valid), "a");
  EXPECT_EQ(valid, (Interval{kTimeMin, TimeNs{49}}));
  EXPECT_EQ(symbols.names_at(child, kJit + 8, TimeNs{35}), std::vector<std::string>{"a"});
  EXPECT_EQ(symbols.find(between, kJit, TimeNs{90})->name, "a");
  EXPECT_EQ(symbols.find(parent, kJit, TimeNs{90})->name, "b");
  EXPECT_EQ(name_at(symbols, 8, 50), "");
  EXPECT_EQ(name_at(symbols, 0, 50), "c");
  EXPECT_EQ(name_at(symbols, 0, 60), "a");
  const SymbolPick pick = symbols.pick({{child.value, {kJit.value}}});
  TimelineBuilder again;
  (void)again.fork_space(again.fork_space(again.add_space(), TimeNs{20}), TimeNs{30});
  Symbolizer picked{again.build()};
  for (const NamedRange& each : pick.ranges) picked.add_range(each);
  EXPECT_EQ(name_at(picked, 0, 35), "a");
  EXPECT_EQ(name_at(picked, 0, 50), "c");
}

// A child has its parent's code until it maps something itself at that address, whatever the parent does later.
TEST(SymbolFiles, AnAnswerIsForTheTimeOfItsMapping) {
  TimelineBuilder builder;
  const auto map = [&](SpaceId space, const char* path, uint64_t first) {
    Section section;
    section.space = space;
    section.ip = Ip{0x1000};
    section.size_bytes = 0x100;
    section.live = {TimeNs{first}, kTimeMax};
    section.path = path;
    builder.add_section(std::move(section));
  };
  const SpaceId parent = builder.add_space();
  map(parent, "/one", 10);
  const SpaceId child = builder.fork_space(parent, TimeNs{20});
  map(parent, "/two", 30);
  map(child, "/two", 60);
  Symbolizer symbols{builder.build()};
  symbols.add_fixed_file({"/one", "", "one", {{0, 0x100, 0x100, "first"}}});
  symbols.add_fixed_file({"/two", "", "two", {{0, 0x80, 0x80, "second"}}});
  const auto during = [&](SpaceId space, uint64_t ip, uint64_t when) {
    Interval valid;
    const auto symbol = symbols.find(space, Ip{ip}, TimeNs{when}, &valid);
    EXPECT_EQ(symbol ? symbol->valid : valid, valid);
    return std::pair(symbol ? std::string(symbol->name) : "", valid);
  };
  EXPECT_EQ(during(parent, 0x1000, 15), std::pair(std::string("first"), Interval{TimeNs{10}, TimeNs{29}}));
  EXPECT_EQ(during(parent, 0x1000, 35), std::pair(std::string("second"), Interval{TimeNs{30}, kTimeMax}));
  EXPECT_EQ(during(child, 0x1000, 25), std::pair(std::string("first"), Interval{kTimeMin, TimeNs{59}}));
  EXPECT_EQ(during(child, 0x1000, 59), std::pair(std::string("first"), Interval{kTimeMin, TimeNs{59}}));
  EXPECT_EQ(during(child, 0x1000, 60), std::pair(std::string("second"), Interval{TimeNs{60}, kTimeMax}));
  EXPECT_EQ(during(child, 0x1090, 70), std::pair(std::string(), Interval{TimeNs{60}, kTimeMax}));
  // What ran at an address before the first mapping there ran after it: times of flow are the last that packets tell.
  EXPECT_EQ(during(parent, 0x1000, 5), std::pair(std::string("first"), Interval{kTimeMin, TimeNs{9}}));
  EXPECT_EQ(during(parent, 0x2000, 5).first, "");
}

TEST(ModuleNames, AsMuchOfThePathsAsTellsFilesApart) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  uint64_t ip = 0x1000;
  std::vector<Section> sections;
  for (const auto& [path, build_id] :
       std::initializer_list<std::pair<const char*, const char*>>{// Two files, one of them at two paths.
                                                                  {"/x/a/prog", "11111111aa"},
                                                                  {"/x/b/prog", "22222222bb"},
                                                                  {"/mnt/x/b/prog", "22222222bb"},
                                                                  {"/x/a/lib/l.so", ""},
                                                                  {"/x/b/lib/l.so", ""},
                                                                  {"/l.so", ""},  // no build ids: a file for each path
                                                                  {"/opt/cur.so", "33333333cc"},
                                                                  {"/opt/cur.so", "44444444dd"},
                                                                  {"/opt/cur.so", ""},  // a file that was replaced
                                                                  {"/one/only.so", "55"},
                                                                  {"/two/only.so", "55"},
                                                                  {"[vdso]", ""}}) {
    Section section;
    section.space = space;
    section.ip = Ip{ip += 0x1000};
    section.size_bytes = 0x100;
    section.path = path;
    section.build_id = build_id;
    sections.push_back(section);
    builder.add_section(std::move(section));
  }
  const Symbolizer symbols{builder.build()};
  std::vector<std::string> names;
  for (const Section& section : sections) names.emplace_back(symbols.module_of(section));
  EXPECT_EQ(names, (std::vector<std::string>{"a/prog", "b/prog", "b/prog", "a/lib/l.so", "b/lib/l.so", "/l.so", "cur.so [33333333]",
                                             "cur.so [44444444]", "cur.so [33333333]", "only.so", "only.so", "[vdso]"}));
}

// A trace without time asks at the start of time, before anything was mapped.
TEST(SymbolFiles, AtAnUnknownTimeTheLatestMappingCounts) {
  TimelineBuilder builder;
  const auto map = [&](SpaceId space, const char* path, uint64_t ip, uint64_t first) {
    Section section;
    section.space = space;
    section.ip = Ip{ip};
    section.size_bytes = 0x100;
    section.live = {TimeNs{first}, kTimeMax};
    section.path = path;
    builder.add_section(std::move(section));
  };
  const SpaceId parent = builder.add_space();
  map(parent, "/one", 0x1000, 10);
  map(parent, "/one", 0x2000, 10);
  map(parent, "/two", 0x2000, 20);
  const SpaceId child = builder.fork_space(parent, TimeNs{15});
  map(child, "/two", 0x3000, 30);
  Symbolizer symbols{builder.build()};
  symbols.add_fixed_file({"/one", "", "one", {{0, 0x100, 0x100, "first"}}});
  symbols.add_fixed_file({"/two", "", "two", {{0, 0x100, 0x100, "second"}}});
  NamedRange early = range(0, 0x10, "early"), late = range(0, 0x10, "late");
  early.live = {TimeNs{10}, TimeNs{19}};
  late.live = {TimeNs{20}, TimeNs{29}};
  symbols.add_range(early);
  symbols.add_range(late);
  const auto name = [&](SpaceId space, uint64_t ip, TimeNs when) {
    const auto symbol = symbols.find(space, Ip{ip}, when);
    return symbol ? std::string(symbol->name) : "";
  };
  EXPECT_EQ(name(parent, 0x1000, kTimeMin), "first");
  EXPECT_EQ(name(parent, 0x2000, kTimeMin), "second");
  EXPECT_EQ(name(child, 0x2000, kTimeMin), "first");
  EXPECT_EQ(name(child, 0x3000, kTimeMin), "second");
  EXPECT_EQ(name(kKernelSpace, kSymbolText.value, kTimeMin), "late");
  EXPECT_EQ(name(parent, 0x2000, TimeNs{5}), "first");
  EXPECT_EQ(name(child, 0x3000, TimeNs{20}), "second");
  EXPECT_EQ(name(parent, 0x4000, kTimeMin), "");
}

// Names and mappings that overlap at each address, and a file that is mapped to one place again and again: the cost of a pick grows with
// their number, not with its square.
TEST(SymbolPicks, OverlappingNamesCostNoMoreEach) {
  const TempDir dir;
  SmallElf elf;
  elf.type = ET_DYN;
  elf.address = 0;
  elf.code.resize(0x100);
  elf.symbols = {{"alpha", 0x220, 0x20}};
  const std::string path = dir.write("prog", elf.bytes());
  const auto steps_of = [&](uint64_t count) {
    TimelineBuilder builder;
    const SpaceId process = builder.add_space();
    std::map<uint32_t, std::set<uint64_t>> ips;
    std::vector<NamedRange> names;
    for (uint64_t i = 0; i < count; ++i) {
      for (const uint64_t at : {i * 4096, uint64_t{0}}) {
        names.push_back(range(at, 0x7000'0000, "bpf", {TimeNs{i + 1}, kTimeMax}));
        Section section;
        section.ip = kSymbolText + at;
        section.size_bytes = 0x7000'0000;
        section.live = {TimeNs{i + 1}, kTimeMax};
        builder.add_section(std::move(section));
      }
      Section file;
      file.space = process;
      file.ip = Ip{0x400200};
      file.size_bytes = 0x100;
      file.file_offset_bytes = 0x200;
      file.live = {TimeNs{i + 1}, kTimeMax};
      file.path = "/prog";
      builder.add_section(std::move(file));
      ips[kKernelSpace.value].insert((kSymbolText + i * 4096).value);
      ips[process.value].insert(0x400220 + i % 32);
    }
    Symbolizer symbols{builder.build()};
    symbols.add_debug_file("/prog", path);
    for (NamedRange& name : names) symbols.add_range(std::move(name));
    const uint64_t before = pick_steps();
    std::map<uint32_t, std::vector<uint64_t>> sorted;
    for (const auto& [space, addresses] : ips) sorted[space].assign(addresses.begin(), addresses.end());
    const SymbolPick pick = symbols.pick(sorted);
    EXPECT_EQ(pick.ranges.size(), 2 * count);
    EXPECT_EQ(pick.files.size(), 1U);
    return pick_steps() - before;
  };
  EXPECT_LE(steps_of(4000), 5 * steps_of(1000));
}

TEST(SymbolDemangle, KnownForms) {
  EXPECT_EQ(demangle("_ZN3foo3barEv"), "foo::bar()");
  EXPECT_EQ(demangle("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE"), "core::fmt::Formatter::write_str");
  EXPECT_EQ(demangle("main"), "main");
  EXPECT_EQ(demangle("_Znonsense"), "_Znonsense");
  EXPECT_EQ(demangle("_Z" + std::string(100000, 'N')).size(), 100002U);
  // A<A<...>, A<...>> by substitutions, each of which doubles the text: 16 MB from 200 bytes.
  std::string doubled = "_Z1f1AIiiE";
  for (const char digit : std::string("0123456789ABCDEFGHI")) doubled += std::string("S_IS") + digit + "_S" + digit + "_E";
  EXPECT_EQ(demangle(doubled), doubled);
}

// Legacy names with the escapes of rustc ("rustc_symbol_mangling", legacy.rs): the source has the names on the right.
TEST(SymbolDemangle, RustLegacyEscapes) {
  const auto legacy = [](const std::string& path) {  // one component and a hash
    return demangle("_ZN" + std::to_string(path.size()) + path + "17h05af221e174051e9E");
  };
  EXPECT_EQ(legacy("_$LT$std..thread..Packet$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$"),
            "<std::thread::Packet<T> as core::ops::drop::Drop>");
  EXPECT_EQ(legacy("Arc$LT$T$C$A$GT$"), "Arc<T,A>");
  EXPECT_EQ(legacy("_$u7b$$u7b$closure$u7d$$u7d$"), "{{closure}}");
  EXPECT_EQ(legacy("call$u7b$$u7b$vtable.shim$u7d$$u7d$"), "call{{vtable.shim}}");
  EXPECT_EQ(legacy("_$LT$$RF$mut$u20$T$GT$"), "<&mut T>");
  EXPECT_EQ(legacy("_$LT$$BP$const$u20$$u5b$u8$u3b$$u20$4$u5d$$GT$"), "<*const [u8; 4]>");
  EXPECT_EQ(legacy("_$LT$$LP$$RP$$GT$"), "<()>");
  EXPECT_EQ(legacy("a$SP$b"), "a@b");
}

TEST(SymbolDemangle, SuffixesOfRustLegacyNames) {
  const std::string wrong = "_ZN99Arc$LT$T$GT$4drop17h05af221e174051e9E";
  const std::string mangled = "_ZN12Arc$LT$T$GT$4drop17h05af221e174051e9E";
  EXPECT_EQ(demangle(mangled), "Arc<T>::drop");
  EXPECT_EQ(demangle(mangled + ".llvm.1234567890"), "Arc<T>::drop");
  EXPECT_EQ(demangle(mangled + ".cold"), "Arc<T>::drop [clone .cold]");
  EXPECT_EQ(demangle(wrong), wrong) << "a length past the name";
}

// The names are examples of RFC 2603 and of rustc's book, "Symbol Mangling", v0.
TEST(SymbolDemangle, RustV0) {
  EXPECT_EQ(demangle("_RNvCskwGfYPst2Cb_3foo16example_function"), "foo::example_function");
  EXPECT_EQ(demangle("_RINvNtC3std3mem8align_ofdE"), "std::mem::align_of::<f64>");
  EXPECT_EQ(demangle("_RNvXs5_Cs1234_7mycrateNtB5_3FooNtB5_3Bar3baz"), "<mycrate::Foo as mycrate::Bar>::baz");
  EXPECT_EQ(demangle("_Reset"), "_Reset");
  EXPECT_EQ(demangle("_R"), "_R");
}

// Each level expands to twice the previous one: 2^28 pieces of text from 200 bytes.
TEST(SymbolDemangle, ANameThatGrowsWithoutBoundStaysAsItIs) {
  std::string name = "_RIC1aTuuE";
  const auto base62 = [](size_t value) {
    const std::string digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    std::string text;
    for (value -= 1;; value /= 62) {
      text.insert(text.begin(), digits[value % 62]);
      if (value < 62) return text + "_";
    }
  };
  for (size_t last = 4, level = 0; level < 28; ++level) {
    const std::string back = "B" + base62(last);
    last = name.size() - 2;
    name += "T" + back + back + "E";
  }
  name += "E";
  EXPECT_EQ(demangle(name), name);
}

TEST(SymbolFiles, ThroughASectionAtAnotherAddress) {
  const TempDir dir;
  SmallElf elf;
  elf.type = ET_DYN;
  elf.address = 0;
  elf.code.resize(0x100);
  elf.symbols = {{"_ZN3foo3barEv", 0x220, 0x20}, {"asm_label", 0x240, 0}, {"alias_of_bar", 0x220, 0}};
  const std::string file = dir.write("libx.so", elf.bytes());
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  Section section;
  section.space = space;
  section.ip = Ip{0x7f0000000200};
  section.size_bytes = 0x100;
  section.path = "/usr/lib/libx.so";
  section.file_offset_bytes = 0x200;
  builder.add_section(section);
  Symbolizer symbols(builder.build());
  symbols.add_debug_file("/usr/lib/libx.so", file);
  const auto bar = symbols.find(space, Ip{0x7f0000000223}, TimeNs{5});
  ASSERT_TRUE(bar);
  EXPECT_EQ(bar->name, "foo::bar()");
  EXPECT_EQ(bar->module, "libx.so");
  EXPECT_EQ(bar->offset_bytes, 3U);
  EXPECT_EQ(bar->start.value, 0x7f0000000220U);
  EXPECT_EQ(symbols.find(space, Ip{0x7f0000000241}, TimeNs{5})->name, "asm_label");
  EXPECT_FALSE(symbols.find(space, Ip{0x7f0000000201}, TimeNs{5}));
  EXPECT_EQ(symbols.addresses_of("foo::bar"), std::vector<Ip>{Ip{0x7f0000000220}});
  EXPECT_EQ(symbols.addresses_of("_ZN3foo3barEv"), std::vector<Ip>{Ip{0x7f0000000220}});
  EXPECT_TRUE(symbols.addresses_of("absent").empty());
}

}  // namespace
}  // namespace ptd
