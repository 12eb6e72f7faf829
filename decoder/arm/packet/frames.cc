// Formatter frames: 15 bytes of data and ids, and one byte with their low bits.
#include "ptdecode/arm/frames.h"

#include <algorithm>
#include <cstring>

#include "decoder/arm/packet/frame_reader.h"

namespace ptd::arm {
namespace {

constexpr uint32_t kFrameSync = 0x7fffffff;
constexpr size_t kFrameSyncBytes = 4;

uint32_t word_at(Bytes bytes, uint64_t at) {
  uint32_t word = 0;
  for (unsigned i = 0; i < 4; ++i) word |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
  return word;
}

class Splitter {
 public:
  explicit Splitter(FrameReader& reader) : reader_(reader) {}

  FrameCounts aligned(Bytes buffer);
  FrameCounts synced(Bytes buffer);

 private:
  void frame(const std::array<uint8_t, kFrameBytes>& bytes, const std::array<uint64_t, kFrameBytes>& offsets);
  void put(uint8_t byte, uint64_t offset);
  void flush();
  [[nodiscard]] static uint64_t find_sync(Bytes buffer, uint64_t from);
  template <typename Put>
  static uint64_t pass_stretch(Bytes buffer, uint64_t from, uint64_t end, const Put& put_pair);
  uint64_t stretch(Bytes buffer, uint64_t from, uint64_t end);
  void lose(uint64_t offset, uint64_t bytes) {
    counts_.skipped_bytes += bytes;
    id_known_ = false;
    reader_.on_loss(offset);
  }
  void barrier(uint64_t offset) {
    ++counts_.barriers;
    id_ = 0;
    id_known_ = false;
    reader_.on_barrier(offset);
  }

