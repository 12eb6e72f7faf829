// SidebandFold: trace in samples (PERF_SAMPLE_AUX). See sideband_fold.h.
#include <memory>
#include <string>
#include <vector>

#include "recording/data/event_names.h"
#include "recording/perf/sideband_fold.h"

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

}  // namespace ptd
