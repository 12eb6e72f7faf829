// ArmSources: splits frames into streams.
#include "recording/data/arm_sources.h"

#include <algorithm>
#include <array>
#include <bitset>

namespace ptd {
namespace {

constexpr size_t kLookedAtBytes = 1U << 20;  // of a buffer, for its format

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
  sources_.push_back({std::move(source), {}, {}, {}});
  return sources_.size() - 1;
}

void ArmSources::append(Entry& entry, Bytes bytes, uint64_t place) {
  const uint64_t at = entry.bytes.size();
  std::vector<std::pair<uint64_t, uint64_t>>& places = entry.source.places;
  if (places.empty() || places.back().second + (at - places.back().first) != place) places.emplace_back(at, place);
  entry.bytes.insert(entry.bytes.end(), bytes.begin(), bytes.end());
}

arm::FrameFormat ArmSources::likely_format(Bytes buffer, arm::FrameFormat told, const std::vector<size_t>& members) const {
  // No source has the id that a frame sync would be inside a frame: without any sync the frames are aligned.
  constexpr std::array kSync = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff}, std::byte{0x7f}};
  const Bytes looked_at = buffer.first(std::min<size_t>(buffer.size(), kLookedAtBytes));
  if (std::search(looked_at.begin(), looked_at.end(), kSync.begin(), kSync.end()) == looked_at.end()) return arm::FrameFormat::aligned;
  std::bitset<128> known;
  for (const size_t member : members) known.set(sources_[member].source.config.trace_id & 0x7f);
  const auto known_bytes = [&](arm::FrameFormat format) {
    uint64_t own = 0, others = 0;
    arm::split_frames(
        looked_at, format, [&](const arm::FrameRun& run) { (known.test(run.id) ? own : others) += run.bytes.size(); }, [](uint64_t) {});
    return own - std::min(own, others);
  };
  const arm::FrameFormat other = told == arm::FrameFormat::synced ? arm::FrameFormat::aligned : arm::FrameFormat::synced;
  return known_bytes(other) > known_bytes(told) ? other : told;
}

void ArmSources::add_frames(Bytes buffer, uint64_t buffer_offset, arm::FrameFormat format, const std::vector<size_t>& members) {
  std::array<Entry*, 128> by_id{};
  for (const size_t member : members) by_id[sources_[member].source.config.trace_id & 0x7f] = &sources_[member];
  const auto on_run = [&](const arm::FrameRun& run) {
    if (Entry* entry = by_id[run.id]) {
      append(*entry, run.bytes, buffer_offset + run.offset_bytes);
    } else {
      strangers_[run.id] += run.bytes.size();
    }
  };
  arm::split_frames(buffer, format, on_run, [&](uint64_t) { break_here(members, AuxBreak::snapshot); });
}

void ArmSources::add_raw(size_t source, Bytes bytes, uint64_t buffer_offset) { append(sources_[source], bytes, buffer_offset); }

void ArmSources::break_here(const std::vector<size_t>& members, AuxBreak why) {
  for (const size_t member : members) {
    Entry& entry = sources_[member];
    const uint64_t at = entry.bytes.size();
    if (at == 0) continue;
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

AuxStream ArmSources::take(size_t index, std::vector<std::shared_ptr<const void>>& owners) {
  Entry& entry = sources_[index];
  AuxStream stream;
  const auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(entry.bytes));
  stream.add_payload(0, bytes->size(), *bytes, false);
  for (const auto& [at, why] : entry.breaks) stream.add_loss({at, why});
  for (const auto& [end, time] : entry.written) stream.add_written(end, time);
  owners.push_back(bytes);
  return stream;
}

std::string ArmSources::tell_strangers() const {
  constexpr uint8_t kFirstReservedId = 0x70;  // triggers and the like
  constexpr size_t kListedIds = 4;
  uint64_t all = 0;
  size_t ids = 0;
  std::string list;
  for (const auto& [id, bytes] : strangers_) {
    if (id >= kFirstReservedId) continue;
    all += bytes;
    if (ids++ < kListedIds) list += (list.empty() ? "" : ", ") + std::to_string(id);
  }
  if (ids == 0) return {};
  if (ids > kListedIds) list += " and " + std::to_string(ids - kListedIds) + " more";
  return std::to_string(all) + " bytes of trace id" + (ids == 1 ? " " : "s ") + list + " belong to no source";
}

}  // namespace ptd
