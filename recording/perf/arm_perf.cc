// cs_etm payloads: each AUX record is a separate capture, formatted or raw.
#include "recording/perf/arm_perf.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <set>

#include "decoder/arm/packet/walk_packets.h"
#include "perfio/format/wire.h"

namespace ptd {
namespace {

constexpr uint8_t kNoTraceId = 0x7f;
constexpr size_t kMostSlots = 1U << 17;
using perfio::kAuxCollision, perfio::kAuxOverwrite, perfio::kAuxPartial, perfio::kAuxTruncated;
constexpr uint32_t kUnusedIdFlag = 1U << 31;                                   // of TRCTRACEIDR: for readers without AUX_OUTPUT_HW_ID
constexpr uint32_t kContextIdOfEtmcr = 0xc000, kContextIdOfTrcconfigr = 0x40;  // traced
constexpr uint32_t kTimestampOfEtmcr = 1U << 28, kTimestampOfTrcconfigr = 1U << 11;

/// Why the data of an AUX record does not join the next: each is a separate capture, and the flags report losses.
AuxBreak break_behind(uint64_t flags) {
  if ((flags & kAuxCollision) != 0) return AuxBreak::collision;
  if ((flags & kAuxPartial) != 0) return AuxBreak::partial;
  return (flags & kAuxTruncated) != 0 ? AuxBreak::truncated : AuxBreak::snapshot;
}

bool is_raw(uint64_t flags) { return (flags & perfio::kAuxFormatMask) == perfio::kAuxFormatRaw; }

/// Whether these bytes hold no trace: zeros, [ETE] "Ignore packet" (the kernel's TRBE driver), in frames id 0 and [linux]
/// coresight_barrier_pkt.
bool is_padding(Bytes bytes, bool raw) {
  constexpr std::array kBarrier = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0x7f}};
  const std::byte other{raw ? uint8_t{0x70} : uint8_t{1}};
  while (!bytes.empty()) {
    const Bytes word = bytes.first(std::min(bytes.size(), kBarrier.size()));
    const bool is_barrier = !raw && std::equal(word.begin(), word.end(), kBarrier.begin(), kBarrier.end());
    if (!is_barrier && std::any_of(word.begin(), word.end(), [&](std::byte byte) { return byte != std::byte{0} && byte != other; }))
      return false;
    bytes = bytes.subspan(word.size());
  }
  return true;
}

std::bitset<128> ids_in(Bytes frames) {
  std::bitset<128> ids;
  arm::split_frames(
      frames, arm::FrameFormat::aligned, [&](const arm::FrameRun& run) { ids.set(run.id); }, [](uint64_t) {});
  return ids;
}

/// The ids with which user code runs. A kernel without CONFIG_PID_IN_CONTEXTIDR writes none, so that they are 0, which is no thread of user
/// code.
struct UserIds {
  bool any = false, real = false;
  bool by_vmid = false;
  void on_atoms() {}
  bool on_bad(uint64_t) { return true; }
  bool on_packet(const arm::Packet& packet, uint64_t) {
    const arm::PacketContext& context = packet.context;
    if (packet.kind != arm::PacketKind::ctxt && !arm::is_address_context(packet.kind)) return true;
    if (!context.present || context.level != 0 || !(by_vmid ? context.has_vmid : context.has_context_id)) return true;
    any = true;
    real = (by_vmid ? context.vmid : context.context_id) != 0;
    return !real;
  }
  /// Looks at the begin of a stream.
  void look(AuxStream& stream, const arm::TraceConfig& config) {
    constexpr uint64_t kMostBytes = 64U << 10;
    if (real || (config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete)) return;
    stream.finish();
    std::vector<std::byte> scratch;
    const Bytes bytes = stream.read(stream.begin_offset(), std::min(stream.end_offset(), stream.begin_offset() + kMostBytes), scratch);
    arm::PacketReader reader(bytes, config);
    arm::walk_packets(reader, bytes, *this);
  }
};

ContextTrack threads_only(const ContextTrack& contexts) {
  ContextTrack threads;
  for (const int32_t tid : contexts.threads()) {
    for (const ContextTrack::Switch& change : contexts.thread_changes(tid)) threads.add_thread(tid, change.time, change.to);
  }
  threads.sort();
  return threads;
}

}  // namespace

