// Tally of lost flow and the report that ends a command: see missing_report.h.
#include "cli/report/missing_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/names/name_match.h"
#include "cli/options/exit_status.h"
#include "cli/report/thread_label.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "image/mapped_kind.h"
#include "image/source/jitdump.h"
#include "ptdecode/guest.h"
#include "recording/data/absent_trace.h"
#include "recording/data/miscounts.h"

namespace ptd::cli {

namespace {

constexpr uint64_t kRegionBytes = 2U << 20;
constexpr size_t kListed = 20;

/// What to do about code of a guest that `process` runs (0: not known): of its kernel, of its processes without records, or of a file.
std::string guest_remedy(const std::string& path, bool kernel, int32_t process) {
  const std::string pid = process > 0 ? std::to_string(process) : "PID";
  const std::string mounted = fmt::format("mount the guest's root file system at DIR/{} and use --guestmount DIR", pid);
  if (path.starts_with("/")) return fmt::format("{}; or put the file of the recorded build id into --build-id-cache", mounted);
  if (kernel) {
    return fmt::format(
        "copy the guest's /proc/kcore, kallsyms and modules into one folder and use --guestkallsyms FOLDER/kallsyms, or put them in "
        "kcore_dir__{} of the recording's folder; or {}",
        pid, mounted);
  }
  return fmt::format(
      "record in the guest too (perf record --sample-identifier --buildid-all --switch-events --kcore -a -e dummy) and insert that file "
      "with perf inject --guest-data=FILE,{},TSC-OFFSET; then {}",
      pid, mounted);
}

constexpr const char* kUnknownThread = "[user code of an unknown thread]";

/// Returns the name of code that no record maps, in a guest of which nothing is known.
std::string unknown_guest(uint64_t region) { return is_kernel_half(Ip{region}) ? "[guest.kernel.kallsyms]" : "[guest.user]"; }

/// What to paste, or to do, so that code of a machine is found the next time.
std::string remedy_of(const Recording& recording, const std::string& path, const std::string& build_id, bool kernel, uint64_t address,
                      uint32_t machine) {
  const bool is_windows = path.size() > 2 && path[1] == ':' && path[2] == '/';
  if (!recording.from_perf() && is_windows)
    return fmt::format("--symfs ROOT with ROOT{} or ROOT{}, as it was on the traced machine", path.substr(2), path.substr(path.rfind('/')));
  if (!recording.from_perf()) {
    if (recording.description().starts_with("Windows") && path.starts_with('/'))  // /SystemRoot/System32/drivers/Some.sys
      return fmt::format("--symfs ROOT with ROOT{}, as it was on the traced machine", path.substr(path.rfind('/')));
    if (recording.description().starts_with("Windows"))
      return fmt::format("the module at these addresses in the list of --modules, or the bytes: --image FILE@{:#x}, or --pages", address);
    if (recording.description().starts_with("CoreSight"))
      return fmt::format("the program at these addresses: --image ELF, or the bytes: --image FILE@{:#x}, or a memory dump of the snapshot",
                         address);
    if (recording.description().starts_with("raw"))
      return fmt::format("the bytes at these addresses: --image FILE@{:#x}, or --pages", address);
    return fmt::format("the module at {:#x}: the bundle names none", address);
  }
  if (path == kUnknownThread)
    return "record context switches (perf record --switch-events), or each thread by itself (perf record --per-thread)";
  if (machine != 0 && (kernel || path.starts_with("[guest.") || path.starts_with("/[guest")))
    return guest_remedy(path, kernel, process_of_guest(recording, machine));
  if (path.starts_with("bpf_") || path == "[bpf]") {
    return "record as root, so that perf stores the bytes of BPF programs; or supply a copy of the text with --kcore-after PATH";
  }
  if (kernel)
    return "record with --kcore, or copy /proc/kcore, kallsyms and modules during the same boot and use --kcore-after DIR, or use "
           "--kcore-after with a vmcore";
  if (path == "[vdso]") return "decode on a kernel with the same vdso, or supply the vdso below --symfs ROOT";
  if (path.starts_with("[") || (is_anonymous(path) && build_id.empty())) {
    return fmt::format(
        "code generated at run time: record a jitdump (perf record -k mono with the run-time's agent); a copy of a file's text: --map "
        "PID:FILE,off=N@{:#x}",
        address);
  }
  if (path.ends_with(" (replaced)")) return "no file has it any more: record again, with another name for each build";
  const std::string below = fmt::format("--symfs ROOT with ROOT{}", path.starts_with("/") ? path : "/" + path);
  if (build_id.empty()) return below + "; for a container: --symfs PID=/proc/PID/root";
  return fmt::format("{} of build id {}; or DEBUGINFOD_URLS=https://debuginfod.elfutils.org (debuginfod-find executable {})", below,
                     build_id, build_id);
}

constexpr const char* kLongMapping = "the mapping is longer than its file";
constexpr const char* kOtherTimes = "its bytes are known at other times only";

// A file in which a process logged its generated code, and of which something is missing; else null.
const MissingImage* missing_jitdump(const Recording& recording) {
  for (const MissingImage& image : recording.missing_images()) {
    if (is_jitdump_path(image.path)) return &image;
  }
  return nullptr;
}

/// The records of files that were not found, or of which a part is missing.
class MissingFiles {
 public:
  explicit MissingFiles(const Recording& recording) {
    for (const MissingImage& image : recording.missing_images()) {
      if (image.reason.empty()) continue;
      by_path_.try_emplace(image.path, &image);
      by_build_.try_emplace({image.path, image.build_id}, &image);
    }
  }
  /// Null if there is none. No build id: the first one of this path.
  [[nodiscard]] const MissingImage* find(const std::string& path, const std::string& build_id) const {
    if (build_id.empty()) {
      const auto known = by_path_.find(path);
      return known == by_path_.end() ? nullptr : known->second;
    }
    const auto known = by_build_.find({path, build_id});
    return known == by_build_.end() ? nullptr : known->second;
  }

