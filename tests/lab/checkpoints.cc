// lab_checkpoints TRUTH.ptt OUT.txt: the checkpoints of a complete ground truth, for recordings whose complete one is too large to keep.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "capture/emulate/etm/truth_file.h"

namespace ptd::lab {
namespace {

using emulate::TruthTag;

constexpr uint64_t kBasis = 0xcbf29ce484222325ULL, kPrime = 0x100000001b3ULL;
constexpr uint64_t kInterval = 100'000;

/// Writes a line every 100,000 instructions and one at the end: count, FNV-1a-64 over the addresses (8 bytes each, little-endian), the same
/// over their bytes, last address, TSC of the last PSB before.
class Checkpoints {
 public:
  Checkpoints(FILE* out, uint64_t most) : out_(out), most_(most) {}
  void retire(const emulate::TruthBlock& block, uint32_t first, uint32_t count) {
    uint64_t ip = block.ip;
    const std::byte* code = block.bytes.data();
    for (uint32_t i = 0; i < first + count; ++i) {
      if (i >= first) instruction(ip, code, block.lengths[i]);
      ip += block.lengths[i];
      code += block.lengths[i];
    }
  }
  void on_psb(uint64_t tsc) { tsc_ = tsc; }
  void checkpoint() {
    if (insns_ == told_) return;
    told_ = insns_;
    (void)std::fprintf(out_, "%llu %016llx %016llx %llx %llu\n", static_cast<unsigned long long>(insns_),
                       static_cast<unsigned long long>(ip_hash_), static_cast<unsigned long long>(byte_hash_),
                       static_cast<unsigned long long>(last_ip_), static_cast<unsigned long long>(tsc_));
  }

 private:
  void instruction(uint64_t ip, const std::byte* code, unsigned length) {
    if (insns_ == most_) return;
    for (unsigned i = 0; i < 8; ++i) ip_hash_ = (ip_hash_ ^ (ip >> 8 * i & 0xff)) * kPrime;
    for (unsigned i = 0; i < length; ++i) byte_hash_ = (byte_hash_ ^ static_cast<uint8_t>(code[i])) * kPrime;
    last_ip_ = ip;
    if (++insns_ % kInterval == 0) checkpoint();
  }
  FILE* out_;
  const uint64_t most_;
  uint64_t insns_ = 0, told_ = 0, ip_hash_ = kBasis, byte_hash_ = kBasis, last_ip_ = 0, tsc_ = 0;
};

int run(const std::string& in, const std::string& path, uint64_t most) {
  auto reader = emulate::TruthFileReader::open(in);
  if (!reader) {
    (void)std::fprintf(stderr, "lab_checkpoints: %s\n", reader.error().message.c_str());
    return 1;
  }
  FILE* out = std::fopen(path.c_str(), "w");
  if (out == nullptr) return 1;
  (void)std::fprintf(out, "# count  fnv1a(ips)  fnv1a(insn bytes)  last-ip  tsc\n");
  Checkpoints checkpoints(out, most);
  emulate::TruthRecord record;
  while ((*reader)->next(record)) {
    if (record.tag == TruthTag::psb) checkpoints.on_psb(record.tsc);
    if (record.tag == TruthTag::block || record.tag == TruthTag::part) checkpoints.retire(*record.block, record.first, record.count);
  }
  checkpoints.checkpoint();
  return std::fclose(out) == 0 && (*reader)->error().empty() ? 0 : 1;
}

}  // namespace
}  // namespace ptd::lab

int main(int argc, char** argv) {
  if (argc == 3 || argc == 4) return ptd::lab::run(argv[1], argv[2], argc == 4 ? std::strtoull(argv[3], nullptr, 10) : ~0ULL);
  (void)std::fprintf(stderr, "usage: lab_checkpoints TRUTH.ptt OUT.txt [INSTRUCTIONS]\n");
  return 2;
}