arm::TraceConfig arm_config(const perfio::EtmCpu& cpu) {
  arm::TraceConfig config;
  config.protocol = cpu.kind == perfio::EtmKind::etmv3   ? arm::Protocol::etmv3
                    : cpu.kind == perfio::EtmKind::etmv4 ? arm::Protocol::etmv4
                                                         : arm::Protocol::ete;
  // ETMIDR.major of a PTM is 3 ([PFT] "ETMIDR"), of an ETMv3 2.
  if (cpu.kind == perfio::EtmKind::etmv3 && ((cpu.idr0 >> 8) & 0xf) == 3) config.protocol = arm::Protocol::ptm;
  config.configr = cpu.configr;
  config.traceidr = cpu.traceidr;
  config.idr0 = cpu.idr0;
  config.idr1 = cpu.idr1;
  config.idr2 = cpu.idr2;
  config.idr8 = cpu.idr8;
  config.devarch = cpu.devarch;
  config.trace_id = cpu.traceidr & 0x7f;
  return config;
}

std::vector<Finding> ArmPerf::findings() const {
  std::vector<Finding> findings = sources_.findings();
  findings.insert(findings.end(), findings_.begin(), findings_.end());
  return findings;
}

void ArmPerf::on_record(const perfio::Record& record) {
  events_.add(record);
  const perfio::SampleId& id = record.sample_id;
  const bool tells_start = std::holds_alternative<perfio::ItraceStartRecord>(record.payload) ||
                           std::holds_alternative<perfio::AuxOutputHwIdRecord>(record.payload);
  if (tells_start && id.has_time) started_ = std::min(started_, TimeNs{id.time});
  if (std::holds_alternative<perfio::ItraceStartRecord>(record.payload) && id.has_time) {
    if (id.cpu >= 0) starts_[{id.cpu, -1}].push_back(TimeNs{id.time});
    starts_[{-1, id.tid}].push_back(TimeNs{id.time});
  }
  has_switches_ = has_switches_ || std::holds_alternative<perfio::SwitchRecord>(record.payload) ||
                  std::holds_alternative<perfio::SchedSwitchSample>(record.payload);
  if (const auto* aux = std::get_if<perfio::AuxRecord>(&record.payload)) {
    pieces_.push_back({id.cpu, id.tid, aux->aux_offset_bytes, aux->aux_size_bytes, aux->flags, id.has_time, TimeNs{id.time}, id.id});
  } else if (const auto* payload = std::get_if<perfio::AuxtraceRecord>(&record.payload)) {
    payloads_.push_back({payload->cpu, payload->tid, payload->offset_bytes, payload->size_bytes, payload->payload, payload->idx});
  } else if (const auto* hw_id = std::get_if<perfio::AuxOutputHwIdRecord>(&record.payload)) {
    const perfio::EtmHwId told = perfio::parse_etm_hw_id(hw_id->hw_id);
    unread_ids_ += told.valid ? 0 : 1;
    if (id.cpu >= 0 && told.valid) hw_ids_[id.cpu] = told;
  }
}

void ArmPerf::add_sources(const perfio::EtmInfo& info) {
  for (const perfio::EtmCpu& cpu : info.cpus) {
    ArmSource source;
    source.config = arm_config(cpu);
    const auto told = hw_ids_.find(cpu.cpu);
    if (told != hw_ids_.end()) source.config.trace_id = told->second.trace_id;
    // The id that perf writes beside it is made up of the cpu's number, and may be the one that the kernel gave another cpu.
    const bool made_up = told == hw_ids_.end() && !hw_ids_.empty() && (cpu.traceidr & kUnusedIdFlag) != 0;
    if (made_up) source.config.trace_id = kNoTraceId;
    source.core = "cpu " + std::to_string(cpu.cpu);
    source.name = std::string(arm::name(source.config.protocol)) + " of " + source.core;
    sources_.add_source(std::move(source));
    slots_.push_back({cpu.cpu, slots_.size(), -1});
  }
  bases_ = slots_.size();
}

