// The commands that decode one recording on many machines: see cli/cmd/commands.h.
#pragma once

#include "cli/cmd/commands.h"

namespace ptd::cli {

Command add_plan(CLI::App& app);
Command add_unit(CLI::App& app);
Command add_merge(CLI::App& app);

}  // namespace ptd::cli