  FrameReader& reader_;
  FrameCounts counts_;
  uint8_t id_ = 0;
  bool id_known_ = false;
  std::array<std::byte, kFrameBytes> run_{};
  size_t run_size_ = 0;
  uint64_t run_offset_ = 0;
};

void Splitter::put(uint8_t byte, uint64_t offset) {
  if (run_size_ == 0) run_offset_ = offset;
  run_[run_size_++] = static_cast<std::byte>(byte);
}

void Splitter::flush() {
  if (run_size_ != 0 && id_known_) reader_.on_run({id_, run_offset_, Bytes(run_).first(run_size_)});
  run_size_ = 0;
}

// Even bytes: bit 0 set = an id in bits 7:1, and the flag = the byte after it still belongs to the old id. Bit 0 clear = data, whose own
// bit 0 is the flag. Odd bytes: data. Byte 15: the flags.
void Splitter::frame(const std::array<uint8_t, kFrameBytes>& bytes, const std::array<uint64_t, kFrameBytes>& offsets) {
  ++counts_.frames;
  for (unsigned pair = 0; pair < 8; ++pair) {
    const unsigned at = 2 * pair;
    const bool flag = (bytes[15] >> pair & 1) != 0, last = pair == 7;
    if ((bytes[at] & 1) == 0) {
      put(static_cast<uint8_t>(bytes[at] | (flag ? 1 : 0)), offsets[at]);
      if (!last) put(bytes[at + 1], offsets[at + 1]);
      continue;
    }
    if (flag && !last) put(bytes[at + 1], offsets[at + 1]);
    flush();
    id_ = bytes[at] >> 1;
    id_known_ = true;
    reader_.on_id({id_, offsets[at], flag && !last});
    if (!flag && !last) put(bytes[at + 1], offsets[at + 1]);
  }
  flush();
}

FrameCounts Splitter::aligned(Bytes buffer) {
  std::array<uint8_t, kFrameBytes> bytes{};
  std::array<uint64_t, kFrameBytes> offsets{};
  bool in_barrier = false;
  uint64_t at = 0;
  for (; at + kFrameBytes <= buffer.size(); at += kFrameBytes) {
    const bool sync = word_at(buffer, at) == kFrameSync && word_at(buffer, at + 4) == kFrameSync && word_at(buffer, at + 8) == kFrameSync &&
                      word_at(buffer, at + 12) == kFrameSync;
    if (sync) {
      if (!in_barrier) barrier(at);
      in_barrier = true;
      continue;
    }
    in_barrier = false;
    for (size_t i = 0; i < kFrameBytes; ++i) {
      bytes[i] = static_cast<uint8_t>(buffer[at + i]);
      offsets[i] = at + i;
    }
    frame(bytes, offsets);
  }
  if (at < buffer.size()) lose(at, buffer.size() - at);
  return counts_;
}

/// Returns the offset of the first frame sync at or after `from`, else the end. No frame contains one, wherever it begins: it has ff at an
/// even offset, an id that no source has.
uint64_t Splitter::find_sync(Bytes buffer, uint64_t from) {
  for (uint64_t last = from + kFrameSyncBytes - 1; last < buffer.size(); ++last) {
    const void* const found = std::memchr(buffer.data() + last, 0x7f, buffer.size() - last);
    if (found == nullptr) break;
    last = static_cast<uint64_t>(static_cast<const std::byte*>(found) - buffer.data());
    if (word_at(buffer, last + 1 - kFrameSyncBytes) == kFrameSync) return last + 1 - kFrameSyncBytes;
  }
  return buffer.size();
}

/// Calls `put_pair` with the offset of each two bytes of frames. Returns how many bytes at the end are no whole pair.
template <typename Put>
uint64_t Splitter::pass_stretch(Bytes buffer, uint64_t from, uint64_t end, const Put& put_pair) {
  uint64_t at = from;
  for (; at + 2 <= end; at += 2) {
    if (buffer[at] != std::byte{0xff} || buffer[at + 1] != std::byte{0x7f}) put_pair(at);
  }
  return end - at;
}

/// Reads the frames between two syncs. Returns the number of bytes after the last whole frame.
uint64_t Splitter::stretch(Bytes buffer, uint64_t from, uint64_t end) {
  std::array<uint8_t, kFrameBytes> bytes{};
  std::array<uint64_t, kFrameBytes> offsets{};
  size_t filled = 0;
  const uint64_t odd = pass_stretch(buffer, from, end, [&](uint64_t at) {
    for (unsigned i = 0; i < 2; ++i, ++filled) {
      bytes[filled] = static_cast<uint8_t>(buffer[at + i]);
      offsets[filled] = at + i;
    }
    if (filled != kFrameBytes) return;
    frame(bytes, offsets);
    filled = 0;
  });
  return filled + odd;
}

FrameCounts Splitter::synced(Bytes buffer) {
  uint64_t at = find_sync(buffer, 0);
  counts_.skipped_bytes = at;
  while (at < buffer.size()) {
    const uint64_t from = at + kFrameSyncBytes;
    at = find_sync(buffer, from);
    uint64_t size = 0;
    const uint64_t odd = pass_stretch(buffer, from, at, [&](uint64_t) { size += 2; });
    // A stretch that is not of whole frames lacks bytes, or has too many. Nothing shows where: all of it is omitted.
    if (at < buffer.size() && (size + odd) % kFrameBytes != 0) {
      lose(from, size + odd);
    } else {
      counts_.skipped_bytes += stretch(buffer, from, at);
    }
  }
  return counts_;
}

/// Omits what the formatter itself writes.
class SourceRuns final : public FrameReader {
 public:
  SourceRuns(const std::function<void(const FrameRun&)>& on_run, const std::function<void(uint64_t)>& on_barrier)
      : on_run_(on_run), on_barrier_(on_barrier) {}
  void on_run(const FrameRun& run) override {
    if (run.id != 0) on_run_(run);
  }
  void on_barrier(uint64_t offset_bytes) override { on_barrier_(offset_bytes); }
  void on_loss(uint64_t offset_bytes) override { on_barrier_(offset_bytes); }

 private:
  const std::function<void(const FrameRun&)>& on_run_;
  const std::function<void(uint64_t)>& on_barrier_;
};

}  // namespace

FrameCounts read_frames(Bytes buffer, FrameFormat format, FrameReader& reader) {
  Splitter splitter(reader);
  return format == FrameFormat::aligned ? splitter.aligned(buffer) : splitter.synced(buffer);
}

FrameCounts split_frames(Bytes buffer, FrameFormat format, const std::function<void(const FrameRun&)>& on_run,
                         const std::function<void(uint64_t)>& on_barrier) {
  SourceRuns runs(on_run, on_barrier);
  return read_frames(buffer, format, runs);
}

}  // namespace ptd::arm
