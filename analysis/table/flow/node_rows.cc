// write_node_rows(): see node_rows.h.
#include "analysis/table/flow/node_rows.h"

#include <cstddef>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace ptd {

namespace {

using End = BranchNodes::End;
using Node = BranchNodes::Node;
constexpr size_t kRowsAtOnce = CondensedBlocks::kRowsAtOnce;
static_assert(kRowsAtOnce == 8);
constexpr uint32_t kKinds = (1U << BranchNodes::kKindBits) - 1;

using Words = uint32_t __attribute__((vector_size(16)));
[[nodiscard]] Words words_at(const void* at) {
  Words words;
  std::memcpy(&words, at, sizeof(words));
  return words;
}
void put_words(void* at, Words words) { std::memcpy(at, &words, sizeof(words)); }

[[nodiscard]] Words upper_halves(const uint64_t* at) { return __builtin_shufflevector(words_at(at), words_at(at + 2), 1, 3, 5, 7); }

/// Zeros in place of negative numbers.
[[nodiscard]] Words without_nulls(Words indexes) {
  using Signed = int32_t __attribute__((vector_size(16)));
  return indexes & ~reinterpret_cast<Words>(reinterpret_cast<Signed>(indexes) >> 31);
}
/// The sign of each number, as one bit.
[[nodiscard]] unsigned sign_bits(Words words) {
  words >>= 31;
  return words[0] | words[1] << 1 | words[2] << 2 | words[3] << 3;
}

/// The columns of four ends.
struct Ends {
  Words first_ips, last_ips, symbols, tags;
};
[[nodiscard]] Ends transpose(const End& end0, const End& end1, const End& end2, const End& end3) {
  const Words a = words_at(&end0), b = words_at(&end1), c = words_at(&end2), d = words_at(&end3);
  const Words first = __builtin_shufflevector(a, b, 2, 3, 6, 7), last = __builtin_shufflevector(c, d, 2, 3, 6, 7);
  return {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(c, d, 0, 1, 4, 5),
          __builtin_shufflevector(first, last, 0, 2, 4, 6), __builtin_shufflevector(first, last, 1, 3, 5, 7)};
}

#ifdef __x86_64__

/// The columns of eight ends.
struct EightEnds {
  __m256i first_ips, last_ips, symbols, tags;
};
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i pair(const End& low, const End& high) {
  const __m256i first = _mm256_castsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(&low)));
  return _mm256_inserti128_si256(first, _mm_load_si128(reinterpret_cast<const __m128i*>(&high)), 1);
}
/// The lower halves (0x88) or the upper ones (0xdd) of eight numbers of 64 bits, in the order 0, 1, 4, 5, 2, 3, 6, 7.
template <int kHalves>
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i halves(__m256i first, __m256i last) {
  return _mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(first), _mm256_castsi256_ps(last), kHalves));
}
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i in_order(__m256i halves) { return _mm256_permute4x64_epi64(halves, 0xd8); }
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i load(const uint64_t* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}
[[gnu::target("avx2"), gnu::always_inline]] inline void store(void* at, __m256i value) {
  _mm256_storeu_si256(static_cast<__m256i*>(at), value);
}
/// `ends`: pairs of the ends 0 and 2, 1 and 3, 4 and 6, 5 and 7.
[[gnu::target("avx2"), gnu::always_inline]] inline EightEnds transpose(__m256i ends02, __m256i ends13, __m256i ends46, __m256i ends57) {
  const __m256i first = _mm256_unpackhi_epi64(ends02, ends13), last = _mm256_unpackhi_epi64(ends46, ends57);
  return {_mm256_unpacklo_epi64(ends02, ends13), _mm256_unpacklo_epi64(ends46, ends57), in_order(halves<0x88>(first, last)),
          in_order(halves<0xdd>(first, last))};
}
[[gnu::target("avx2"), gnu::always_inline]] inline uint8_t signs(__m256i words) {
  return static_cast<uint8_t>(_mm256_movemask_ps(_mm256_castsi256_ps(words)));
}

