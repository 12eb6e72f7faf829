// ArmSources: splits frames into streams.
#include "recording/data/arm_sources.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <utility>

#include "decoder/arm/packet/segment_order.h"

namespace ptd {
namespace {

constexpr size_t kLookedAtBytes = 1U << 20;  // of a buffer, for its format
constexpr size_t kMostTold = 64;             // findings about sources with one id

bool is_ignored(std::byte byte) { return byte == std::byte{0x70}; }  // [ETE] "Ignore packet"

// Returns whether no packet precedes the first A-Sync, of which these bytes may be a part.
bool lacks_sync(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return is_ignored(byte) || byte == std::byte{0}; });
}

// [ETMv4] "Alignment synchronization packet": 11 bytes 0, then 80. [ETMv3], [PFT]: at least 5.
bool begins_with_async(Bytes bytes, arm::Protocol protocol) {
  const std::ptrdiff_t least_zeros = protocol == arm::Protocol::etmv4 || protocol == arm::Protocol::ete ? 11 : 5;
  const auto first = std::find_if_not(bytes.begin(), bytes.end(), is_ignored);
  const auto end = std::find_if(first, bytes.end(), [](std::byte byte) { return byte != std::byte{0}; });
  return end == bytes.end() || (end - first >= least_zeros && *end == std::byte{0x80});
}

}  // namespace

uint64_t ArmSource::place_of(uint64_t stream_offset) const {
  auto run = std::upper_bound(places.begin(), places.end(), stream_offset,
                              [](uint64_t value, const std::pair<uint64_t, uint64_t>& candidate) { return value < candidate.first; });
  if (run == places.begin()) return stream_offset;
  --run;
  return run->second + (stream_offset - run->first);
}

std::vector<std::string> tell_limits(const std::vector<ArmSource>& sources) {
  std::vector<std::string> sentences;
  bool has_flow = sources.empty();
  for (const ArmSource& source : sources) {
    const arm::TraceConfig& config = source.config;
    has_flow |= config.protocol != arm::Protocol::itm && config.protocol != arm::Protocol::stm;
    const bool etmv4 = config.protocol == arm::Protocol::etmv4;
    if (etmv4 && (config.loads_are_p0() || config.stores_are_p0()))
      sentences.push_back(source.name +
                          ": loads or stores have their own atoms (TRCCONFIGR.INSTP0), which is not supported: its flow is wrong");
  }
  if (!has_flow) sentences.emplace_back("no source traces instructions: there is no flow, only packets (ptdecode packets)");
  return sentences;
}

size_t ArmSources::add_source(ArmSource source) {
  sources_.push_back({std::move(source), {}, {}, {}, false, {}});
  return sources_.size() - 1;
}

void ArmSources::append(Entry& entry, Bytes bytes, uint64_t place) {
  const uint64_t at = entry.bytes.size();
  std::vector<std::pair<uint64_t, uint64_t>>& places = entry.source.places;
  if (places.empty() || places.back().second + (at - places.back().first) != place) places.emplace_back(at, place);
  entry.bytes.insert(entry.bytes.end(), bytes.begin(), bytes.end());
}

arm::FrameFormat ArmSources::likely_format(Bytes buffer, arm::FrameFormat described, const std::vector<size_t>& members) const {
  // No source has the id that a frame sync would be inside a frame: without any sync the frames are aligned.
  constexpr std::array kSync = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0x7f}};
  const Bytes looked_at = buffer.first(std::min<size_t>(buffer.size(), kLookedAtBytes));
  if (std::search(looked_at.begin(), looked_at.end(), kSync.begin(), kSync.end()) == looked_at.end()) return arm::FrameFormat::aligned;
  std::bitset<128> known;
  for (const size_t member : members) known.set(id_of(member));
  const auto known_bytes = [&](arm::FrameFormat format) {
    uint64_t own = 0, others = 0;
    arm::split_frames(
        looked_at, format, [&](const arm::FrameRun& run) { (known.test(run.id) ? own : others) += run.bytes.size(); }, [](uint64_t) {});
    return own - std::min(own, others);
  };
  const arm::FrameFormat other = described == arm::FrameFormat::synced ? arm::FrameFormat::aligned : arm::FrameFormat::synced;
  return known_bytes(other) > known_bytes(described) ? other : described;
}

