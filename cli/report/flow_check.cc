// FlowCheck: gaps by mapped file. See flow_check.h.
#include "cli/report/flow_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/report/finding_text.h"
#include "cli/text/clean_text.h"
#include "cli/text/output.h"
#include "cli/text/size_words.h"
#include "decoder/aux_loss.h"
#include "image/source/jitdump.h"
#include "ptdecode/guest.h"
#include "recording/data/miscounts.h"

namespace ptd::cli {

namespace {

/// What is known of one file while it goes on.
struct Tally {
  FlowContradiction told;
  std::set<uint64_t> places;
};

using Tallies = std::map<std::pair<std::string, std::string>, Tally>;

bool contradicts(const Gap& gap) { return gap.reason == GapReason::image_mismatch || gap.reason == GapReason::bad_insn; }

SectionId section_of(const Gap& gap, const Timeline& timeline) {
  if (gap.section < timeline.section_count() || gap.ip.value == 0) return gap.section;
  return timeline.section_during(space_at(gap.space, gap.ip), gap.ip, gap.time.first).id;
}

void take(const Gap& gap, SectionId section, const Timeline& timeline, const std::string& jitdump, Tallies& tallies) {
  const std::string path = timeline.section(section).path, build_id = timeline.section(section).build_id;
  Tally& tally = tallies[{path, build_id}];
  if (tally.told.packets++ == 0) {
    tally.told.path = path;
    tally.told.build_id = build_id;
    tally.told.jitdump = jitdump;
    tally.told.first_time = gap.time;
  }
  if (gap.ip.value == 0 || tally.places.size() >= FlowCheck::kCountedPlaces || !tally.places.insert(gap.ip.value).second) return;
  if (tally.told.places.size() < FlowCheck::kShownPlaces) {
    tally.told.places.push_back(gap.ip);
  } else {
    ++tally.told.more_places;
  }
}

constexpr std::string_view kKernelCode = "[kernel]";

/// Evidence of wrong times in jitdumps, and of text pokes that are lost or have wrong times.
class TimesCheck {
 public:
  explicit TimesCheck(const Timeline& timeline) : timeline_(timeline) {
    for (SectionId id = 0; id < timeline.section_count(); ++id) {
      const Section& section = timeline.section(id);
      if (is_jitdump_path(section.path)) dumps_.emplace(section.space.value, section.path);
    }
  }
  /// Returns the jitdump of a space, "" if it has none.
  [[nodiscard]] std::string of(SpaceId space) const {
    const auto found = dumps_.find(space.value);
    return found == dumps_.end() ? std::string() : found->second;
  }
  void take(const Batch& batch, const BlockTable& table) {
    size_t mark = 0;
    for (size_t i = 0; i < batch.blocks.size(); ++i) {
      if (!has(batch.blocks[i].flags, BlockFlag::healed)) continue;
      while (mark + 1 < batch.marks.size() && batch.marks[mark + 1].before_block <= i) ++mark;
      const BlockInfo& info = table.info(batch.blocks[i].node);
      add(info.space, info.ip, batch.marks.empty() ? Interval{} : batch.marks[mark].time);
    }
    for (const Gap& gap : dumps_.empty() ? std::span<const Gap>() : std::span<const Gap>(batch.gaps)) {
      if (contradicts(gap) || gap.reason == GapReason::no_image) add(gap.space, gap.ip, gap.time);
    }
  }
  [[nodiscard]] std::vector<WrongTimes> finish() const {
    std::vector<WrongTimes> all;
    for (const auto& [path, times] : found_) all.push_back(times);
    return all;
  }

