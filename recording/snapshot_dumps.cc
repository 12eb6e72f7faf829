// SnapshotDumps: names of memory spaces, and dumps cut where they overlap.
#include "recording/snapshot_dumps.h"

#include <algorithm>
#include <map>
#include <set>

#include "image/source/mapped_file.h"

namespace ptd {
namespace {

constexpr uint32_t bit(arm::World world) { return 1U << static_cast<unsigned>(world); }

constexpr uint32_t kSecure = bit(arm::World::el1_secure) | bit(arm::World::el2_secure) | bit(arm::World::el3) | bit(arm::World::any_secure);
constexpr uint32_t kNonSecure = bit(arm::World::el1_non_secure) | bit(arm::World::el2_non_secure) | bit(arm::World::any_non_secure);
constexpr uint32_t kAll = (1U << arm::kWorlds) - 1;

// [OpenCSD] "Memory spaces" and its snapshot reader: single spaces, several, and older names. What is none of these is any space.
uint32_t worlds_of(std::string_view space) {
  using enum arm::World;
  struct Row {
    std::string_view name;
    uint32_t worlds;
  };
  static constexpr uint32_t kNonSecureEl1 = bit(el1_non_secure) | bit(any_non_secure);
  static constexpr uint32_t kNonSecureEl2 = bit(el2_non_secure) | bit(any_non_secure);
  static constexpr uint32_t kSecureEl1 = bit(el1_secure) | bit(any_secure);
  static constexpr Row kRows[] = {
      {"EL1S", kSecureEl1},   {"EL1N", kNonSecureEl1}, {"EL1R", bit(el1_realm)}, {"EL2S", bit(el2_secure) | bit(any_secure)},
      {"EL2", kNonSecureEl2}, {"EL2N", kNonSecureEl2}, {"EL2R", bit(el2_realm)}, {"EL3", bit(el3) | bit(any_secure)},
      {"ROOT", bit(root)},    {"S", kSecure},          {"N", kNonSecure},        {"R", bit(el1_realm) | bit(el2_realm)},
      {"H", kNonSecureEl2},   {"P", kNonSecureEl1},    {"NP", kNonSecureEl1},    {"SP", kSecureEl1},
  };
  for (const Row& row : kRows) {
    if (equal_words(space, row.name)) return row.worlds;
  }
  return kAll;
}

}  // namespace

/// What is covered already, of one space. Pieces that touch are one, so that all dumps together cost no more than what they cover anew.
class SnapshotDumps::Layer {
 public:
  /// Calls `use(from, to)` for the pieces of [address, end) that nothing covers, and covers them.
  template <typename Use>
  void cover(uint64_t address, uint64_t end, Use use) {
    uint64_t first = address, last = end, at = address;
    auto next = covered_.upper_bound(address);
    if (next != covered_.begin() && std::prev(next)->second >= address) --next;
    while (next != covered_.end() && next->first <= end) {
      if (next->first > at) use(at, next->first);
      at = std::max(at, next->second);
      first = std::min(first, next->first);
      last = std::max(last, next->second);
      next = covered_.erase(next);
    }
    if (at < end) use(at, end);
    covered_[first] = last;
  }
  [[nodiscard]] bool overlaps(uint64_t address, uint64_t end) const {
    const auto next = covered_.lower_bound(end);
    return next != covered_.begin() && std::prev(next)->second > address;
  }

