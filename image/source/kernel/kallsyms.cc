// kallsyms and modules files.
#include "image/source/kernel/kallsyms.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "image/base/interrupt.h"
#include "image/base/mapped_file.h"
#include "image/source/elf_file.h"

namespace ptd {
namespace {

constexpr uint64_t kMaxTextBytes = 512ULL << 20;
constexpr size_t kMaxSymbolBytes = 1024;

// Takes the next word of a line; words are separated by blanks and tabs.
std::string_view take_word(std::string_view& line) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  const auto* const begin = std::find_if_not(line.begin(), line.end(), is_blank);
  const auto* const end = std::find_if(begin, line.end(), is_blank);
  const std::string_view word(begin, end);
  line = {end, line.end()};
  return word.substr(0, kMaxSymbolBytes);
}

bool to_number(std::string_view word, int base, uint64_t& value) {
  if (base == 16 && word.starts_with("0x")) word.remove_prefix(2);
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  return error == std::errc() && end == word.data() + word.size() && !word.empty();
}

template <class OnLine>
void each_line(std::string_view text, const OnLine& on_line) {
  constexpr size_t kLines = 4096;  // between two checks
  for (size_t lines = 0; !text.empty(); ++lines) {
    if (lines % kLines == 0) check_interrupt();
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!on_line(line, end < text.size())) return;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::vector<KernelSymbol> parse_kallsyms(const std::string& text, size_t limit, CutLine* cut) {
  std::vector<KernelSymbol> symbols;
  each_line(text, [&](std::string_view line, bool is_whole) {
    KernelSymbol symbol;
    is_whole = is_whole || line.ends_with(']') || line.find_first_not_of(" \t") == std::string_view::npos;
    if (!is_whole && cut != nullptr) *cut = {true, symbols.empty() ? std::string() : symbols.back().module};
    const std::string_view address = take_word(line), type = take_word(line), name = take_word(line);
    std::string_view module = take_word(line);
    if (!to_number(address, 16, symbol.address) || type.size() != 1 || name.empty() || is_mapping_symbol(name)) return true;
    if (module.size() > 2 && module.front() == '[' && module.back() == ']') symbol.module = module.substr(1, module.size() - 2);
    symbol.type = is_whole ? type.front() : '?';
    symbol.name = name;
    symbols.push_back(std::move(symbol));
    return symbols.size() < limit;
  });
  // Sorts numbers instead of symbols, whose names are costly to move.
  std::vector<std::pair<uint64_t, size_t>> order;
  order.reserve(symbols.size());
  for (size_t i = 0; i < symbols.size(); ++i) order.emplace_back(symbols[i].address, i);
  std::sort(order.begin(), order.end());
  std::vector<KernelSymbol> sorted;
  sorted.reserve(symbols.size());
  for (const auto& [address, i] : order) sorted.push_back(std::move(symbols[i]));
  return sorted;
}

std::vector<KernelModule> parse_modules(const std::string& text, size_t limit) {
  std::vector<KernelModule> modules;
  each_line(text, [&](std::string_view line, bool) {
    // name size references users state address [taint]
    KernelModule module;
    module.name = take_word(line);
    const std::string_view size = take_word(line);
    for (int skipped = 0; skipped < 2; ++skipped) take_word(line);
    module.is_live = take_word(line) == "Live";
    if (module.name.empty() || !to_number(size, 10, module.size_bytes) || !to_number(take_word(line), 16, module.address)) return true;
    modules.push_back(std::move(module));
    return modules.size() < limit;
  });
  std::stable_sort(modules.begin(), modules.end(), [](const KernelModule& a, const KernelModule& b) { return a.address < b.address; });
  return modules;
}

std::vector<KernelSymbol> read_kallsyms(const std::string& path, CutLine* cut) {
  return parse_kallsyms(read_text_file(path, kMaxTextBytes), 4U << 20, cut);
}

std::vector<KernelModule> read_modules(const std::string& path) { return parse_modules(read_text_file(path, kMaxTextBytes)); }

std::string address_text(uint64_t address) {
  std::array<char, 24> text{};
  const int size = std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(address));  // NOLINT: of the format
  return {text.data(), static_cast<size_t>(size)};
}

uint64_t address_of(const std::vector<KernelSymbol>& symbols, const std::string& name) {
  const auto found = std::find_if(symbols.begin(), symbols.end(),
                                  [&](const KernelSymbol& symbol) { return symbol.module.empty() && symbol.name == name; });
  return found == symbols.end() ? 0 : found->address;
}

}  // namespace ptd