/// Appends the bytes of a buffer to the sources.
class ArmSources::Collector final : public arm::FrameReader {
 public:
  Collector(ArmSources& all, uint64_t buffer_offset, const std::vector<size_t>& members)
      : all_(all), buffer_offset_(buffer_offset), members_(members) {
    for (const size_t member : members) by_id_[all.id_of(member)] = &all.sources_[member];
    for (const size_t member : members) {
      const Entry& entry = all.sources_[member];
      if (by_id_[all.id_of(member)] != &entry) others_[all.id_of(member)] = &entry;
    }
  }
  void on_run(const arm::FrameRun& run) override {
    if (run.id == 0) return;  // padding
    if (Entry* entry = by_id_[run.id]) {
      all_.append(*entry, run.bytes, buffer_offset_ + run.offset_bytes);
      if (const Entry* const other = std::exchange(others_[run.id], nullptr)) all_.share(*entry, *other, run.id);
    } else {
      all_.strangers_[run.id] += run.bytes.size();
    }
  }
  void on_barrier(uint64_t /*offset_bytes*/) override { all_.break_here(members_, AuxBreak::snapshot); }
  void on_loss(uint64_t offset_bytes) override {
    if (losses_.count++ == 0) losses_.first_offset_bytes = offset_bytes;
    all_.break_here(members_, AuxBreak::missing);
  }
  [[nodiscard]] Losses losses() const { return losses_; }

 private:
  Losses losses_;
  ArmSources& all_;
  const uint64_t buffer_offset_;
  const std::vector<size_t>& members_;
  std::array<Entry*, 128> by_id_{};
  std::array<const Entry*, 128> others_{};  ///< another source with the id
};

ArmSources::Losses ArmSources::add_frames(Bytes buffer, uint64_t buffer_offset, arm::FrameFormat format,
                                          const std::vector<size_t>& members) {
  std::vector<StrayIds::Source> ids;
  for (const size_t member : members) ids.push_back({member, id_of(member)});
  Collector collector(*this, buffer_offset, members);
  strays_.add_frames(buffer, format, ids, collector);
  return collector.losses();
}

void ArmSources::add_raw(size_t source, Bytes bytes, uint64_t buffer_offset) {
  append(sources_[source], bytes, buffer_offset);
  strays_.add_raw(source, bytes.size());
}

void ArmSources::break_here(const std::vector<size_t>& members, AuxBreak why) {
  for (const size_t member : members) {
    Entry& entry = sources_[member];
    const uint64_t at = entry.bytes.size();
    if (at == 0) {
      entry.lacks_begin |= why == AuxBreak::missing;
      continue;
    }
    if (entry.breaks.empty() || entry.breaks.back().first != at) {
      entry.breaks.emplace_back(at, why);
    } else if (entry.breaks.back().second == AuxBreak::snapshot) {
      entry.breaks.back().second = why;
    }
  }
}

void ArmSources::written(const std::vector<size_t>& members, TimeNs time) {
  for (const size_t member : members) sources_[member].written.emplace_back(sources_[member].bytes.size(), time);
}

void ArmSources::expect_async(size_t index, bool from_begin) {
  Entry& entry = sources_[index];
  const arm::Protocol protocol = entry.source.config.protocol;
  if (protocol == arm::Protocol::itm || protocol == arm::Protocol::stm) return;
  entry.lacks_begin |= from_begin && !begins_with_async(entry.bytes, protocol);
  for (auto& [at, why] : entry.breaks) {
    if (why == AuxBreak::snapshot && !begins_with_async(Bytes(entry.bytes).subspan(at), protocol)) why = AuxBreak::missing;
  }
}

void ArmSources::tell_set_back(const ArmSource& source, uint64_t offset_bytes) {
  Finding& finding = order_findings_.emplace_back();
  finding.kind = FindingKind::clock_contradicts;
  finding.what =
      source.name + ": timestamps go back at buffer offset " + std::to_string(offset_bytes) +
      ", to before the first one: the clock was set back, or the trace is of a ring that was not unrolled. Times after that place are not "
      "right";
}

// Each stretch between two breaks on its own.
void ArmSources::put_in_order(Entry& entry) {
  std::vector<Move> moves;
  uint64_t to = 0, places = 0, copies = 0, first = 0;
  for (size_t i = 0; i <= entry.breaks.size(); ++i) {
    const uint64_t begin = i == 0 ? 0 : entry.breaks[i - 1].first,
                   end = i < entry.breaks.size() ? entry.breaks[i].first : entry.bytes.size();
    arm::SegmentOrder order = arm::order_of_segments(Bytes(entry.bytes).subspan(begin, end - begin), entry.source.config);
    if (order.pieces.empty()) {
      if (order.places != 0) tell_set_back(entry.source, entry.source.place_of(begin + order.first_offset_bytes));
      order.places = 0;
      order.pieces.push_back({0, end - begin});
    }
    if (order.places != 0 && places == 0) first = entry.source.place_of(begin + order.first_offset_bytes);
    places += order.places;
    copies += order.copies;
    for (const arm::TracePiece& piece : order.pieces) {
      moves.push_back({begin + piece.first, begin + piece.last, to});
      to += piece.last - piece.first;
    }
  }
  if (places == 0) return;
  move(entry, std::move(moves));
  Finding& finding = order_findings_.emplace_back();
  finding.kind = FindingKind::clock_contradicts;
  finding.what = entry.source.name + ": timestamps go back or repeat at " +
                 (places == 1 ? "" : std::to_string(places) + " places, the first at ") + "buffer offset " + std::to_string(first) +
                 ": segments of the trace are swapped or doubled. They are decoded in order "
                 "of their timestamps" +
                 (copies != 0 ? ", doubled ones once" : "");
}

