// Tape: reads packets.
#include "decoder/pt/runner/tape.h"

#include <algorithm>

#include "decoder/pt/flow/plain_packets.h"

namespace ptd::pt {
namespace {

constexpr unsigned kMtc = 0x59, kCycMask = 3, kCycMore = 4;
constexpr uint64_t kMtcBytes = 2, kMostCycBytes = 16, kMostBytes = 1U << 20;

/// Size of the MTC or CYC at `offset`; 0: none stands there.
uint64_t timing_size(const TapeSource& source, uint64_t offset, unsigned byte) {
  if (byte == kMtc) return source.own_bytes - offset >= kMtcBytes ? kMtcBytes : 0;
  if ((byte & kCycMask) != kCycMask || !source.reads_cyc) return 0;
  uint64_t size = 1;
  for (bool more = (byte & kCycMore) != 0; more; ++size) {
    if (size == kMostCycBytes || source.own_bytes - offset <= size) return 0;
    more = (static_cast<unsigned>(source.data[offset + size]) & 1) != 0;
  }
  return size;
}

}  // namespace

void Tape::read(const TapeSource& source, uint64_t offset, uint64_t last_ip, uint32_t packets) {
  start_ = offset;
  timings_.clear();
  const uint64_t stop = std::min(source.stop, offset + kMostBytes);
  uint64_t pending = 0;  // bits that do not fill a byte yet, on top
  uint32_t bits = 0, places = 0, targets = 0;
  const std::byte* data = source.data;
  while (offset < stop && places < packets) {
    const auto byte = static_cast<unsigned>(data[offset]);
    uint64_t payload = byte >> 1, size = 1;
    if (!is_short_tnt(byte)) {
      payload = byte == 0x02 && source.own_bytes - offset >= kLongTntBytes ? long_tnt(data + offset) : 0;
      size = kLongTntBytes;
    }
    if (payload > 1) {
      const auto count = static_cast<uint32_t>(std::bit_width(payload)) - 1;
      places_[places++] = {static_cast<uint32_t>(offset - start_), bits};
      const uint32_t filled = bits & 7;
      pending |= payload << (64 - count) >> filled;
      const uint64_t word = __builtin_bswap64(pending);
      std::memcpy(bytes_.data() + bits / 8, &word, sizeof word);
      pending <<= (filled + count) & ~7U;
      bits += count;
      offset += size;
    } else if ((byte & kIpOpcodeMask) == kTipOpcode) {
      size = 1U + kIpSize[byte >> 5];
      if (size == 1 || source.own_bytes - offset < size || source.segment_bytes - offset < 1 + sizeof(uint64_t)) break;
      last_ip = ip_of_tip(data + offset, last_ip);
      targets_[targets++] = {last_ip, 0, bits, places};
      places_[places++] = {static_cast<uint32_t>(offset - start_), bits};
      offset += size;
    } else if (byte == 0) {
      ++offset;
    } else {
      size = timing_size(source, offset, byte);
      if (size == 0) break;
      timings_.push_back(offset);
      offset += size;
    }
  }
  // What window() reads behind the last bit is always the same.
  const uint64_t words[2] = {__builtin_bswap64(pending), 0};
  std::memcpy(bytes_.data() + bits / 8, words, sizeof words);
  end_ = offset;
  bits_ = bits;
  places_count_ = places;
  targets_count_ = targets;
}

}  // namespace ptd::pt
