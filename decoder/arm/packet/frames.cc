// Formatter frames: 15 bytes of data and ids, and one byte with their low bits.
#include "ptdecode/arm/frames.h"

#include <algorithm>

#include "decoder/arm/packet/frame_reader.h"

namespace ptd::arm {
namespace {

constexpr size_t kFrameBytes = 16;
constexpr uint32_t kFrameSync = 0x7fffffff;

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
    reader_.on_id(id_, offsets[at]);
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
  counts_.skipped_bytes += buffer.size() - at;
  return counts_;
}

FrameCounts Splitter::synced(Bytes buffer) {
  uint64_t at = 0;
  while (at + 4 <= buffer.size() && word_at(buffer, at) != kFrameSync) ++at;
  if (at + 4 > buffer.size()) at = buffer.size();
  counts_.skipped_bytes = at;
  std::array<uint8_t, kFrameBytes> bytes{};
  std::array<uint64_t, kFrameBytes> offsets{};
  size_t filled = 0;
  while (at + 2 <= buffer.size()) {
    if (at + 4 <= buffer.size() && word_at(buffer, at) == kFrameSync) {
      // A frame sync inside a frame: bytes were lost. The frame restarts after it.
      counts_.skipped_bytes += filled;
      filled = 0;
      at += 4;
      continue;
    }
    if (buffer[at] == std::byte{0xff} && buffer[at + 1] == std::byte{0x7f}) {
      at += 2;
      continue;
    }
    for (unsigned i = 0; i < 2; ++i, ++at, ++filled) {
      bytes[filled] = static_cast<uint8_t>(buffer[at]);
      offsets[filled] = at;
    }
    if (filled == kFrameBytes) {
      frame(bytes, offsets);
      filled = 0;
    }
  }
  counts_.skipped_bytes += filled + (buffer.size() - at);
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
