// Compares two decoders over one segment.
#include "tests/support/batch_compare.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace ptd::test {
namespace {

SegmentOutput decode(FlowDecoder& decoder, const AuxSegment& segment, size_t batch_blocks) {
  SegmentOutput out;
  Batch batch;
  decoder.begin(segment);
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch, batch_blocks);
    out.add(batch);
  }
  return out;
}

std::string print(const char* format, ...) __attribute__((format(printf, 1, 2)));
std::string print(const char* format, ...) {
  char buffer[400];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

using Wide = unsigned long long;

std::string text(const Block& block, const BlockTable& table) {
  const BlockInfo& info = table.info(block.node);
  return print("block %llx space %u mode %d instructions %u size %u flags %x", static_cast<Wide>(info.ip.value), info.space.value,
               static_cast<int>(info.mode), block.instructions, info.size_bytes, block.flags);
}
std::string text(const Mark& m) {
  return print("mark before %u time [%llu, %llu] pid %d tid %d space %u mode %d known %d about %llu cycles %llu", m.before_block,
               static_cast<Wide>(m.time.first.value), static_cast<Wide>(m.time.last.value), m.pid, m.tid, m.space.value,
               static_cast<int>(m.mode), m.time_known ? 1 : 0, static_cast<Wide>(m.about.value), static_cast<Wide>(m.cycles));
}
std::string text(const Event& e) {
  return print("event %s before %u flags %d from %llx to %llx payload %llx aux %llx offset %llx time [%llu, %llu] about %llu cycles %llu",
               name(e.kind), e.before_block, e.flags, static_cast<Wide>(e.from.value), static_cast<Wide>(e.to.value),
               static_cast<Wide>(e.payload), static_cast<Wide>(e.aux), static_cast<Wide>(e.stream_offset_bytes),
               static_cast<Wide>(e.time.first.value), static_cast<Wide>(e.time.last.value), static_cast<Wide>(e.about.value),
               static_cast<Wide>(e.cycles));
}
std::string text(const Gap& g) {
  return print("gap %s before %u offset %llx ip %llx space %u section %u time [%llu, %llu] lost %llu", name(g.reason), g.before_block,
               static_cast<Wide>(g.stream_offset_bytes), static_cast<Wide>(g.ip.value), g.space.value, g.section,
               static_cast<Wide>(g.time.first.value), static_cast<Wide>(g.time.last.value), static_cast<Wide>(g.lost_bytes));
}

template <typename List>
std::string first_difference(const List& one, const List& other) {
  for (size_t i = 0; i < std::max(one.size(), other.size()); ++i) {
    const std::string a = i < one.size() ? text(one[i]) : "none", b = i < other.size() ? text(other[i]) : "none";
    if (a != b) return "number " + std::to_string(i) + ": " + a + " | " + b;
  }
  return {};
}

}  // namespace

void SegmentOutput::add(const Batch& batch) {
  const auto shift = static_cast<uint32_t>(all.blocks.size());
  all.blocks.insert(all.blocks.end(), batch.blocks.begin(), batch.blocks.end());
  const auto moved = [&](const auto& from, auto& to) {
    for (auto entry : from) {
      entry.before_block += shift;
      to.push_back(entry);
    }
  };
  moved(batch.marks, all.marks);
  moved(batch.events, all.events);
  moved(batch.gaps, all.gaps);
}

std::string compare_decoders(FlowDecoder& one, FlowDecoder& other, const AuxSegment& segment, size_t batch_blocks,
                             size_t other_batch_blocks) {
  const size_t capacity = other_batch_blocks == 0 ? batch_blocks : other_batch_blocks;
  const SegmentOutput a = decode(one, segment, batch_blocks), b = decode(other, segment, capacity);
  const std::string where = print(" (segment at %llx)", static_cast<Wide>(segment.stream_offset_bytes));
  for (size_t i = 0; i < std::max(a.all.blocks.size(), b.all.blocks.size()); ++i) {
    const bool both = i < a.all.blocks.size() && i < b.all.blocks.size();
    if (both) {
      const Block &left = a.all.blocks[i], &right = b.all.blocks[i];
      const BlockInfo &x = one.blocks().info(left.node), &y = other.blocks().info(right.node);
      const Bytes left_bytes = one.blocks().bytes(left.node), right_bytes = other.blocks().bytes(right.node);
      if (x.ip == y.ip && x.space == y.space && x.mode == y.mode && left.instructions == right.instructions && left.flags == right.flags &&
          std::equal(left_bytes.begin(), left_bytes.end(), right_bytes.begin(), right_bytes.end())) {
        continue;
      }
    }
    return "block " + std::to_string(i) + ": " + (i < a.all.blocks.size() ? text(a.all.blocks[i], one.blocks()) : "none") + " | " +
           (i < b.all.blocks.size() ? text(b.all.blocks[i], other.blocks()) : "none") + where;
  }
  std::string out = first_difference(a.all.marks, b.all.marks);
  if (out.empty()) out = first_difference(a.all.events, b.all.events);
  if (out.empty()) out = first_difference(a.all.gaps, b.all.gaps);
  return out.empty() ? out : out + where;
}

}  // namespace ptd::test