/// Returns the source of a cpu for one thread, creating it if needed. If there are too many, that of the cpu for all threads.
size_t ArmPerf::slot_of(size_t base, int32_t tid) {
  if (tid < 0 || (slots_.size() >= kMostSlots && !of_thread_.contains({tid, base}))) return base;
  const auto [known, added] = of_thread_.try_emplace({tid, base}, slots_.size());
  if (added) {
    sources_.add_source(ArmSource(sources_.source(base)));
    slots_.push_back({slots_[base].cpu, base, tid});
  }
  return known->second;
}

/// The sources that wrote `frames` into the buffer of a cpu or thread: of those of the cpu's sink, where ids are per sink; otherwise of
/// all.
std::vector<size_t> ArmPerf::members_of(int32_t cpu, int32_t tid, Bytes frames) {
  const auto own = hw_ids_.find(cpu);
  const bool by_sink = own != hw_ids_.end() && own->second.has_sink;
  const std::bitset<128> ids = ids_in(frames);
  std::vector<size_t> members;
  for (size_t base = 0; base < bases_; ++base) {
    const auto other = hw_ids_.find(slots_[base].cpu);
    if (by_sink && (other == hw_ids_.end() || !other->second.has_sink || other->second.sink != own->second.sink)) continue;
    const uint8_t id = sources_.source(base).config.trace_id;
    if (id != 0 && id != kNoTraceId && ids.test(id)) members.push_back(slot_of(base, tid));
  }
  return members;
}

/// The trace of an AUX record begins after the ITRACE_START record before it ([linux] event_sched_in()).
void ArmPerf::date_start(const std::vector<size_t>& members, int32_t cpu, int32_t tid, const Piece& piece) {
  if (!piece.has_time) return;
  const RingKey ring{cpu, cpu >= 0 ? -1 : tid};
  TimeNs& before = written_[ring];
  const std::vector<TimeNs>& starts = starts_[ring];
  const auto start = std::ranges::upper_bound(starts, before);
  if (start != starts.end() && *start < piece.time) sources_.written(members, *start);
  before = std::max(before, piece.time);
}

/// Bytes of one trace unit as it wrote them (TRBE).
void ArmPerf::add_raw(int32_t cpu, int32_t tid, const Piece& piece, Bytes bytes, uint64_t buffer_offset) {
  size_t base = 0;
  while (base < bases_ && slots_[base].cpu != cpu) ++base;
  if (base == bases_ && bases_ != 1) {
    homeless_bytes_ += bytes.size();
    return;
  }
  const size_t slot = slot_of(base == bases_ ? 0 : base, tid);
  date_start({slot}, cpu, tid, piece);
  sources_.add_raw(slot, bytes, buffer_offset);
  sources_.break_here({slot}, break_behind(piece.flags));
  if (piece.has_time) sources_.written({slot}, piece.time);
}

void ArmPerf::add_piece(const Payload& payload, const Piece& piece, Bytes bytes, uint64_t buffer_offset) {
  const int32_t cpu = payload.cpu >= 0 ? payload.cpu : piece.cpu;
  const int32_t tid = payload.cpu >= 0 ? -1 : payload.tid;
  if (is_raw(piece.flags)) return add_raw(cpu, tid, piece, bytes, buffer_offset);
  const std::vector<size_t> members = members_of(cpu, tid, bytes);
  date_start(members, cpu, tid, piece);
  sources_.add_frames(bytes, buffer_offset, arm::FrameFormat::aligned, members);
  sources_.break_here(members, break_behind(piece.flags));
  if (piece.has_time) sources_.written(members, piece.time);
}

void ArmPerf::add_finding(RingKey ring, const std::string& what) {
  Finding& finding = findings_.emplace_back();
  finding.kind = FindingKind::bad_record;
  finding.what = (ring.first >= 0 ? "cpu " + std::to_string(ring.first) : "thread " + std::to_string(ring.second)) + ": " + what;
}

/// Trace that is not decoded, because the metadata describes no source of it.
void ArmPerf::add_homeless(const std::string& what, RecordingData& data) {
  Finding& finding = findings_.emplace_back();
  finding.kind = FindingKind::trace_lost;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = what;
  data.warnings.push_back(what);
}

