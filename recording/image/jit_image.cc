// Converts jitdumps and perf maps to sections and names.
#include "recording/image/jit_image.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "image/base/interrupt.h"
#include "image/source/perf_map.h"
#include "recording/image/jit_times.h"
#include "recording/image/ran_code.h"

namespace ptd {

namespace {

FoundCode find_jitdump(ImageBuild& image, const JitdumpMapping& mapping) {
  return image.source.find(
      {mapping.path, {}, 0, ~uint64_t{0} >> 1, nullptr, mapping.pid, mapping.address.value, mapping.mapped_at.value, mapping.file_id});
}

/// Returns the time of a moment of the file's clock; of a clock that is not the recording's, when the file was mapped.
TimeNs time_of(uint64_t moment, const JitdumpHeader& header, const JitdumpMapping& mapping, const JitClock& clock) {
  if (header.tsc_clock ? !clock.conversion.valid() : !clock.monotonic) return mapping.mapped_at;
  return header.tsc_clock ? clock.conversion.to_ns(Tsc{moment}) : TimeNs{moment};
}

/// Nothing of the file is known. A complete jitdump also says which code of files was overwritten, so without it all code is suspect.
void lose_all(ImageBuild& image, const JitdumpMapping& mapping, const std::string& reason) {
  image.add_missing(mapping.path, {}, reason);
  if (mapping.address.value == kCompleteJitdumpAddress) image.builder.add_lost_window({mapping.mapped_at, kTimeMax});
}

/// Reports a file that is no jitdump.
void report_unreadable(ImageBuild& image, const JitdumpMapping& mapping, const std::string& reason) {
  lose_all(image, mapping, reason);
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.time = {mapping.mapped_at, kTimeMax};
  finding.what = mapping.path + ": " + reason + ": the code that its process generated is missing";
  image.builder.add_finding(std::move(finding));
}

/// Reports what cannot be read of the file. Code that follows may be other than what the rest says, so it is suspect from then on.
void report_damage(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock, const JitdumpResult& result,
                   std::vector<std::string>& warnings) {
  if (result.damage.empty()) return;
  Interval window{kTimeMax, kTimeMax};
  for (const JitdumpDamage& damage : result.damage)
    window.first = std::min(window.first, damage.has_time ? time_of(damage.time, result.header, mapping, clock) : mapping.mapped_at);
  const JitdumpDamage& first = result.damage.front();
  std::string what = mapping.path + ": ";
  const std::string at = " at byte " + std::to_string(first.offset_bytes);
  if (result.malformed != 0) {
    what += std::to_string(result.malformed) + (result.malformed == 1 ? " malformed record is" : " malformed records are") + " skipped" +
            (first.record ? ", the first" + at : std::string());
  }
  if (result.malformed != 0 && (result.lost_bytes != 0 || result.cut)) what += "; ";
  if (result.lost_bytes != 0) {
    what += "damaged" + (first.record ? std::string() : at) + ": " + std::to_string(result.lost_bytes) + " bytes are skipped" +
            (result.cut ? ", up to the end of the file" : "");
  } else if (result.cut) {
    what += "truncated" + at;
  }
  warnings.push_back(what);
  image.add_missing(mapping.path, {}, "damaged: records of generated code are lost");
  Finding finding;
  finding.kind = result.malformed != 0 && result.lost_bytes == 0 && !result.cut ? FindingKind::bad_record : FindingKind::records_lost;
  finding.time = window;
  finding.what = what + ": code that its process generated since is missing or suspect";
  image.builder.add_lost_window(window);
  image.builder.add_finding(std::move(finding));
}

/// Whether a complete jitdump is not what its recorder wrote.
bool is_changed(const JitdumpMapping& mapping, Bytes bytes) {
  if (mapping.address.value != kCompleteJitdumpAddress || mapping.file_offset_bytes == 0) return false;
  JitdumpSum sum;
  sum.add(bytes);
  return sum.value() != mapping.file_offset_bytes;
}

/// Reports a complete jitdump whose content changed: any code and any time in it may be wrong, and code may be missing.
void report_change(ImageBuild& image, const JitdumpMapping& mapping, std::vector<DatedCode>& codes) {
  for (DatedCode& entry : codes) entry.assumed = true;
  image.builder.add_lost_window({mapping.mapped_at, kTimeMax});
  report_jitdump(image, mapping, FindingKind::file_changed, mapping.mapped_at,
                 "its content is not what the recorder wrote: its code is assumed, and all other code is suspect");
}

/// Reports functions whose records are missing: compilers number the functions that they load one by one. `codes` are in file order.
void report_hole(ImageBuild& image, const std::vector<DatedCode>& codes, const JitdumpMapping& mapping) {
  constexpr size_t kFewest = 8;  // numbers that show how the compiler counts
  std::vector<std::pair<uint64_t, TimeNs>> numbers;
  for (const DatedCode& entry : codes) {
    if (!entry.code.move) numbers.emplace_back(entry.code.index, entry.time);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
                numbers.end());
  if (numbers.size() < kFewest) return;
  const uint64_t missing = numbers.back().first - numbers.front().first - (numbers.size() - 1);
  if (missing == 0 || missing > numbers.size() / kFewest) return;
  const auto hole = std::adjacent_find(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) { return a.first + 1 != b.first; });
  image.builder.add_lost_window({hole->second, kTimeMax});
  report_jitdump(image, mapping, FindingKind::records_lost, hole->second,
                 std::to_string(missing) + (missing == 1 ? " number of a function is" : " numbers of functions are") +
                     " missing, the first after " + std::to_string(hole->first) +
                     ": their code is missing, and code that was generated since is suspect");
}

// Whether the file's clock is the recording's; if not, everything in it is dated from when it was mapped.
bool date(std::vector<DatedCode>& codes, const JitdumpHeader& header, const JitdumpMapping& mapping, const JitClock& clock) {
  const bool dated = header.tsc_clock ? clock.conversion.valid() : clock.monotonic;
  for (DatedCode& entry : codes) {
    if (!dated) {
      entry.time = mapping.mapped_at;
    } else if (header.tsc_clock) {
      entry.time = clock.conversion.to_ns(Tsc{entry.code.time});
    }
  }
  return dated;
}

Section section_of(const JitdumpMapping& mapping, const DatedCode& entry, const FoundCode& found, Bytes code) {
  Section section;
  section.space = mapping.space;
  section.ip = Ip{entry.code.address};
  section.size_bytes = entry.code.size_bytes;
  section.live = {entry.time, kTimeMax};
  section.path = mapping.path;
  section.code = {found.code.owner, code};
  section.assumed = found.assumed || entry.assumed;
  return section;
}

/// What a jitdump holds.
struct JitRead {
  FoundCode found;
  JitdumpHeader header;
  std::vector<DatedCode> codes;  ///< in file order
  bool dated = false;            ///< with the recording's clock
  bool intact = false;
  bool all_later = false;  ///< than the recording
};

/// Reads the file and dates its code. Nothing: it cannot be read, which is reported.
std::optional<JitRead> read_codes(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock,
                                  std::vector<std::string>& warnings) {
  JitRead read;
  read.found = find_jitdump(image, mapping);
  if (read.found.status != CodeStatus::found) {
    for (const Finding& finding : read.found.findings) image.builder.add_finding(finding);
    lose_all(image, mapping, sentence(read.found.status));
    return std::nullopt;
  }
  read.found.assumed = read.found.assumed || mapping.assumed;
  image.note_origin(mapping.path, {}, read.found.file_path, read.found.proof);
  const auto result = read_jitdump(read.found.code.bytes, [&](const JitCode& code) { read.codes.push_back({code, TimeNs{code.time}}); });
  std::string refusal = result.ok() ? std::string() : result.error().message;
  // `record --emulate` writes x86-64 into complete files, also of Arm programs.
  if (result.ok() && !result->header.complete && family_of(result->header.elf_machine) != CodeFamily::unknown)
    refusal = other_machine(image.source.family(), result->header.elf_machine);
  if (!refusal.empty()) {
    warnings.push_back(mapping.path + ": " + refusal);
    report_unreadable(image, mapping, refusal);
    return std::nullopt;
  }
  report_damage(image, mapping, clock, *result, warnings);
  if (is_changed(mapping, read.found.code.bytes)) report_change(image, mapping, read.codes);
  read.header = result->header;
  read.intact = result->damage.empty();
  read.dated = date(read.codes, read.header, mapping, clock);
  read.all_later = is_all_later(read.codes, clock);
  if (!read.dated) {
    warnings.push_back(mapping.path +
                       ": not written with the recording's clock: its code is assumed to exist from the start (perf record -k mono uses "
                       "the same clock, and so does record --emulate without --work-clock)");
  }
  return read;
}

/// Sorts the code that one process logged by time, and marks what its times do not prove.
void check_codes(ImageBuild& image, const JitdumpMapping& mapping, const JitWriter& writer, const JitRead& read,
                 std::vector<DatedCode>& codes) {
  if (read.dated && !writer.names_only) {
    repair_times(image, codes, mapping, writer.ended, read.all_later);
    mark_disorder(image, codes, mapping);
  }
  if (read.intact && !writer.names_only) report_hole(image, codes, mapping);
  std::stable_sort(codes.begin(), codes.end(), [](const DatedCode& a, const DatedCode& b) { return a.time < b.time; });
  // A complete file may list the same moment twice: it dates what ran, not what was generated.
  if (!writer.names_only && !(read.dated && read.header.complete)) mark_equal_times(image, codes, mapping);
}

void check_header(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock, JitRead& read) {
  const uint64_t begin = read.header.timestamp;
  if (read.dated) check_clock(image, read.codes, mapping, clock, begin == 0 ? kTimeMin : time_of(begin, read.header, mapping, clock));
}

/// Returns the number that the process which mapped a file has in it: another one than in the recording if the process runs in a PID
/// namespace.
int32_t own_number(const JitRead& read, const JitdumpMapping& mapping, const JitWriters& writers) {
  const auto number_of = [](uint32_t pid) { return static_cast<int32_t>(pid); };
  const auto logs = [&](int32_t pid) {
    return std::ranges::any_of(read.codes, [&](const DatedCode& entry) { return number_of(entry.code.pid) == pid; });
  };
  const int32_t in_header = number_of(read.header.pid);
  if (read.codes.empty() || in_header == mapping.pid || writers.owners.contains(in_header) || logs(mapping.pid)) return mapping.pid;
  if (logs(in_header)) return in_header;
  const DatedCode& first = read.codes.front();
  const int32_t other = number_of(first.code.pid);
  return writers.owners.contains(other) || writers.child_of(other, first.time).owner != kNoSpace ? mapping.pid : other;
}

/// Code that one process logged.
struct JitPart {
  JitWriter writer;
  std::vector<DatedCode> codes;
};
using JitParts = std::map<SpaceId, JitPart>;

void report_unknown_writers(ImageBuild& image, const JitdumpMapping& mapping, uint64_t count, const JitCode& first) {
  if (count == 0) return;
  report_jitdump(image, mapping, FindingKind::records_lost, mapping.mapped_at,
                 std::to_string(count) + (count == 1 ? " record is" : " records are") + " of other processes than " +
                     std::to_string(mapping.pid) + " and its children, the first of process " + std::to_string(first.pid) +
                     ": not used, and the code that they logged is missing");
}

/// Gives code to the processes that logged it.
JitParts parts_of(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock, const JitWriters& writers, JitRead& read) {
  const int32_t own = own_number(read, mapping, writers);
  const bool has_start = mapping.started > kTimeMin;
  JitParts parts;
  uint64_t unknown = 0;
  const DatedCode* first = nullptr;
  for (DatedCode& entry : read.codes) {
    const auto pid = static_cast<int32_t>(entry.code.pid);
    JitWriter writer = writers.owner;
    if (pid != own && pid != 0) {
      const JitChild child = writers.owners.contains(pid) ? JitChild{kNoSpace, {}} : writers.child_of(pid, entry.time);
      const bool elsewhere = writers.owners.contains(pid) || (child.owner != kNoSpace && child.owner != mapping.space);
      // What a parent logged before the recording is its child's too if it logged it before the child started, of which no record tells.
      const bool may_be_inherited = writers.owners.contains(pid) && !has_start && entry.time < clock.first_record;
      entry.assumed = entry.assumed || may_be_inherited;
      if (elsewhere && !may_be_inherited) continue;
      if (!elsewhere) writer = child.writer;
    }
    if (writer.space == kNoSpace) {
      first = unknown++ == 0 ? &entry : first;
      continue;
    }
    JitPart& part = parts.try_emplace(writer.space, JitPart{writer, {}}).first->second;
    part.codes.push_back(std::move(entry));
  }
  if (first != nullptr) report_unknown_writers(image, mapping, unknown, first->code);
  return parts;
}

struct LoadedCode {
  Bytes code;
  SharedText name;
};

/// The functions that processes loaded, by the compiler's number.
class LoadedCodes {
 public:
  explicit LoadedCodes(const ForkedSpaces& forks) : forks_(forks) {}
  void add(SpaceId space, uint64_t index, const LoadedCode& code) { spaces_[space][index] = code; }
  /// Also one that a parent loaded; null if there is none.
  [[nodiscard]] const LoadedCode* find(SpaceId space, uint64_t index) const {
    const LoadedCode* found = nullptr;
    const auto is_there = [&](SpaceId at) {
      const auto codes = spaces_.find(at);
      if (codes == spaces_.end()) return false;
      const auto code = codes->second.find(index);
      if (code == codes->second.end()) return false;
      found = &code->second;
      return true;
    };
    if (!is_there(space)) (void)forks_.find_above(space, is_there);
    return found;
  }

