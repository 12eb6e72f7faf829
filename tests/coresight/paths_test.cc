// The fast path against atoms decoded one by one: every block, mark, event and gap must be the same.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"
#include "tests/coresight/support/expected.h"
#include "tests/support/batch_compare.h"
#include "tests/support/corpus.h"

namespace ptd::test {
namespace {

/// Decodes twice with the same decoders: the second time all runs are cached and linked.
std::string compare(const Timeline& timeline, const ContextTrack& contexts, arm::DecoderOptions options,
                    const std::vector<AuxSegment>& segments, size_t capacity, uint64_t& blocks) {
  options.follow.exact_only = false;
  arm::Decoder fast(timeline, contexts, options);
  options.follow.exact_only = true;
  arm::Decoder exact(timeline, contexts, options);
  for (int round = 0; round < 2; ++round) {
    for (const AuxSegment& segment : segments) {
      std::string difference = compare_decoders(fast, exact, segment, capacity, round == 0 ? capacity : 3 * capacity);
      if (!difference.empty()) return difference;
    }
  }
  blocks += exact.blocks().size();
  return {};
}

TEST(ArmPaths, AreTheSameOnTheCorpus) {
  PTD_NEED_CORPUS();
  uint64_t blocks = 0;
  for (const Capture& capture : captures()) {
    OpenOptions open;
    open.path = capture.path;
    const auto opened = Recording::open(open);
    ASSERT_TRUE(opened.ok());
    const Recording& recording = **opened;
    for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
      const arm::TraceConfig& config = *recording.arm_config(stream);
      if (config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete) continue;
      arm::DecoderOptions options;
      options.config = config;
      options.follow.default_space = recording.decoder_options().default_space;
      std::vector<AuxSegment> segments;
      AuxSegment segment;
      std::vector<std::vector<std::byte>> kept;
      for (uint64_t at = 0; recording.next_segment(stream, at, segment, kept.emplace_back());) segments.push_back(segment);
      for (const size_t capacity : {size_t{7}, size_t{4096}}) {
        EXPECT_EQ(compare(recording.timeline(), recording.contexts(), options, segments, capacity, blocks), "") << capture.name;
      }
    }
  }
  EXPECT_GT(blocks, 1000U);
}

constexpr uint64_t kPathBase = 0xffffffc000080000;

/// A random trace over random code.
class Made {
 public:
  /// `windows`: code that changes, and more trace than is decided at once.
  explicit Made(unsigned seed, bool windows = false) : random_(seed), windows_(windows) {
    if (below(3) == 0 && !windows) speculation_ = 1 + below(below(2) == 0 ? 8 : 200);
  }

  Timeline timeline();
  std::vector<std::byte> trace();
  arm::DecoderOptions options();

 private:
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  uint32_t word();
  void put(std::initializer_list<unsigned> bytes) {
    for (const unsigned byte : bytes) trace_.push_back(static_cast<std::byte>(byte));
  }
  void address(bool with_context);
  void speculate();
  void count_cycles();

