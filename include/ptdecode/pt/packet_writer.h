// Writes Intel PT packets, from the same table as the reader.
#pragma once

#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/pt/packet.h"

namespace ptd::pt {

/// Appends packets to a byte vector, which must outlive it. Not thread-safe. The named methods truncate values that are wider than their
/// field. Keeps the last ip for compression, like hardware (PSB clears it).
class PTD_API PacketWriter {
 public:
  explicit PacketWriter(std::vector<std::byte>& out) : out_(out) {}

  /// Appends this packet unchanged (ip packets: without compression or update of the last ip; size_bytes is ignored). Returns false, and
  /// writes nothing, if a member does not fit in its field or has no field.
  bool write(const Packet& packet);

  void pad(unsigned count = 1);
  void psb();
  void psbend();
  /// Writes `ip` in the shortest IPBytes form relative to the last ip, and updates the last ip. 16 and 32 bits are updates; 48 bits are
  /// sign-extended if that gives the ip, else an update ([SDM] "IP Compression").
  void tip(uint64_t ip);
  void tip_pge(uint64_t ip);
  void tip_pgd(uint64_t ip);
  void tip_pgd_suppressed();
  void fup(uint64_t ip);
  void tip_suppressed();
  void fup_suppressed();
  /// Writes 1..6 branches as a short TNT, up to 47 as a long TNT, up to 64 as two packets. Bit (bits-1) of `branches` is the oldest.
  void tnt(uint64_t branches, unsigned bits);
  void mode_exec(ExecMode mode, bool rflags_if = false);
  void mode_tsx(bool in_tx, bool abort);
  void pip(uint64_t cr3, bool non_root);
  void vmcs(uint64_t base);
  void cbr(uint8_t ratio);
  void tsc(uint64_t tsc);
  void mtc(uint8_t ctc);
  void tma(uint16_t ctc, uint16_t fast_counter);
  void cyc(uint64_t cycles);
  void ovf();
  void trace_stop();
  void mnt(uint64_t payload);
  void ptw(uint64_t payload, bool eight_bytes, bool with_ip);
  void exstop(bool with_ip);
  void mwait(uint32_t hints, uint32_t extensions);
  void pwre(uint8_t state, uint8_t sub_state, bool hw);
  void pwrx(uint8_t last_core, uint8_t deepest_core, uint8_t wake_reason);
  void cfe(uint8_t type, uint8_t vector, bool with_ip);
  void evd(uint8_t type, uint64_t payload);
  void bbp(uint8_t item_bytes, uint8_t type);
  void bip(uint8_t item_bytes, uint8_t id, uint64_t payload);
  void bep(bool with_ip);

  /// Returns the number of bytes in the vector.
  [[nodiscard]] size_t size() const { return out_.size(); }
  /// Clears the last ip (after a PSB; for writers that resume a stream).
  void reset_last_ip() { last_ip_ = 0; }
  /// Turns compression on or off. Without it every ip is written as sext48, or as full64 if it does not fit.
  void set_compression(bool on) { compress_ = on; }

 private:
  void ip_packet(PacketKind kind, uint64_t ip);
  std::vector<std::byte>& out_;
  uint64_t last_ip_ = 0;
  bool compress_ = true;
};

}  // namespace ptd::pt
