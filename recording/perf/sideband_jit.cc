// SidebandFold: generated code, from jitdumps, announcements and perf maps, and code that the recorder gives. See sideband_fold.h.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "image/base/directory.h"
#include "image/base/mapped_file.h"
#include "image/base/regular_file.h"
#include "image/source/perf_map.h"
#include "recording/image/jit_times.h"
#include "recording/image/names/address_ranges.h"
#include "recording/image/names/code_names.h"
#include "recording/perf/sideband_fold.h"

namespace ptd {
namespace {

constexpr size_t kMaxSpacesOfFile = 8;  // a jitdump or perf map is of one process; a few more by pids that come again

/// Processes that map one file, however they spell its path.
using SpacesOfFile = std::map<std::pair<uint64_t, uint64_t>, std::set<SpaceId>>;

/// Adds the space of a process that maps a file. Returns false if the file is not to be read for it. Warns once of too many spaces.
bool take_file(SpacesOfFile& files, const std::optional<std::pair<uint64_t, uint64_t>>& file, SpaceId space, const std::string& path,
               std::vector<std::string>& warnings) {
  if (!file) return true;
  std::set<SpaceId>& spaces = files[*file];
  if (!spaces.insert(space).second) return false;
  if (spaces.size() == kMaxSpacesOfFile + 1) warnings.push_back(path + ": mapped by too many processes; the others are ignored");
  return spaces.size() <= kMaxSpacesOfFile;
}

/// The jitdumps in the folder that `record --emulate` makes beside a recording: FOLDER/N/jit-PID.dump.
std::vector<std::string> jitdumps_in(const std::string& folder) {
  constexpr size_t kMost = 1U << 12;
  std::vector<std::string> found;
  for (const DirectoryEntry& each : entries_of(folder, kMost)) {
    if (!each.is_folder || found.size() >= kMost) continue;
    for (const DirectoryEntry& file : entries_of(folder + "/" + each.name, kMost)) {
      std::string path = folder + "/" + each.name + "/" + file.name;
      if (is_jitdump_path(path)) found.push_back(std::move(path));
    }
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace

// The emulator begins a jitdump when a program or process starts.
const SidebandFold::Program* SidebandFold::program_of(const JitdumpHeader& header) const {
  constexpr uint64_t kRoundingNs = 100;
  const TimeConversion& conversion = data_.decoder.config.time;
  const auto known = program_starts_.find(static_cast<int32_t>(header.pid));
  if (!header.tsc_clock || !conversion.valid() || known == program_starts_.end()) return nullptr;
  const TimeNs begun = conversion.to_ns(Tsc{header.timestamp});
  const auto near = [begun](const Program& program) {
    return std::max(program.time, begun).value - std::min(program.time, begun).value <= kRoundingNs;
  };
  const auto found = std::ranges::find_if(known->second, near);
  return found == known->second.end() ? nullptr : &*found;
}

// Without the record of a complete jitdump, or with a wrong one, code that a program changed would be that of its file. The file tells
// which program it is of, but nothing then proves that it is unchanged.
void SidebandFold::place_complete_jitdumps() {
  std::set<SpaceId> placed;
  const auto place = [&](JitdumpMapping& jitdump, const Program& program, FindingKind kind, const std::string& what) {
    jitdump.space = program.space;
    jitdump.pid = program.pid;
    jitdump.mapped_at = jitdump.started = program.time;
    jitdump.address = Ip{kCompleteJitdumpAddress};
    jitdump.assumed = true;
    report_jitdump(image_, jitdump, kind, program.time,
                   what + ": by its header it is of the program that process " + std::to_string(program.pid) +
                       " starts then, and its code is assumed");
  };
  for (JitdumpMapping& jitdump : jitdumps_) {
    if (jitdump.address.value != kCompleteJitdumpAddress) continue;
    const auto header = file_of_jitdump(image_, jitdump).complete;
    const Program* program = header ? program_of(*header) : nullptr;
    if (program != nullptr && program->space != jitdump.space) {
      place(jitdump, *program, FindingKind::bad_record, "its MMAP2 record has another process or time");
    }
    placed.insert(jitdump.space);
  }
  for (const std::string& path : jitdumps_in(image_.source.options().own_folder)) {
    JitdumpMapping jitdump;
    jitdump.path = path;
    const auto header = file_of_jitdump(image_, jitdump).complete;
    const Program* program = header ? program_of(*header) : nullptr;
    if (program == nullptr || !placed.insert(program->space).second) continue;
    place(jitdump, *program, FindingKind::records_lost, "its MMAP2 record is missing");
    jitdumps_.push_back(std::move(jitdump));
  }
}

JitWriter SidebandFold::writer_of(int32_t pid, SpaceId space) const {
  const auto ended = ended_.find(pid);
  return {space, ended == ended_.end() ? kTimeMax : ended->second, complete_spaces_.contains(space), anonymous_.memory(space),
          announced_.code_of(space)};
}

// A child that was forked goes on with the jitdump that its parent mapped. `owners`: the spaces in which the file was mapped.
JitChild SidebandFold::child_that_logs(const std::set<SpaceId>& owners, int32_t pid, TimeNs time) const {
  const auto known = program_starts_.find(pid);
  if (known == program_starts_.end()) return {};
  const std::vector<Program>& programs = known->second;
  const auto after = std::ranges::upper_bound(programs, time, {}, &Program::time);
  const SpaceId space = (after == programs.begin() ? after : std::prev(after))->space;
  const SpaceId owner = forks_.find_above(space, [&](SpaceId above) { return owners.contains(above); });
  return owner == kNoSpace ? JitChild() : JitChild{owner, writer_of(pid, space)};
}

// A record for each mapping costs little; its file is read once for each space, and for a few spaces. Where a complete dump tells
// all bytes as they ran, what compilers logged of the same code gives its names.
void SidebandFold::fold_jitdumps(bool monotonic, CodeNames& names) {
  place_complete_jitdumps();
  struct Wanted {
    const JitdumpMapping* mapping = nullptr;
    bool complete = false;
    std::optional<std::pair<uint64_t, uint64_t>> file;
  };
  std::map<std::string, std::set<SpaceId>> read;  // by path
  SpacesOfFile files;
  std::map<std::pair<uint64_t, uint64_t>, std::set<int32_t>> pids;  // the processes that map a file
  std::vector<Wanted> wanted;
  for (const JitdumpMapping& jitdump : jitdumps_) {
    std::set<SpaceId>& spaces = read[jitdump.path];
    if (spaces.size() > kMaxSpacesOfFile || !spaces.insert(jitdump.space).second) continue;
    const JitdumpFile file = file_of_jitdump(image_, jitdump);
    const auto identity = file_identity(file.path);
    if (identity) pids[*identity].insert(jitdump.pid);
    if (!take_file(files, identity, jitdump.space, jitdump.path, data_.warnings)) continue;
    wanted.push_back({&jitdump, file.complete.has_value(), identity});
    if (file.complete) complete_spaces_.insert(jitdump.space);
  }
  const Timeline mappings = complete_spaces_.empty() ? Timeline() : image_.builder.sections();
  for (const Wanted& each : wanted) {
    const JitdumpMapping& jitdump = *each.mapping;
    const JitClock clock{data_.decoder.config.time, monotonic, TimeNs{times_.first_ns},
                         times_.last_ns == 0 ? kTimeMax : TimeNs{times_.last_ns}};
    const JitWriter owner = writer_of(jitdump.pid, jitdump.space);
    if (each.complete) {
      add_complete_jitdump(image_, jitdump, clock, owner.ended, mappings, data_.warnings);
      continue;
    }
    static const std::set<SpaceId> no_spaces;
    static const std::set<int32_t> no_pids;
    const std::set<SpaceId>& spaces = each.file ? files[*each.file] : no_spaces;
    const auto child = [&](int32_t pid, TimeNs time) { return child_that_logs(spaces, pid, time); };
    add_jitdump(image_, jitdump, clock, {owner, each.file ? pids[*each.file] : no_pids, forks_, child}, names, data_.warnings);
  }
}

/// The text of a process's perf map: as it was kept, below a root that was given, or of this machine.
PerfMapText SidebandFold::perf_map_of(int32_t pid) {
  const std::string path = perf_map_path(pid);
  const CodeSourceOptions& source = image_.source.options();
  std::vector<std::string> roots = source.symfs;
  if (const auto* own = roots_of(pid)) roots.insert(roots.begin(), own->begin(), own->end());
  for (const std::string& root : roots) {
    std::string text = read_text_file(root + path, kMostPerfMapBytes + 1);
    if (!text.empty() && text.size() <= kMostPerfMapBytes) return {std::move(text), file_identity(root + path)};
    const RegularFile file = open_regular(root + path);
    const std::string why = !text.empty() ? "too large" : file.fd.ok() || file.code() == ErrorCode::not_found ? "" : file.why();
    if (!why.empty()) data_.warnings.push_back("not used for names: " + root + path + ": " + why);
  }
  if (source.saved) {
    if (const auto kept = source.saved->of_mapping({path, {}, 0, 0, nullptr, pid, 0, 0}); kept.file) {
      const Bytes bytes = kept.file->bytes();
      return {{reinterpret_cast<const char*>(bytes.data()), bytes.size()}};  // a stash has equal maps of several processes once
    }
  }
  if (!source.same_host || !source.use_host_files) return {};
  Result<std::string> text = read_own_perf_map(path);
  if (text) {
    if (const auto file = MappedFile::open(path); file.ok() && source.recorded_at_ns != 0 && (*file)->modified_ns() > source.recorded_at_ns)
      data_.warnings.push_back(path + ": written after the recording ended; its names may be those of later code or of another process");
    return {std::move(*text), file_identity(path)};
  }
  if (text.error().code != ErrorCode::not_found) data_.warnings.push_back("not used for names: " + text.error().message);
  return {};
}

/// Ends the names that children inherit where a file is mapped over them. `named`: where perf maps have names.
void SidebandFold::end_inherited(const std::map<SpaceId, AddressRanges>& named) {
  for (const UserMapping& mapping : mappings_) {
    if (is_anonymous(mapping.path) || mapping.size_bytes == 0 || mapping.size_bytes - 1 > ~mapping.ip.value) continue;
    const auto has_name = [&](SpaceId space) {
      const auto at = named.find(space);
      return at != named.end() && at->second.overlap(mapping.ip.value, mapping.size_bytes);
    };
    if (forks_.find_above(mapping.space, has_name) != kNoSpace)
      image_.add_range({mapping.space, mapping.ip, mapping.size_bytes, {mapping.from, kTimeMax}, {}, {}});
  }
}

/// Names of code without a file, of processes whose jitdumps name none.
void SidebandFold::fold_perf_maps() {
  std::map<int32_t, AddressRanges> files, code;
  std::set<int32_t> candidates;
  for (const UserMapping& mapping : mappings_) {
    if (is_anonymous(mapping.path)) candidates.insert(mapping.pid);
  }
  for (const JitdumpMapping& jitdump : jitdumps_) candidates.insert(jitdump.pid);
  for (const UserMapping& mapping : mappings_) {
    if (candidates.contains(mapping.pid))
      (is_anonymous(mapping.path) ? code : files)[mapping.pid].add(mapping.ip.value, std::min(mapping.size_bytes, ~mapping.ip.value));
  }
  SpacesOfFile files_of_names;
  std::map<SpaceId, AddressRanges> named;
  std::string used;
  size_t count = 0;
  for (const int32_t pid : candidates) {
    const SpaceId space = space_of(pid);
    if (jit_named_.contains(space)) continue;
    const auto [text, file] = perf_map_of(pid);
    if (!take_file(files_of_names, file, space, perf_map_path(pid), data_.warnings)) continue;
    const std::string module = "perf-" + std::to_string(pid) + ".map";
    for (const ImageBuild::Extent& code_of_jitdump : image_.given()) {
      if (code_of_jitdump.space == space && !text.empty()) code[pid].add(code_of_jitdump.ip.value, code_of_jitdump.size_bytes);
    }
    PerfMapNames added = text.empty() ? PerfMapNames() : add_perf_map(image_, space, text, module, files[pid], code[pid]);
    if (!added.whole) {
      data_.warnings.push_back(perf_map_path(pid) + ": has more than " + std::to_string(kMostPerfMapNames) +
                               " names: only the last ones are used");
    }
    if (added.count == 0) continue;
    named[space] = std::move(added.places);
    if (++count == 1) used = perf_map_path(pid);
  }
  if (count == 0) return;
  end_inherited(named);
  if (count > 1) used += " and " + std::to_string(count - 1) + " more";
  data_.warnings.push_back(used + ": used for names of code generated at run time; it has no times, so each address has its last name");
}

/// A sample of the tracepoint of announcements. Who sent it is the kernel's or the recorder's word, not the record's.
void SidebandFold::on_sample(const perfio::Record& record, const perfio::OtherSample& sample) {
  if (attrs_ == nullptr || record.attr_index >= attrs_->size() || !perfio::is_announcement((*attrs_)[record.attr_index])) return;
  const int32_t pid = record.sample_id.pid;
  if (pid <= 0 || !record.sample_id.has_time || sample.raw.size() < perfio::kTracepointCommonBytes) return;
  announced_.add(space_of(pid), pid, TimeNs{record.sample_id.time}, sample.raw.subspan(perfio::kTracepointCommonBytes),
                 record.file_offset_bytes);
}

/// Anonymous memory is reported again when its protection changes, as run-times do before and after they write code.
void SidebandFold::add_mapping(UserMapping mapping) {
  mapped_.insert(mapping.space);
  if (mapping.size_bytes == 0 || mapping.size_bytes > ~mapping.ip.value) {
    mappings_.push_back(std::move(mapping));
    return;
  }
  if (!is_anonymous(mapping.path)) {
    anonymous_.replace(mapping.space, mapping.ip.value, mapping.size_bytes);
    return add_file_mapping(std::move(mapping));
  }
  (void)writable_code_.add(mapping.space, mapping.ip.value, mapping.size_bytes, 0, false);
  std::vector<AnonymousRanges::Replaced> files;
  for (const SharedRanges::Range& file : mapped_files_.replace(mapping.space, mapping.ip.value, mapping.size_bytes))
    files.push_back({file.first, file.end, mappings_[file.content].from});
  const Ip begin = mapping.ip;
  const uint64_t offset = mapping.file_offset_bytes;
  for (const AnonymousRanges::Piece& piece : anonymous_.add(mapping.space, mapping.ip.value, mapping.size_bytes, mapping.from, files)) {
    mapping.ip = Ip{piece.first};
    mapping.size_bytes = piece.size_bytes;
    mapping.file_offset_bytes = offset + (piece.first - begin.value);
    mapping.again = piece.again;
    mappings_.push_back(mapping);
  }
}

static std::string_view file_path(const UserMapping& mapping) {
  constexpr std::string_view kDeleted = " (deleted)";
  const std::string_view path = mapping.path;
  return path.ends_with(kDeleted) ? path.substr(0, path.size() - kDeleted.size()) : path;
}

// Two mappings of the same file show the same bytes at an address, unless the program wrote to them.
static MappedBefore compare(const UserMapping& a, const UserMapping& b) {
  const bool other_build = !a.build_id.empty() && !b.build_id.empty() && a.build_id != b.build_id;
  const bool other_file = a.file_id.inode != 0 && b.file_id.inode != 0 && a.file_id.inode != b.file_id.inode;
  const bool is_same = file_path(a) == file_path(b) && a.file_offset_bytes - a.ip.value == b.file_offset_bytes - b.ip.value &&
                       !other_build && !other_file && a.label == b.label;
  if (!is_same) return MappedBefore::other;
  return b.was_writable && !a.was_writable ? MappedBefore::now_writable : MappedBefore::same;
}

// The record of a changed protection looks like that of a new mapping. One of the same file at the same place keeps what the program wrote
// there.
void SidebandFold::add_file_mapping(UserMapping mapping) {
  uint64_t place = 0;
  if (mapping.was_writable || writable_code_.has(mapping.space)) {
    place =
        file_places_.try_emplace({std::string(file_path(mapping)), mapping.file_offset_bytes - mapping.ip.value}, file_places_.size() + 1)
            .first->second;
  }
  const Ip begin = mapping.ip;
  const uint64_t offset = mapping.file_offset_bytes;
  for (const WritableCode::Piece& part :
       writable_code_.add(mapping.space, mapping.ip.value, mapping.size_bytes, place, mapping.was_writable)) {
    mapping.was_writable = part.was_writable;
    const auto compared = [&](size_t before) { return compare(mappings_[before], mapping); };
    for (const MappedPiece& piece : mapped_files_.add(mapping.space, part.first, part.size_bytes, mappings_.size(), compared)) {
      mapping.ip = Ip{piece.first};
      mapping.size_bytes = piece.size_bytes;
      mapping.file_offset_bytes = offset + (piece.first - begin.value);
      mapping.again = piece.again;
      mapping.now_writable = piece.now_writable;
      mappings_.push_back(mapping);
    }
  }
}

// They have what was written to code, wherever it ran.
void SidebandFold::trust_complete_jitdumps() {
  std::set<SpaceId> complete;
  for (const JitdumpMapping& jitdump : jitdumps_) {
    if (jitdump.address.value == kCompleteJitdumpAddress) complete.insert(jitdump.space);
  }
  for (UserMapping& mapping : mappings_) mapping.was_writable = mapping.was_writable && !complete.contains(mapping.space);
}

void SidebandFold::fold_announcements(const Timeline& mapped, CodeNames& names) {
  if (announced_.empty()) return;
  announced_.add_to(
      image_, mapped, [this](SpaceId space) { return anonymous_.memory(space); }, complete_spaces_, names);
}

/// What the recorder has given beside records, and what it has not. Code is in the space that its process had at that moment.
void SidebandFold::add_given() {
  CodeNames names;
  for (const GivenCode& given : options_.given_code) {
    Section section;
    section.space = kKernelSpace;
    if (given.pid >= 0) {
      const Context context = data_.contexts.at_thread(given.pid, given.from);
      section.space = context.space == kNoSpace ? space_of(given.pid) : context.space;
    }
    section.ip = given.ip;
    section.size_bytes = given.code.bytes.size();
    section.live = {given.from, kTimeMax};
    section.code = given.code;
    section.path = given.pid < 0 ? "[kernel]" : "[jit]";
    names.add({section.space, section.ip, section.size_bytes, section.live, given.name, section.path});
    image_.add_section(std::move(section));
  }
  if (!names.empty()) names.add_to(image_, mappings_, forks_, {.early = false, .memory_ends = true});
  for (const LostInput& lost : options_.lost_input) {
    Finding finding;
    finding.kind = FindingKind::records_lost;
    finding.time = {lost.from, kTimeMax};
    finding.what = lost.what;
    image_.builder.add_lost_window(finding.time);
    image_.builder.add_finding(std::move(finding));
  }
}

}  // namespace ptd
