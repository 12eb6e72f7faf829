// SnapshotDumps: names of memory spaces; truncates and compares overlapping dumps.
#include "recording/coresight/snapshot_dumps.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "recording/image/words.h"

namespace ptd {
namespace {

constexpr uint64_t kMostComparedBytes = 4ULL << 30;  // of overlapping dumps
constexpr uint64_t kLeastComparedBytes = 64;         // what a comparison counts as
constexpr size_t kMostToldOverlaps = 64;

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

/// The ranges already covered in one space. Adjacent pieces are joined, so the cost of all dumps is that of the ranges that they add.
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

/// Reports dumps of one space that have different bytes for an address. Give dumps in order.
class SnapshotDumps::Overlaps {
 public:
  Overlaps(const std::vector<Dump>& dumps, ImageBuild& image) : dumps_(dumps), image_(image) {}

  void begin_space(SpaceId space) {
    space_ = space;
    used_.clear();
  }
  /// Dump `index` is used in [from, to).
  void use(size_t index, uint64_t from, uint64_t to) { used_[from] = {to, index}; }
  /// Compares a dump with those that are used at its addresses.
  void compare(size_t index) {
    const Dump& dump = dumps_[index];
    const uint64_t end = dump.address + dump.length;
    auto other = used_.upper_bound(dump.address);
    if (other != used_.begin() && std::prev(other)->second.first > dump.address) --other;
    for (; other != used_.end() && other->first < end && told_.size() < kMostToldOverlaps && compared_bytes_ <= kMostComparedBytes; ++other)
      compare(dump, dumps_[other->second.second], std::max(dump.address, other->first), std::min(end, other->second.first));
  }

  /// Returns the dumps of one space, given in the order in which they count, in the order in which they are used. The files of the user
  /// that have the bytes of each dump at their addresses come first: they have names.
  [[nodiscard]] std::vector<size_t> ordered(std::vector<size_t> indexes) {
    std::stable_partition(indexes.begin(), indexes.end(), [&, all = indexes](size_t index) {
      return dumps_[index].given &&
             std::all_of(all.begin(), all.end(), [&](size_t other) { return other == index || agree(dumps_[index], dumps_[other]); });
    });
    return indexes;
  }

 private:
  /// Whether two dumps have the same bytes where they overlap.
  bool agree(const Dump& a, const Dump& b) {
    const uint64_t from = std::max(a.address, b.address), to = std::min(a.address + a.length, b.address + b.length);
    if (from >= to) return true;
    const Bytes one = bytes_of(a, from, to), other = bytes_of(b, from, to);
    compared_bytes_ += std::max<uint64_t>(to - from, kLeastComparedBytes);
    return compared_bytes_ <= kMostComparedBytes && one.size() == to - from && one.size() == other.size() &&
           std::memcmp(one.data(), other.data(), one.size()) == 0;
  }

  static Bytes bytes_of(const Dump& dump, uint64_t from, uint64_t to) {
    if (!dump.opened.file) return {};
    const Bytes bytes = dump.opened.file->bytes();
    const uint64_t at = std::min<uint64_t>(dump.offset + (from - dump.address), bytes.size());
    return bytes.subspan(at, std::min<uint64_t>(to - from, bytes.size() - at));
  }

  void compare(const Dump& dump, const Dump& used, uint64_t from, uint64_t to) {
    const Bytes a = bytes_of(used, from, to), b = bytes_of(dump, from, to);
    const size_t size = std::min(a.size(), b.size());
    compared_bytes_ += std::max<uint64_t>(size, kLeastComparedBytes);
    if (compared_bytes_ > kMostComparedBytes)
      return tell(from, "the dumps overlap in more than " + std::to_string(kMostComparedBytes >> 30) + " GiB: the rest is not compared");
    if (size == 0 || a.data() == b.data() || std::memcmp(a.data(), b.data(), size) == 0) return;
    if (!told_.emplace(used.path, dump.path).second) return;
    const auto same =
        static_cast<uint64_t>(std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin()).first - a.begin());
    tell(from + same, used.path + " and " + dump.path + " contain different bytes for the same addresses; the first one is used");
  }

  void tell(uint64_t address, const std::string& what) {
    Finding finding;
    finding.kind = FindingKind::section_overlap;
    finding.space = space_;
    finding.ip = Ip{address};
    finding.what = what;
    image_.builder.add_finding(std::move(finding));
  }