 private:
  void add(SpaceId space, Ip ip, Interval time) {
    if (is_kernel_half(ip)) return add(std::string(kKernelCode), ip, time);
    if (!dumps_.contains(space.value)) return;
    const auto [known, is_new] = path_at_.try_emplace({space.value, ip.value});
    for (const SectionId id : is_new ? timeline_.sections_at(space, ip) : std::vector<SectionId>()) {
      if (is_jitdump_path(timeline_.section(id).path)) known->second = timeline_.section(id).path;
    }
    if (!known->second.empty()) add(known->second, ip, time);
  }
  void add(const std::string& path, Ip ip, Interval time) {
    WrongTimes& times = found_[path];
    if (times.blocks++ == 0) times = {path, 1, ip, time};
  }
  const Timeline& timeline_;
  std::map<uint32_t, std::string> dumps_;                         // by space
  std::map<std::pair<uint32_t, uint64_t>, std::string> path_at_;  // by space and address; "": no jitdump has code there
  std::map<std::string, WrongTimes> found_;
};

/// A contradiction in the known part of a missing file is a consequence of the missing part.
Gap in_missing_code(Gap gap, SectionId section) {
  gap.reason = GapReason::no_image;
  gap.section = section;
  return gap;
}

/// Whether the trace bytes themselves cause the gap, and not a loss that a finding of the recording names.
bool is_damage(const Gap& gap, const AuxSegment& segment) {
  if (gap.reason == GapReason::bad_packet) return true;
  // Nothing was in flight at the sync point after the segment, or there is none.
  if (gap.reason == GapReason::uncommitted) return !segment.break_after;
  if (gap.reason != GapReason::aux_lost) return false;
  const bool at_begin = segment.break_before != AuxBreak::none && gap.stream_offset_bytes == segment.stream_offset_bytes;
  const bool at_end = is_loss(segment.lost_after) && gap.stream_offset_bytes == segment.stream_offset_bytes + segment.bytes.size();
  return !at_begin && !at_end;
}

void take_damage(const Gap& gap, uint32_t stream, std::vector<TraceDamage>& all) {
  auto damage =
      std::find_if(all.begin(), all.end(), [&](const TraceDamage& one) { return one.stream == stream && one.reason == gap.reason; });
  if (damage == all.end()) damage = all.insert(all.end(), {stream, gap.reason, 0, 0, gap.stream_offset_bytes, gap.time});
  ++damage->gaps;
  damage->lost_bytes += gap.lost_bytes;
}

}  // namespace

FlowCheck check_flow(const Recording& recording, uint64_t budget_bytes, Progress& progress) {
  FlowCheck result;
  Tallies tallies;
  GapTally gaps;
  TimesCheck times(recording.timeline());
  const std::set<SectionId> missing_files = sections_of_missing_files(recording);
  const auto streams = static_cast<uint32_t>(recording.streams().size());
  result.has_flow = recording.decoder_options().config.has_flow;
  for (uint32_t stream = 0; stream < streams; ++stream) result.all_bytes += recording.streams()[stream].size_bytes;
  const double share = result.all_bytes <= budget_bytes ? 1 : static_cast<double>(budget_bytes) / static_cast<double>(result.all_bytes);
  progress.set_total(std::min(budget_bytes, result.all_bytes));
  for (uint32_t stream = 0; stream < streams && !interrupted(); ++stream) {
    const uint64_t size = recording.streams()[stream].size_bytes;
    const std::vector<uint64_t> starts = share == 1 ? std::vector<uint64_t>{} : recording.segment_starts(stream);
    const auto next = std::lower_bound(starts.begin(), starts.end(), 1 + static_cast<uint64_t>(share * static_cast<double>(size)));
    const uint64_t end = next == starts.end() ? size : *next;
    std::vector<TraceDamage> damage;
    GapTally here;
    const auto sink = [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
      times.take(batch, decoder.blocks());
      for (const Gap& gap : batch.gaps) {
        const SectionId section = section_of(gap, recording.timeline());
        const bool missing = contradicts(gap) && missing_files.contains(section);
        if (contradicts(gap) && !missing) take(gap, section, recording.timeline(), times.of(gap.space), tallies);
        here.add(missing ? in_missing_code(gap, section) : gap);
        if (is_damage(gap, segment)) take_damage(gap, stream, damage);
      }
      result.blocks += batch.blocks.size();
      for (const Block& block : batch.blocks) {
        result.instructions += block.instructions;
        result.uncertain += (block.flags & kUncertainFlags) != 0 ? block.instructions : 0;
      }
      progress.set(result.decoded_bytes + segment.stream_offset_bytes);
      return !interrupted();
    };
    (void)recording.decode_parallel(stream, 0, end == size ? Recording::kStreamEnd : end, 0, sink);
    gaps.merge(here);
    result.decoded_bytes += end;
    result.damage.insert(result.damage.end(), damage.begin(), damage.end());
  }
  for (auto& [key, tally] : tallies) result.contradictions.push_back(std::move(tally.told));
  std::stable_sort(result.contradictions.begin(), result.contradictions.end(),
                   [](const FlowContradiction& a, const FlowContradiction& b) { return a.packets > b.packets; });
  result.wrong_times = times.finish();
  result.missing = rank_missing(gaps, recording, result.decoded_bytes);
  result.findings = recording.findings();
  for (Finding& finding : miscount_findings(recording)) result.findings.push_back(std::move(finding));
  return result;
}

std::string stream_name(const StreamInfo& stream) {
  if (stream.cpu >= 0) return fmt::format("cpu {}", stream.cpu);
  return stream.tid >= 0 || stream.source.empty() ? fmt::format("tid {}", stream.tid) : stream.source;
}

std::string contradiction_text(const FlowContradiction& contradiction) {
  const uint64_t places = contradiction.places.size() + contradiction.more_places;
  std::string text = fmt::format("flow_contradicts: {}", contradiction.path.empty() ? "code without a name" : contradiction.path);
  if (!contradiction.build_id.empty()) text += fmt::format(" (build id {})", contradiction.build_id);
  text += fmt::format(" is not the code that ran: {} packet{} do{} not fit its bytes, at {} place{}:", contradiction.packets,
                      contradiction.packets == 1 ? "" : "s", contradiction.packets == 1 ? "es" : "", places, places == 1 ? "" : "s");
  for (size_t i = 0; i < contradiction.places.size(); ++i)
    text += fmt::format("{} {:#x}", i == 0 ? "" : ",", contradiction.places[i].value);
  if (contradiction.more_places != 0) text += fmt::format(" and {} more", contradiction.more_places);
  if (contradiction.first_time != Interval{}) text += fmt::format(" [first at time {}]", time_text(contradiction.first_time));
  if (!contradiction.file.empty())
    text += fmt::format(". Its bytes come from {}, which has the recorded build id but may have been changed", contradiction.file);
  text += "; or the flow came to it through other code that is not, because a record of a mapping is lost";
  return contradiction.jitdump.empty() || contradiction.jitdump == contradiction.path
             ? text
             : text + " or times of generated code in " + contradiction.jitdump + " are wrong";
}

std::string wrong_times_text(const WrongTimes& times) {
  const bool kernel = times.path == kKernelCode;
  std::string text =
      fmt::format("times_contradict: {}: {} block{} ran at times at which {}, the first at {:#x}", times.path, times.blocks,
                  times.blocks == 1 ? "" : "s", kernel ? "the text pokes give other code there" : "the file has other code there, or none",
                  times.first_place.value);
  if (times.first_time != Interval{}) text += fmt::format(" [first at time {}]", time_text(times.first_time));
  if (kernel) return text + ": a text poke is lost or has a wrong time, so code there may be that of another time without a mark";
  return text + ": its times are wrong, or it lacks records, so its other code may be that of another time without a mark";
}

nlohmann::json wrong_times_json(const WrongTimes& times) {
  nlohmann::json json = {{"kind", "times_contradict"},
                         {"path", times.path},
                         {"blocks", times.blocks},
                         {"first_place", fmt::format("{:#x}", times.first_place.value)}};
  if (times.first_time != Interval{}) json["time_ns"] = {times.first_time.first.value, times.first_time.last.value};
  return json;
}

std::string damage_text(const TraceDamage& damage, const std::string& stream) {
  const std::string time = damage.first_time == Interval{} ? "" : fmt::format(" [first at time {}]", time_text(damage.first_time));
  if (damage.reason == GapReason::uncommitted)
    return fmt::format(
        "trace_damaged: {}: the trace does not commit its last branches before {} of its sync points (uncommitted), the first at trace "
        "offset {}: commits are lost, or the recorded speculation depth of the trace unit (TRCIDR8) is wrong{}",
        stream, damage.gaps, damage.first_offset_bytes, time);
  const bool is_invalid = damage.reason == GapReason::bad_packet;
  const std::string text =
      fmt::format("trace_damaged: {}: {} lose the flow in {} place{} ({}), with {} bytes of trace, the first at trace offset {}", stream,
                  is_invalid ? "invalid packets" : "overwritten or repeated trace bytes", damage.gaps, damage.gaps == 1 ? "" : "s",
                  name(damage.reason), damage.lost_bytes, damage.first_offset_bytes);
  return text + time;
}

nlohmann::json damage_json(const TraceDamage& damage, const std::string& stream) {
  nlohmann::json json = {{"kind", "trace_damaged"},         {"stream", stream},
                         {"reason", name(damage.reason)},   {"gaps", damage.gaps},
                         {"lost_bytes", damage.lost_bytes}, {"first_offset", damage.first_offset_bytes}};
  if (damage.first_time != Interval{}) json["time_ns"] = {damage.first_time.first.value, damage.first_time.last.value};
  return json;
}

std::string missing_code_text(const MissingLine& line) {
  const std::string share =
      line.lost_bytes == 0 ? "" : fmt::format(", with {:.1f} % of the trace", 100 * line.share);  // Arm counts no bytes
  return fmt::format("code_missing: {}{}: {}; the flow is lost in {}{}; supply: {}", shown(line.path),
                     line.build_id.empty() ? "" : " build id " + shown(line.build_id), shown(line.reason),
                     counted(line.gaps + line.following_gaps, "place"), share, shown(line.remedy));
}

nlohmann::json contradiction_json(const FlowContradiction& contradiction) {
  nlohmann::json json = {{"kind", "flow_contradicts"},
                         {"path", contradiction.path},
                         {"build_id", contradiction.build_id},
                         {"packets", contradiction.packets},
                         {"places", contradiction.places.size() + contradiction.more_places},
                         {"first_places", nlohmann::json::array()}};
  if (!contradiction.file.empty()) json["file"] = contradiction.file;
  if (!contradiction.jitdump.empty()) json["jitdump"] = contradiction.jitdump;
  for (const Ip ip : contradiction.places) json["first_places"].push_back(fmt::format("{:#x}", ip.value));
  if (contradiction.first_time != Interval{}) json["time_ns"] = {contradiction.first_time.first.value, contradiction.first_time.last.value};
  return json;
}

}  // namespace ptd::cli