 private:
  const ForkedSpaces& forks_;
  std::map<SpaceId, std::unordered_map<uint64_t, LoadedCode>> spaces_;
};

/// The bytes of the code that one process logged, while its entries are passed in order of time. Nothing if its bytes are known already.
class JitSpace {
 public:
  JitSpace(ImageBuild& image, const JitdumpMapping& mapping, const FoundCode& found, const JitWriter& writer)
      : image_(image), mapping_(mapping), found_(found), writer_(writer), memory_({writer.memory.begin(), writer.memory.end()}) {}

  void load(const DatedCode& entry, Bytes code) {
    if (writer_.only_names(entry.code)) return;
    pass(entry.time);
    image_.add_section(section_of(mapping_, entry, found_, code));
    const uint64_t address = entry.code.address, size_bytes = entry.code.size_bytes;
    cut(address, size_bytes);
    if (size_bytes != 0 && size_bytes <= ~address) live_[address] = {address + size_bytes, &entry, code};
  }
  void remove(uint64_t address, uint64_t size_bytes, TimeNs time) {
    if (writer_.names_only || (writer_.announced != nullptr && writer_.announced->overlap(address, size_bytes))) return;
    pass(time);
    cut(address, size_bytes);
    image_.builder.remove(mapping_.space, Ip{address}, std::max<uint64_t>(size_bytes, 1), time);
  }
  void finish() {
    if (!writer_.names_only) pass(kTimeMax);
  }