 private:
  std::map<std::string_view, const MissingImage*> by_path_;
  std::map<std::pair<std::string_view, std::string_view>, const MissingImage*> by_build_;
};

std::string share_text(double share) { return share > 0 && share < 0.001 ? "< 0.1 %" : fmt::format("{:.1f} %", 100 * share); }

/// Names the processes and programs without trace. They leave no gap, because no stream is theirs.
std::string absence_text(const Recording& recording) {
  constexpr size_t kNamed = 3;
  std::string text;
  size_t all = 0;
  for (const Finding& finding : recording.findings()) {
    if (is_absence(finding) && ++all <= kNamed) text += "ptdecode: " + shown(finding.what) + "\n";
  }
  if (all > kNamed) text += fmt::format("ptdecode: and {} more; 'ptdecode check' lists all\n", all - kNamed);
  return text;
}

}  // namespace

void GapTally::add(const Gap& gap) {
  const Count count{1, gap.lost_bytes};
  by_reason_[static_cast<size_t>(gap.reason) % kGapReasons].add(count);
  if (gap.reason == GapReason::unknown_return) {
    if (last_ && gap.space == last_space_) missing_[*last_].following.add(count);
    return;
  }
  last_.reset();
  if (gap.reason != GapReason::no_image) return;
  const bool known = gap.section != kNoSection;
  Place place{gap.section, known ? 0 : gap.space.value, known ? 0 : gap.ip.value / kRegionBytes * kRegionBytes};
  if (missing_.size() >= kMaxPlaces && !missing_.contains(place)) place = Place{kNoSection, kNoSpace.value, 0};
  missing_[place].own.add(count);
  last_ = place;
  last_space_ = gap.space;
}

void GapTally::merge(const GapTally& other) {
  for (size_t i = 0; i < by_reason_.size(); ++i) by_reason_[i].add(other.by_reason_[i]);
  for (const auto& [place, missing] : other.missing_) {
    missing_[place].own.add(missing.own);
    missing_[place].following.add(missing.following);
  }
}

uint64_t GapTally::total() const {
  uint64_t total = 0;
  for (const Count& count : by_reason_) total += count.gaps;
  return total;
}

std::string missing_file_text(const Recording& recording, std::string_view name) {
  for (const MissingImage& image : recording.missing_images()) {
    if (!image.path.starts_with('/') || image.path.starts_with("//") || image.reason.empty()) continue;
    if (name.empty() || names_file(name, image.path))
      return fmt::format("the code of {} is missing ({}): 'ptdecode check' says what to supply", shown(image.path), image.reason);
  }
  return {};
}

std::set<SectionId> sections_of_missing_files(const Recording& recording) {
  std::set<SectionId> sections;
  if (recording.missing_images().empty()) return sections;
  const MissingFiles missing(recording);
  for (SectionId id = 0; id < recording.timeline().section_count(); ++id) {
    const Section& section = recording.timeline().section(id);
    if (!section.path.empty() && missing.find(section.path, section.build_id) != nullptr) sections.insert(id);
  }
  return sections;
}

std::vector<MissingLine> rank_missing(const GapTally& tally, const Recording& recording, uint64_t total_bytes) {
  std::map<std::pair<std::string, std::string>, MissingLine> lines;
  const MissingFiles missing_files(recording);
  const Timeline& timeline = recording.timeline();
  for (const auto& [place, missing] : tally.missing()) {
    const auto& [section_id, space, region] = place;
    std::string path, build_id;
    uint32_t machine = machine_of(SpaceId{space});
    bool kernel = is_kernel_space(SpaceId{space}) && section_id == kNoSection;
    uint64_t address = region;
    if (section_id != kNoSection && section_id < timeline.section_count()) {
      const Section& section = timeline.section(section_id);
      path = section.path.empty() ? "[unnamed mapping]" : section.path;
      build_id = section.build_id;
      kernel = is_kernel_space(section.space);
      machine = machine_of(section.space);
      address = section.ip.value;
    } else {
      const bool unknown = machine == kUnknownGuest;
      path = unknown ? unknown_guest(region)
                     : fmt::format("[no mapping recorded: {}{} {:#x}..{:#x}]", machine != 0 ? "guest " : "",
                                   is_kernel_half(Ip{region}) ? "kernel" : "user", region, region + kRegionBytes - 1);
      kernel = is_kernel_half(Ip{region});
    }
    const bool is_rest = region == 0;  // GapTally: of more places than it counts
    const bool no_thread = section_id == kNoSection && SpaceId{space} == kNoSpace && !kernel && !is_rest && recording.from_perf();
    if (no_thread) path = kUnknownThread;
    MissingLine& line = lines[{path, build_id}];
    line.path = path;
    line.build_id = build_id;
    line.gaps += missing.own.gaps;
    line.following_gaps += missing.following.gaps;
    line.lost_bytes += missing.own.lost_bytes + missing.following.lost_bytes;
    const uint64_t file_bytes = section_id == kNoSection ? 0 : timeline.section(section_id).code.bytes.size();
    if (file_bytes != 0 && recording.from_perf() && !kernel && missing_files.find(path, build_id) == nullptr) {
      // The file was found, and has no such place.
      if (!line.reason.empty()) continue;
      const uint64_t mapped_bytes = timeline.section(section_id).size_bytes;
      const bool is_long = file_bytes < mapped_bytes;
      line.reason = is_long ? kLongMapping : kOtherTimes;
      line.remedy = is_long ? fmt::format("nothing, if the file is complete: it has {} of the {} bytes that the mapping's record names",
                                          file_bytes, mapped_bytes)
                            : "nothing, if the file is complete; 'ptdecode check' tells whether the packets contradict its times";
      continue;
    }
    line.reason = no_thread                  ? "no record names the thread, or its process"
                  : section_id == kNoSection ? "not mapped by any record"
                                             : "bytes not found";
    line.remedy = remedy_of(recording, path, build_id, kernel, address, machine);
    const MissingImage* dump = section_id == kNoSection && !kernel && !no_thread ? missing_jitdump(recording) : nullptr;
    if (dump != nullptr) {
      line.reason = fmt::format("not mapped by any record; {}: {}", dump->path, dump->reason);
      line.remedy = fmt::format("an undamaged copy of {}, with which the process logged its generated code", dump->path);
    }
  }
  std::vector<MissingLine> ranked;
  for (auto& [key, line] : lines) {
    const MissingImage* image =
        line.reason == kLongMapping || line.reason == kOtherTimes ? nullptr : missing_files.find(line.path, line.build_id);
    if (image != nullptr) line.reason = image->reason;
    line.share = total_bytes == 0 ? 0 : static_cast<double>(line.lost_bytes) / static_cast<double>(total_bytes);
    ranked.push_back(std::move(line));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const MissingLine& a, const MissingLine& b) {
    return std::pair(a.lost_bytes, a.gaps + a.following_gaps) > std::pair(b.lost_bytes, b.gaps + b.following_gaps);
  });
  return ranked;
}

