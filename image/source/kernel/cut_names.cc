// Finds where a list of kernel names is cut.
#include "image/source/kernel/cut_names.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace ptd {
namespace {

constexpr char kNoText = '?';
// A copy of a kernel's text ends at most two pages after its last function: perf rounds up.
constexpr uint64_t kMostBytesAfterLast = 3 * 4096;

bool is_kernel_function(const KernelSymbol& symbol) {
  return symbol.module.empty() && symbol.is_text() && is_kernel_half(Ip{symbol.address});
}

/// Whether the list has a symbol at the end of the kernel's text, or after it.
bool has_end(const std::vector<KernelSymbol>& symbols) {
  constexpr std::string_view kEnds[] = {"_etext", "_einittext", "_edata", "_end"};
  return std::ranges::any_of(symbols, [&](const KernelSymbol& symbol) {
    return symbol.module.empty() && std::ranges::find(kEnds, symbol.name) != std::end(kEnds);
  });
}

/// Returns the last function of the kernel proper, if the list has nothing that follows a kernel's text: symbols.end() if it has.
std::vector<KernelSymbol>::iterator unended_function(std::vector<KernelSymbol>& symbols) {
  const auto last = std::find_if(symbols.rbegin(), symbols.rend(), is_kernel_function);
  if (last == symbols.rend()) return symbols.end();
  const auto has_data = std::any_of(symbols.rbegin(), last, [](const KernelSymbol& symbol) { return symbol.module.empty(); });
  return has_data || has_end(symbols) ? symbols.end() : std::prev(last.base());
}

/// Returns how many bytes a copy of memory has from an address on, without a gap.
uint64_t bytes_from(uint64_t address, const std::vector<MemoryRange>& ranges) {
  std::vector<MemoryRange> sorted = ranges;
  std::ranges::sort(sorted, {}, &MemoryRange::ip);
  uint64_t end = address;
  for (const MemoryRange& range : sorted) {
    if (range.ip.value <= end) end = std::max(end, range.ip.value + std::min<uint64_t>(range.code.bytes.size(), ~range.ip.value));
  }
  return end - address;
}

bool lacks_modules(const std::vector<KernelSymbol>& symbols, const std::vector<KernelModule>& modules) {
  const auto is_loaded = [](const KernelModule& module) { return module.is_live && is_kernel_half(Ip{module.address}); };
  return std::ranges::any_of(modules, is_loaded) &&
         std::ranges::all_of(symbols, [](const KernelSymbol& symbol) { return symbol.module.empty(); });
}

}  // namespace

std::string remove_cut_names(std::vector<KernelSymbol>& symbols, const CutLine& cut, const std::vector<KernelModule>& modules,
                             const std::vector<MemoryRange>& ranges) {
  const auto last = unended_function(symbols);
  const bool matters = !has_end(symbols) || !cut.module.empty() || lacks_modules(symbols, modules);  // else only the names of data are cut
  std::string why = cut.is_cut && matters ? "its last line is not whole" : "";
  if (why.empty() && last != symbols.end()) {
    const uint64_t more = bytes_from(last->address, ranges);
    if (more > kMostBytesAfterLast)
      why = "it has no _etext, and the kernel's code goes on for " + std::to_string(more) + " bytes after " + last->name;
    if (why.empty() && lacks_modules(symbols, modules)) why = "it has no _etext and no function of the modules that are loaded";
  }
  if (why.empty()) return why;
  const uint64_t last_address = last != symbols.end() ? last->address : 0;
  for (KernelSymbol& symbol : symbols) {
    const bool is_last = is_kernel_function(symbol) && symbol.address == last_address;
    if (is_last || (cut.is_cut && !cut.module.empty() && symbol.module == cut.module)) symbol.type = kNoText;
  }
  return why;
}

void add_module_ends(std::vector<KernelSymbol>& symbols, const std::vector<KernelModule>& modules) {
  std::vector<KernelSymbol> ends;
  for (const KernelModule& module : modules) {
    if (!is_kernel_half(Ip{module.address}) || module.size_bytes > ~module.address) continue;
    const uint64_t end = module.address + module.size_bytes;
    const auto after = std::ranges::lower_bound(symbols, end, {}, &KernelSymbol::address);
    if (after != symbols.begin() && std::prev(after)->module == module.name) ends.push_back({end, kNoText, {}, {}});
  }
  const auto is_before = [](const KernelSymbol& one, const KernelSymbol& other) { return one.address < other.address; };
  std::ranges::sort(ends, is_before);
  const auto listed = static_cast<std::ptrdiff_t>(symbols.size());
  symbols.insert(symbols.end(), std::make_move_iterator(ends.begin()), std::make_move_iterator(ends.end()));
  std::inplace_merge(symbols.begin(), symbols.begin() + listed, symbols.end(), is_before);
}

}  // namespace ptd
