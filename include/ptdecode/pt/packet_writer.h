// Writes Intel PT packets, from the same table as the reader.
#pragma once

#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/pt/packet.h"

namespace ptd::pt {

/// Appends packets to a byte vector, which must outlive it. Not thread-safe. Values wider than a field are cut by the named methods. Keeps
/// the last ip for compression as hardware does (PSB clears it).
class PTD_API PacketWriter {
 public:
  explicit PacketWriter(std::vector<std::byte>& out) : out_(out) {}

  /// Appends exactly this packet (ip packets: as given, the last ip is left alone; size_bytes does not matter). Returns false, and writes
  /// nothing, if a member does not fit in its field or has no field.
  bool write(const Packet& packet);

  void pad(unsigned count = 1);
  void psb();
  void psbend();
  /// The shortest IPBytes form for `ip` after the last one; updates the last ip. 16 and 32 bits are updates, 48 bits are sign-extended
  /// where that gives the ip and an update otherwise ([SDM] "IP Compression").
  void tip(uint64_t ip);
  void tip_pge(uint64_t ip);
  void tip_pgd(uint64_t ip);
  void tip_pgd_suppressed();
  void fup(uint64_t ip);
  void tip_suppressed();
  void fup_suppressed();
  /// 1..6 branches as short TNT, up to 47 as long TNT, up to 64 as two. Bit (bits-1) of `branches` is the oldest.
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

  /// Bytes written so far in the vector.
  [[nodiscard]] size_t size() const { return out_.size(); }
  /// Forgets the last ip (after PSB; writers that resume a stream).
  void reset_last_ip() { last_ip_ = 0; }
  /// No compression: every ip is written sext48, or full64 if it does not fit.
  void set_compression(bool on) { compress_ = on; }

 private:
  void ip_packet(PacketKind kind, uint64_t ip);
  std::vector<std::byte>& out_;
  uint64_t last_ip_ = 0;
  bool compress_ = true;
};

}  // namespace ptd::pt
