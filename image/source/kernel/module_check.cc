// Compares a list of modules with names and with a copy of memory.
#include "image/source/kernel/module_check.h"

#include <algorithm>
#include <unordered_map>

namespace ptd {
namespace {

void add_wrong(WrongModules& wrong, const KernelModule& module, const std::string& what) {
  if (++wrong.count != 1) return;
  wrong.first = module.address;
  wrong.what = module.name + " at " + address_text(module.address) + " " + what;
}

void finish_wrong(WrongModules& wrong) {
  if (wrong.count > 1)
    wrong.what += "; " + std::to_string(wrong.count - 1) + (wrong.count == 2 ? " other module is" : " other modules are") + " wrong too";
}

/// The functions of one module.
struct Functions {
  uint64_t all = 0, outside = 0;
  uint64_t last = 0;  // address of the last one inside
  const KernelSymbol* first_outside = nullptr;
};

std::unordered_map<std::string, Functions> functions_of(const std::vector<KernelModule>& modules,
                                                        const std::vector<KernelSymbol>& symbols) {
  std::unordered_map<std::string, const KernelModule*> by_name;
  for (const KernelModule& module : modules) by_name.emplace(module.name, &module);
  std::unordered_map<std::string, Functions> all;
  for (const KernelSymbol& symbol : symbols) {
    if (symbol.module.empty() || !symbol.is_text() || !is_kernel_half(Ip{symbol.address})) continue;
    const auto known = by_name.find(symbol.module);
    if (known == by_name.end()) continue;
    Functions& functions = all[symbol.module];
    ++functions.all;
    if (symbol.address - known->second->address < known->second->size_bytes) {
      functions.last = symbol.address;
    } else if (++functions.outside == 1) {
      functions.first_outside = &symbol;
    }
  }
  return all;
}

}  // namespace

WrongModules compare_modules(const std::vector<KernelModule>& modules, const std::vector<KernelSymbol>& symbols) {
  constexpr uint64_t kFew = 8;  // one of so many functions may be outside
  const uint64_t text = address_of(symbols, "_stext"), text_end = address_of(symbols, "_etext");
  const auto all = functions_of(modules, symbols);
  WrongModules wrong;
  const KernelModule* last = nullptr;  // the module whose functions end last
  uint64_t last_function = 0;
  for (const KernelModule& module : modules) {
    if (!is_kernel_half(Ip{module.address})) continue;  // hidden
    const auto known = all.find(module.name);
    const Functions functions = known == all.end() ? Functions() : known->second;
    if (text != 0 && module.address >= text && module.address < text_end) {
      add_wrong(wrong, module, "is in the kernel's text");
    } else if (last != nullptr && module.address <= last_function) {
      add_wrong(wrong, module, "is in module " + last->name);
    } else if (module.is_live && functions.outside > functions.all / kFew) {  // one that is being loaded has others, which are freed
      add_wrong(wrong, module,
                "does not contain " + std::to_string(functions.outside) + " of its " + std::to_string(functions.all) +
                    " functions, first " + functions.first_outside->name + " at " + address_text(functions.first_outside->address));
    }
    if (last == nullptr || std::max(module.address, functions.last) >= last_function) {
      last = &module;
      last_function = std::max(module.address, functions.last);
    }
  }
  finish_wrong(wrong);
  return wrong;
}

WrongModules compare_modules(const std::vector<KernelModule>& modules, const std::vector<MemoryRange>& ranges) {
  const auto is_begin = [&](Ip ip) { return std::ranges::binary_search(modules, ip.value, {}, &KernelModule::address); };
  std::vector<MemoryRange> sorted = ranges;
  std::ranges::sort(sorted, {}, &MemoryRange::ip);
  WrongModules wrong;
  uint64_t copied_end = 0;  // of the ranges that begin at or before a module
  size_t next = 0;
  for (const KernelModule& module : modules) {
    for (; next < sorted.size() && sorted[next].ip.value <= module.address; ++next)
      copied_end = std::max(copied_end, sorted[next].ip.value + sorted[next].code.bytes.size());
    if (module.address < copied_end || next == sorted.size() || !is_kernel_half(Ip{module.address})) continue;
    const Ip begin = sorted[next].ip;
    if (begin.value - module.address < module.size_bytes && !is_begin(begin))
      add_wrong(wrong, module, "is in the copy from " + address_text(begin.value) + " on only");
  }
  finish_wrong(wrong);
  return wrong;
}

}  // namespace ptd
