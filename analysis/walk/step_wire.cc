// Step files: see step_wire.h.
#include "analysis/walk/step_wire.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "image/base/fnv.h"
#include "perfio/zstd_stream.h"

namespace ptd {
namespace {

constexpr size_t kMostBlockBytes = 64U << 20;
constexpr size_t kHeaderBytes = 12, kBlockHeaderBytes = 32;
constexpr int kLevel = 1;
constexpr uint64_t kContext = 1, kCycles = 2, kFloor = 4, kLanding = 8, kMaskBits = 4;

void put(std::byte* at, uint64_t value, size_t size) {
  for (size_t i = 0; i < size; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}

uint64_t get(Bytes bytes, size_t at, size_t size) {
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

}  // namespace

void StepCoder::write(ByteWriter& out, const FlowStep& step, uint64_t function, uint64_t from, uint64_t extra) {
  const bool context =
      std::exchange(fresh_, false) || step.pid != last_.pid || step.tid != last_.tid || step.cpu != last_.cpu || step.space != last_.space;
  const uint64_t mask = (context ? kContext : 0) | (step.cycles != 0 ? kCycles : 0) | (step.floor != step.time ? kFloor : 0) |
                        (step.landing != 0 ? kLanding : 0);
  out.number((static_cast<uint64_t>(step.kind) << kMaskBits | mask) + extra);
  out.number(step.flags);
  if (step.kind == FlowKind::gap) out.number(static_cast<uint64_t>(step.gap));
  if (context) {
    for (const int32_t id : {step.pid, step.tid, step.cpu}) out.signed_number(id);
    out.number(uint64_t{step.space.value} + 1);
  }
  out.number(function);
  out.number(from);
  out.number(step.instructions);
  if (step.cycles != 0) out.number(step.cycles);
  out.signed_number(static_cast<int64_t>(step.to.value - last_.to.value));
  out.signed_number(static_cast<int64_t>(step.return_to.value - step.to.value));
  out.signed_number(static_cast<int64_t>(step.time.value - last_.time.value));
  if (step.floor != step.time) out.signed_number(static_cast<int64_t>(step.time.value - step.floor.value));
  if (step.landing != 0) out.signed_number(step.landing);
  last_ = step;
}

FlowStep StepCoder::read(ByteReader& in, uint64_t word, const std::vector<FunctionId>& ids) {
  FlowStep step;
  step.kind = static_cast<FlowKind>(std::min<uint64_t>(word >> kMaskBits, static_cast<uint64_t>(FlowKind::switch_out)));
  step.flags = static_cast<uint8_t>(in.number_to(UINT8_MAX));
  if (step.kind == FlowKind::gap) step.gap = static_cast<GapReason>(in.number_to(kGapReasons - 1));
  step.pid = last_.pid;
  step.tid = last_.tid;
  step.cpu = last_.cpu;
  step.space = last_.space;
  if ((word & kContext) != 0) {
    for (int32_t* id : {&step.pid, &step.tid, &step.cpu}) *id = in.id();
    step.space = SpaceId{static_cast<uint32_t>(in.number_to(uint64_t{1} << 32) - 1)};
  }
  const auto function = [&] {
    const uint64_t number = in.number_to(ids.size());
    return number == 0 ? kNoFunction : ids[number - 1];
  };
  step.function = function();
  step.from = function();
  step.instructions = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  if ((word & kCycles) != 0) step.cycles = in.number();
  step.to.value = last_.to.value + static_cast<uint64_t>(in.signed_number());
  step.return_to.value = step.to.value + static_cast<uint64_t>(in.signed_number());
  step.time.value = last_.time.value + static_cast<uint64_t>(in.signed_number());
  step.floor = step.time;
  if ((word & kFloor) != 0) step.floor.value = step.time.value - static_cast<uint64_t>(in.signed_number());
  if ((word & kLanding) != 0) step.landing = static_cast<int32_t>(in.signed_number());
  last_ = step;
  return step;
}

void put_step_block(WholeFile& file, StepBlock kind, uint64_t first, Bytes content) {
  std::vector<std::byte> stored = perfio::zstd_compress(content, kLevel);
  perfio::zstd_pad(stored, content.size());
  std::array<std::byte, kBlockHeaderBytes> header{};
  put(header.data(), static_cast<uint64_t>(kind), 8);
  put(header.data() + 8, stored.size(), 4);
  put(header.data() + 12, content.size(), 4);
  put(header.data() + 16, first, 8);
  put(header.data() + 24, fnv1a(stored), 8);
  (void)file.write(text_of(header));  // finish() reports the failure
  (void)file.write(text_of(stored));
}

void put_step_header(WholeFile& file, std::string_view magic, uint64_t plan, uint32_t unit) {
  std::array<std::byte, kHeaderBytes> header{};
  std::memcpy(header.data(), magic.data(), magic.size());
  put(header.data() + magic.size(), kStepsVersion, 4);
  (void)file.write(text_of(header));
  ByteWriter content;
  content.number(plan);
  content.number(unit);
  put_step_block(file, StepBlock::head, 0, content.bytes());
}

Status StepBlocks::open(const std::string& path, std::string_view magic, uint64_t& plan, uint32_t& unit) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  file_ = std::move(*file);
  const Bytes bytes = file_->bytes();
  if (bytes.size() < kHeaderBytes) return damaged(ErrorCode::truncated, "the file of steps ends inside its header");
  if (std::memcmp(bytes.data(), magic.data(), magic.size()) != 0) return damaged(ErrorCode::bad_magic, "not a file of steps");
  if (get(bytes, magic.size(), 4) != kStepsVersion)
    return damaged(ErrorCode::unsupported_version, "a file of steps of another version; decode the unit again");
  at_ = kHeaderBytes;
  const auto block = next();
  if (!block) return block.error();
  ByteReader in(block->content);
  plan = in.number();
  unit = static_cast<uint32_t>(in.number_to(UINT32_MAX));
  if (block->kind != StepBlock::head || !in.done()) return damaged(ErrorCode::bad_format, "the head of the file of steps is inconsistent");
  return {};
}

Result<StepBlocks::Block> StepBlocks::next() {
  const Bytes bytes = file_->bytes();
  if (bytes.size() - at_ < kBlockHeaderBytes) return damaged(ErrorCode::truncated, "the file of steps is truncated");
  Block block;
  const uint64_t kind = get(bytes, at_, 8), stored = get(bytes, at_ + 8, 4), raw = get(bytes, at_ + 12, 4), hash = get(bytes, at_ + 24, 8);
  block.first = get(bytes, at_ + 16, 8);
  if (stored > bytes.size() - at_ - kBlockHeaderBytes) return damaged(ErrorCode::truncated, "the file of steps is truncated");
  if (raw > kMostBlockBytes || kind > static_cast<uint64_t>(StepBlock::end))
    return damaged(ErrorCode::bad_format, "unknown part of the file of steps");
  if (raw > perfio::zstd_expansion_limit(stored))
    return damaged(ErrorCode::bad_format, "a part of the file of steps expands above the limit; decode the unit again");
  const Bytes content = bytes.subspan(at_ + kBlockHeaderBytes, stored);
  if (fnv1a(content) != hash) return damaged(ErrorCode::bad_checksum, "a part of the file of steps does not have its checksum");
  at_ += kBlockHeaderBytes + stored;
  block.kind = static_cast<StepBlock>(kind);
  auto decompressed = perfio::zstd_decompress(content, raw);
  if (!decompressed) return decompressed.error();
  block.content = std::move(*decompressed);
  return block;
}

void StepBlocks::skip_to(uint64_t first) {
  const Bytes bytes = file_->bytes();
  for (;;) {
    if (bytes.size() - at_ < kBlockHeaderBytes) return;
    const uint64_t after = at_ + kBlockHeaderBytes + get(bytes, at_ + 8, 4);
    if (after > bytes.size() || bytes.size() - after < kBlockHeaderBytes) return;
    if (get(bytes, after, 8) != static_cast<uint64_t>(StepBlock::steps) || get(bytes, after + 16, 8) > first) return;
    at_ = after;
  }
}

}  // namespace ptd