 private:
  struct Part {
    uint64_t end = 0;
    const DatedCode* entry = nullptr;  // of the whole code
    Bytes code;                        // the whole
  };

  // Anonymous memory that became executable by `until` has the code that was loaded there before, from then on too. Memory is fresh once
  // after each file, and code that a file replaced is forgotten, so this takes a time of all code and memory.
  void pass(TimeNs until) {
    memory_.pass(until, [this](const MappedMemory& memory) {
      for (auto at = at_or_after(memory.first); at != live_.end() && at->first < memory.end;) {
        const uint64_t first = std::max(at->first, memory.first), end = std::min(at->second.end, memory.end);
        const Part part = (at++)->second;
        if (memory.has_code_of(part.entry->time)) {
          show(part, first, end, memory.since);
        } else {
          cut(first, end - first);
        }
      }
    });
  }
  void show(const Part& part, uint64_t first, uint64_t end, TimeNs since) {
    const uint64_t skip = std::min<uint64_t>(first - part.entry->code.address, part.code.size());
    Section section =
        section_of(mapping_, *part.entry, found_, part.code.subspan(skip, std::min<uint64_t>(end - first, part.code.size() - skip)));
    section.ip = Ip{first};
    section.size_bytes = end - first;
    section.live.first = since;
    image_.add_section(std::move(section));
  }
  void cut(uint64_t first, uint64_t size_bytes) {
    const uint64_t end = first + std::min(size_bytes, ~first);
    for (auto at = at_or_after(first); at != live_.end() && at->first < end;) {
      const Part part = at->second;
      const uint64_t begin = at->first;
      at = live_.erase(at);
      if (begin < first) live_[begin] = {first, part.entry, part.code};
      if (part.end > end) at = live_.insert_or_assign(end, part).first;
    }
  }
  std::map<uint64_t, Part>::iterator at_or_after(uint64_t address) {
    auto at = live_.upper_bound(address);
    if (at != live_.begin() && std::prev(at)->second.end > address) --at;
    return at;
  }

