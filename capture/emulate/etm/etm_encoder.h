// EtmEncoder: writes the ETMv4 or ETE instruction trace of a sequence of executed A64 instructions.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "ptdecode/arm_insn.h"

namespace ptd::emulate {

/// What the trace unit's registers say; the encoder writes what they announce. Nothing is speculative, cycles are not counted.
/// Source: [ETMv4] "TRCCONFIGR", "TRCIDR0", "TRCIDR1", "TRCIDR2"; [ETE] "TRCDEVARCH".
struct EtmRegisters {
  static constexpr uint32_t kConfigr = 1U << 6 | 1U << 11 | 1U << 12;  // context id, timestamps, return stack
  static constexpr uint32_t kIdr0 = 0x08000221, kIdr1 = 0x4100f424, kIdr2 = 0x00000088, kIdr8 = 0;
  static constexpr uint32_t kEteIdr1 = 0x4100fff4;     // the version is in TRCDEVARCH
  static constexpr uint32_t kEteDevarch = 0x47705a13;  // Arm, ETEv1.0
};

/// The trace unit that is imitated.
struct EtmUnit {
  bool traces_kernel = false;  ///< the caller reports exceptions with traced_exception(). Otherwise an SVC pauses the trace
  bool ete = false;            ///< ETE: a Source Address packet replaces long runs of N atoms before a taken branch
};

/// Writes one stream. It writes a P0 instruction's packet when the next instruction is known. Untraced code (the kernel of
/// a traced program) is between an exception packet and Trace On. Source: [ETMv4] "Instruction trace packets", "Generation of a trace".
class EtmEncoder {
 public:
  /// `out` must outlive the encoder. `context_id`: as Linux writes it, the thread's number.
  EtmEncoder(std::vector<std::byte>& out, uint32_t context_id, EtmUnit unit = {}) : out_(out), context_id_(context_id), unit_(unit) {}

  /// The instruction at `ip` runs. Returns the position of a synchronisation that now precedes it.
  struct Synced {
    bool here = false, twice = false;
    uint64_t offset_bytes = 0, time = 0;
    uint64_t first_offset_bytes = 0, first_time = 0;  ///< twice: of the one immediately before it
  };
  [[nodiscard]] Synced insn(uint64_t ip, const ArmInsn& insn, bool may_sync);
  /// A synchronisation is due: it comes as soon as the flow is past a P0 instruction. `time`: in ticks of the timestamps. Asked for
  /// twice, there are two: the code executed before ended at the first time.
  void ask_sync(uint64_t time);
  /// The time between the last instruction and the next one, in ticks: a timestamp packet. After an exception the first one is written at
  /// once, and another after Trace On, so that the packets date both ends of the pause.
  void stamp(uint64_t time);
  /// Sets the exception level and context id from the next instruction on. If they change without an exception or branch, they apply after
  /// the next P0 instruction. Without a call: EL0, and the constructor's id.
  void context(uint8_t level, uint32_t id);
  /// Reports an exception before the instruction at `ip`, whose handler is traced.
  void traced_exception(uint64_t ip, uint32_t type);
  [[nodiscard]] uint64_t written_bytes() const { return base_bytes_ + out_.size(); }
  /// An event before the instruction at `ip` is taken to what is not traced. `type`: [ETMv4] "Exception instruction trace packet".
  void exception(uint64_t ip, uint32_t type);
  static constexpr uint32_t kTrap = 3, kIrq = 14;
  /// Packets are lost from here on; what was decided before is still written.
  void lose();
  /// Packets are written again, from the next instruction on, after one synchronisation. Its time is not before that of earlier packets.
  void recover();
  /// Nothing follows.
  void flush() { flush_atoms(); }
  /// The caller took `out` away: the stream goes on after what it held.
  void taken(size_t bytes) { base_bytes_ += bytes; }

 private:
  static constexpr size_t kStackDepth = 15;
  void put(unsigned byte) { out_.push_back(static_cast<std::byte>(byte)); }
  void put_little(uint64_t value, unsigned bytes);
  void atom(bool executed);
  void flush_atoms();
  unsigned put_atoms();
  struct AddressHeaders;
  void address(uint64_t ip);
  void put_address(uint64_t ip, const AddressHeaders& headers);
  bool put_source(uint64_t ip);
  Synced begin(uint64_t ip);
  Synced sync(uint64_t ip, bool trace_on);
  void put_sync(uint64_t ip, uint64_t time, bool trace_on);
  void settle(uint64_t next);
  void put_context();
  void put_due_context();
  void put_exception(uint64_t ip, uint32_t type);
  void timestamp(uint64_t time);
  void put_stamp();

  std::vector<std::byte>& out_;
  uint64_t base_bytes_ = 0;
  uint32_t context_id_;
  EtmUnit unit_;
  uint8_t level_ = 0;
  bool context_due_ = false, after_exception_ = false;
  std::vector<bool> atoms_;
  std::array<uint64_t, 3> last_{};  // addresses, the newest first
  std::vector<uint64_t> stack_;     // return addresses
  ArmInsn waiting_;                 // a P0 instruction whose successor is to come
  uint64_t waiting_ip_ = 0;
  bool returned_ = false;  // the last taken branch was a return whose address was left out
  bool has_waiting_ = false, off_ = true, losing_ = false, sync_due_ = true, at_target_ = false;
  bool stamp_due_ = false, pause_stamped_ = true;
  uint64_t stamp_ = 0, told_time_ = 0;  // of the timestamp that is due; of the last one written
  uint64_t time_ = 0, asked_ = 0;       // of the synchronisation that is due; when it was first asked for, 0: not since the last loss
};

}  // namespace ptd::emulate
