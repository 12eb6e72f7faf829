// Jitdump -> sections and names.
#include "recording/jit_image.h"

#include <algorithm>
#include <unordered_map>

#include "image/source/jitdump.h"
#include "recording/live_ranges.h"

namespace ptd {

bool is_jitdump_path(const std::string& path) {
  constexpr std::string_view kPrefix = "jit-", kSuffix = ".dump";
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.size() > kPrefix.size() + kSuffix.size() && name.starts_with(kPrefix) && name.ends_with(kSuffix) &&
         std::all_of(name.begin() + kPrefix.size(), name.end() - kSuffix.size(), [](char c) { return c >= '0' && c <= '9'; });
}

void add_jitdump(ImageBuild& image, const JitdumpMapping& mapping, const TimeConversion& conversion, bool monotonic,
                 std::vector<std::string>& warnings) {
  const FoundCode found = image.source.find(
      {mapping.path, {}, 0, ~uint64_t{0} >> 1, nullptr, mapping.pid, mapping.address.value, mapping.mapped_at.value, mapping.inode});
  if (found.status != CodeStatus::found) {
    image.add_missing(mapping.path, {}, sentence(found.status));
    return;
  }
  image.note_origin(mapping.path, {}, found.file_path, found.proof);
  struct Code {
    JitCode code;
    TimeNs time;
  };
  std::vector<Code> codes;
  const auto result = read_jitdump(found.code.bytes, [&](const JitCode& code) { codes.push_back({code, TimeNs{code.time}}); });
  if (!result.ok()) {
    warnings.push_back(found.file_path + ": " + result.error().message);
    return;
  }
  if (result->cut) warnings.push_back(found.file_path + ": cut at byte " + std::to_string(result->end_offset_bytes));
  const bool dated = result->header.tsc_clock ? conversion.valid() : monotonic;
  if (!dated)
    warnings.push_back(found.file_path +
                       ": its clock is not the recording's (record with -k 1): its code is taken as there from the start");
  for (Code& entry : codes) {
    if (!dated) {
      entry.time = mapping.mapped_at;
    } else if (result->header.tsc_clock) {
      entry.time = conversion.to_ns(Tsc{entry.code.time});
    }
  }
  std::stable_sort(codes.begin(), codes.end(), [](const Code& a, const Code& b) { return a.time < b.time; });

  struct Loaded {
    Bytes code;
    std::string name;
  };
  std::unordered_map<uint64_t, Loaded> by_index;
  LiveRanges lives;
  std::vector<NamedRange> names;
  for (const Code& entry : codes) {
    const JitCode& code = entry.code;
    Loaded loaded{code.code, code.name};
    if (code.move) {
      const auto known = by_index.find(code.index);
      if (known == by_index.end()) continue;
      loaded = known->second;
      lives.close(Ip{code.old_address}, entry.time);
      image.builder.remove(mapping.space, Ip{code.old_address}, std::max<uint64_t>(code.size_bytes, 1), entry.time);
    } else {
      by_index[code.index] = loaded;
    }
    if (code.size_bytes == 0 || code.size_bytes > ~code.address || is_kernel_half(Ip{code.address})) continue;
    Section section;
    section.space = mapping.space;
    section.ip = Ip{code.address};
    section.size_bytes = code.size_bytes;
    section.live = {entry.time, kTimeMax};
    section.path = mapping.path;
    section.code = {found.code.owner, loaded.code};
    image.add_section(std::move(section));
    lives.open(Ip{code.address}, code.size_bytes, entry.time);
    names.push_back({mapping.space, Ip{code.address}, code.size_bytes, {}, loaded.name, "[jit]"});
  }
  for (size_t i = 0; i < names.size(); ++i) {
    names[i].live = lives.live(i);
    image.add_range(std::move(names[i]));
  }
}

}  // namespace ptd