  ImageBuild& image_;
  const JitdumpMapping& mapping_;  // of its space
  const FoundCode& found_;
  const JitWriter& writer_;
  FreshMemory memory_;
  std::map<uint64_t, Part> live_;  // by first address; disjoint
};

}  // namespace

JitdumpFile file_of_jitdump(ImageBuild& image, const JitdumpMapping& mapping) {
  const FoundCode found = find_jitdump(image, mapping);
  if (found.status != CodeStatus::found) return {};
  const auto header = read_jitdump_header(found.code.bytes);
  return {found.file_path, header.ok() && header->complete ? std::optional(*header) : std::nullopt};
}

void add_complete_jitdump(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock, TimeNs ended, const Timeline& mappings,
                          std::vector<std::string>& warnings) {
  std::optional<JitRead> read = read_codes(image, mapping, clock, warnings);
  if (!read) return;
  const FoundCode& found = read->found;
  check_header(image, mapping, clock, *read);
  check_codes(image, mapping, {mapping.space, ended}, *read, read->codes);
  RanCode ran(mappings, mapping.space);
  bool unsure_file = false;  // it is not known when a file's code was overwritten
  for (const DatedCode& entry : read->codes) {
    check_interrupt();
    if (entry.code.move || entry.code.code.size() > ~entry.code.address) continue;
    ran.add(Ip{entry.code.address}, {found.code.owner, entry.code.code}, entry.time, [&](Section section) {
      if (section.path.empty()) {
        section.path = mapping.path;
      } else {
        unsure_file = unsure_file || entry.assumed;
      }
      section.assumed = found.assumed || entry.assumed;
      image.add_section(std::move(section));
    });
  }
  if (unsure_file) image.builder.add_lost_window({mapping.mapped_at, kTimeMax});
}