  std::mt19937 random_;
  bool windows_;
  uint32_t words_ = 0;
  uint32_t speculation_ = 0;  ///< maximum number of elements in flight
  std::vector<std::byte> trace_;
};

uint32_t Made::word() {
  const uint32_t near = below(2 * words_) - words_;
  switch (below(12)) {
    case 0:
      return 0x54000000 | (near & 0x7ffff) << 5;  // B.EQ
    case 1:
      return 0xb4000000 | (near & 0x7ffff) << 5;  // CBZ
    case 2:
      return 0x14000000 | (near & 0x3ffffff);  // B
    case 3:
    case 4:
      return 0x94000000 | (near & 0x3ffffff);  // BL
    case 5:
      return 0xd65f03c0;  // RET
    case 6:
      return below(2) == 0 ? 0xd61f0020 : 0xd63f0020;  // BR, BLR
    case 7:
      return below(4) == 0 ? 0 : 0xd5033fdf;  // no instruction; ISB
    default:
      return 0xd503201f;  // NOP
  }
}

Timeline Made::timeline() {
  words_ = (windows_ ? 64 : 8) + below(56);
  std::vector<std::byte> code;
  for (uint32_t i = 0; i < words_; ++i) {
    const uint32_t made = word();
    code.insert(code.end(), reinterpret_cast<const std::byte*>(&made), reinterpret_cast<const std::byte*>(&made) + 4);
  }
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{kPathBase};
  section.size_bytes = code.size();
  section.code = own_bytes(code);
  builder.add_section(std::move(section));
  std::vector<std::byte> now = code;
  const uint32_t edits = windows_ ? 1 + below(2) : below(3) == 0 ? below(6) : 0;
  for (uint32_t i = 0; i < edits; ++i) {
    const uint32_t at = 4 * below(words_), made = word();
    Edit edit;
    edit.ip = Ip{kPathBase + at};
    edit.old_bytes.assign(now.begin() + at, now.begin() + at + 4);
    std::memcpy(now.data() + at, &made, 4);
    edit.new_bytes.assign(now.begin() + at, now.begin() + at + 4);
    if (below(4) != 0) edit.time = {TimeNs{1000 * (i + 1)}, TimeNs{1000 * (i + 1) + below(500)}};  // else the time is unknown
    edit.origin = EditOrigin::dated_copy;
    builder.add_edit(std::move(edit));
  }
  return builder.build();
}

void Made::address(bool with_context) {
  const uint32_t low = 4 * below(words_);
  put({with_context ? 0x85U : 0x9dU, (low >> 2) & 0x7f, (low >> 9) & 0x7f, 0x08, 0, 0xc0, 0xff, 0xff, 0xff});
  if (with_context) put({0x31});
}

/// Commits, cancels, mispredicts: few enough that most are valid.
void Made::speculate() {
  switch (below(5)) {
    case 0:
      return put({0x2d, 1 + below(3)});
    case 1:
      return put({0x2e + below(2), 1 + below(2)});
    case 2:
      return put({0x30 + below(4)});
    case 3:
      return put({0x34 + below(4)});
    default:
      return put({0x38 + below(8)});
  }
}

/// Cycle counts, markers, a timestamp with cycles.
void Made::count_cycles() {
  switch (below(6)) {
    case 0:
      return put({0x0e, 1 + below(3), below(128)});
    case 1:
      return put({0x0c, below(256)});
    case 2:
      return put({0x0d, 0xf0 | below(16)});
    case 3:
      return put({0x88});
    case 4:
      return put({0x03, 0x80 | below(128), below(128), 0x80 | below(128), 0x80 | below(128), below(128)});
    default:
      return put({0x10 + below(16)});
  }
}

std::vector<std::byte> Made::trace() {
  put({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04});
  address(true);
  uint32_t time = 0;
  for (uint32_t packets = (windows_ ? 6000 : 20) + below(200); packets != 0; --packets) {
    constexpr std::array<uint32_t, 3> kAddressesAndAtoms = {0, 2, 10};  // a window with few forks may end at any byte
    switch (windows_ && below(8) != 0 ? kAddressesAndAtoms[below(3)] : below(17)) {
      case 16:
        if (below(2) == 0) count_cycles();
        break;
      case 0:
      case 1:
        address(false);
        break;
      case 2:
        put({0x95, below(words_)});
        break;
      case 3:
        put({0x90 + below(3)});
        break;
      case 4:
        time += below(400);
        put({0x02, 0x80 | (time & 0x7f), time >> 7 & 0x7f});
        break;
      case 5:
        if (below(4) != 0) break;
        put({0x06, 0x5c | below(2)});  // exception
        if (speculation_ != 0 && below(8) == 0) speculate();
        address(false);
        break;
      case 6:
        if (below(8) == 0) put({0x04}), address(true);
        break;
      case 7:
        if (below(8) == 0) put({0x80});
        break;
      case 8:
        put({0xe0 + below(0x15)});
        break;
      case 9:
        if (speculation_ != 0) speculate();
        break;
      default:
        put({0xd5 + below(0x2b)});
    }
  }
  return trace_;
}

arm::DecoderOptions Made::options() {
  arm::DecoderOptions options;
  const bool ete = below(3) == 0;
  options.config.protocol = ete ? arm::Protocol::ete : arm::Protocol::etmv4;
  options.config.devarch = ete ? 0x47735a13 : 0;
  options.config.configr = below(2) == 0 ? 0x1000 : 0;
  options.config.idr8 = speculation_;
  if (speculation_ != 0 && below(2) == 0) options.config.idr0 &= ~0x20000000U;  // cycle counts commit
  options.max_flows = 8;
  return options;
}

void compare_made(bool windows, unsigned seeds) {
  uint64_t blocks = 0;
  const char* given = std::getenv("PTDECODE_SEEDS");  // how many
  if (given != nullptr) seeds = static_cast<unsigned>(std::atoi(given));
  for (unsigned seed = 0; seed < seeds; ++seed) {
    Made made(seed, windows);
    const Timeline timeline = made.timeline();
    const std::vector<std::byte> trace = made.trace();
    AuxSegment segment;
    segment.bytes = trace;
    segment.time = {TimeNs{0}, TimeNs{100000}};
    const ContextTrack contexts;
    ASSERT_EQ(compare(timeline, contexts, made.options(), {segment}, 1 + seed % 64, blocks), "") << "seed " << seed;
  }
  EXPECT_GT(blocks, 5 * seeds);
}

TEST(ArmPaths, AreTheSameOnMadeTraces) { compare_made(false, 2000); }

Timeline one_branch() {
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{kPathBase};
  const std::vector<std::byte> code = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0x14}};  // b .
  section.size_bytes = code.size();
  section.code = own_bytes(code);
  builder.add_section(std::move(section));
  return builder.build();
}