/// Contradictions between the metadata and the records about which cpus have a trace unit.
void ArmPerf::check_cpus(const perfio::EtmInfo& info) {
  std::set<int32_t> known;
  for (const perfio::EtmCpu& cpu : info.cpus) {
    if (!known.insert(cpu.cpu).second)
      add_finding({cpu.cpu, -1},
                  "AUXTRACE_INFO describes its trace unit twice: the trace of another cpu may be missing or shown as its own");
  }
  for (const auto& [cpu, told] : hw_ids_) {
    if (!known.contains(cpu)) add_finding({cpu, -1}, "AUX_OUTPUT_HW_ID names its trace unit, which AUXTRACE_INFO does not describe");
  }
}

/// What the records of a ring name, each byte once. Records without the cpu or thread count where no other names the bytes.
std::vector<AuxRange> ArmPerf::ranges_of(RingKey ring) {
  std::vector<AuxRange> own, any;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const int32_t whose = ring.first >= 0 ? piece.cpu : piece.tid;
    if (whose >= 0 && whose != (ring.first >= 0 ? ring.first : ring.second)) continue;
    const uint64_t last = piece.offset_bytes + std::min(piece.size_bytes, ~piece.offset_bytes);
    (whose >= 0 ? own : any).push_back({piece.offset_bytes, last, i});
  }
  NamedRanges named = each_once(std::move(own));
  if (named.doubled_bytes != 0)
    add_finding(ring, "AUX records overlap: " + std::to_string(named.doubled_bytes) + " bytes of trace are named twice, from offset " +
                          std::to_string(named.first_doubled) + " of the ring on; they are decoded once");
  add_unnamed(named.ranges, each_once(std::move(any)).ranges);
  return std::move(named.ranges);
}

/// Adds bytes of a payload that no AUX record names, unless they are padding: as one piece, in the format of the record next to them. Null:
/// of all.
void ArmPerf::add_without_record(const Payload& payload, Ring& ring, uint64_t from, uint64_t to, const Piece* neighbour) {
  const Bytes bytes = payload.bytes.subspan(from, to - from);
  Piece all;
  if (neighbour != nullptr) all.cpu = neighbour->cpu;
  const auto has_raw = [](const Piece& piece) { return is_raw(piece.flags); };
  const bool raw = neighbour != nullptr ? has_raw(*neighbour) : !pieces_.empty() && std::all_of(pieces_.begin(), pieces_.end(), has_raw);
  if (raw) all.flags = perfio::kAuxFormatRaw;
  if (!overwritten_) {
    if (is_padding(bytes, raw)) return;
    if (ring.unnamed_bytes == 0) ring.first_unnamed = payload.offset_bytes + from;
    ring.unnamed_bytes += bytes.size();
  }
  add_piece(payload, all, bytes, ring.bytes + from);
}

/// Cuts a payload where AUX records say so. What none names is a piece, too: the record may be lost.
void ArmPerf::add_payload(const Payload& payload, Ring& ring) {
  if (overwritten_) return add_snapshot(payload, ring);
  const Piece* neighbour = nullptr;
  uint64_t at = 0;
  for (auto range = first_after(ring.named, payload.offset_bytes); range != ring.named.end(); ++range) {
    const uint64_t first = std::max(range->first, payload.offset_bytes) - payload.offset_bytes;
    if (first >= payload.bytes.size()) break;
    const uint64_t last = std::min<uint64_t>(range->last - payload.offset_bytes, payload.bytes.size());
    const Piece& piece = pieces_[range->record];
    if (first > at) add_without_record(payload, ring, at, first, neighbour == nullptr ? &piece : neighbour);
    add_piece(payload, piece, payload.bytes.subspan(first, last - first), ring.bytes + first);
    neighbour = &piece;
    at = last;
  }
  if (at < payload.bytes.size()) add_without_record(payload, ring, at, payload.bytes.size(), neighbour);
}

