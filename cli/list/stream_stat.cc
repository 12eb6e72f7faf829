// StreamStat: see stream_stat.h.
#include "cli/list/stream_stat.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/list/arm_packets.h"
#include "cli/list/packet_text.h"
#include "cli/report/finding_text.h"
#include "cli/text/clean_text.h"
#include "cli/text/size_words.h"
#include "decoder/pt/packet/packet_table.h"
#include "ptdecode/pt/packet_reader.h"
#include "recording/data/aux_windows.h"

namespace ptd::cli {

namespace {

/// Bits of Block::flags that are listed.
struct ShownFlag {
  BlockFlag flag;
  const char* name;
  const char* meaning;
};
constexpr ShownFlag kShownFlags[] = {
    {BlockFlag::chosen, "chosen", "several versions were possible; only one fits the packets"},
    {BlockFlag::healed, "healed", "code restored from a later record"},
    {BlockFlag::ambiguous, "ambiguous", "several versions were possible; more than one fits the packets"},
    {BlockFlag::suspect, "suspect", "records were lost around this time, or packets contradict the code near by"},
    {BlockFlag::assumed, "assumed", "code from a guessed image"},
};

size_t bit_of(BlockFlag flag) { return static_cast<size_t>(std::countr_zero(static_cast<uint16_t>(flag))); }

std::string percent_text(uint64_t part, uint64_t whole) {
  return whole == 0 ? std::string("-") : fmt::format("{:.4f} %", percent(part, whole));
}

constexpr size_t kFirstBytes = 256;
constexpr uint64_t kMostPlainBytes = 9;  // a TIP of eight bytes
using PlainSizes = std::array<uint8_t, kFirstBytes>;

// The kind of packets with this lead whose first byte determines kind and size; `bad` if there are none.
pt::PacketKind plain_kind(pt::Lead lead) {
  switch (lead) {
    case pt::Lead::pad:
      return pt::PacketKind::pad;
    case pt::Lead::tnt_short:
      return pt::PacketKind::tnt_short;
    case pt::Lead::ip_tip:
      return pt::PacketKind::tip;
    case pt::Lead::ip_pge:
      return pt::PacketKind::tip_pge;
    case pt::Lead::ip_pgd:
      return pt::PacketKind::tip_pgd;
    case pt::Lead::ip_fup:
      return pt::PacketKind::fup;
    case pt::Lead::cyc:
      return pt::PacketKind::cyc;
    case pt::Lead::mtc:
      return pt::PacketKind::mtc;
    default:
      return pt::PacketKind::bad;
  }
}

// Sizes by first byte; 0 where the first byte does not determine kind and size.
PlainSizes plain_sizes() {
  PlainSizes sizes{};
  for (unsigned first = 0; first < kFirstBytes; ++first) {
    const std::array<std::byte, kMostPlainBytes> bytes{static_cast<std::byte>(first)};
    const pt::PacketKind kind = plain_kind(pt::kDispatch.lead[first]);
    const bool longer = kind == pt::PacketKind::cyc && (first & 4) != 0;  // [SDM] "CYC Packet", Exp
    pt::PacketReader reader(bytes);
    pt::Packet packet;
    if (kind == pt::PacketKind::bad || longer || reader.next(packet) != pt::PacketReader::Status::ok) continue;
    sizes[first] = packet.size_bytes;
  }
  return sizes;
}

uint8_t first_byte(Bytes bytes, uint64_t at) { return static_cast<uint8_t>(bytes[at]); }

}  // namespace

// Packets whose first byte determines kind and size are counted by that byte. PacketReader reads the others, and all inside a block (BBP).
void StreamStat::add_packets(const AuxSegment& segment) {
  static const PlainSizes sizes = plain_sizes();
  const uint64_t end = segment.bytes.size() - segment.tail_bytes;
  const uint64_t plain_end = std::min(end, segment.bytes.size() - std::min<uint64_t>(segment.bytes.size(), kMostPlainBytes - 1));
  std::array<uint64_t, kFirstBytes> plain{};
  pt::PacketReader reader(segment.bytes);
  pt::Packet packet;
  packet_bytes += end;
  for (uint64_t at = 0; at < end; at = reader.offset()) {
    if (reader.block_items() == 0 && at < plain_end) {
      while (at < plain_end) {
        const uint8_t first = first_byte(segment.bytes, at);
        if (sizes[first] == 0) break;
        ++plain[first];
        at += sizes[first];
      }
      reader.seek(at);
      if (at >= end) break;
    }
    if (reader.next(packet) == pt::PacketReader::Status::ok) {
      ++packets[static_cast<size_t>(packet.kind)];
      continue;
    }
    ++packets[static_cast<size_t>(pt::PacketKind::bad)];
    const uint64_t next = pt::find_psb(segment.bytes, at + 1);
    bad_bytes += (next < end ? next : end) - at;
    reader.seek(std::min(next, end));
  }
  for (unsigned first = 0; first < kFirstBytes; ++first) {
    if (plain[first] != 0) packets[static_cast<size_t>(plain_kind(pt::kDispatch.lead[first]))] += plain[first];
  }
}

void StreamStat::add_arm_packets(const arm::TraceConfig& config, const AuxSegment& segment) {
  packet_bytes += segment.bytes.size();
  count_arm_packets(config, segment, [this](const char* kind, uint64_t bad) {
    ++arm_packets[kind];
    bad_bytes += bad;
  });
}

// Most blocks only add instructions: two at a time, with a check of all flags at the end.
void StreamStat::add_some(std::span<const Block, kBlocksAtOnce> some) {
  static_assert(std::endian::native == std::endian::little && offsetof(Block, instructions) == 4 && offsetof(Block, flags) == 6);
  using Words = uint64_t __attribute__((vector_size(16)));
  constexpr uint64_t kInstructions = uint64_t{0xffff} << 32;
  constexpr uint64_t kOther = uint64_t{static_cast<uint16_t>(~(BlockFlag::taken | BlockFlag::ends_in_branch))} << 48;
  Words flags{}, sums{};
  for (size_t i = 0; i < kBlocksAtOnce; i += 2) {
    Words words;
    std::memcpy(&words, &some[i], sizeof words);
    flags |= words;
    sums += words & kInstructions;
  }
  if (((flags[0] | flags[1]) & kOther) != 0) return add_flagged(some);
  instructions += (sums[0] + sums[1]) >> 32;
}

void StreamStat::add_flagged(std::span<const Block> some) {
  for (const Block& block : some) {
    instructions += block.instructions;
    for (const ShownFlag& shown : kShownFlags) {
      if (!has(block.flags, shown.flag)) continue;
      ++flagged_blocks[bit_of(shown.flag)];
      flagged_instructions[bit_of(shown.flag)] += block.instructions;
    }
    if ((block.flags & kUncertainFlags) != 0) uncertain_instructions += block.instructions;
  }
}

void StreamStat::add(const Batch& batch) {
  blocks += batch.blocks.size();
  const std::span<const Block> all(batch.blocks);
  size_t at = 0;
  for (; at + kBlocksAtOnce <= all.size(); at += kBlocksAtOnce) add_some(all.subspan(at).first<kBlocksAtOnce>());
  add_flagged(all.subspan(at));
  for (const Event& event : batch.events) {
    if ((event.flags & kEventStatus) != 0) continue;  // state that PSB+ repeats
    ++events[static_cast<size_t>(event.kind) % kEventKinds];
    if ((event.flags & kEventBreakpoint) != 0) ++int3_hits;
  }
  for (const Gap& gap : batch.gaps) gaps.add(gap);
}

void StreamStat::add_windows(const Recording& recording, uint32_t stream) {
  const std::vector<AuxWindow> all = aux_windows(recording, stream);
  if (all.empty()) return;
  const std::vector<uint64_t> starts = recording.segment_starts(stream);
  for (const AuxWindow& window : all) {
    ++windows[std::string(window.event)];
    window_bytes += window.last_bytes - window.first_bytes;
    const auto psb = std::lower_bound(starts.begin(), starts.end(), window.first_bytes);
    if (psb == starts.end() || *psb >= window.last_bytes) ++undecoded_windows;
  }
}

namespace {

std::string windows_text(const StreamStat& stat) {
  std::string text;
  for (const auto& [event, count] : stat.windows)
    text += fmt::format("  {}, one for each sample of {}\n", counted(count, "window"), shown(event));
  if (!text.empty() && stat.window_bytes != stat.info.size_bytes)
    text += fmt::format("    {} bytes, of which later windows repeat {}\n", stat.window_bytes, stat.window_bytes - stat.info.size_bytes);
  if (stat.undecoded_windows != 0)
    text += fmt::format("    {} without a PSB, which cannot be decoded; record with a lower psb_period, or larger windows\n",
                        stat.undecoded_windows);
  return text;
}

std::string flow_text(const StreamStat& stat) {
  std::string text = "  events\n";
  for (size_t i = 0; i < kEventKinds; ++i) {
    if (stat.events[i] != 0) text += fmt::format("    {:<18} {:>13}\n", name(static_cast<EventKind>(i)), stat.events[i]);
  }
  if (stat.int3_hits != 0) text += fmt::format("    {:<18} {:>13}  (int3 of a text poke or probe)\n", "of them int3", stat.int3_hits);
  text += "  code\n";
  for (const ShownFlag& shown : kShownFlags) {
    const size_t bit = bit_of(shown.flag);
    text += fmt::format("    {:<10} {:>10} blocks {:>12} instructions {:>10}  {}\n", shown.name, stat.flagged_blocks[bit],
                        stat.flagged_instructions[bit], percent_text(stat.flagged_instructions[bit], stat.instructions), shown.meaning);
  }
  text += fmt::format("  gaps {}\n", stat.gaps.total());
  for (int i = 0; i < kGapReasons; ++i) {
    const GapTally::Count& count = stat.gaps.by_reason()[static_cast<size_t>(i)];
    const auto reason = static_cast<GapReason>(i);
    if (count.gaps == 0) continue;
    text += fmt::format("    {:<18} {:>13}  {:>12} bytes  {}\n", name(reason), count.gaps, count.lost_bytes, sentence(reason));
  }
  return text;
}

void add_flow(nlohmann::json& json, const StreamStat& stat) {
  json["instructions"] = stat.instructions;
  json["blocks"] = stat.blocks;
  json["int3_hits"] = stat.int3_hits;
  json["uncertain_instructions"] = stat.uncertain_instructions;
  for (size_t i = 0; i < kEventKinds; ++i) {
    if (stat.events[i] != 0) json["events"][name(static_cast<EventKind>(i))] = stat.events[i];
  }
  for (const ShownFlag& shown : kShownFlags) {
    const size_t bit = bit_of(shown.flag);
    json["code"][shown.name] = {{"blocks", stat.flagged_blocks[bit]}, {"instructions", stat.flagged_instructions[bit]}};
  }
  json["gaps"] = nlohmann::json::object();
  for (int i = 0; i < kGapReasons; ++i) {
    const GapTally::Count& count = stat.gaps.by_reason()[static_cast<size_t>(i)];
    if (count.gaps != 0) json["gaps"][name(static_cast<GapReason>(i))] = {{"count", count.gaps}, {"lost_bytes", count.lost_bytes}};
  }
}

}  // namespace

std::string stat_text(const StreamStat& stat) {
  const bool is_core = !stat.info.core.empty();
  const std::string_view protocol = arm::name(stat.info.protocol);
  const bool named = stat.info.source.starts_with(protocol);  // "ETMv4 of cpu 0", of a recording by perf
  std::string text = stat.info.source.empty()
                         ? std::string()
                         : fmt::format("{}{}{}, id 0x{:x}{}{}\n", stat.info.source, named ? "" : ", ", named ? "" : protocol,
                                       stat.info.trace_id, is_core ? ", traces " : "", stat.info.core);
  text += fmt::format("{} {}: {} bytes of trace, {}, time {}\n", stat.info.cpu >= 0 ? "cpu" : "thread",
                      stat.info.cpu >= 0 ? stat.info.cpu : stat.info.tid, stat.info.size_bytes, counted(stat.segments, "segment"),
                      time_text(stat.info.time));
  text += windows_text(stat);
  if (stat.is_decoded) text += fmt::format("  instructions {:>15}\n  blocks       {:>15}\n", stat.instructions, stat.blocks);
  text += "  packets\n";
  for (size_t i = 0; i < stat.packets.size(); ++i) {
    if (stat.packets[i] != 0) text += fmt::format("    {:<18} {:>13}\n", short_name(static_cast<pt::PacketKind>(i)), stat.packets[i]);
  }
  for (const auto& [kind, count] : stat.arm_packets) text += fmt::format("    {:<18} {:>13}\n", kind, count);
  if (stat.bad_bytes != 0) text += fmt::format("    invalid packet bytes     {:>7}\n", stat.bad_bytes);
  return stat.is_decoded ? text + flow_text(stat) : text;
}

nlohmann::json stat_json(const StreamStat& stat) {
  nlohmann::json json = {{"cpu", stat.info.cpu},
                         {"tid", stat.info.tid},
                         {"bytes", stat.info.size_bytes},
                         {"segments", stat.segments},
                         {"time_ns", {stat.info.time.first.value, stat.info.time.last.value}},
                         {"bad_bytes", stat.bad_bytes}};
  for (size_t i = 0; i < stat.packets.size(); ++i) {
    if (stat.packets[i] != 0) json["packets"][std::string(short_name(static_cast<pt::PacketKind>(i)))] = stat.packets[i];
  }
  for (const auto& [kind, count] : stat.arm_packets) json["packets"][kind] = count;
  if (!stat.info.source.empty()) {
    json["source"] = stat.info.source;
    json["core"] = stat.info.core;
    json["protocol"] = arm::name(stat.info.protocol);
    json["trace_id"] = stat.info.trace_id;
  }
  if (!stat.windows.empty())
    json["windows"] = {{"samples", stat.windows}, {"bytes", stat.window_bytes}, {"undecoded", stat.undecoded_windows}};
  if (stat.is_decoded) add_flow(json, stat);
  return json;
}

}  // namespace ptd::cli
