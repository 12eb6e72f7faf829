// Opens a bundle: restores the state of the original recording, as far as decoding needs it.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <new>
#include <utility>

#include "image/base/fnv.h"
#include "image/base/mapped_file.h"
#include "image/timeline_access.h"
#include "ptdecode/bundle.h"
#include "ptdecode/guest.h"
#include "recording/bundle/bundle_arm.h"
#include "recording/bundle/bundle_container.h"
#include "recording/bundle/bundle_events.h"
#include "recording/bundle/bundle_image.h"
#include "recording/bundle/bundle_windows.h"
#include "recording/bundle/plan_wire.h"
#include "recording/data/image_log.h"
#include "recording/data/own_files.h"
#include "recording/data/part_of_trace.h"
#include "recording/data/recording_data.h"

namespace ptd {
namespace {

// Of memory, for each entry of a map with a list or a name.
constexpr uint64_t kMapEntryBytes = 128;
constexpr uint64_t kMaxOffset = ~uint64_t{0} / 4;  // of a stream

/// Address space in place of a file: pages of zeros that take no memory.
Bytes absent_bytes(uint64_t size_bytes, std::vector<std::shared_ptr<const void>>& owners) {
  if (size_bytes == 0) return {};
  void* memory = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  owners.emplace_back(memory, [size_bytes](const void* at) { ::munmap(const_cast<void*>(at), size_bytes); });
  return {static_cast<const std::byte*>(memory), size_bytes};
}

/// Fills a RecordingData from chunks. Every read_* is false where a chunk does not fit.
class Loader {
 public:
  Loader(const OpenRequest& options, BundleChunks& chunks, Bytes file, RecordingData& data)
      : options_(options), chunks_(chunks), file_(file), budget_(file.size()), data_(data) {}

  Status load();

 private:
  [[nodiscard]] Bytes chunk_of(std::string_view type) const {
    const auto found = chunks_.find(type);
    return found == chunks_.end() ? Bytes{} : Bytes(found->second);
  }
  [[nodiscard]] ByteReader reader_of(std::string_view type) { return ByteReader(chunk_of(type), &budget_); }
  [[nodiscard]] Error damaged(std::string_view type, const Error& why = {ErrorCode::bad_format, {}, 0}) const {
    if (budget_.exceeded())
      return Error{ErrorCode::bad_format, options_.path + ": part '" + std::string(type) + "' of the bundle: " + ListBudget::message(),
                   why.offset_bytes};
    const std::string reason = why.message.empty() ? "its content is inconsistent" : why.message;
    return Error{why.code, options_.path + ": part '" + std::string(type) + "' of the bundle: " + reason, why.offset_bytes};
  }
  bool read_info(ByteReader in);
  bool read_config(ByteReader in);
  bool read_streams(ByteReader in);
  bool read_stream(ByteReader& in, Bytes& aux);
  /// The bytes of piece `index` of the stream that is being read; nothing if its place is wrong.
  bool read_piece(size_t index, uint64_t size, Bytes& aux, Bytes& bytes) const;
  void add_trace_file(Bytes bytes, std::pair<uint64_t, uint64_t> identity);
  [[nodiscard]] Result<std::shared_ptr<const MappedFile>> open_planned(const std::string& path) const;
  Status open_trace();
  Status load_streams();
  [[nodiscard]] uint64_t plan_id() const;
  bool read_contexts(ByteReader in);
  bool read_guests(ByteReader in);
  bool read_notes(ByteReader in);
  bool read_pokes(ByteReader in);
  bool read_spans(ByteReader in);
  Status load_image();