  const std::vector<Dump>& dumps_;
  ImageBuild& image_;
  SpaceId space_;
  std::map<uint64_t, std::pair<uint64_t, size_t>> used_;  // first address -> end, dump
  std::set<std::pair<std::string, std::string>> told_;
  uint64_t compared_bytes_ = 0;
};

void SnapshotDumps::add(const IniSection& section, const std::string& path, const OwnFiles& files, std::vector<std::string>& warnings) {
  if (++seen_ > kMost) return;
  const std::string name = "the dump " + path;
  const auto refuse = [&](const std::string& why) {
    if (refused_.insert(name + " " + why).second) warnings.push_back(name + " " + why);
  };
  Dump dump;
  dump.path = path;
  const std::string_view address = section.value("address"), offset = section.value("offset"), length = section.value("length");
  if (address.empty()) return refuse("has no address: not used");
  if (!parse_number(address, dump.address)) return refuse("has an invalid address: not used");
  if (!offset.empty() && !parse_number(offset, dump.offset)) return refuse("has an invalid offset: not used");
  if (!length.empty() && !parse_number(length, dump.length)) return refuse("has an invalid length: not used");
  const File& file = read(path, files, warnings);
  dump.opened = file.opened;
  dump.worlds = worlds_of(section.value("space"));
  if (file.elf && offset.empty() && length.empty() && !may_be_memory(*file.elf, dump.address)) {
    const std::vector<ImagePiece> pieces = segments_of(file.opened.file, *file.elf);
    dump.below = !pieces.empty();
    if (dump.below) refuse("is the ELF file of a program for other addresses: its code is also read where the file says");
    if (programs_.emplace(file.elf.get(), dump.worlds).second) add(pieces, dump);
  }
  if (dump.opened.file) {
    const uint64_t size = dump.opened.file->bytes().size(), rest = size - std::min(dump.offset, size);
    if (rest == 0)
      return refuse("has no bytes: its file ends at " + std::to_string(size) + ", and its offset is " + std::to_string(dump.offset));
    if (length.empty()) dump.length = rest;
  }
  if (dump.length == 0 && dump.opened.file) return refuse("has the length 0: not used");
  if (dump.length > ~dump.address) return refuse("does not fit into the address space at its address: not used");
  if (dump.length == 0) return;
  dumps_.push_back(std::move(dump));
}

const SnapshotDumps::File& SnapshotDumps::read(const std::string& path, const OwnFiles& files, std::vector<std::string>& warnings) {
  const auto [known, is_new] = files_.try_emplace(path);
  File& file = known->second;
  if (!is_new) return file;
  file.opened = files.open_code(path);
  if (file.opened.file) {
    const KnownElfs::Known& same = elfs_.of(file.opened.file);
    file.opened.file = same.file;
    file.elf = same.elf;
  }
  const std::string other = file.elf ? other_machine(CodeFamily::arm, file.elf->machine()) : std::string();
  if (!other.empty()) file = {{nullptr, "it " + other, ErrorCode::bad_format, false}, nullptr};
  if (!file.opened.file) warnings.push_back("the dump " + path + " is not read: " + file.opened.why);
  return file;
}

void SnapshotDumps::add(const std::vector<ImagePiece>& pieces, Dump like) {
  like.below = false;
  for (const ImagePiece& piece : pieces) {
    if (dumps_.size() >= 2 * kMost) break;
    like.address = piece.address;
    like.length = piece.size_bytes;
    like.offset = piece.file_offset_bytes;
    like.opened.file = piece.file;
    dumps_.push_back(like);
  }
}

Status SnapshotDumps::add(const RawImage& image) {
  const auto pieces = pieces_of(image, CodeFamily::arm);
  if (!pieces.ok()) return pieces.error();
  Dump dump;
  dump.worlds = kAll;
  dump.path = image.path;
  dump.given = true;
  add(*pieces, std::move(dump));
  return {};
}

/// True if dumps in the upper half lie over some of other memory spaces.
bool SnapshotDumps::upper_halves_differ() const {
  std::map<uint32_t, Layer> by_worlds;
  for (const Dump& dump : dumps_) {
    if (!is_kernel_half(Ip{dump.address})) continue;
    const uint64_t end = dump.address + dump.length;
    for (const auto& [worlds, layer] : by_worlds) {
      if (worlds != dump.worlds && layer.overlaps(dump.address, end)) return true;
    }
    by_worlds[dump.worlds].cover(dump.address, end, [](uint64_t, uint64_t) {});
  }
  return false;
}

/// Where dumps in the upper half lie over each other.
SnapshotDumps::Layer SnapshotDumps::covered_twice() const {
  Layer all, twice;
  const auto cover = [&](uint64_t from, uint64_t to) {
    if (from < to) twice.cover(from, to, [](uint64_t, uint64_t) {});
  };
  for (const Dump& dump : dumps_) {
    if (!is_kernel_half(Ip{dump.address})) continue;
    uint64_t at = dump.address;
    all.cover(dump.address, dump.address + dump.length, [&](uint64_t from, uint64_t to) {
      cover(at, from);
      at = to;
    });
    cover(at, dump.address + dump.length);
  }
  return twice;
}

/// Adds the files of the dumps, for symbols and findings.
void SnapshotDumps::note_files(ImageBuild& image) const {
  for (const auto& [path, file] : files_) {
    if (!file.opened.file) image.add_missing(path, {}, file.opened.why);
  }
  for (const std::string& why : refused_) {
    Finding finding;
    finding.kind = FindingKind::bad_record;
    finding.what = why;
    image.builder.add_finding(std::move(finding));
  }
  std::set<std::string_view> told;
  for (const Dump& dump : dumps_) {
    if (!told.insert(dump.path).second) continue;
    if (!dump.opened.file) continue;
    image.add_symbol_file(dump.path, dump.path, {});
    image.note_origin(dump.path, {}, dump.path, dump.given ? "--image" : "a memory dump of the snapshot");
  }
}

std::array<SpaceId, arm::kWorlds> SnapshotDumps::place(ImageBuild& image, SpaceId user, bool& own_upper,
                                                       std::vector<std::string>& warnings) {
  std::stable_partition(dumps_.begin(), dumps_.end(), [](const Dump& dump) { return !dump.below; });
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
  own_upper = upper_halves_differ();
  note_files(image);
  Overlaps overlaps(dumps_, image);
  const auto lay = [&](Layer& layer, size_t index, SpaceId space, bool lower) {
    const Dump& dump = dumps_[index];
    if ((lower || !own_upper) && !dump.below) overlaps.compare(index);
    const auto use = [&](uint64_t from, uint64_t to) {
      overlaps.use(index, from, to);
      Section section;
      section.ip = lower ? arm::lowered(Ip{from}) : Ip{from};
      section.space = space;
      section.size_bytes = to - from;
      section.path = dump.path;
      section.file_offset_bytes = dump.offset + (from - dump.address);
      if (dump.opened.file) section.code = piece_of(dump.opened.file, section.file_offset_bytes, section.size_bytes);
      image.add_section(std::move(section));
    };
    layer.cover(dump.address, dump.address + dump.length, use);
  };
  for (const auto& [seen, space] : spaces) {
    Layer layer;
    overlaps.begin_space(space);
    std::vector<size_t> indexes;
    for (size_t i = 0; i < dumps_.size(); ++i) {
      if (seen[i] && (own_upper || !is_kernel_half(Ip{dumps_[i].address}))) indexes.push_back(i);
    }
    for (const size_t i : overlaps.ordered(std::move(indexes))) lay(layer, i, space, true);
  }
  // The upper half that all share: ranges in which dumps differ are left empty, without even a name.
  Layer layer = own_upper ? covered_twice() : Layer();
  overlaps.begin_space(kKernelSpace);
  std::vector<size_t> upper;
  for (size_t i = 0; i < dumps_.size(); ++i) {
    if (is_kernel_half(Ip{dumps_[i].address})) upper.push_back(i);
  }
  for (const size_t i : overlaps.ordered(std::move(upper))) lay(layer, i, kKernelSpace, false);
  if (seen_ > kMost)
    warnings.push_back("the snapshot names " + std::to_string(seen_) + " dumps: only the first " + std::to_string(kMost) + " are used");
  return spaces.size() == 1 ? arm::FollowOptions::none_of_worlds() : worlds;
}

}  // namespace ptd
