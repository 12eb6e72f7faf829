// SidebandFold: trace in samples (PERF_SAMPLE_AUX), and trace that contradicts the AUX records. See sideband_fold.h.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "recording/data/event_names.h"
#include "recording/perf/sideband_fold.h"
#include "recording/trace/lost_trace.h"
#include "recording/trace/segments.h"

namespace ptd {
namespace {

constexpr uint64_t kBytesPerWindow = 320;  // of what the stream stores with each window, besides its trace

}  // namespace

// Samples come in order of time, and so do the windows of each ring.
void SidebandFold::on_aux_sample(const perfio::Record& record, const perfio::OtherSample& sample) {
  if (attrs_ == nullptr || record.attr_index >= attrs_->size()) return;
  const perfio::EventAttr& attr = (*attrs_)[record.attr_index];
  if (!attr.holds_trace()) return;
  ++windows_.samples;
  const auto key = rings_.stream_of(record.sample_id, per_cpu_);
  if (sample.aux.empty()) {
    ++windows_.without_trace;
    return;
  }
  const bool is_known = key.first >= 0 || key.second >= 0;
  const uint64_t copy_bytes = sample.transient ? sample.aux.size() + kBytesPerWindow : 0;
  if (!is_known || is_arm_ || copy_bytes > windows_.free_bytes) {
    ++windows_.left_out;
    return;
  }
  AuxStream& stream = stream_at(key, static_cast<uint32_t>(data_.streams.size()));
  if (!stream.may_hold_samples()) {
    ++windows_.left_out;
    return;
  }
  Bytes window = sample.aux;
  if (sample.transient) {
    const auto copy = std::make_shared<const std::vector<std::byte>>(window.begin(), window.end());
    windows_.free_bytes -= copy_bytes;
    data_.owners.push_back(copy);
    window = *copy;
  }
  stream.add_sample({0, 0, sample_name(record.attr_index, attr), record.sample_id.has_time ? TimeNs{record.sample_id.time} : kTimeMin,
                     Ip{sample.ip}, record.sample_id.pid, record.sample_id.tid, record.sample_id.cpu},
                    window);
}

uint32_t SidebandFold::sample_name(uint32_t attr_index, const perfio::EventAttr& attr) {
  const auto [known, is_new] = sample_names_.emplace(attr_index, static_cast<uint32_t>(data_.sample_names.size()));
  if (is_new) data_.sample_names.push_back(event_name(attr));
  return known->second;
}

// perf takes snapshots of rings that the kernel overwrites, and of no others, and the kernel says so in AUX records.
void SidebandFold::settle_snapshot_mode() {
  snapshot_ = snapshot_word_ == 1;
  const bool is_told = windows_.samples == 0 && !data_.streams.empty() && (overwritten_aux_ == 0) != (stored_aux_ == 0);
  if (is_told) snapshot_ = overwritten_aux_ != 0;
  for (AuxStream& stream : data_.streams) {
    if (snapshot_ && stream.samples().empty()) stream.set_snapshot();
  }
  if (snapshot_word_ == (snapshot_ ? 1 : 0)) return;
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = "AUXTRACE_INFO has a snapshot mode of " + std::to_string(snapshot_word_) +
                 (snapshot_word_ > 1 ? ", neither 0 nor 1" : ", which the flags of the AUX records contradict") + ": decoded as " +
                 (snapshot_ ? "snapshots" : "a full trace");
  data_.warnings.push_back(finding.what);
  image_.builder.add_finding(std::move(finding));
}

// Trace that AUX records announce, or say to be lost, of cpus or threads without any AUXTRACE record.
void SidebandFold::report_absent_streams(bool emulated) {
  struct Absent {
    uint64_t size_bytes = 0;
    AuxBreak why = AuxBreak::none;
    Interval time;
  };
  std::map<std::pair<int32_t, int32_t>, Absent> all;
  const bool per_thread = std::any_of(data_.streams.begin(), data_.streams.end(), [](const AuxStream& stream) { return stream.cpu < 0; });
  for (const AuxEnd& end : aux_ends_) {
    if (snapshot_ || windows_.samples != 0 || place_of(end) != stream_of_.end()) continue;
    if (end.size_bytes == 0 && end.why == AuxBreak::none) continue;
    if (end.cpu < 0 && end.tid < 0) continue;
    const bool by_thread = per_thread || end.cpu < 0;
    const auto [known, is_new] = all.try_emplace(by_thread ? std::pair(-1, end.tid) : std::pair(end.cpu, -1));
    Absent& absent = known->second;
    absent.size_bytes += std::min(end.size_bytes, ~absent.size_bytes);
    if (end.why != AuxBreak::none) absent.why = end.why;
    const Interval time{kTimeMin, end.has_time ? end.time : kTimeMax};
    absent.time = is_new ? time : hull(absent.time, time);
  }
  for (const auto& [key, absent] : all) {
    Finding finding;
    finding.kind = FindingKind::trace_lost;
    finding.time = absent.time;
    finding.what =
        (key.first >= 0 ? "cpu " + std::to_string(key.first) : "thread " + std::to_string(key.second)) + ": all trace is missing: " +
        (absent.size_bytes == 0
             ? reason_of(absent.why, emulated)
             : "AUX records name " + std::to_string(absent.size_bytes) + " bytes, and the file contains no AUXTRACE record of them");
    image_.builder.add_finding(std::move(finding));
  }
}

// Trace past the last AUX record of its cpu or thread. The recorder stores only what the kernel has announced, so records are missing, and
// with them the context switches and mappings of that time. ArmPerf reports that of CoreSight.
void SidebandFold::report_unnamed_trace() {
  constexpr uint64_t kMostPaddingBytes = 8;
  if (is_arm_ || snapshot_ || windows_.samples != 0 || stored_aux_ == 0 || data_.lost.lost_records != 0) return;
  std::vector<uint64_t> ends(data_.streams.size());
  for (const AuxEnd& end : aux_ends_) {
    if (const auto place = place_of(end); place != stream_of_.end())
      ends[place->second] = std::max(ends[place->second], end.end_offset_bytes);
  }
  for (size_t i = 0; i < data_.streams.size(); ++i) {
    const AuxStream& stream = data_.streams[i];
    const uint64_t named = ends[i];
    if (stream.size_bytes() == 0 || stream.end_offset() <= named + kMostPaddingBytes) continue;
    Finding finding;
    finding.kind = FindingKind::records_lost;
    finding.time = {stream.written().empty() ? kTimeMin : stream.written().back().time, kTimeMax};
    finding.what = name_of(stream) + ": no AUX record names the last " + std::to_string(stream.end_offset() - named) +
                   " bytes of trace: records of that time are missing, also context switches and mappings";
    image_.builder.add_lost_window(finding.time);
    image_.builder.add_finding(std::move(finding));
  }
}

// A cpu or thread whose trace is of another time than its AUX records: the trace, or the records, are of another one. clock_findings()
// reports a stream whose first TSC is right.
void SidebandFold::report_strange_times() {
  constexpr uint64_t kSamples = 16, kSlackNs = 1'000'000;
  if (is_arm_ || other_clock_ || snapshot_ || windows_.samples != 0 || !options_.use_time || !data_.decoder.config.time.valid()) return;
  for (const AuxStream& stream : data_.streams) {
    if (stream.written().empty() || stream.size_bytes() == 0) continue;
    const SegmentIndex index(stream);
    const uint64_t begin = stream.begin_offset(), step = std::max<uint64_t>(1, (stream.end_offset() - begin) / kSamples);
    uint64_t timed = 0, strange = 0;
    bool begins_strange = false;
    Interval window;
    for (auto psb = index.next(begin); psb;
         psb = index.next(std::max(psb->offset_bytes + 1, begin + (psb->offset_bytes - begin) / step * step + step))) {
      if (!psb->has_tsc || psb->in_guest) continue;
      ++timed;
      const Interval time = data_.decoder.config.time.to_interval(Tsc{psb->tsc}, Tsc{psb->tsc});
      const TimeNs by = stream.written_by(psb->offset_bytes + 1), from = stream.written_from(psb->offset_bytes);
      const bool late = by.value < time.first.value - std::min(time.first.value, kSlackNs), early = time.last < from;
      if (!late && !early) continue;
      begins_strange = begins_strange || timed == 1;
      window = strange++ == 0 ? time : hull(window, time);
    }
    if (!begins_strange || strange * 2 <= timed) continue;
    Finding finding;
    finding.kind = FindingKind::bad_record;
    finding.time = window;
    finding.what = name_of(stream) + ": its trace is of other times than its AUX records: the trace may be of another thread or cpu";
    image_.builder.add_finding(std::move(finding));
  }
}

void SidebandFold::report_windows() {
  if (windows_.without_trace != 0)
    data_.warnings.push_back(std::to_string(windows_.without_trace) + " of " + std::to_string(windows_.samples) +
                             " AUX samples hold no trace: tracing was off, or the sample interrupted another one");
  if (windows_.left_out == 0) return;
  Finding finding;
  finding.kind = FindingKind::trace_lost;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = "the trace in " + std::to_string(windows_.left_out) + " records is not decoded: " +
                 (is_arm_ ? "AUX samples are decoded of Intel PT only"
                          : "AUX samples name neither a cpu nor a thread, a buffer has both AUX samples and AUXTRACE records, or the "
                            "trace in compressed records needs more than 1 GiB of memory");
  image_.builder.add_finding(std::move(finding));
}

void SidebandFold::on_hole(const perfio::ReadDamage& damage, const perfio::ReadDamage::Hole& hole, Interval window) {
  Finding finding;
  finding.kind = FindingKind::records_lost;
  finding.time = window;
  finding.what = damage.name_of(hole.file) + " is damaged at byte " + std::to_string(hole.offset_bytes) + ": " +
                 std::to_string(hole.size_bytes) + " bytes are skipped, records and trace";
  image_.builder.add_lost_window(finding.time);
  image_.builder.add_finding(std::move(finding));
}

}  // namespace ptd
