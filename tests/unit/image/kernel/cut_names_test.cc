// Lists of names that end too early.
#include "image/source/kernel/cut_names.h"

#include <gtest/gtest.h>

#include "image/source/code_bytes.h"

namespace ptd {
namespace {

const std::string kListed =
    "ffffffff81000000 T _stext\n"
    "ffffffff81000100 t one\n"
    "ffffffff81000200 T two\n"
    "ffffffff81000200 t two_alias\n";
const std::string kListEnd = "ffffffff81010000 T _etext\n";
const std::string kVirtioListed = "ffffffffc0001000 t helper\t[virtio]\n";
const std::string kVirtioLoaded = "virtio 8192 0 - Live 0xffffffffc0001000\n";

std::vector<MemoryRange> kernel_bytes(uint64_t bytes) { return {{Ip{0xffffffff81000000}, own_bytes(std::vector<std::byte>(bytes))}}; }

struct ListCut {
  std::string why, names;  // names of functions
};

ListCut cut_in(const std::string& text, const std::string& modules, const std::vector<MemoryRange>& ranges) {
  CutLine line;
  std::vector<KernelSymbol> symbols = parse_kallsyms(text, 100, &line);
  ListCut cut;
  cut.why = remove_cut_names(symbols, line, parse_modules(modules), ranges);
  for (const KernelSymbol& symbol : symbols) cut.names += symbol.is_text() ? symbol.name + " " : "";
  return cut;
}

TEST(CutNames, WholeListsAreNotCut) {
  for (const std::string& text : {kListed + kListEnd + kVirtioListed, kListed + kListEnd, kListed + "ffffffff81010000 D data\n",
                                  kListed + kVirtioListed, std::string("\n")})
    EXPECT_EQ(cut_in(text, text.find("virtio") == std::string::npos ? "" : kVirtioLoaded,
                     kernel_bytes(text == kListed + kVirtioListed ? 8192 : 1U << 20))
                  .why,
              "")
        << text;
  EXPECT_EQ(cut_in(kListed + kListEnd, kVirtioLoaded, kernel_bytes(1U << 20)).names, "_stext one two two_alias _etext ")
      << "a list of the kernel proper";
  EXPECT_EQ(cut_in(kListed, "", {}).why, "") << "nothing says so";
  EXPECT_EQ(cut_in(kListed, "virtio 8192 0 - Live 0x0000000000000000\n", {}).why, "") << "modules are hidden";
}

TEST(CutNames, TheLastFunctionHasNoEnd) {
  const ListCut goes_on = cut_in(kListed, "", kernel_bytes(1U << 20));
  EXPECT_EQ(goes_on.why, "it has no _etext, and the kernel's code goes on for 1048064 bytes after two_alias");
  EXPECT_EQ(goes_on.names, "_stext one ");
  const ListCut no_modules = cut_in(kListed, kVirtioLoaded, kernel_bytes(4096));
  EXPECT_EQ(no_modules.why, "it has no _etext and no function of the modules that are loaded");
  EXPECT_EQ(no_modules.names, "_stext one ");
}

TEST(CutNames, ALineIsNotWhole) {
  const ListCut in_name = cut_in(kListed + "ffffffff81000300 T thr", "", {});
  EXPECT_EQ(in_name.why, "its last line is not whole");
  EXPECT_EQ(in_name.names, "_stext one two two_alias ") << "the cut line says where two ends";
  EXPECT_EQ(cut_in(kListed + "ffffffff810003", "", {}).names, "_stext one ");
  EXPECT_EQ(cut_in(kListed + kListEnd + kVirtioListed + "ffffffffc00", kVirtioLoaded, {}).names, "_stext one two two_alias _etext ")
      << "symbols of a module are in no order";
}

TEST(CutNames, OnlyTheLastNewlineIsMissing) {
  const std::string module = kVirtioListed.substr(0, kVirtioListed.size() - 1);
  EXPECT_EQ(cut_in(kListed + kListEnd + module, kVirtioLoaded, {}).why, "");
  EXPECT_EQ(cut_in(kListed + kListEnd.substr(0, kListEnd.size() - 1), "", {}).why, "") << "names of data";
}

TEST(CutNames, AModulesLastFunctionEndsWithIt) {
  std::vector<KernelSymbol> symbols = parse_kallsyms(kVirtioListed + "ffffffffc0010000 t other\t[blk]\n");
  add_module_ends(symbols, parse_modules(kVirtioLoaded + "blk 4096 0 - Live 0xffffffffc0002000\nusb 8192 0 - Live 0xffffffffc0000000\n"));
  ASSERT_EQ(symbols.size(), 3U) << "those of blk and usb are in no function of theirs";
  EXPECT_EQ(symbols[1].address, 0xffffffffc0003000U);
  EXPECT_FALSE(symbols[1].is_text());
}

TEST(CutNames, LinesMayEndInCarriageReturns) {
  const auto symbols = parse_kallsyms("ffffffff81000000 t first\r\nffffffffc0001000 t helper\t[virtio]\r\n");
  ASSERT_EQ(symbols.size(), 2U);
  EXPECT_EQ(symbols[0].name, "first");
  EXPECT_EQ(symbols[1].module, "virtio");
}

}  // namespace
}  // namespace ptd
