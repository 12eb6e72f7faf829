// FilePick: which symbols of files are at some addresses. Private to the module.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "image/section_index.h"
#include "image/symbols/file_symbols.h"
#include "image/symbols/pick_steps.h"
#include "ptdecode/symbols.h"
#include "ptdecode/timeline.h"

namespace ptd {

using Addresses = std::vector<uint64_t>;  // in order
/// [first, last] in the memory of a space, and the difference of memory and file offset: where a file's symbols are.
using Spans = std::vector<std::pair<uint64_t, uint64_t>>;

/// The symbols of files that sections show at some addresses, by section path and build id. A file that is mapped to the same place many
/// times is looked up once.
class FilePick {
 public:
  struct Shown {
    const Section& section;
    std::string_view module;  ///< name of the section's file
    FileSymbols* file = nullptr;
  };
  /// `rect`: of the section, in the space with this number.
  void add(uint32_t space, const SectionRect& rect, const Shown& shown) {
    const Section& section = shown.section;
    Mapped& mapped = mapped_[space][{section.path, section.build_id, section.ip.value - section.file_offset_bytes}];
    mapped.file = shown.file;
    mapped.module = shown.module;
    mapped.spans.emplace_back(rect.first_address, rect.last_address);
  }
  void merge_spans() {
    for (auto& [space, all] : mapped_) {
      for (auto& [key, mapped] : all) merge(mapped.spans);
    }
  }
  /// Picks what the mappings of one space show at `ips`.
  void pick(uint32_t space, const Addresses& ips) {
    const auto here = mapped_.find(space);
    if (here == mapped_.end()) return;
    for (const auto& [key, mapped] : here->second) {
      for (const auto& [first, last] : mapped.spans) {
        ++pick_steps();
        for (auto ip = std::lower_bound(ips.begin(), ips.end(), first); ip != ips.end() && *ip <= last; ++ip) take(key, mapped, *ip);
      }
    }
  }
  void add_to(SymbolPick& picked) {
    for (auto& [name, file] : files_) {
      FileSymbolPick& out = picked.files.emplace_back(FileSymbolPick{name.first, name.second, file.module, {}, {}, {}});
      for (auto& [offset, symbol] : file.symbols) out.symbols.push_back(std::move(symbol));
      for (const auto& [offset, frame] : file.frames) out.frames.push_back(frame);
      for (const auto& [offset, site] : file.sites) out.sites.push_back(site);
    }
  }

 private:
  struct Key {
    std::string path, build_id;
    uint64_t delta = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Mapped {
    FileSymbols* file = nullptr;
    std::string_view module;
    Spans spans;
  };
  struct Picked {
    std::string module;
    std::map<uint64_t, FixedSymbol> symbols;
    std::map<uint64_t, FrameSpan> frames;
    std::map<uint64_t, CallSite> sites;
  };
  static void merge(Spans& spans) {
    std::sort(spans.begin(), spans.end());
    Spans merged;
    for (const auto& span : spans) {
      if (!merged.empty() && span.first <= merged.back().second) {
        merged.back().second = std::max(merged.back().second, span.second);
      } else {
        merged.push_back(span);
      }
    }
    spans = std::move(merged);
  }
  void take(const Key& key, const Mapped& mapped, uint64_t ip) {
    ++pick_steps();
    FileSymbols& file = *mapped.file;
    if (std::vector<CallSite> sites = file.sites_of(ip - key.delta); !sites.empty()) {
      Picked& picked = files_[{key.path, key.build_id}];
      picked.module = mapped.module;
      for (const CallSite& site : sites) picked.sites.emplace(site.start, site);
    }
    const auto symbol = file.pick(ip - key.delta);
    const auto frame = symbol ? std::nullopt : file.frame_at(ip - key.delta);
    if (!symbol && !frame) return;
    Picked& picked = files_[{key.path, key.build_id}];
    picked.module = mapped.module;
    if (frame) {
      picked.frames.emplace(frame->start, *frame);
      return;
    }
    const auto [known, is_new] = picked.symbols.emplace(symbol->file_offset_bytes, *symbol);
    if (!is_new) {
      known->second.reach_bytes = std::max(known->second.reach_bytes, symbol->reach_bytes);
    } else if (std::vector<std::string> names = file.names_at(ip - key.delta); !names.empty()) {
      known->second.aliases.assign(std::make_move_iterator(names.begin() + 1), std::make_move_iterator(names.end()));
    }
  }
  std::map<uint32_t, std::map<Key, Mapped>> mapped_;  // by space
  std::map<std::pair<std::string, std::string>, Picked> files_;
};

}  // namespace ptd