/// The ranges that a snapshot of a ring holds whole, each byte once. What is left of a record that is larger than the snapshot is its end.
/// With the flag, the offset of a record is that of its end ([linux] perf_aux_output_end()).
std::vector<AuxRange> ArmPerf::ranges_held(const Payload& payload) const {
  std::vector<AuxRange> held;
  const uint64_t size = payload.bytes.size();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    const bool same = payload.cpu >= 0 ? piece.cpu == payload.cpu || piece.cpu < 0 : piece.tid == payload.tid || piece.tid < 0;
    const uint64_t kept = std::min(piece.size_bytes, size);
    const uint64_t last = piece.offset_bytes + ((piece.flags & kAuxOverwrite) != 0 ? 0 : std::min(piece.size_bytes, ~piece.offset_bytes));
    if (!same || last < kept || last - kept < payload.offset_bytes || last - payload.offset_bytes > size) continue;
    held.push_back({last - kept, last, i});
  }
  return each_once(std::move(held)).ranges;
}

/// A later snapshot may hold the same bytes again; bytes that no record names are older.
void ArmPerf::add_snapshot(const Payload& payload, Ring& ring) {
  const std::vector<AuxRange> held = ranges_held(payload);
  for (const AuxRange& range : held) {
    const uint64_t first = range.first - payload.offset_bytes;
    const Bytes bytes = payload.bytes.subspan(first, range.last - range.first);
    Bytes& before = ring.snapshots[{range.first, range.last}];
    if (std::equal(bytes.begin(), bytes.end(), before.begin(), before.end())) continue;
    before = bytes;
    add_piece(payload, pieces_[range.record], bytes, ring.bytes + first);
  }
  if (held.empty() && !payload.bytes.empty()) add_without_record(payload, ring, 0, payload.bytes.size(), nullptr);
}

/// Declares that trace is missing there of the sources of `piece`. `payload`: one of its ring.
void ArmPerf::lose(const Payload& payload, const Piece& piece) {
  const bool raw = is_raw(piece.flags);
  const RingKey ring = ring_of(payload);
  std::vector<size_t> members;
  for (size_t i = 0; raw && i < slots_.size(); ++i) {
    if (slots_[i].cpu == piece.cpu && slots_[i].tid == ring.second) members.push_back(i);
  }
  if (!raw) members = members_of(ring.first, ring.second, payload.bytes);
  sources_.break_here(members, AuxBreak::missing);
}

/// Declares that trace is missing if AUX records name bytes in [from, to), which the file does not contain.
void ArmPerf::lose_between(const Ring& ring, const Payload& payload, uint64_t from, uint64_t to) {
  const auto range = first_after(ring.named, from);
  if (from < to && range != ring.named.end() && range->first < to) lose(payload, pieces_[range->record]);
}

/// Replaces the payloads of a ring that repeat or contradict each other or are not in order: by offset, each byte once, one for each
/// stretch without a hole, which an AUX record may name as a whole.
void ArmPerf::order_payloads(std::vector<std::shared_ptr<const void>>& owners) {
  std::map<RingKey, std::vector<AuxPayload>> rings;
  for (const Payload& one : payloads_) rings[ring_of(one)].push_back({one.offset_bytes, one.size_bytes, one.bytes, one.idx});
  std::map<RingKey, std::vector<AuxChunk>> replaced;
  for (auto& [of, payloads] : rings) {
    PlacedPayloads placed = place_payloads(std::move(payloads));
    if (placed.doubled_bytes == 0 && placed.conflicts.empty() && placed.late_payloads == 0) continue;
    replaced[of] = std::move(placed.chunks);
  }
  if (replaced.empty()) return;
  std::vector<Payload> ordered;
  for (const Payload& payload : payloads_) {
    const auto ring = replaced.find(ring_of(payload));
    if (ring == replaced.end()) {
      ordered.push_back(payload);
      continue;
    }
    for (auto chunk = ring->second.begin(); chunk != ring->second.end();) {
      const uint64_t offset = chunk->offset_bytes;
      const auto joined = std::make_shared<std::vector<std::byte>>();
      for (; chunk != ring->second.end() && chunk->offset_bytes == offset + joined->size(); ++chunk)
        joined->insert(joined->end(), chunk->bytes.begin(), chunk->bytes.end());
      owners.push_back(joined);
      ordered.push_back({payload.cpu, payload.tid, offset, joined->size(), *joined, payload.idx});
    }
    ring->second.clear();
  }
  payloads_ = std::move(ordered);
}