void add_jitdump(ImageBuild& image, const JitdumpMapping& mapping, const JitClock& clock, const JitWriters& writers, CodeNames& names,
                 std::vector<std::string>& warnings) {
  std::optional<JitRead> read = read_codes(image, mapping, clock, warnings);
  if (!read) return;
  const auto has_bytes = [](const JitWriter& writer, const std::vector<DatedCode>& codes) {
    return !std::ranges::all_of(codes, [&](const DatedCode& entry) { return writer.only_names(entry.code); });
  };
  if (has_bytes(writers.owner, read->codes)) check_header(image, mapping, clock, *read);
  LoadedCodes loaded_codes(writers.forks);
  for (auto& [space, part] : parts_of(image, mapping, clock, writers, *read)) {  // parents first
    JitdumpMapping own = mapping;
    own.space = space;
    part.writer.names_only = !has_bytes(part.writer, part.codes);
    check_codes(image, own, part.writer, *read, part.codes);
    JitSpace bytes(image, own, read->found, part.writer);
    for (const DatedCode& entry : part.codes) {
      const JitCode& code = entry.code;
      LoadedCode loaded{code.code, code.name == jit_address_name(code.address) ? SharedText() : SharedText(code.name)};
      if (code.move) {
        const LoadedCode* known = loaded_codes.find(space, code.index);
        if (known == nullptr) continue;
        loaded = *known;
        names.add({space, Ip{code.old_address}, code.size_bytes, {entry.time, kTimeMax}, {}, {}}, NamedPlace::nothing);
        bytes.remove(code.old_address, code.size_bytes, entry.time);
      } else {
        loaded_codes.add(space, code.index, loaded);
      }
      bytes.load(entry, loaded.code);
      names.add({space, Ip{code.address}, code.size_bytes, {entry.time, kTimeMax}, loaded.name, "[jit]"});
    }
    bytes.finish();
  }
}

namespace {

/// Collects the lines that are their addresses' last: no later line overlaps them. Returns false if there are more than the limit.
bool collect_names(std::string_view text, const std::function<bool(const PerfMapLine&)>& wanted, std::vector<PerfMapLine>& names) {
  constexpr uint64_t kBetweenChecks = 4096;
  AddressRanges later;  // not more than names: the last line of each of its ranges is one
  uint64_t lines = 0;
  bool whole = true;
  read_perf_map(text, [&](const PerfMapLine& line) {
    if (++lines % kBetweenChecks == 0) check_interrupt();
    if (!wanted(line)) return true;
    if (!later.overlap(line.address, line.size_bytes)) {
      whole = names.size() < kMostPerfMapNames;
      if (whole) names.push_back(line);
    }
    later.add(line.address, line.size_bytes);
    return whole;
  });
  return whole;
}

}  // namespace

PerfMapNames add_perf_map(ImageBuild& image, SpaceId space, std::string_view text, const std::string& module, const AddressRanges& files,
                          const AddressRanges& code) {
  std::vector<PerfMapLine> names;
  const auto is_free = [&](const PerfMapLine& line) {
    return !is_kernel_half(Ip{line.address}) && !files.overlap(line.address, line.size_bytes);
  };
  bool whole = collect_names(text, is_free, names);
  if (!whole) {  // names of memory that is known to hold code have priority
    std::vector<PerfMapLine> chosen;
    whole = collect_names(
        text, [&](const PerfMapLine& line) { return is_free(line) && code.overlap(line.address, line.size_bytes); }, chosen);
    if (!chosen.empty()) names = std::move(chosen);
  }
  AddressRanges places;
  for (auto line = names.rbegin(); line != names.rend(); ++line) {
    places.add(line->address, line->size_bytes);
    image.add_range({space, Ip{line->address}, line->size_bytes, {}, std::string(line->name), module});
  }
  return {names.size(), whole, std::move(places)};
}

}  // namespace ptd
