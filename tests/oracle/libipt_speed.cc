// libipt as a peer in benchmarks.
#include "tests/oracle/libipt_speed.h"

#include <intel-pt.h>

#include <utility>

namespace ptd::oracle {
namespace {

pt_config config_of(Bytes trace, const pt::Config& config) {
  pt_config out;
  pt_config_init(&out);
  auto* begin = const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(trace.data()));  // libipt does not write
  out.begin = begin;
  out.end = begin + trace.size();
  if (config.cpu.family != 0) {
    out.cpu.vendor = pcv_intel;
    out.cpu.family = config.cpu.family;
    out.cpu.model = config.cpu.model;
    out.cpu.stepping = config.cpu.stepping;
    (void)pt_cpu_errata(&out.errata, &out.cpu);
  }
  out.cpuid_0x15_eax = config.tsc_ctc_ratio_d;
  out.cpuid_0x15_ebx = config.tsc_ctc_ratio_n;
  out.mtc_freq = config.mtc_period;
  out.nom_freq = config.max_nonturbo_ratio;
  return out;
}

/// With wrong code, libipt can iterate a loop without packets forever.
class Standstill {
 public:
  /// After each block or instruction; `offset` gives the place in the trace.
  template <typename Offset>
  bool seen(Offset&& offset) {
    if (++steps_ % kEvery != 0) return false;
    const uint64_t now = offset();
    return now == std::exchange(last_, now);
  }

 private:
  static constexpr uint64_t kEvery = 1U << 20;
  uint64_t steps_ = 0, last_ = ~uint64_t{0};
};

}  // namespace

struct PeerImage::State {
  pt_image_section_cache* cache = nullptr;
  pt_image* image = nullptr;
};

PeerImage::PeerImage(const std::vector<PeerSection>& sections) : state_(std::make_unique<State>()) {
  state_->cache = pt_iscache_alloc("bench");
  state_->image = pt_image_alloc("bench");
  (void)pt_iscache_set_limit(state_->cache, uint64_t{1} << 32);
  for (const PeerSection& section : sections) {
    const int id = pt_iscache_add_file(state_->cache, section.path.c_str(), section.offset_bytes, section.size_bytes, section.address);
    if (id > 0) (void)pt_image_add_cached(state_->image, state_->cache, id, nullptr);
  }
}

PeerImage::~PeerImage() {
  pt_image_free(state_->image);
  pt_iscache_free(state_->cache);
}

PeerCounts PeerImage::decode_insns(Bytes trace, const pt::Config& config) const {
  PeerCounts counts;
  const pt_config libipt = config_of(trace, config);
  Standstill standstill;
  pt_insn_decoder* decoder = pt_insn_alloc_decoder(&libipt);
  (void)pt_insn_set_image(decoder, state_->image);
  for (int status = pt_insn_sync_forward(decoder); status >= 0; status = pt_insn_sync_forward(decoder)) {
    for (;;) {
      while (status >= 0 && (status & pts_event_pending) != 0) {
        pt_event event;
        status = pt_insn_event(decoder, &event, sizeof event);
      }
      if (status < 0 || (status & pts_eos) != 0) break;
      pt_insn insn;
      status = pt_insn_next(decoder, &insn, sizeof insn);
      if (status < 0) break;
      ++counts.instructions;
      if (standstill.seen([&] {
            uint64_t at = 0;
            return pt_insn_get_offset(decoder, &at), at;
          }))
        status = -pte_bad_query;
    }
    if (status < 0 && status != -pte_eos) ++counts.errors;
    if (status >= 0 || status == -pte_eos) break;
  }
  pt_insn_free_decoder(decoder);
  return counts;
}

PeerCounts PeerImage::decode_blocks(Bytes trace, const pt::Config& config) const {
  PeerCounts counts;
  const pt_config libipt = config_of(trace, config);
  Standstill standstill;
  pt_block_decoder* decoder = pt_blk_alloc_decoder(&libipt);
  (void)pt_blk_set_image(decoder, state_->image);
  for (int status = pt_blk_sync_forward(decoder); status >= 0; status = pt_blk_sync_forward(decoder)) {
    for (;;) {
      while (status >= 0 && (status & pts_event_pending) != 0) {
        pt_event event;
        status = pt_blk_event(decoder, &event, sizeof event);
      }
      if (status < 0 || (status & pts_eos) != 0) break;
      pt_block block;
      status = pt_blk_next(decoder, &block, sizeof block);
      counts.instructions += block.ninsn;
      counts.blocks += block.ninsn != 0;
      if (status < 0) break;
      if (standstill.seen([&] {
            uint64_t at = 0;
            return pt_blk_get_offset(decoder, &at), at;
          }))
        status = -pte_bad_query;
    }
    if (status < 0 && status != -pte_eos) ++counts.errors;
    if (status >= 0 || status == -pte_eos) break;
  }
  pt_blk_free_decoder(decoder);
  return counts;
}

}  // namespace ptd::oracle