  const OpenRequest& options_;
  BundleChunks& chunks_;
  Bytes file_;
  ListBudget budget_;
  RecordingData& data_;
  std::vector<std::string> warnings_;
  std::vector<MissingImage> missing_;
  std::vector<std::vector<pt::SyncPoint>> spans_;
  std::shared_ptr<PlanData> plan_;  // null: a bundle with its trace
  struct PlannedFile {
    Bytes bytes;
    uint64_t* left_bytes;  // that no piece has: pieces that share bytes would make a long trace of a small file
  };
  std::vector<PlannedFile> trace_files_;                          // of the plan
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> left_bytes_;  // of each file, by its identity
};

bool Loader::read_info(ByteReader in) {
  data_.kind = static_cast<RecordingKind>(in.number_to(static_cast<uint64_t>(RecordingKind::snapshot)));
  data_.description = in.text();
  data_.part = in.interval();
  return in.done();
}

bool Loader::read_config(ByteReader in) {
  pt::DecoderOptions& decoder = data_.decoder;
  pt::Config& config = decoder.config;
  config.cpu.family = static_cast<uint16_t>(in.number_to(UINT16_MAX));
  config.cpu.model = static_cast<uint8_t>(in.number_to(UINT8_MAX));
  config.cpu.stepping = static_cast<uint8_t>(in.number_to(UINT8_MAX));
  config.errata = pt::errata_of(config.cpu);
  config.return_compression = static_cast<pt::ReturnCompression>(in.number_to(static_cast<uint64_t>(pt::ReturnCompression::off)));
  config.mtc_period = static_cast<uint8_t>(in.number_to(UINT8_MAX));
  config.tsc_ctc_ratio_n = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  config.tsc_ctc_ratio_d = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  config.max_nonturbo_ratio = static_cast<uint8_t>(in.number_to(UINT8_MAX));
  config.has_tsc = in.flag();
  config.has_mtc = in.flag();
  config.has_cyc = in.flag();
  config.address_filter = in.flag();
  config.initial_mode = static_cast<ExecMode>(in.number_to(static_cast<uint64_t>(ExecMode::bits64)));
  config.time.time_shift = static_cast<uint16_t>(in.number_to(UINT16_MAX));
  config.time.time_mult = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  config.time.time_zero = in.number();
  config.time.time_cycles = in.number();
  config.time.time_mask = in.number();
  config.time.cap_user_time_short = in.flag();
  for (uint64_t left = in.count(sizeof(decoder.filter[0])); left > 0 && in.ok(); --left) {
    const Ip first{in.number()};
    decoder.filter.push_back({first, Ip{in.number()}});
  }
  decoder.default_space = SpaceId{static_cast<uint32_t>(in.number_to(UINT32_MAX))};
  decoder.breakpoint_entry = Ip{in.number()};
  if (in.done()) return true;  // written before the following was kept
  config.tip_order = static_cast<pt::TipOrder>(in.number_to(static_cast<uint64_t>(pt::TipOrder::may_be_deferred)));
  decoder.image_is_of_root = in.flag();
  if (!in.done()) config.has_flow = in.flag();
  return in.done();
}

bool Loader::read_stream(ByteReader& in, Bytes& aux) {
  AuxStream stream;
  stream.cpu = in.id();
  stream.tid = in.id();
  stream.idx = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  std::vector<AuxChunk> chunks;
  uint64_t at = 0;
  for (uint64_t left = in.count(sizeof(AuxChunk)); left > 0 && in.ok(); --left) {
    AuxChunk chunk;
    chunk.offset_bytes = in.number_to(kMaxOffset);
    const uint64_t size = in.number();
    if (chunk.offset_bytes < at || !read_piece(chunks.size(), size, aux, chunk.bytes)) return false;
    at = chunk.end();
    chunks.push_back(chunk);
  }
  std::vector<Seam> seams;
  for (uint64_t left = in.count(sizeof(Seam)); left > 0 && in.ok(); --left) {
    const uint64_t offset = in.number_to(kMaxOffset * 2);
    const auto why = static_cast<AuxBreak>(in.number_to(static_cast<uint64_t>(AuxBreak::missing)));
    if (!seams.empty() && offset < seams.back().offset_bytes) return false;
    seams.push_back({offset, why});
  }
  std::vector<AuxStream::Written> written;
  uint64_t end = 0;
  for (uint64_t left = in.count(sizeof(AuxStream::Written)); left > 0 && in.ok(); --left) {
    end += in.number_to(~uint64_t{0} - end);
    written.push_back({end, in.time()});
  }
  stream.restore(std::move(chunks), std::move(seams), std::move(written));
  data_.streams.push_back(std::move(stream));
  return in.ok();
}

bool Loader::read_piece(size_t index, uint64_t size, Bytes& aux, Bytes& bytes) const {
  const size_t stream = data_.streams.size();
  if (plan_) {
    if (stream >= plan_->pieces.size() || index >= plan_->pieces[stream].size()) return false;
    const auto& [file, offset] = plan_->pieces[stream][index];
    if (file != 0) {
      const auto& [whole, left_bytes] = trace_files_[file - 1];
      if (offset > whole.size() || size > whole.size() - offset || size > *left_bytes) return false;
      *left_bytes -= size;
      bytes = whole.subspan(offset, size);
      return true;
    }
  }
  if (size > aux.size()) return false;
  bytes = aux.first(size);
  aux = aux.subspan(size);
  return true;
}

/// Opens a trace file that the plan names. A bundle contains its bytes, so for one it must be below the plan's folder.
Result<std::shared_ptr<const MappedFile>> Loader::open_planned(const std::string& path) const {
  if (!options_.image_log || !options_.image_log->share) return MappedFile::open(path);
  const OwnFiles own(std::filesystem::path(options_.path).parent_path().string(), options_);
  OwnFiles::Opened opened = own.open(path);
  if (!opened.file) return Error{opened.code, path + ": " + opened.why, 0};
  return std::move(opened.file);
}

void Loader::add_trace_file(Bytes bytes, std::pair<uint64_t, uint64_t> identity) {
  uint64_t& left = left_bytes_.try_emplace(identity, bytes.size()).first->second;
  trace_files_.push_back({bytes, &left});
}

// Maps the trace files of a plan: those that the options name, or at their recorded paths.
Status Loader::open_trace() {
  for (size_t i = 0; i < plan_->files.size(); ++i) {
    const TraceFile& wanted = plan_->files[i];
    if (options_.without_trace) {
      add_trace_file(absent_bytes(wanted.size_bytes, data_.owners), {0, i});
      continue;
    }
    const bool given = i < options_.trace_files.size() && !options_.trace_files[i].empty();
    const std::string& path = given ? options_.trace_files[i] : wanted.path;
    auto file = given ? MappedFile::open(path) : open_planned(path);
    if (!file.ok())
      return Error{file.error().code,
                   options_.path + ": the trace file of the plan: " + file.error().message +
                       (given ? "" : "; put it back, or name it with --trace ('ptdecode unit')"),
                   0};
    if ((*file)->bytes().size() != wanted.size_bytes)
      return Error{(*file)->bytes().size() < wanted.size_bytes ? ErrorCode::truncated : ErrorCode::wrong_recording,
                   path + ": the trace file has " + std::to_string((*file)->bytes().size()) + " bytes, and had " +
                       std::to_string(wanted.size_bytes) + " when it was planned",
                   0};
    data_.owners.push_back(*file);
    data_.pages.add_mapping((*file)->bytes());
    add_trace_file((*file)->bytes(), (*file)->identity());
  }
  return {};
}

bool Loader::read_streams(ByteReader in) {
  constexpr uint64_t kMaxStreams = 1U << 16;  // one takes 1.5 kB of memory, and an empty one five bytes of the file
  const auto held = std::make_shared<std::vector<std::byte>>(std::move(chunks_.find(chunk::kAux)->second));
  Bytes aux(*held);
  data_.owners.push_back(held);
  const uint64_t count = in.count();
  if (count > kMaxStreams) return false;
  for (uint64_t left = count; left > 0; --left) {
    if (!read_stream(in, aux)) return false;
  }
  return in.done() && aux.empty();
}

template <typename Add>
void read_switches(ByteReader& in, const Add& add) {
  uint64_t time = 0;
  for (uint64_t left = in.count(sizeof(ContextTrack::Switch)); left > 0 && in.ok(); --left) {
    time += in.number_to(~uint64_t{0} - time);
    Context to;
    to.pid = in.id();
    to.tid = in.id();
    to.space = SpaceId{static_cast<uint32_t>(in.number_to(uint64_t{1} << 32) - 1)};
    if (in.ok()) add(TimeNs{time}, to);
  }
}

bool Loader::read_contexts(ByteReader in) {
  const auto read_track = [&](const auto& add) {
    const int32_t key = in.id();
    read_switches(in, [&](TimeNs time, Context to) { add(key, time, to); });
  };
  for (uint64_t left = in.count(kMapEntryBytes); left > 0 && in.ok(); --left)
    read_track([&](int32_t cpu, TimeNs time, Context to) {
      if (cpu > kGuestCpus) data_.contexts.add_switch(cpu, time, to);
    });
  for (uint64_t left = in.count(kMapEntryBytes); left > 0 && in.ok(); --left)
    read_track([&](int32_t tid, TimeNs time, Context to) { data_.contexts.add_thread(tid, time, to); });
  data_.contexts.sort();
  for (uint64_t left = in.count(kMapEntryBytes); left > 0 && in.ok(); --left) {
    const int32_t tid = in.id();
    data_.thread_names[tid] = in.text();
  }
  for (uint64_t left = in.count(kMapEntryBytes); left > 0 && in.ok(); --left) {
    auto& names = data_.comms[in.id()];
    for (uint64_t each = in.count(sizeof(std::pair<TimeNs, std::string>)); each > 0 && in.ok(); --each) {
      const TimeNs time = in.time();
      names.emplace_back(time, in.text());
    }
    if (names.empty()) return false;
  }
  return in.done();
}

bool Loader::read_guests(ByteReader in) {
  const auto read_machine = [&in] { return static_cast<uint32_t>(in.number_to(kMostGuests)); };
  bool are_guests = true;  // machine 0 is the host
  for (uint64_t left = in.count(kMapEntryBytes); left > 0 && in.ok(); --left) {
    const uint32_t machine = read_machine();
    are_guests = are_guests && machine != 0;
    if (const int32_t pid = in.id(); in.ok() && are_guests) add_guest(data_.contexts, {machine, pid, -1});
  }
  for (uint64_t left = in.count(kMapEntryBytes); left > 0 && in.ok(); --left) {
    const int32_t tid = in.id();
    Guest guest;
    guest.machine = read_machine();
    guest.pid = in.id();
    guest.vcpu = in.id();
    are_guests = are_guests && guest.machine != 0;
    if (in.ok() && are_guests) add_guest_cpu(data_.contexts, tid, guest);
  }
  for (uint64_t left = in.count(kMapEntryBytes); left > 0 && in.ok(); --left) {
    Guest cpu;
    cpu.machine = read_machine();
    cpu.vcpu = in.id();
    are_guests = are_guests && cpu.machine != 0;
    read_switches(in, [&](TimeNs time, Context to) {
      if (are_guests) add_guest_switch(data_.contexts, cpu, time, to);
    });
  }
  data_.contexts.sort();
  return in.done() && are_guests;
}

bool Loader::read_notes(ByteReader in) {
  for (uint64_t left = in.count(sizeof(std::string)); left > 0 && in.ok(); --left) warnings_.push_back(in.text());
  for (uint64_t left = in.count(sizeof(MissingImage)); left > 0 && in.ok(); --left) {
    MissingImage& missing = missing_.emplace_back();
    missing.path = in.text();
    missing.build_id = in.text();
    missing.reason = in.text();
  }
  LostRecords& lost = data_.lost;
  for (uint64_t* value : {&lost.lost_records, &lost.records, &lost.aux_truncated, &lost.aux_partial, &lost.aux_collision})
    *value = in.number();
  return in.done();
}

bool Loader::read_pokes(ByteReader in) {
  for (uint64_t left = in.count(sizeof(PokeStamp)); left > 0 && in.ok(); --left) {
    const TimeNs time = in.time();
    data_.pokes.push_back({time, in.id()});
  }
  return in.done();
}

bool Loader::read_spans(ByteReader in) {
  for (uint64_t left = in.count(sizeof(std::vector<pt::SyncPoint>)); left > 0 && in.ok(); --left) {
    auto& points = spans_.emplace_back();
    for (uint64_t each = in.count(sizeof(pt::SyncPoint)); each > 0 && in.ok(); --each) {
      const uint64_t offset = in.number();
      if (!points.empty() && offset < points.back().stream_offset_bytes) return false;
      points.push_back({offset, in.interval()});
    }
  }
  return in.done() && (spans_.empty() || spans_.size() == data_.streams.size());
}

Status Loader::load_image() {
  BundleCodeReader code;
  if (Status status = code.read(reader_of(chunk::kCode)); !status.ok()) return damaged(chunk::kCode, status.error());
  auto symbols = read_symbols(reader_of(chunk::kSymbols));
  if (!symbols.ok()) return damaged(chunk::kSymbols, symbols.error());
  for (const auto& [type, read] : {std::pair(chunk::kSymbolPlaces, &read_places), std::pair(chunk::kAliases, &read_aliases),
                                   std::pair(chunk::kRangePlaces, &read_range_places), std::pair(chunk::kRangeLines, &read_range_lines),
                                   std::pair(chunk::kFrames, &read_frames), std::pair(chunk::kSites, &read_sites)}) {
    if (chunks_.find(type) == chunks_.end()) continue;
    if (Status status = read(reader_of(type), *symbols); !status.ok()) return damaged(type, status.error());
  }
  ImageBuild image(options_);
  if (plan_ && plan_->frozen) image.builder.freeze_at_first_version();
  if (chunks_.find(chunk::kArm) != chunks_.end()) image.builder.set_word_bytes(4);
  if (Status status = read_image(reader_of(chunk::kImage), code, options_, image, data_.pokes); !status.ok())
    return damaged(chunk::kImage, status.error());
  for (NamedRange& range : symbols->ranges) image.add_range(std::move(range));
  image.finish(data_);
  const auto limits = read_lines(reader_of(chunk::kLines), data_.timeline);
  if (!limits.ok()) return damaged(chunk::kLines, limits.error());
  for (FileSymbolPick& file : symbols->files) data_.symbolizer->add_fixed_file(std::move(file));
  if (!plan_ || !(*limits)->empty()) TimelineAccess::limit_code(data_.timeline, *limits);  // a plan has all code, but that of a bundle
  return {};
}

/// All parts decide the flow of a unit, and so do these options of the reader. Without them, the id depends on the file only.
uint64_t Loader::plan_id() const {
  const uint64_t id = hash_of_bundle(file_);
  const OpenRequest usual;
  ByteWriter given;
  for (const auto& [value, default_value] :
       {std::pair(options_.use_time, usual.use_time), std::pair(options_.freeze, usual.freeze), std::pair(options_.anchors, usual.anchors)})
    given.flag(value != default_value);
  for (const uint64_t value : {options_.slack_ns, uint64_t{options_.drop_nth_poke}, uint64_t{options_.drop_poke_seed}}) given.number(value);
  const bool is_usual = std::ranges::all_of(given.bytes(), [](std::byte byte) { return byte == std::byte{0}; });
  return is_usual ? id : fnv1a(given.bytes(), id);
}

Status Loader::load_streams() {
  if (chunks_.find(chunk::kPlan) != chunks_.end()) {
    plan_ = std::make_shared<PlanData>();
    if (chunks_.find(chunk::kIndex) == chunks_.end() || !read_plan_part(reader_of(chunk::kPlan), *plan_)) return damaged(chunk::kPlan);
    plan_->id = plan_id();
    if (Status status = open_trace(); !status.ok()) return status;
  }
  if (!read_streams(reader_of(chunk::kStreams))) return damaged(chunk::kStreams);
  if (plan_ && plan_->pieces.size() != data_.streams.size()) return damaged(chunk::kPlan);
  data_.plan = plan_;
  return {};
}

Status Loader::load() {
  for (const std::string_view type : {chunk::kInfo, chunk::kConfig, chunk::kStreams, chunk::kAux, chunk::kContexts, chunk::kNotes,
                                      chunk::kCode, chunk::kImage, chunk::kLines, chunk::kSymbols, chunk::kPokes}) {
    if (chunks_.find(type) == chunks_.end()) return damaged(type, Error{ErrorCode::missing_part, "it is missing", 0});
  }
  if (!read_info(reader_of(chunk::kInfo))) return damaged(chunk::kInfo);
  if (!read_config(reader_of(chunk::kConfig))) return damaged(chunk::kConfig);
  if (Status status = load_streams(); !status.ok()) return status;
  if (!read_contexts(reader_of(chunk::kContexts))) return damaged(chunk::kContexts);
  const auto guests = chunks_.find(chunk::kGuests);
  if (guests != chunks_.end() && !read_guests(reader_of(chunk::kGuests))) return damaged(chunk::kGuests);
  if (!read_notes(reader_of(chunk::kNotes))) return damaged(chunk::kNotes);
  if (!read_pokes(reader_of(chunk::kPokes))) return damaged(chunk::kPokes);
  const bool has_spans = chunks_.find(chunk::kSpans) != chunks_.end();
  if (has_spans && !read_spans(reader_of(chunk::kSpans))) return damaged(chunk::kSpans);
  const bool has_arm = chunks_.find(chunk::kArm) != chunks_.end();
  if (has_arm && !read_arm_sources(reader_of(chunk::kArm), options_, data_)) return damaged(chunk::kArm);
  const auto names = chunks_.find(chunk::kEventNames);
  if (names != chunks_.end() && !read_event_names(reader_of(chunk::kEventNames), data_.event_names)) return damaged(chunk::kEventNames);
  const auto origin = chunks_.find(chunk::kOrigin);
  if (origin != chunks_.end() && !read_origin(reader_of(chunk::kOrigin), data_.origin)) return damaged(chunk::kOrigin);
  const auto given = chunks_.find(chunk::kGivenComms);
  if (given != chunks_.end() && !read_given_comms(reader_of(chunk::kGivenComms), data_)) return damaged(chunk::kGivenComms);
  const auto leaves = chunks_.find(chunk::kLeaves);
  if (leaves != chunks_.end() && !read_leaves(reader_of(chunk::kLeaves), data_.contexts)) return damaged(chunk::kLeaves);
  const auto windows = chunks_.find(chunk::kWindows);
  if (windows != chunks_.end() && !read_windows(reader_of(chunk::kWindows), data_)) return damaged(chunk::kWindows);
  if (Status status = load_image(); !status.ok()) return status;
  data_.missing = std::move(missing_);
  OpenRequest indexing = options_;
  const bool perf = data_.kind == RecordingKind::perf;
  if (perf) indexing.use_time = options_.use_time && data_.decoder.config.time.valid();
  if (perf && has_arm) indexing.use_time = data_.arm_follow.use_time;
  indexing.use_written = perf && options_.use_time;
  if (!plan_) {
    index_streams(indexing, data_);
  } else if (!read_index_part(reader_of(chunk::kIndex), indexing, data_)) {
    return damaged(chunk::kIndex);
  }
  if (plan_ && !options_.without_trace && !options_.unit_by_unit) {
    if (Status status = check_units(data_); !status.ok()) return status;
  }
  data_.warnings = std::move(warnings_);
  for (const auto& [name, given] :
       {std::pair("--kcore-after", !options_.kcore_after.empty()), std::pair("--map", !options_.assumed.empty()),
        std::pair("--symfs PID=ROOT", !options_.process_symfs.empty())}) {
    if (given) data_.warnings.push_back(std::string("a bundle is complete: ") + name + " has no effect");
  }
  if (perf && !has_arm) find_kernel_places(data_);
  if (perf && !has_arm && !has_spans && !plan_) add_anchors(indexing, data_);
  if (has_spans && options_.anchors && !options_.freeze && !(plan_ && plan_->frozen)) data_.anchors = std::move(spans_);
  return {};
}

}  // namespace

bool is_part_of_trace(const Recording& recording) { return data_of(recording).part != Interval{}; }

bool looks_like_bundle(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return false;
  const Bytes bytes = (*file)->bytes();
  return bytes.size() >= kBundleMagic.size() && std::memcmp(bytes.data(), kBundleMagic.data(), kBundleMagic.size()) == 0;
}

Status load_bundle(const OpenRequest& options, RecordingData& data) {
  auto file = MappedFile::open(options.path);
  if (!file.ok()) return file.error();
  auto chunks = read_bundle_chunks((*file)->bytes(), options.path);
  if (!chunks.ok()) return chunks.error();
  return Loader(options, *chunks, (*file)->bytes(), data).load();
}

Status check_bundle(Bytes file) {
  OpenRequest options;
  options.path = "bundle";
  options.anchors = false;  // they are searched in the whole trace
  options.without_trace = true;
  auto chunks = read_bundle_chunks(file, options.path);
  if (!chunks.ok()) return chunks.error();
  RecordingData data;
  if (Status status = Loader(options, *chunks, file, data).load(); !status.ok()) return status;
  const auto events = read_bundled_events(*chunks, file.size(), options.path, {}, 0);
  return events.ok() ? Status() : Status(events.error());
}

}  // namespace ptd
