// Errata by name.
#pragma once

#include <span>
#include <string_view>

#include "ptdecode/pt/config.h"

namespace ptd::pt {

/// Returns the names of all members of Errata.
[[nodiscard]] std::span<const std::string_view> errata_names();
/// Sets the member `name`. Returns false if it does not exist.
bool set_erratum(Errata& errata, std::string_view name, bool on);

}  // namespace ptd::pt
