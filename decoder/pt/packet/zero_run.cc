// Zeroed trace: see zero_run.h.
#include "decoder/pt/packet/zero_run.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ptdecode/pt/packet_reader.h"

namespace ptd::pt {

namespace {
constexpr uint64_t kSearchedBytes = 4096;                  // maximum search distance of find_packet()
constexpr std::array<uint8_t, 3> kBlockItems = {0, 4, 8};  // PacketReader::block_items()
}  // namespace

// Probes one word per stride, because a run of kLeastZeroRun bytes covers at least one of them.
ZeroRun find_zero_run(Bytes bytes, uint64_t from, uint64_t end) {
  constexpr uint64_t kWord = sizeof(uint64_t), kStride = kLeastZeroRun - kWord;
  const std::byte* data = bytes.data();
  for (uint64_t at = from; at + kWord <= end; at += kStride) {
    uint64_t word = 0;
    std::memcpy(&word, data + at, kWord);
    if (word != 0) continue;
    ZeroRun run{at, at + kWord};
    while (run.first > from && data[run.first - 1] == std::byte{0}) --run.first;
    while (run.last < end && data[run.last] == std::byte{0}) ++run.last;
    if (run.last - run.first >= kLeastZeroRun) return run;
  }
  return {end, end};
}

uint64_t find_packet(Bytes bytes, uint64_t from, uint64_t end, const Errata& errata) {
  std::vector<PacketReader> readers;
  for (uint64_t at = from; at < std::min(from + kMostPacketBytes, end); ++at) {
    for (const uint8_t items : kBlockItems) {
      readers.emplace_back(bytes.first(end), at);
      readers.back().set_errata(errata);
      readers.back().set_block_items(items);
    }
  }
  // Advance the reader that is furthest back. Readers that meet are merged; readers that cannot continue began inside a packet.
  const auto before = [](const PacketReader& a, const PacketReader& b) { return a.offset() < b.offset(); };
  while (!readers.empty()) {
    const auto last = std::min_element(readers.begin(), readers.end(), before);
    if (readers.size() == 1 && last->block_items() == 0) return last->offset();
    if (last->offset() - from >= kSearchedBytes) break;
    Packet packet;
    PacketReader next = *last;
    readers.erase(last);
    if (next.next(packet) != PacketReader::Status::ok || packet.kind == PacketKind::psb) continue;
    const bool met = std::any_of(readers.begin(), readers.end(), [&](const PacketReader& other) {
      return other.offset() == next.offset() && other.block_items() == next.block_items();
    });
    if (!met) readers.push_back(next);
  }
  return end;
}

}  // namespace ptd::pt
