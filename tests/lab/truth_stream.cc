// Converts ground truth to checkpoints: see truth_stream.h.
#include "tests/lab/truth_stream.h"

#include <cstdio>
#include <optional>

#include "capture/emulate/unit/truth_log.h"

namespace ptd::lab {
namespace {

using emulate::TruthTag;

constexpr uint64_t kBasis = 0xcbf29ce484222325ULL, kPrime = 0x100000001b3ULL;
constexpr uint64_t kInterval = 100'000;

struct Known {
  uint64_t ip = 0;
  const std::byte* lengths = nullptr;
  const std::byte* code = nullptr;
  uint64_t insns = 0;
};

class Reader {
 public:
  Reader(const std::vector<std::byte>& stream, FILE* out, TruthSummary& summary) : stream_(stream), out_(out), summary_(summary) {}

  bool run() {
    while (at_ < stream_.size()) {
      const std::optional<uint64_t> tag = number();
      if (!tag) return false;
      if (*tag >= static_cast<uint64_t>(TruthTag::block)) {
        const uint64_t which = *tag - static_cast<uint64_t>(TruthTag::block);
        if (which >= known_.size()) return false;
        retire(known_[which], 0, known_[which].insns);
        continue;
      }
      if (static_cast<TruthTag>(*tag) == TruthTag::end) break;
      if (!record(static_cast<TruthTag>(*tag))) return false;
    }
    checkpoint();
    return true;
  }

 private:
  std::optional<uint64_t> number() {
    uint64_t value = 0;
    for (unsigned shift = 0; at_ < stream_.size() && shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(stream_[at_++]);
      value |= uint64_t{byte & 0x7fU} << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return std::nullopt;
  }

  bool record(TruthTag tag) {
    switch (tag) {
      case TruthTag::define:
        return define();
      case TruthTag::part: {
        const auto which = number(), first = number(), count = number();
        if (!which || !first || !count || *which >= known_.size() || *first + *count > known_[*which].insns) return false;
        retire(known_[*which], *first, *count);
        return true;
      }
      case TruthTag::psb: {
        const auto offset = number(), tsc = number();
        if (!offset || !tsc) return false;
        summary_.psbs.push_back({*offset, *tsc});
        return true;
      }
      case TruthTag::event:
        return number() && number();
      default:
        return true;
    }
  }

  bool define() {
    const auto which = number(), ip = number(), count = number();
    constexpr uint64_t kMaxBlocks = 1U << 28, kMaxInsns = 1U << 16;
    if (!which || !ip || !count || *which > kMaxBlocks || *count > kMaxInsns || *count > stream_.size() - at_) return false;
    if (*which >= known_.size()) known_.resize(*which + 1);
    Known& block = known_[*which];
    block = {*ip, stream_.data() + at_, nullptr, *count};
    at_ += *count;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < *count; ++i) bytes += static_cast<uint8_t>(block.lengths[i]);
    if (bytes > stream_.size() - at_) return false;
    block.code = stream_.data() + at_;
    at_ += bytes;
    return true;
  }

  void retire(const Known& block, uint64_t first, uint64_t count) {
    uint64_t ip = block.ip;
    const std::byte* code = block.code;
    for (uint64_t i = 0; i < first + count; ++i) {
      const auto length = static_cast<uint8_t>(block.lengths[i]);
      if (i >= first) instruction(ip, code, length);
      ip += length;
      code += length;
    }
  }

  void instruction(uint64_t ip, const std::byte* code, unsigned length) {
    for (unsigned i = 0; i < 8; ++i) ip_hash_ = (ip_hash_ ^ (ip >> 8 * i & 0xff)) * kPrime;
    for (unsigned i = 0; i < length; ++i) byte_hash_ = (byte_hash_ ^ static_cast<uint8_t>(code[i])) * kPrime;
    last_ip_ = ip;
    ++summary_.insns;
    if (is_kernel_half(Ip{ip})) ++summary_.kernel_insns;
    if (summary_.insns % kInterval == 0) checkpoint();
  }

  void checkpoint() {
    if (summary_.insns == told_) return;
    told_ = summary_.insns;
    (void)std::fprintf(out_, "%llu %016llx %016llx %llx %llu\n", static_cast<unsigned long long>(summary_.insns),
                       static_cast<unsigned long long>(ip_hash_), static_cast<unsigned long long>(byte_hash_),
                       static_cast<unsigned long long>(last_ip_),
                       static_cast<unsigned long long>(summary_.psbs.empty() ? 0 : summary_.psbs.back().tsc));
  }

  const std::vector<std::byte>& stream_;
  FILE* out_;
  TruthSummary& summary_;
  size_t at_ = 0;
  std::vector<Known> known_;
  uint64_t ip_hash_ = kBasis, byte_hash_ = kBasis, last_ip_ = 0, told_ = 0;
};

}  // namespace

bool write_checkpoints(const std::vector<std::byte>& stream, const std::string& path, TruthSummary& summary) {
  FILE* out = std::fopen(path.c_str(), "w");
  if (out == nullptr) return false;
  (void)std::fprintf(out, "# count  fnv1a(ips)  fnv1a(insn bytes)  last-ip  tsc\n");
  const bool good = Reader(stream, out, summary).run();
  return std::fclose(out) == 0 && good;
}

}  // namespace ptd::lab
