// PsbEntry: one sync point of a stream in the segment index. Private to recording.
#pragma once

#include <cstdint>

namespace ptd {

/// One PSB. 24 bytes, so that the index of a stream of many GB stays small.
struct PsbEntry {
  static constexpr uint16_t kMostTailBytes = 0xfff;
  uint64_t offset_bytes = 0;     ///< stream offset of the PSB
  uint64_t tsc = 0;              ///< TSC of its PSB+, corrected if `shift` is not 0
  uint16_t tail_bytes : 12 = 0;  ///< length of its PSB+, up to and including PSBEND (bounded)
  bool lacks_tsc : 1 = false;    ///< its PSB+ is whole and has no TSC packet
  uint16_t ctc = 0;              ///< of its TMA: the crystal clock,
  uint16_t fast = 0;             ///< and the TSC ticks since its last tick
  uint8_t shift = 0;             ///< 1 + index of the correction in StreamClock::shifts, 0: none
  bool has_tsc : 1 = false;      ///< and its TSC can be used
  bool has_tma : 1 = false;
  bool in_root : 1 = false;          ///< its PIP says: not in VMX non-root operation
  bool in_guest : 1 = false;         ///< its PIP says: in VMX non-root operation; or it has a VMCS packet
  bool in_user : 1 = false;          ///< its FUP says: user code was traced when it was written
  bool is_out_of_order : 1 = false;  ///< its TSC packet is not used because it contradicts the order of the trace
  bool is_off_record : 1 = false;    ///< its TSC packet is not used because it contradicts the times of AUX records
  /// Its TSC packet contradicts the crystal clock, the order of the trace or AUX records, or it is missing.
  bool is_contradicted : 1 = false;
};
static_assert(sizeof(PsbEntry) == 24);

}  // namespace ptd
