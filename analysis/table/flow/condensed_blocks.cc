// CondensedBlocks: see condensed_blocks.h.
#include "analysis/table/flow/condensed_blocks.h"

#include <algorithm>
#include <bit>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace ptd {
namespace {

static_assert(static_cast<uint32_t>(BlockFlag::taken) == 1 && std::bit_cast<uint64_t>(Block{0, 1, 2}) == 0x0002'0001'0000'0000);
constexpr uint64_t kInstructions = 0x0000'ffff'0000'0000;  // of a block
constexpr unsigned kFlagsShift = 48;

/// State of the loops, which have no jumps that depend on what was taken, because a processor predicts those badly: each block is written
/// as a row, and the next one overwrites it if it was not taken.
struct Condensing {
  uint64_t* branches;
  size_t row = 0;
  uint64_t sum;  ///< in the upper half the instructions so far
  uint64_t all_bits = 0;

  void add(const Block& block, size_t index) {
    const auto bits = std::bit_cast<uint64_t>(block);
    sum += bits & kInstructions;
    branches[row] = sum + index;
    row += bits >> kFlagsShift & 1;
    all_bits |= bits;
  }
};

#ifdef __x86_64__
/// For each set of four blocks: the taken ones, in order, as indexes of 32-bit halves.
constexpr std::array<std::array<int32_t, 8>, 16> kTaken = [] {
  std::array<std::array<int32_t, 8>, 16> taken{};
  for (unsigned set = 0; set < taken.size(); ++set) {
    size_t count = 0;
    for (int i = 0; i < 4; ++i) {
      if ((set >> i & 1) == 0) continue;
      taken[set][count++] = 2 * i;
      taken[set][count++] = 2 * i + 1;
    }
  }
  return taken;
}();

/// Same as Condensing::add() for the first blocks, four at a time. Returns their number.
[[gnu::target("avx2,popcnt")]] size_t add_fours(Condensing& to, std::span<const Block> blocks) {
  const __m256i instructions_mask = _mm256_set1_epi64x(kInstructions), four = _mm256_set1_epi64x(4), zero = _mm256_setzero_si256();
  __m256i sum = _mm256_set1_epi64x(static_cast<int64_t>(to.sum)), index = _mm256_setr_epi64x(0, 1, 2, 3), all = zero;
  uint64_t* branch = to.branches;
  size_t i = 0;
  for (; i + 4 <= blocks.size(); i += 4) {
    const __m256i block = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(blocks.data() + i));
    all = _mm256_or_si256(all, block);
    __m256i count = _mm256_and_si256(block, instructions_mask);
    count = _mm256_add_epi64(count, _mm256_slli_si256(count, 8));  // of the blocks up to this one, in each half
    count = _mm256_add_epi64(count, _mm256_blend_epi32(zero, _mm256_permute4x64_epi64(count, 0x55), 0xf0));
    count = _mm256_add_epi64(count, sum);
    sum = _mm256_permute4x64_epi64(count, 0xff);
    const auto taken = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_slli_epi64(block, 63 - kFlagsShift))));
    const __m256i order = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kTaken[taken].data()));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(branch), _mm256_permutevar8x32_epi32(_mm256_add_epi64(count, index), order));
    branch += std::popcount(taken);
    index = _mm256_add_epi64(index, four);
  }
  to.row = static_cast<size_t>(branch - to.branches);
  to.sum = static_cast<uint64_t>(_mm256_extract_epi64(sum, 0));
  const __m128i half = _mm_or_si128(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  to.all_bits = static_cast<uint64_t>(_mm_extract_epi64(half, 0)) | static_cast<uint64_t>(_mm_extract_epi64(half, 1));
  return i;
}
bool adds_fours() {
  static const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("popcnt") != 0;
  return kHasAvx2;
}
#else
size_t add_fours(Condensing&, std::span<const Block>) { return 0; }
bool adds_fours() { return false; }
#endif

}  // namespace

void CondensedBlocks::condense(std::span<const Block> blocks, uint32_t instructions) {
  uint64_t* const branches = branches_.data() + kFirst;
  branches[-1] = 0;
  Condensing to{.branches = branches, .sum = uint64_t{instructions} << 32};
  for (size_t i = adds_fours() ? add_fours(to, blocks) : 0; i < blocks.size(); ++i) to.add(blocks[i], i);
  rows_ = to.row;
  instructions_left_ = static_cast<uint32_t>((to.sum >> 32) - (rows_ != 0 ? branches[rows_ - 1] >> 32 : 0));
  flags_ = static_cast<uint16_t>(to.all_bits >> kFlagsShift);
  if (rows_ != 0) std::fill_n(branches + rows_, kRowsAtOnce, branches[rows_ - 1]);
}

}  // namespace ptd
