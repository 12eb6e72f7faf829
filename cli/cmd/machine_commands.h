// The commands that are about this machine instead of a recording.
#pragma once

#include "cli/cmd/commands.h"

namespace ptd::cli {

Command add_stash(CLI::App& app);
Command add_doctor(CLI::App& app);
Command add_emulator(CLI::App& app);

}  // namespace ptd::cli
