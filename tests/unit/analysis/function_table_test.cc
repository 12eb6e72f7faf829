// FunctionFinder: parts that a compiler split off a function count as the function, whatever their names look like.
#include "ptdecode/function_table.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "analysis/function_finder.h"
#include "ptdecode/symbols.h"
#include "ptdecode/timeline_builder.h"

namespace ptd {
namespace {

constexpr Ip kHot{0x1000}, kCold{0x2000};

Timeline one_file() {
  TimelineBuilder builder;
  Section section;
  section.space = builder.add_space();
  section.ip = kHot;
  section.size_bytes = 0x2000;
  section.live = {kTimeMin, kTimeMax};
  section.path = "/program";
  builder.add_section(std::move(section));
  return builder.build();
}

struct Split {
  std::string function, part;  // as in the symbol table
};

// gcc's and clang's names of split functions, in C and in C++ (mangled, so that the demangler writes the suffixes).
TEST(FunctionFinder, ColdPartsCountAsTheFunction) {
  const Timeline timeline = one_file();
  const SpaceId space = timeline.section(0).space;
  for (const Split& split :
       {Split{"parse", "parse.cold"}, Split{"parse", "parse.cold.7"}, Split{"parse.part.0", "parse.part.0.cold"},
        Split{"_Z7throweri", "_Z7throweri.cold"}, Split{"_Z7throweri", "_Z7throweri.cold.12"},
        Split{"_Z7throweri.part.0", "_Z7throweri.part.0.cold"}, Split{"_ZN1a1bIiEEvT_.isra.0", "_ZN1a1bIiEEvT_.isra.0.cold"},
        Split{"_ZNK1aixEm", "_ZNK1aixEm.cold"}, Split{"parse", "parse.__part.1"}, Split{"_Z7throweri", "_Z7throweri.__part.12"},
        Split{"parse.llvm.77", "parse.llvm.77.__part.3"}, Split{"_Z7throweri", "_Z7throweri.eh"}}) {
    Symbolizer symbols(timeline);
    symbols.add_fixed_file(
        {"/program", "", "program", {{0, 0x100, 0x100, demangle(split.function)}, {0x1000, 0x100, 0x100, demangle(split.part)}}});
    FunctionTable table;
    FunctionFinder finder(symbols, timeline, table);
    const FoundFunction hot = finder.find(space, kHot, TimeNs{1}), cold = finder.find(space, kCold, TimeNs{1});
    EXPECT_EQ(hot.id, cold.id) << demangle(split.part);
    EXPECT_EQ(table.info(cold.id).name, demangle(split.function));
    EXPECT_TRUE(hot.entry);
    EXPECT_FALSE(cold.entry) << demangle(split.part) << ": a jump there calls nothing";
  }
}

// A part that is called, and names that only look similar, remain separate functions.
TEST(FunctionFinder, OtherNamesStayApart) {
  const Timeline timeline = one_file();
  const SpaceId space = timeline.section(0).space;
  for (const char* name :
       {"_Z7throweri.part.0", "_Z7throweri.constprop.0", "parse.coldly", "parse.cold.x", ".cold", "f [clone .colder]", "f [clone .cold",
        "f.cold]", "parse.__parts.1", "parse.part.1", "__part.1", ".eh", "main.eh", "f_eh", "7", "]"}) {
    Symbolizer symbols(timeline);
    symbols.add_fixed_file({"/program", "", "program", {{0x1000, 0x100, 0x100, demangle(name)}}});
    FunctionTable table;
    FunctionFinder finder(symbols, timeline, table);
    const FoundFunction found = finder.find(space, kCold, TimeNs{1});
    EXPECT_EQ(table.info(found.id).name, demangle(name));
    EXPECT_TRUE(found.entry) << name;
  }
}

// Unnamed code is named by module and offset; a record may claim an offset that no file has, where adding to it wraps.
TEST(FunctionFinder, UnnamedCodeHasNoNegativeOffset) {
  for (const auto& [offset, name] : {std::pair<uint64_t, std::string>{0x3000, "program+0x4000"},
                                     {~uint64_t{0} - 0xfff, "program+0x2000"},
                                     {~uint64_t{0} - 0x7fff, "program+0x2000"},
                                     {1ULL << 63, "program+0x2000"}}) {
    TimelineBuilder builder;
    Section section;
    section.space = builder.add_space();
    section.ip = kHot;
    section.size_bytes = 0x2000;
    section.file_offset_bytes = offset;
    section.path = "/usr/bin/program";
    builder.add_section(section);
    const Timeline timeline = builder.build();
    Symbolizer symbols(timeline);
    FunctionTable table;
    FunctionFinder finder(symbols, timeline, table);
    finder.set_process(42);
    EXPECT_EQ(table.info(finder.unnamed_entry(section.space, kCold, TimeNs{1})).name, name);
  }
}

// With a copy of the kernel's text and without one, unnamed code has the module of the kernel's functions.
TEST(FunctionFinder, UnnamedCodeOfTheKernelHasOneModule) {
  constexpr Ip kCopied{0xffffffffc04b4000}, kUnknown{0xffffffffc04c0000};
  TimelineBuilder builder;
  Section section;
  section.space = kKernelSpace;
  section.ip = kCopied;
  section.size_bytes = 0x1000;
  section.path = "[kernel.kallsyms]";
  builder.add_section(section);
  const Timeline timeline = builder.build();
  Symbolizer symbols(timeline);
  FunctionTable table;
  FunctionFinder finder(symbols, timeline, table);
  EXPECT_EQ(table.info(finder.unnamed_entry(kKernelSpace, kCopied, TimeNs{1})).name, "[kernel]+0xffffffffc04b4000");
  EXPECT_EQ(table.info(finder.unnamed_entry(kKernelSpace, kUnknown, TimeNs{1})).name, "[kernel]+0xffffffffc04c0000");
}

}  // namespace
}  // namespace ptd
