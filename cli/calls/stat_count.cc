// What `ptdecode stat` counts: see stat_count.h.
#include "cli/calls/stat_count.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "analysis/flow_clock.h"
#include "cli/options/options.h"
#include "cli/report/finding_text.h"
#include "cli/text/output.h"

namespace ptd::cli {

namespace {

void count_stream(const Recording& recording, uint32_t stream, const StatRequest& request, unsigned threads, StreamStat& stat,
                  LossTimes& losses, Progress& progress) {
  std::vector<std::byte> scratch;
  AuxSegment piece;
  for (uint64_t at = 0; !interrupted() && recording.next_segment(stream, at, piece, scratch);) {
    ++stat.segments;
    if (const arm::TraceConfig* config = recording.arm_config(stream)) {
      stat.add_arm_packets(*config, piece);
    } else {
      stat.add_packets(piece);
    }
    if (request.packets_only) progress.add(piece.bytes.size());
  }
  stat.add_windows(recording, stream);
  if (request.packets_only) return;
  uint64_t offset = 0;
  const auto sink = [&](const Batch& batch, const FlowDecoder&, const AuxSegment& segment) {
    stat.add(batch);
    losses.take(batch);
    if (request.on_batch) request.on_batch(stream, batch);
    if (segment.stream_offset_bytes > offset) progress.add(segment.stream_offset_bytes - offset);
    offset = std::max(offset, segment.stream_offset_bytes);
    return !interrupted();
  };
  const Status status = recording.decode_parallel(stream, 0, Recording::kStreamEnd, threads, sink);
  losses.finish(recording.streams()[stream].time.last);
  if (!status) report_error(status.error());
}

}  // namespace

// Streams side by side, as many as there are threads; threads that are left over share the streams' segments.
StatCounts count_streams(const Recording& recording, const StatRequest& request, Progress& progress) {
  const std::vector<uint32_t>& streams = request.streams;
  unsigned threads = request.threads;
  std::mutex mutex;
  StatCounts counts;
  counts.streams.resize(streams.size());
  counts.is_decoded = !request.packets_only;
  counts.losses.span = dated_span(recording);
  for (const uint32_t stream : streams) counts.total_bytes += recording.streams()[stream].size_bytes;
  progress.set_total(counts.total_bytes);
  std::atomic<size_t> next{0};
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  const size_t count = std::min<size_t>(streams.size(), threads);
  const unsigned each = count == 0 ? 1 : std::max(1U, threads / static_cast<unsigned>(count));
  const ThreadSchedule schedule(recording.contexts());
  const auto work = [&] {
    for (size_t i = next++; i < streams.size(); i = next++) {
      const StreamInfo& info = counts.streams[i].info = recording.streams()[streams[i]];
      counts.streams[i].is_decoded = counts.is_decoded;
      LossTimes losses(recording.contexts(), info.cpu, info.tid, counts.losses.span, flow_clock(recording, streams[i], schedule));
      count_stream(recording, streams[i], request, each, counts.streams[i], losses, progress);
      const std::lock_guard lock(mutex);
      counts.losses.add(losses);
    }
  };
  std::vector<std::thread> workers;
  for (size_t i = 1; i < count; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  for (const StreamStat& stat : counts.streams) counts.gaps.merge(stat.gaps);
  return counts;
}

std::map<std::string_view, size_t> findings_by_kind(const Recording& recording) {
  std::map<std::string_view, size_t> kinds;
  for (const Finding& finding : recording.findings()) ++kinds[name(finding.kind, text_records(recording))];
  return kinds;
}

std::vector<std::string> losses_of(const Recording& recording) {
  std::vector<std::string> losses;
  for (const Finding& finding : recording.findings()) {
    if (finding.kind == FindingKind::records_lost) losses.push_back(finding.what);
  }
  return losses;
}

nlohmann::json stat_report_json(const Recording& recording, const StatCounts& counts) {
  nlohmann::json json = {{"schema", "ptdecode-stat-1"},
                         {"recording", recording.description()},
                         {"decoded", counts.is_decoded},
                         {"streams", nlohmann::json::array()}};
  for (const StreamStat& stat : counts.streams) json["streams"].push_back(stat_json(stat));
  json["findings"] = nlohmann::json::object();
  for (const auto& [kind, count] : findings_by_kind(recording)) json["findings"][std::string(kind)] = count;
  json["records_lost"] = losses_of(recording);
  if (counts.is_decoded) {
    json["missing_code"] = missing_json(rank_missing(counts.gaps, recording, counts.total_bytes));
    json["loss_times"] = loss_json(counts.losses, recording);
  }
  const LostRecords& lost = recording.lost();
  json["lost"] = {{"records", lost.lost_records},
                  {"count", lost.records},
                  {"aux_truncated", lost.aux_truncated},
                  {"aux_partial", lost.aux_partial},
                  {"aux_collision", lost.aux_collision}};
  return json;
}

}  // namespace ptd::cli
