// Code of BPF programs and trampolines in a perf recording. Private to recording.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "perfio/format/features.h"
#include "ptdecode/types.h"

namespace ptd {

/// Returns whether a BPF name's record gives the size of a page, although other code may be in the same page. Records of trampolines do:
/// since Linux 6.9, they share pages with programs (bpf_jit_comp.c, "arch_alloc_bpf_trampoline").
inline bool shares_page(const std::string& name) { return !name.starts_with("bpf_prog_"); }

/// Where BPF names begin, and when they were in use.
class BpfStarts {
 public:
  void add(Ip ip, Interval live) { lives_.emplace(ip.value, live); }
  /// Returns the size of what is at `ip`, at most `size_bytes`: it ends before anything else that was in use at the same time.
  [[nodiscard]] uint64_t free_after(Ip ip, uint64_t size_bytes, Interval live) const {
    auto at = lives_.upper_bound(ip.value);
    for (size_t n = 0; n < kMostInPage && at != lives_.end() && at->first - ip.value < size_bytes; ++n, ++at) {
      if (at->second.overlaps(live)) return at->first - ip.value;
    }
    return size_bytes;
  }

 private:
  static constexpr size_t kMostInPage = 4096;  // compared
  std::multimap<uint64_t, Interval> lives_;
};

/// Text pokes of generated code. Not thread-safe.
class CodePokes {
 public:
  /// Adds a poke of the code with this number, in the order of time.
  void add(size_t number, Ip ip, Bytes old_bytes, Bytes new_bytes) {
    if (old_bytes.size() != new_bytes.size()) return;  // code that is created or removed
    pokes_[number].push_back({ip, {old_bytes.begin(), old_bytes.end()}, {new_bytes.begin(), new_bytes.end()}});
  }
  /// Returns the bytes from `ip` on before the first poke of this code. `read` is a copy of unknown date: a recorder reads it some time
  /// after the code was loaded. The copy is returned unchanged if the pokes do not continue each other, or if it was at no time the content
  /// of the code.
  [[nodiscard]] std::vector<std::byte> bytes_before(size_t number, Ip ip, Bytes read) const {
    std::vector<std::byte> copy(read.begin(), read.end());
    const auto found = pokes_.find(number);
    if (found == pokes_.end()) return copy;
    std::vector<std::byte> first = copy, now = copy;
    std::vector<bool> poked(copy.size());
    for (const Poke& poke : found->second) {
      for (size_t i = 0; i < poke.old_bytes.size(); ++i) {
        const uint64_t at = poke.ip.value - ip.value + i;
        if (at >= copy.size()) continue;
        if (!poked[at]) first[at] = poke.old_bytes[i];
        if (poked[at] && now[at] != poke.old_bytes[i]) return copy;
        now[at] = poke.new_bytes[i];
        poked[at] = true;
      }
    }
    return was_content(found->second, ip, first, copy) ? first : copy;
  }

 private:
  struct Poke {
    Ip ip;
    std::vector<std::byte> old_bytes, new_bytes;
  };
  /// Returns whether `copy` is the content before or after one of the pokes. `now` is that before the first.
  static bool was_content(const std::vector<Poke>& pokes, Ip ip, std::vector<std::byte> now, const std::vector<std::byte>& copy) {
    size_t different = 0;
    for (size_t at = 0; at < copy.size(); ++at) different += now[at] != copy[at] ? 1 : 0;
    for (const Poke& poke : pokes) {
      if (different == 0) return true;
      for (size_t i = 0; i < poke.new_bytes.size(); ++i) {
        const uint64_t at = poke.ip.value - ip.value + i;
        if (at >= copy.size()) continue;
        different -= now[at] != copy[at] ? 1 : 0;
        now[at] = poke.new_bytes[i];
        different += now[at] != copy[at] ? 1 : 0;
      }
    }
    return different == 0;
  }
  std::unordered_map<size_t, std::vector<Poke>> pokes_;
};

/// The jited functions of all programs by address: each sub-program has its own bytes.
class BpfFunctions {
 public:
  explicit BpfFunctions(const std::vector<perfio::BpfProgInfo>& programs) {
    for (const perfio::BpfProgInfo& program : programs) {
      uint64_t at = 0;
      const size_t functions = std::min(program.jited_ksyms.size(), program.jited_func_lens.size());
      for (size_t i = 0; i < functions; ++i) {
        const uint64_t length = program.jited_func_lens[i];
        if (length > program.jited_insns.size() - at) break;
        std::vector<Function>& here = by_address_[program.jited_ksyms[i]];
        if (length > 0 && here.size() < kMaxReuse) here.push_back({&program, Bytes(program.jited_insns).subspan(at, length)});
        at += length;
      }
    }
  }
  /// The bytes of the function at `ip` of program `id`; without an id (0), of the only program that was ever there. Empty if there is none.
  [[nodiscard]] Bytes find(uint32_t id, Ip ip, const std::string& name) const {
    const auto here = by_address_.find(ip.value);
    if (here == by_address_.end()) return {};
    if (id == 0) return here->second.size() == 1 ? here->second.front().code : Bytes();
    Bytes first;
    for (const Function& function : here->second) {
      if (function.program->id != id) continue;
      if (!function.program->name.empty() && name.ends_with(function.program->name)) return function.code;
      if (first.empty()) first = function.code;
    }
    return first;
  }

 private:
  static constexpr size_t kMaxReuse = 256;  // programs that had one address in turn
  struct Function {
    const perfio::BpfProgInfo* program;
    Bytes code;
  };
  std::unordered_map<uint64_t, std::vector<Function>> by_address_;
};

}  // namespace ptd
