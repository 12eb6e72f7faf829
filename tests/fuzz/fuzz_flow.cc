// Any code and any trace: the decoder ends, and every index and size in its output is in bounds.
//
// Input: u8 number of sections; each: u64 address, u16 size, that many bytes; the rest is the trace.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/timeline_builder.h"
#include "tests/fuzz/check.h"

using namespace ptd;

namespace {

class Input {
 public:
  explicit Input(Bytes bytes) : rest_(bytes) {}
  template <class T>
  T number() {
    T out{};
    const Bytes bytes = take(sizeof(T));
    if (!bytes.empty()) std::memcpy(&out, bytes.data(), bytes.size());
    return out;
  }
  Bytes take(size_t count) {
    const Bytes out = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(out.size());
    return out;
  }
  [[nodiscard]] Bytes rest() const { return rest_; }

 private:
  Bytes rest_;
};

void check(const Batch& batch, const BlockTable& table) {
  for (const Block& block : batch.blocks) {
    PTD_FUZZ_CHECK(block.node < table.size());
    PTD_FUZZ_CHECK(block.instructions >= 1);
    PTD_FUZZ_CHECK(table.bytes(block.node).size() == table.info(block.node).size_bytes);
  }
  for (const Mark& mark : batch.marks) PTD_FUZZ_CHECK(mark.before_block <= batch.blocks.size());
  for (const Event& event : batch.events) PTD_FUZZ_CHECK(event.before_block <= batch.blocks.size());
  for (const Gap& gap : batch.gaps) PTD_FUZZ_CHECK(gap.before_block <= batch.blocks.size());
}

void decode(Bytes trace, const Timeline& timeline, const ContextTrack& contexts) {
  pt::DecoderOptions options;
  options.max_silent_instructions = 1U << 16;
  options.config.cpu = {6, 94, 3};
  options.config.errata = pt::errata_of(options.config.cpu);
  pt::Decoder decoder(timeline, contexts, options);
  Batch batch;
  uint64_t at = pt::find_psb(trace, 0);
  for (int segments = 0; at < trace.size() && segments < 16; ++segments) {
    const uint64_t next = pt::find_psb(trace, at + 16);
    AuxSegment segment;
    segment.tail_bytes = std::min<uint64_t>(trace.size() - next, 32);
    segment.bytes = trace.subspan(at, next - at + segment.tail_bytes);
    segment.stream_offset_bytes = at;
    segment.cpu = 0;
    segment.break_after = next == trace.size();
    decoder.begin(segment);
    bool more = true;
    // A byte of trace has at most eight outcomes, each after at most max_silent_instructions: a generous bound on batches.
    for (uint64_t batches = 0; more; ++batches) {
      PTD_FUZZ_CHECK(batches <= 64 + segment.bytes.size() * 16);
      batch.clear();
      more = decoder.next(batch);
      check(batch, decoder.blocks());
    }
    at = next;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, size_t size) {
  Input input(std::as_bytes(std::span(data, size)));
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  const unsigned sections = input.number<uint8_t>() % 16;
  for (unsigned i = 0; i < sections; ++i) {
    Section section;
    section.ip = Ip{input.number<uint64_t>()};
    section.space = is_kernel_half(section.ip) ? kKernelSpace : user;
    const Bytes bytes = input.take(input.number<uint16_t>());
    section.size_bytes = bytes.size();
    auto owner = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    section.code = {owner, Bytes(*owner)};
    builder.add_section(std::move(section));
  }
  const Timeline timeline = builder.build();
  ContextTrack contexts;
  contexts.add_switch(0, kTimeMin, {1, 1, user});
  contexts.sort();
  decode(input.rest(), timeline, contexts);
  return 0;
}
