// Finds the place of triggers: "uprobe:FILE:FUNCTION". A trigger makes a detached recording write a snapshot of itself.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/error.h"

namespace ptd::live {

/// A function of a file. The trigger is hit when the function is called or, with `duration_ns`, when a call that took at least that long
/// returns.
struct TriggerChoice {
  std::string text;  ///< as typed, without the duration
  std::string path;
  uint64_t offset_bytes = 0;  ///< of the function, in the file
  uint64_t duration_ns = 0;
  uint32_t type = 0;        ///< of the PMU
  uint64_t return_bit = 0;  ///< of its config: the probe is hit on return

  [[nodiscard]] bool on_return() const { return duration_ns != 0; }
};

/// Parses `place`. A function is a symbol of the file (SymbolPlaces::find()), or an address in it (0x...). Errors: bad_option; no_hardware
/// if the kernel has no uprobe PMU; those of the file.
[[nodiscard]] Result<TriggerChoice> find_trigger(const std::string& place, uint64_t duration_ns, const std::string& sysfs = "/sys");

}  // namespace ptd::live