nlohmann::json missing_json(std::span<const MissingLine> lines) {
  nlohmann::json json = nlohmann::json::array();
  for (const MissingLine& line : lines) {
    json.push_back({{"path", line.path},
                    {"build_id", line.build_id},
                    {"reason", line.reason},
                    {"gaps", line.gaps},
                    {"following_gaps", line.following_gaps},
                    {"lost_bytes", line.lost_bytes},
                    {"share", line.share},
                    {"supply", line.remedy}});
  }
  return json;
}

int strict_status(bool strict, const GapTally& tally, const Recording& recording) {
  if (!strict) return kExitOk;
  return tally.total() != 0 || !recording.findings().empty() || !miscount_findings(recording).empty() ? kExitFinding : kExitOk;
}

std::string interrupt_text(double share_decoded, const GapTally& tally) {
  return fmt::format("ptdecode: interrupted after {:.1f} % of the trace; {}\n", 100 * share_decoded,
                     tally.total() == 0 ? "no flow was lost up to there" : "up to there:");
}

std::string gap_summary(const GapTally& tally, const Recording& recording, uint64_t total_bytes) {
  std::string text = absence_text(recording);
  if (tally.total() == 0) return text;
  text += fmt::format("ptdecode: flow was lost in {}:\n", counted(tally.total(), "place"));
  for (int i = 0; i < kGapReasons; ++i) {
    const auto reason = static_cast<GapReason>(i);
    const GapTally::Count& count = tally.by_reason()[static_cast<size_t>(i)];
    if (count.gaps != 0) text += fmt::format("  {:>9} {:<15} {}\n", count.gaps, name(reason), sentence(reason));
  }
  const std::vector<MissingLine> missing = rank_missing(tally, recording, total_bytes);
  if (missing.empty()) return text;
  const bool has_shares = missing.front().lost_bytes != 0;  // gaps of Arm traces count no bytes
  text += has_shares ? "missing code, by share of the trace lost:\n" : "missing code, by number of gaps:\n";
  for (size_t i = 0; i < missing.size() && i < kListed; ++i) {
    const MissingLine& line = missing[i];
    const std::string following =
        line.following_gaps == 0 ? ""
                                 : fmt::format("; and {} that follow: returns to calls in lost flow", counted(line.following_gaps, "gap"));
    text += fmt::format("  {:>8} {:>8} {:<4}  {}{}  ({}{})\n{:22}supply: {}\n", has_shares ? share_text(line.share) : "", line.gaps,
                        line.gaps == 1 ? "gap" : "gaps", shown(line.path), line.build_id.empty() ? "" : " build id " + shown(line.build_id),
                        shown(line.reason), following, "", shown(line.remedy));
  }
  if (missing.size() > kListed) text += fmt::format("  and {} more; 'ptdecode stat --json' lists all\n", missing.size() - kListed);
  return text;
}

}  // namespace ptd::cli
