// NameRecords: KSYMBOL records by address. They bound the names of kallsyms, which have neither times nor sizes. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "image/source/kernel/kallsyms.h"
#include "ptdecode/types.h"

namespace ptd {

class NameRecords {
 public:
  struct Part {
    Interval live;
    uint64_t size_bytes = 0;
  };
  /// Adds a name that a record gives.
  void add(Ip ip, const std::string& name, Interval live) {
    Records& here = by_address_[ip.value];
    here.lives = here.names.empty() ? live : Interval{std::min(here.lives.first, live.first), std::max(here.lives.last, live.last)};
    here.names.insert(name);
  }
  /// Adds the end of a name that was there before the first record.
  void add_end(Ip ip, uint64_t size_bytes, const std::string& name, TimeNs last) {
    Records& here = by_address_[ip.value];
    if (here.has_end || (!here.names.empty() && here.lives.first <= last)) return;
    here.has_end = true;
    here.end = {{kTimeMin, last}, size_bytes};
    here.ended = name;
  }
  /// Calls `visit` with the address, name, time and size of each name that was there before the first record, if its record gives a size.
  template <typename Visit>
  void each_ended(const Visit& visit) const {
    for (const auto& [address, records] : by_address_) {
      if (records.has_end && records.end.size_bytes != 0) visit(Ip{address}, records.ended, records.end);
    }
  }
  /// Returns when and how far a name of a list is valid. `size_bytes`: up to the next name. Code of BPF, probes and trampolines has its
  /// names from records, except what was there before the first of them; of a module, a list has the names that records of its address
  /// leave over.
  [[nodiscard]] std::vector<Part> parts_of(const KernelSymbol& symbol, uint64_t size_bytes, uint64_t page_bytes) const {
    const bool generated = is_generated(symbol.module);
    const auto here = by_address_.lower_bound(symbol.address);
    const bool recorded = here != by_address_.end() && here->first == symbol.address;
    if (generated) {
      const auto next = recorded ? std::next(here) : here;
      if (next != by_address_.end()) size_bytes = std::min(size_bytes, next->first - symbol.address);
      // [Linux] kernel/kprobes.c, "kprobe_insn_page_size"; a trampoline is shorter.
      if (symbol.module != kBpf) size_bytes = std::min(size_bytes, page_bytes);
    }
    if (!recorded) return {{{}, size_bytes}};
    const Records& records = here->second;
    std::vector<Part> parts;
    if (generated && records.has_end) {
      const bool ended = symbol.name == records.ended;
      if (ended && records.end.size_bytes == 0) return {{records.end.live, size_bytes}};
      if (ended || records.names.contains(symbol.name) || records.end.live.last == kTimeMax) return {};  // the records give it
      return {{{TimeNs{records.end.live.last.value + 1}, kTimeMax}, size_bytes}};
    }
    const bool begins = !records.has_end && records.lives.first > kTimeMin && !(generated && records.names.contains(symbol.name));
    if (begins) parts.push_back({{kTimeMin, TimeNs{records.lives.first.value - 1}}, size_bytes});
    const TimeNs last = records.names.empty() ? records.end.live.last : records.lives.last;
    if (!generated && last < kTimeMax) parts.push_back({{TimeNs{last.value + 1}, kTimeMax}, size_bytes});
    return parts;
  }
  /// Whether kallsyms has this module for code that the kernel generates: BPF, slots of kprobes, trampolines of ftrace.
  [[nodiscard]] static bool is_generated(const std::string& module) { return module == kBpf || module.starts_with("__builtin__"); }

 private:
  static constexpr const char* kBpf = "bpf";
  struct Records {
    std::set<std::string> names;
    Interval lives;  ///< from the first record to the end of the last name
    bool has_end = false;
    Part end;  ///< of the name before the first record, `ended`
    std::string ended;
  };
  std::map<uint64_t, Records> by_address_;
};

}  // namespace ptd