/// Removes the recorder's padding, which the next payload of the ring repeats; rings that were replaced have none (place_payloads()).
void ArmPerf::remove_padding() {
  std::map<RingKey, Payload*> before;
  for (Payload& payload : payloads_) {
    Payload*& last = before[ring_of(payload)];
    const bool repeats = last != nullptr && payload.offset_bytes > last->offset_bytes && payload.offset_bytes < last->end();
    if (repeats && last->end() - payload.offset_bytes <= kMaxPaddingBytes)
      last->bytes = last->bytes.first(payload.offset_bytes - last->offset_bytes);
    last = &payload;
  }
}

/// Whether the events that write trace are attached to tasks. Old versions of perf write no ID_INDEX; they set enable_on_exec for a program
/// that they start, unless it records whole cpus.
bool ArmPerf::is_of_tasks() const {
  bool is_indexed = false;
  for (const Piece& piece : pieces_) {
    const RingIndex::Ring* event = events_.find(piece.event);
    if (event != nullptr && event->tid > 0) return true;
    is_indexed = is_indexed || event != nullptr;
  }
  const auto starts_program = [](const perfio::EventAttr& attr) { return (attr.flags & perfio::kAttrEnableOnExec) != 0; };
  return !is_indexed && attrs_ != nullptr && std::ranges::any_of(*attrs_, starts_program);
}

/// The task that leaves a cpu writes the AUX record of the trace since the one before, and ITRACE_START when the trace begins. A switch
/// between tasks that inherited one event writes neither ([linux] context_equiv()): the trace may begin with the task of the AUX record
/// before.
void ArmPerf::add_aux_threads(ContextTrack& contexts) const {
  std::map<int32_t, std::vector<ContextTrack::Switch>> records;
  for (const Piece& piece : pieces_) {
    const Context task = piece.tid > 0 ? Context{-1, piece.tid, kNoSpace} : Context{};
    if (piece.has_time && piece.cpu >= 0) records[piece.cpu].push_back({piece.time, task});
  }
  for (auto& [cpu, ends] : records) {
    std::ranges::stable_sort(ends, {}, &ContextTrack::Switch::time);
    const std::vector<ContextTrack::Switch> starts = contexts.switches(cpu);
    auto start = starts.begin();
    TimeNs from = kTimeMin;
    for (const ContextTrack::Switch& end : ends) {
      for (; start != starts.end() && start->time <= end.time; ++start) {
        if (start->time >= from && start->to.tid != end.to.tid) from = TimeNs{start->time.value + 1};
      }
      contexts.add_switch(cpu, from, end.to);
      from = TimeNs{end.time.value + 1};
    }
  }
  contexts.sort();
}

/// Sets what names the threads of the flow. Without ids, AUX records do if the events are attached to tasks. Those of a whole cpu, like its
/// ITRACE_START, name only the task that happened to run; what the others do needs records of switches, which are better than AUX records.
void ArmPerf::find_threads(bool has_times, RecordingData& data) {
  arm::FollowOptions& follow = data.arm_follow;
  UserIds ids;
  ids.by_vmid = follow.names == arm::ContextNames::vmid;
  for (size_t i = 0; i < data.streams.size() && follow.names != arm::ContextNames::none; ++i) ids.look(data.streams[i], data.arm[i].config);
  if (ids.any && !ids.real) {
    follow.names = arm::ContextNames::none;
    data.warnings.emplace_back(
        "the trace names no threads: user code has context id 0, as the kernel writes none without CONFIG_PID_IN_CONTEXTIDR; the records "
        "of each cpu name them");
  }
  if (follow.names != arm::ContextNames::none) return;
  if (!is_of_tasks()) {
    if (!has_switches_) data.contexts = threads_only(data.contexts);
    return;
  }
  if (has_times && has_switches_) return;
  if (has_times) follow.names = arm::ContextNames::aux_records;
  add_aux_threads(data.contexts);
}

