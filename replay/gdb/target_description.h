// TargetDescription: the registers of a machine, as GDB's remote protocol describes and transfers them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::replay {

enum class Machine : uint8_t { amd64, i386, aarch64, arm };
/// Returns the machine that executes code of a mode.
[[nodiscard]] Machine machine_of(ExecMode mode);

/// All registers but the pc are unavailable: a trace does not hold them. Immutable.
class TargetDescription {
 public:
  explicit TargetDescription(Machine machine);

  [[nodiscard]] Machine machine() const { return machine_; }
  [[nodiscard]] unsigned word_bytes() const { return machine_ == Machine::i386 || machine_ == Machine::arm ? 4 : 8; }
  [[nodiscard]] uint16_t elf_machine() const;
  /// Returns target.xml.
  [[nodiscard]] const std::string& xml() const { return xml_; }
  [[nodiscard]] unsigned pc_register() const { return pc_; }
  /// Return the reply to `g`, and to `p` for one register; "" if there is no such register. `pc` null: not known.
  [[nodiscard]] std::string all_registers(const uint64_t* pc) const;
  [[nodiscard]] std::string one_register(uint64_t number, const uint64_t* pc) const;

 private:
  struct Feature;
  void add(const char* feature, const std::vector<Feature>& registers);
  Machine machine_;
  std::string xml_;
  std::vector<unsigned> bytes_;  // of each register
  unsigned pc_ = 0;
};

}  // namespace ptd::replay
