// libipt as a reference: the output of its instruction and block decoders for a trace. For tests only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ptdecode/flow.h"
#include "ptdecode/pt/config.h"

namespace ptd::oracle {

/// Reads code: fills the known part of `out` from `ip` on and returns its size; 0 if nothing is mapped there.
using MemoryReader = std::function<size_t(uint64_t ip, std::span<std::byte> out)>;

struct OracleOptions {
  pt::CpuId cpu;                 ///< family 0: no errata
  uint32_t tsc_ctc_ratio_n = 0;  ///< CPUID.15H:EBX
  uint32_t tsc_ctc_ratio_d = 0;  ///< CPUID.15H:EAX
  uint8_t mtc_period = 0;
  uint8_t max_nonturbo_ratio = 0;
  uint64_t filter_first = 0;  ///< one address filter range [first, last]; last == 0: none
  uint64_t filter_last = 0;
  uint64_t max_instructions = 1ULL << 28;  ///< a bound for hostile input; the decode ends there
  bool keep_bytes = false;                 ///< also keep each instruction's bytes (instruction decoder only)
};

/// One libipt event in this project's terms; it precedes instruction number `before_insn`.
struct OracleEvent {
  EventKind kind = EventKind::enabled;
  bool has_from = false, has_to = false, status = false, resumed = false, has_tsc = false, non_root = false;
  uint64_t before_insn = 0;
  uint64_t from = 0, to = 0, payload = 0, aux = 0;
  uint64_t tsc = 0;
  uint64_t offset_bytes = 0;  ///< trace offset when it was output
};

struct OracleError {
  uint64_t before_insn = 0;
  uint64_t offset_bytes = 0;
  uint64_t ip = 0;      ///< of the next instruction or block
  std::string stage;    ///< "insn", "event", "sync"
  std::string message;  ///< libipt's message
};

struct OracleBlock {
  uint64_t ip = 0, end_ip = 0;
  uint16_t instructions = 0;
  uint64_t first_insn = 0;  ///< number of instructions in all blocks before
};

struct OracleFlow {
  std::vector<uint64_t> insns;          ///< instruction decoder: every address. Block decoder: empty
  std::vector<uint64_t> branches;       ///< instruction decoder: indices of those that libipt classifies as branches
  std::vector<std::string> insn_bytes;  ///< with keep_bytes
  std::vector<OracleBlock> blocks;      ///< block decoder only
  std::vector<OracleEvent> events;
  std::vector<OracleError> errors;
  uint64_t instructions = 0;
  uint64_t sync_points = 0;
};

/// Returns true for libipt 2.1 and later, which decodes events apart from instructions.
[[nodiscard]] bool has_event_decoder();
/// Decodes with libipt's instruction flow decoder; after each error it resyncs at the next PSB.
[[nodiscard]] OracleFlow decode_insns(Bytes trace, const OracleOptions& options, const MemoryReader& memory);
/// Decodes with libipt's block decoder, with end_on_call and end_on_jump set; likewise resyncs.
[[nodiscard]] OracleFlow decode_blocks(Bytes trace, const OracleOptions& options, const MemoryReader& memory);

/// Returns one line in the format of the corpus' events.txt: `<instructions before it> <kind> fields`.
[[nodiscard]] std::string text(const OracleEvent& event);
/// Returns one line in the format of the corpus' errors.txt.
[[nodiscard]] std::string text(const OracleError& error);

}  // namespace ptd::oracle