// Trace is missing where two moves join bytes that were apart. An AUX record says when its stretch ended, not which bytes were written
// before.
void ArmSources::move(Entry& entry, std::vector<Move> moves) {
  Entry moved{entry.source, {}, {}, {}, false, {}};
  moved.source.places.clear();
  auto old_break = entry.breaks.begin();
  auto written = entry.written.begin();
  for (size_t i = 0; i < moves.size(); ++i) {
    const bool begins = old_break != entry.breaks.end() && moves[i].first >= old_break->first;
    if (begins) {
      for (; written != entry.written.end() && written->first <= old_break->first; ++written) {
        if (written->first == old_break->first) moved.written.emplace_back(moves[i].to, written->second);
      }
      moved.breaks.emplace_back(moves[i].to, (old_break++)->second);
    } else if (i != 0) {
      moved.breaks.emplace_back(moves[i].to, AuxBreak::missing);
    }
    const auto& places = entry.source.places;
    for (uint64_t at = moves[i].first, end = 0; at < moves[i].last; at = end) {
      const auto next = std::ranges::upper_bound(places, at, {}, &std::pair<uint64_t, uint64_t>::first);
      end = next == places.end() ? moves[i].last : std::min(moves[i].last, next->first);
      append(moved, Bytes(entry.bytes).subspan(at, end - at), entry.source.place_of(at));
    }
  }
  for (; written != entry.written.end(); ++written) {
    if (written->first == entry.bytes.size()) moved.written.emplace_back(moved.bytes.size(), written->second);
  }
  moved.lacks_begin = (entry.lacks_begin && moves.front().first == 0) || !begins_with_async(moved.bytes, entry.source.config.protocol);
  moved.moves = std::move(moves);
  entry = std::move(moved);
}

AuxStream ArmSources::take(size_t index, std::vector<std::shared_ptr<const void>>& owners) {
  Entry& entry = sources_[index];
  put_in_order(entry);
  const auto place_now = [&](uint64_t offset) {
    const auto moved = std::ranges::find_if(entry.moves, [&](const Move& each) { return each.first < offset && offset <= each.last; });
    return moved == entry.moves.end() ? offset : moved->to + (offset - moved->first);
  };
  AuxStream stream;
  const auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(entry.bytes));
  stream.add_payload(0, bytes->size(), *bytes, false);
  if (entry.lacks_begin) stream.lose_begin();
  for (const auto& [at, why] : entry.breaks) stream.add_loss({at, why});
  for (const auto& [end, time] : entry.written) stream.add_written(end, time);
  if (!losses_) losses_ = strays_.losses();
  for (auto [loss, end] = losses_->equal_range(index); loss != end; ++loss) {
    const uint64_t at = place_now(loss->second.stream_offset_bytes);
    stream.add_loss({at, AuxBreak::missing});
    if (at != 0 && lacks_sync(Bytes(*bytes).first(at))) stream.lose_begin();
  }
  owners.push_back(bytes);
  return stream;
}

void ArmSources::share(const Entry& entry, const Entry& other, uint8_t id) {
  if (shared_.size() >= kMostTold) return;
  (void)shared_.try_emplace(entry.source.name, "the sources " + other.source.name + " and " + entry.source.name + " have one trace id, " +
                                                   std::to_string(id) + ": all bytes with it are read as those of " + entry.source.name);
}

std::vector<Finding> ArmSources::findings() const {
  std::vector<Finding> findings = order_findings_;
  const auto add = [&findings](FindingKind kind, std::string what) {
    Finding& finding = findings.emplace_back();
    finding.kind = kind;
    finding.what = std::move(what);
  };
  for (const auto& [name, what] : shared_) add(FindingKind::bad_record, what);
  for (const uint8_t id : strays_.undescribed()) {
    const auto bytes = strangers_.find(id);
    if (bytes == strangers_.end()) continue;
    add(FindingKind::trace_lost, std::to_string(bytes->second) +
                                     " bytes of trace are not decoded: the recording describes no source with their trace id, " +
                                     std::to_string(id));
  }
  return findings;
}

std::string ArmSources::tell_strangers() const {
  constexpr uint8_t kFlushId = 0x7b, kTriggerId = 0x7d;
  constexpr size_t kListedIds = 4;
  uint64_t all = 0;
  size_t ids = 0;
  std::string list;
  for (const auto& [id, bytes] : strangers_) {
    if (id == kFlushId || id == kTriggerId) continue;
    all += bytes;
    if (ids++ < kListedIds) list += (list.empty() ? "" : ", ") + std::to_string(id);
  }
  if (ids == 0) return {};
  if (ids > kListedIds) list += " and " + std::to_string(ids - kListedIds) + " more";
  return std::to_string(all) + " bytes of trace id" + (ids == 1 ? " " : "s ") + list + " belong to no source";
}

}  // namespace ptd
