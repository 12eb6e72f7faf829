// Recording: the facade over what the loaders filled in.
#include "recording/recording.h"

#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "decoder/arm/decoder.h"
#include "decoder/arm/legacy_decoder.h"
#include "image/source/mapped_file.h"
#include "recording/bundle.h"
#include "recording/parallel.h"
#include "recording/recording_data.h"

namespace ptd {

struct Recording::State {
  RecordingData data;
  std::vector<PassedPages> passed;  ///< one a stream
};

namespace {

constexpr uint64_t kProgressBytes = 16ULL << 20;

// JSON starts with a brace after white space; perf.data starts with PERFILE2.
bool looks_like_json(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return false;
  for (const std::byte byte : (*file)->bytes().first(std::min<size_t>((*file)->bytes().size(), 256))) {
    const char c = static_cast<char>(byte);
    if (c == '{') return true;
    if (c != ' ' && c != '\t' && c != '\n' && c != '\r') return false;
  }
  return false;
}

/// How coarse a stream's clock is: what all TSCs of its PSBs are multiples of, 0 if there are too few of them to tell. A processor's are
/// multiples of 1 or little more; a hypervisor or a filter may have rounded them down, and then each is wrong by up to that much.
uint64_t tsc_step(const SegmentIndex& index) {
  constexpr size_t kEnough = 32;  // different values
  uint64_t step = 0, before = 0;
  size_t different = 0;
  for (const PsbEntry& entry : index.entries()) {
    if (!entry.has_tsc || entry.tsc == before) continue;
    before = entry.tsc;
    step = std::gcd(step, entry.tsc);
    ++different;
  }
  return different < kEnough ? 0 : step;
}

/// Widens all times if some stream's clock is too coarse to be taken as it is.
void allow_for_coarse_clocks(RecordingData& data) {
  constexpr uint64_t kCoarseNs = 10'000;
  uint64_t coarsest_ns = 0;
  for (const SegmentIndex& index : data.indexes) {
    const uint64_t step = tsc_step(index);
    if (!data.timing.use_time || step == 0) continue;
    coarsest_ns = std::max(coarsest_ns, data.timing.time.to_ns(Tsc{step}).value - data.timing.time.to_ns(Tsc{0}).value);
  }
  if (coarsest_ns < kCoarseNs || coarsest_ns > kTimeMax.value / 4) return;
  data.timing.slack_ns += coarsest_ns;
  data.decoder.slack_ns += coarsest_ns;
  data.warnings.push_back("the trace's clock goes in steps of " + std::to_string(coarsest_ns) + " ns: all times are widened by one step");
}

}  // namespace

void index_streams(const OpenOptions& options, RecordingData& data) {
  data.timing = {data.decoder.config.time, options.slack_ns, options.use_time};
  // Timeless: no packet then narrows what the segment says, and the segment says nothing.
  data.decoder.exact_only = options.exact_only;
  data.decoder.slack_ns = options.use_time ? options.slack_ns : kTimeMax.value;
  uint64_t total = 0, done = 0;
  for (AuxStream& stream : data.streams) {
    stream.finish();
    total += stream.size_bytes();
  }
  for (size_t i = 0; i < data.streams.size(); ++i) {
    const AuxStream& stream = data.streams[i];
    SegmentIndex index;
    const auto on_passed = [&](uint64_t first, uint64_t last) {
      data.pages.release(stream, first, last);
      done += last - first;
      if (options.progress && (done / kProgressBytes != (done - (last - first)) / kProgressBytes || done == total))
        options.progress(done, total);
    };
    StreamInfo info;
    if (i < data.arm.size()) {
      index.build_arm(stream, data.arm[i].config, on_passed);
      info.source = data.arm[i].name;
      info.core = data.arm[i].core;
      info.protocol = data.arm[i].config.protocol;
      info.trace_id = data.arm[i].config.trace_id;
    } else {
      index.build(stream, on_passed);
    }
    info.cpu = stream.cpu;
    info.tid = stream.tid;
    info.idx = stream.idx;
    info.size_bytes = stream.size_bytes();
    info.segments = index.size();
    if (index.size() > 0) {
      info.time = {index.time_of(stream, 0, data.timing).first, index.time_of(stream, index.size() - 1, data.timing).last};
    }
    data.infos.push_back(info);
    const auto in_root = [](const PsbEntry& entry) { return entry.in_root; };
    if (data.kind == RecordingKind::perf && std::any_of(index.entries().begin(), index.entries().end(), in_root))
      data.decoder.image_is_of_root = true;
    data.indexes.push_back(std::move(index));
  }
  allow_for_coarse_clocks(data);
  const auto decodable = [](const SegmentIndex& index) { return index.size() != 0; };
  if (total != 0 && std::none_of(data.indexes.begin(), data.indexes.end(), decodable)) {
    data.warnings.push_back(std::string(data.arm.empty() ? "no PSB" : "no A-Sync") + " packet in the " + std::to_string(total) +
                            " bytes of trace: nothing of it can be decoded");
  }
}

Recording::Recording() : state_(std::make_unique<State>()) {}
Recording::~Recording() = default;

Result<std::unique_ptr<Recording>> Recording::open(const OpenOptions& options) {
  std::unique_ptr<Recording> recording(new Recording());
  RecordingData& data = recording->state_->data;
  const auto load = [&] {
    const std::string snapshot = options.path == "-" ? std::string{} : snapshot_directory(options.path);
    if (!snapshot.empty()) return load_snapshot(options, snapshot, data);
    if (options.path != "-" && looks_like_bundle(options.path)) return load_bundle(options, data);
    if (options.path != "-" && looks_like_json(options.path)) return load_lldb_bundle(options, data);
    return load_perf(options, data);
  };
  const Status status = load();
  if (!status.ok()) return status.error();
  recording->state_->passed = std::vector<PassedPages>(data.streams.size());
  return recording;
}

Result<std::unique_ptr<Recording>> Recording::open_raw(const RawOptions& raw, const OpenOptions& options) {
  std::unique_ptr<Recording> recording(new Recording());
  const Status status = load_raw(raw, options, recording->state_->data);
  if (!status.ok()) return status.error();
  recording->state_->passed = std::vector<PassedPages>(recording->state_->data.streams.size());
  return recording;
}

const RecordingData& data_of(const Recording& recording) { return recording.state_->data; }

const std::vector<StreamInfo>& Recording::streams() const { return state_->data.infos; }
const Timeline& Recording::timeline() const { return state_->data.timeline; }
const ContextTrack& Recording::contexts() const { return state_->data.contexts; }
const Symbolizer& Recording::symbolizer() const { return *state_->data.symbolizer; }
const arm::TraceConfig* Recording::arm_config(uint32_t stream) const {
  return stream < state_->data.arm.size() ? &state_->data.arm[stream].config : nullptr;
}
uint64_t Recording::buffer_offset(uint32_t stream, uint64_t offset_bytes) const {
  return stream < state_->data.arm.size() ? state_->data.arm[stream].place_of(offset_bytes) : offset_bytes;
}
const pt::DecoderOptions& Recording::decoder_options() const { return state_->data.decoder; }
const std::map<int32_t, std::string>& Recording::thread_names() const { return state_->data.thread_names; }
const std::vector<MissingImage>& Recording::missing_images() const { return state_->data.missing; }
const LostRecords& Recording::lost() const { return state_->data.lost; }
const std::vector<std::string>& Recording::warnings() const { return state_->data.warnings; }
std::string Recording::description() const { return state_->data.description; }

std::string Recording::comm_at(int32_t tid, TimeNs when) const {
  const auto found = state_->data.comms.find(tid);
  if (found == state_->data.comms.end()) return tid == 0 ? "swapper" : "";  // the idle threads are never named by a record
  const auto& names = found->second;
  auto name = std::upper_bound(names.begin(), names.end(), when, [](TimeNs value, const auto& entry) { return value < entry.first; });
  return name == names.begin() ? names.front().second : std::prev(name)->second;
}

uint64_t Recording::segment_count(uint32_t stream) const {
  return stream < state_->data.indexes.size() ? state_->data.indexes[stream].size() : 0;
}

AuxSegment Recording::segment(uint32_t stream, uint64_t index, std::vector<std::byte>& scratch) const {
  if (index >= segment_count(stream)) return {};
  const RecordingData& data = state_->data;
  state_->passed[stream].at(data.pages, data.streams[stream], data.indexes[stream].entries()[index].offset_bytes);
  AuxSegment segment = data.indexes[stream].segment(data.streams[stream], index, data.timing, scratch);
  segment.stream = stream;
  return segment;
}

uint64_t Recording::segment_at(uint32_t stream, TimeNs t) const {
  return stream < state_->data.indexes.size() ? state_->data.indexes[stream].at(state_->data.streams[stream], t, state_->data.timing) : 0;
}

Status Recording::decode(uint32_t stream, uint64_t first_segment, uint64_t last_segment, const Sink& sink) const {
  return decode_parallel(stream, first_segment, last_segment, 1, sink);
}

Status Recording::decode_parallel(uint32_t stream, uint64_t first_segment, uint64_t last_segment, unsigned threads,
                                  const Sink& sink) const {
  if (stream >= state_->data.streams.size()) return Error{ErrorKind::usage, "no stream " + std::to_string(stream), 0};
  ParallelJob job;
  job.first_segment = first_segment;
  job.last_segment = std::min(last_segment, segment_count(stream));
  job.threads = threads;
  job.held_bytes = kHeldBytes;
  job.segment = [this, stream](uint64_t index, std::vector<std::byte>& scratch) { return segment(stream, index, scratch); };
  job.make_decoder = [this, stream]() -> std::unique_ptr<FlowDecoder> {
    if (stream < state_->data.arm.size()) {
      const arm::TraceConfig& config = state_->data.arm[stream].config;
      if (config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete) {
        return std::make_unique<arm::LegacyDecoder>(timeline(), contexts(), config, state_->data.arm_follow);
      }
      arm::DecoderOptions options;
      options.config = config;
      options.follow = state_->data.arm_follow;
      return std::make_unique<arm::Decoder>(timeline(), contexts(), options);
    }
    pt::DecoderOptions options = decoder_options();
    if (stream < state_->data.anchors.size()) options.sync_points = &state_->data.anchors[stream];
    return std::make_unique<pt::Decoder>(timeline(), contexts(), options);
  };
  run_job(job, sink);
  return {};
}

}  // namespace ptd