[[gnu::target("avx2")]] bool write_with_avx2(const NodeColumns& columns, const CondensedBlocks& rows, const Block* blocks,
                                             const Node* nodes, uint32_t epoch) {
  const __m256i epochs = _mm256_set1_epi32(static_cast<int32_t>(epoch)), kinds = _mm256_set1_epi32(kKinds), zero = _mm256_setzero_si256();
  __m256i other = zero;
  for (size_t row = 0; row < rows.rows(); row += kRowsAtOnce) {
    const Block *const b0 = blocks + rows.block(row), *const b1 = blocks + rows.block(row + 1), *const b2 = blocks + rows.block(row + 2);
    const Block *const b3 = blocks + rows.block(row + 3), *const b4 = blocks + rows.block(row + 4),
                       *const b5 = blocks + rows.block(row + 5);
    const Block *const b6 = blocks + rows.block(row + 6), *const b7 = blocks + rows.block(row + 7);
    const EightEnds from = transpose(pair(nodes[b0->node].from, nodes[b2->node].from), pair(nodes[b1->node].from, nodes[b3->node].from),
                                     pair(nodes[b4->node].from, nodes[b6->node].from), pair(nodes[b5->node].from, nodes[b7->node].from));
    store(columns.ip + row, from.first_ips), store(columns.ip + row + 4, from.last_ips);
    store(columns.symbol + row, _mm256_max_epi32(from.symbols, zero));
    store(columns.flags + row, _mm256_and_si256(from.tags, kinds));
    const EightEnds to = transpose(pair(nodes[b0[1].node].to, nodes[b2[1].node].to), pair(nodes[b1[1].node].to, nodes[b3[1].node].to),
                                   pair(nodes[b4[1].node].to, nodes[b6[1].node].to), pair(nodes[b5[1].node].to, nodes[b7[1].node].to));
    store(columns.to + row, to.first_ips), store(columns.to + row + 4, to.last_ips);
    store(columns.to_symbol + row, _mm256_max_epi32(to.symbols, zero));
    columns.nulls[row / kRowsAtOnce] = signs(from.symbols);
    columns.to_nulls[row / kRowsAtOnce] = signs(to.symbols);
    other = _mm256_or_si256(other, _mm256_or_si256(_mm256_xor_si256(from.tags, epochs), _mm256_xor_si256(to.tags, epochs)));
    const uint64_t* const before = rows.sums_before(row);
    const __m256i sums = halves<0xdd>(load(before + 1), load(before + 5)), sums_before = halves<0xdd>(load(before), load(before + 4));
    store(columns.instructions + row, in_order(_mm256_sub_epi32(sums, sums_before)));
  }
  return _mm256_testz_si256(other, _mm256_set1_epi32(static_cast<int32_t>(~kKinds))) != 0;
}

bool has_avx2() {
  static const bool kHasAvx2 = __builtin_cpu_supports("avx2") != 0;
  return kHasAvx2;
}

#endif

}  // namespace

bool write_node_rows_portably(const NodeColumns& columns, const CondensedBlocks& rows, const Block* blocks, const Node* nodes,
                              uint32_t epoch) {
  Words other{};
  const auto epochs = Words{} + epoch, kinds = Words{} + kKinds;
  unsigned nulls = 0, to_nulls = 0;  // of the four rows before
  for (size_t row = 0; row < (rows.rows() + kRowsAtOnce - 1) / kRowsAtOnce * kRowsAtOnce; row += 4) {
    const Block *const b0 = blocks + rows.block(row), *const b1 = blocks + rows.block(row + 1);
    const Block *const b2 = blocks + rows.block(row + 2), *const b3 = blocks + rows.block(row + 3);
    const Ends from = transpose(nodes[b0->node].from, nodes[b1->node].from, nodes[b2->node].from, nodes[b3->node].from);
    put_words(columns.ip + row, from.first_ips), put_words(columns.ip + row + 2, from.last_ips);
    put_words(columns.symbol + row, without_nulls(from.symbols));
    put_words(columns.flags + row, from.tags & kinds);
    const Ends to = transpose(nodes[b0[1].node].to, nodes[b1[1].node].to, nodes[b2[1].node].to, nodes[b3[1].node].to);
    put_words(columns.to + row, to.first_ips), put_words(columns.to + row + 2, to.last_ips);
    put_words(columns.to_symbol + row, without_nulls(to.symbols));
    nulls = nulls >> 4 | sign_bits(from.symbols) << 4;
    to_nulls = to_nulls >> 4 | sign_bits(to.symbols) << 4;
    columns.nulls[row / kRowsAtOnce] = static_cast<uint8_t>(nulls);
    columns.to_nulls[row / kRowsAtOnce] = static_cast<uint8_t>(to_nulls);
    other |= (from.tags ^ epochs) | (to.tags ^ epochs);
    const uint64_t* const before = rows.sums_before(row);
    put_words(columns.instructions + row, upper_halves(before + 1) - upper_halves(before));
  }
  return ((other[0] | other[1] | other[2] | other[3]) & ~kKinds) == 0;
}

bool write_node_rows(const NodeColumns& columns, const CondensedBlocks& rows, const Block* blocks, const Node* nodes, uint32_t epoch) {
#ifdef __x86_64__
  if (has_avx2()) return write_with_avx2(columns, rows, blocks, nodes, epoch);
#endif
  return write_node_rows_portably(columns, rows, blocks, nodes, epoch);
}

}  // namespace ptd