 private:
  std::map<uint64_t, uint64_t> covered_;  // first address -> end
};

void SnapshotDumps::add(const IniSection& section, const std::string& path, std::vector<std::string>& warnings) {
  if (++seen_ > kMost) return;
  Dump dump;
  dump.path = path;
  if (!parse_ini_number(section.value("address"), dump.address)) {
    warnings.push_back("the dump " + path + " has no address");
    return;
  }
  (void)parse_ini_number(section.value("offset"), dump.offset);
  const auto [known, is_new] = files_.try_emplace(path);
  if (is_new) {
    if (auto file = MappedFile::open(path); file.ok()) known->second = *file;
  }
  dump.file = known->second;
  if (!parse_ini_number(section.value("length"), dump.length)) {
    if (!dump.file) warnings.push_back("the dump " + path + " cannot be read");
    if (dump.file) dump.length = dump.file->bytes().size() - std::min<uint64_t>(dump.offset, dump.file->bytes().size());
  }
  if (dump.length == 0 || dump.length > ~dump.address) return;
  dump.worlds = worlds_of(section.value("space"));
  dumps_.push_back(std::move(dump));
}

/// Of dumps in the upper half that lie over one of other memory spaces.
void SnapshotDumps::warn_of_overlaps(std::vector<std::string>& warnings) const {
  constexpr size_t kNamed = 8;
  Layer all;
  std::map<uint32_t, Layer> by_worlds;  // what of it counts
  size_t found = 0;
  for (size_t i = 0; i < dumps_.size(); ++i) {
    const Dump& dump = dumps_[i];
    if (!is_kernel_half(Ip{dump.address})) continue;
    const uint64_t end = dump.address + dump.length;
    const auto is_other = [&](uint32_t worlds) { return (worlds & dump.worlds) == 0; };
    const bool overlaps = std::any_of(by_worlds.begin(), by_worlds.end(),
                                      [&](const auto& entry) { return is_other(entry.first) && entry.second.overlaps(dump.address, end); });
    all.cover(dump.address, end, [&](uint64_t from, uint64_t to) { by_worlds[dump.worlds].cover(from, to, [](uint64_t, uint64_t) {}); });
    if (!overlaps || ++found > kNamed) continue;
    const auto earlier = std::find_if(dumps_.begin(), dumps_.begin() + static_cast<std::ptrdiff_t>(i), [&](const Dump& other) {
      return is_other(other.worlds) && other.address < end && dump.address < other.address + other.length;
    });
    warnings.push_back("the dumps " + earlier->path + " and " + dump.path +
                       " of different memory spaces overlap in the upper half of addresses: the first counts there for all of them");
  }
  if (found > kNamed)
    warnings.push_back(std::to_string(found - kNamed) + " more dumps overlap those of other memory spaces in the upper half of addresses");
}

std::array<SpaceId, arm::kWorlds> SnapshotDumps::place(ImageBuild& image, SpaceId user, std::vector<std::string>& warnings) const {
  // Worlds that see the same dumps share a space.
  std::map<std::vector<bool>, SpaceId> spaces;
  const auto seen_by = [&](size_t world) {
    std::vector<bool> seen;
    for (const Dump& dump : dumps_) seen.push_back((dump.worlds >> world & 1) != 0);
    return seen;
  };
  spaces[seen_by(static_cast<size_t>(arm::World::el1_non_secure))] = user;
  std::array<SpaceId, arm::kWorlds> worlds{};
  for (size_t world = 0; world < arm::kWorlds; ++world) {
    const auto [entry, added] = spaces.try_emplace(seen_by(world));
    if (added) entry->second = image.builder.add_space();
    worlds[world] = entry->second;
  }
  std::set<std::string_view> told;
  for (const Dump& dump : dumps_) {
    if (!told.insert(dump.path).second) continue;
    if (dump.file == nullptr) image.add_missing(dump.path, {}, "not found");
    if (dump.file != nullptr) image.add_symbol_file(dump.path, dump.path, {});
  }
  const auto lay = [&](Layer& layer, size_t index, SpaceId space) {
    const Dump& dump = dumps_[index];
    const auto use = [&](uint64_t from, uint64_t to) {
      Section section;
      section.ip = Ip{from};
      section.space = space;
      section.size_bytes = to - from;
      section.path = dump.path;
      section.file_offset_bytes = dump.offset + (from - dump.address);
      if (dump.file != nullptr) section.code = piece_of(dump.file, section.file_offset_bytes, section.size_bytes);
      image.add_section(std::move(section));
    };
    layer.cover(dump.address, dump.address + dump.length, use);
  };
  for (const auto& [seen, space] : spaces) {
    Layer layer;
    for (size_t i = 0; i < dumps_.size(); ++i) {
      if (seen[i] && !is_kernel_half(Ip{dumps_[i].address})) lay(layer, i, space);
    }
  }
  // The upper half is one for all.
  Layer layer;
  for (size_t i = 0; i < dumps_.size(); ++i) {
    if (is_kernel_half(Ip{dumps_[i].address})) lay(layer, i, kKernelSpace);
  }
  warn_of_overlaps(warnings);
  if (seen_ > kMost)
    warnings.push_back("the snapshot names " + std::to_string(seen_) + " dumps: those behind the first " + std::to_string(kMost) +
                       " are left out");
  return spaces.size() == 1 ? arm::FollowOptions::none_of_worlds() : worlds;
}

}  // namespace ptd