/// A trace of one_branch() with speculation.
struct Speculative {
  explicit Speculative(uint32_t depth) {
    options.config.protocol = arm::Protocol::etmv4;
    options.config.idr8 = depth;
    // A-Sync, trace info, an address with a context.
    put({0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x01, 0x00, 0x04});
    put({0x85, 0x00, 0x00, 0x08, 0x00, 0xc0, 0xff, 0xff, 0xff, 0x31});
  }
  void put(std::initializer_list<unsigned> bytes) {
    for (const unsigned byte : bytes) trace.push_back(static_cast<std::byte>(byte));
  }
  [[nodiscard]] AuxSegment segment() const {
    AuxSegment whole;
    whole.bytes = trace;
    return whole;
  }
  Timeline timeline = one_branch();
  ContextTrack contexts;
  arm::DecoderOptions options;
  std::vector<std::byte> trace;
};

TEST(ArmPaths, AreTheSameBehindAnExceptionThatIsCancelledBeforeItsAddress) {
  Speculative made(5);
  made.put({0x06, 0x5c, 0x2e, 0x01, 0x9d, 0x00, 0x00, 0x08, 0x00, 0xc0, 0xff, 0xff, 0xff});  // exception, cancel 1, address
  // EE, commit 3 although there are 2, E six times, event.
  made.put({0xdb, 0x2d, 0x03, 0xf7, 0xf7, 0xf7, 0xf7, 0xf7, 0xf7, 0x71});
  uint64_t blocks = 0;
  EXPECT_EQ(compare(made.timeline, made.contexts, made.options, {made.segment()}, 4096, blocks), "");
  EXPECT_EQ(blocks, 1U);
}

// Each cancel skips all of the timestamps again.
TEST(ArmPaths, LimitWhatCancelsPassOver) {
  Speculative made(3000);
  for (int i = 0; i < 100; ++i) made.put({0xf4});  // 24 atoms
  for (int i = 0; i < 5000; ++i) made.put({0x02, 0x01});
  const uint64_t cancels = made.trace.size();
  for (int i = 0; i < 2000; ++i) made.put({0x2e, 0x01});
  uint64_t blocks = 0;
  EXPECT_EQ(compare(made.timeline, made.contexts, made.options, {made.segment()}, 4096, blocks), "");
  arm::Decoder decoder(made.timeline, made.contexts, made.options);
  Batch batch;
  decoder.begin(made.segment());
  EXPECT_FALSE(decoder.next(batch));
  ASSERT_EQ(batch.gaps.size(), 1U);
  EXPECT_EQ(batch.gaps[0].reason, GapReason::limit);
  EXPECT_GT(batch.gaps[0].stream_offset_bytes, cancels + 2 * 500U);  // a few hundred are not damage
}

TEST(ArmPaths, AreTheSameInWindowsOfChangingCode) { compare_made(true, 400); }

}  // namespace
}  // namespace ptd::test