void ArmPerf::finish(const perfio::EtmInfo& info, bool use_time, RecordingData& data) {
  data.streams.clear();
  for (auto& [ring, starts] : starts_) std::ranges::sort(starts);
  check_cpus(info);
  add_sources(info);
  const auto is_overwritten = [](const Piece& piece) { return (piece.flags & kAuxOverwrite) != 0; };
  overwritten_ = info.snapshot_mode || (!pieces_.empty() && std::all_of(pieces_.begin(), pieces_.end(), is_overwritten));
  if (!info.snapshot_mode) order_payloads(data.owners);
  if (!overwritten_) remove_padding();
  std::map<RingKey, Ring> rings;
  for (const Payload& payload : payloads_) {
    Ring& ring = rings[ring_of(payload)];
    if (ring.last == nullptr && !overwritten_) ring.named = ranges_of(ring_of(payload));
    lose_between(ring, payload, ring.last == nullptr ? 0 : ring.last->end(), payload.offset_bytes);
    ring.last = &payload;
    add_payload(payload, ring);
    ring.bytes += payload.bytes.size();
  }
  for (const auto& [of, ring] : rings) {
    lose_between(ring, *ring.last, ring.last->end(), ~uint64_t{0});
    if (ring.unnamed_bytes != 0)
      add_finding(of, "no AUX record names " + std::to_string(ring.unnamed_bytes) + " bytes of trace, the first at offset " +
                          std::to_string(ring.first_unnamed) +
                          " of the ring: records are lost or damaged; the bytes are decoded as a trace of their own");
  }
  bool virtual_time = true, has_timestamps = false, by_vmid = false, by_context = false;
  for (size_t i = 0; i < slots_.size(); ++i) {
    // Where the kernel overwrites its buffer, the oldest trace of a source may begin anywhere.
    if (!overwritten_) sources_.expect_async(i, true);
    AuxStream stream = sources_.take(i, data.owners);
    ArmSource source = std::move(sources_.taken_source(i));
    const bool legacy = source.config.protocol == arm::Protocol::etmv3 || source.config.protocol == arm::Protocol::ptm;
    by_vmid |= !legacy && (source.config.configr & 0x80) != 0 && source.config.vmid_is_context_el2();
    by_context |= (source.config.configr & (legacy ? kContextIdOfEtmcr : kContextIdOfTrcconfigr)) != 0;
    has_timestamps |= (source.config.configr & (legacy ? kTimestampOfEtmcr : kTimestampOfTrcconfigr)) != 0;
    virtual_time &= info.cpus[slots_[i].base].ts_source == 1;
    if (started_ != kTimeMax) stream.add_written(0, started_);
    if (stream.size_bytes() == 0) continue;
    stream.cpu = slots_[i].tid >= 0 ? -1 : slots_[i].cpu;
    stream.tid = slots_[i].tid;
    stream.idx = source.config.trace_id;
    data.streams.push_back(std::move(stream));
    data.arm.push_back(std::move(source));
  }
  data.arm_follow.names = by_vmid ? arm::ContextNames::vmid : by_context ? arm::ContextNames::context_id : arm::ContextNames::none;
  data.arm_follow.time = data.decoder.config.time;
  data.arm_follow.use_time = use_time && virtual_time && data.decoder.config.time.valid();
  if (use_time && !virtual_time && has_timestamps && data.decoder.config.time.valid())
    data.warnings.emplace_back(
        "the flow has no times: the metadata do not say that all timestamps count the kernel's virtual counter (TS_SOURCE 1)");
  find_threads(data.arm_follow.use_time && has_timestamps, data);
  if (unread_ids_ != 0)
    data.warnings.push_back(std::to_string(unread_ids_) + " AUX_OUTPUT_HW_ID records have a later version: their trace ids are not known");
  if (homeless_bytes_ != 0) add_homeless(std::to_string(homeless_bytes_) + " bytes of trace belong to no known cpu", data);
  if (const std::string strangers = sources_.tell_strangers(); !strangers.empty()) add_homeless(strangers, data);
}

}  // namespace ptd
