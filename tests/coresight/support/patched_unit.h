// The packets of a trace unit for patched code: ETMv4, PTM and ETMv3, in a few of their forms.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "ptdecode/arm/config.h"

namespace ptd::test {

class PatchedUnit {
 public:
  virtual ~PatchedUnit() = default;
  /// Synchronises after a P0 instruction, or where the trace starts. The flow is at `ip`.
  virtual void sync(uint64_t ip, bool start) = 0;
  /// A P0 instruction: of PTM, no indirect branch whose target has a packet.
  virtual void atom(bool executed) = 0;
  /// An indirect branch whose target has a packet.
  virtual void branch(uint64_t target) = 0;
  /// An instruction that is not P0, at `ip`. Returns whether it is traced nevertheless.
  virtual bool other(uint64_t ip) = 0;
  /// An exception before the instruction at `ip`, which is followed by that at `handler`.
  virtual void exception(uint64_t ip, uint64_t handler) = 0;
  virtual void timestamp(uint64_t time) = 0;
  /// Ends the trace after a P0 instruction.
  virtual void end() = 0;
  [[nodiscard]] const std::vector<std::byte>& trace() const { return out_; }

 protected:
  void put(std::initializer_list<uint64_t> bytes) {
    for (const uint64_t byte : bytes) out_.push_back(static_cast<std::byte>(byte));
  }
  /// Writes seven bits per byte; bit 7 is set if another byte follows.
  void number(uint64_t value) {
    for (; value > 0x7f; value >>= 7) put({0x80 | (value & 0x7f)});
    put({value});
  }

 private:
  std::vector<std::byte> out_;
};

[[nodiscard]] std::unique_ptr<PatchedUnit> make_patched_unit(const arm::TraceConfig& config, uint64_t seed);

}  // namespace ptd::test
