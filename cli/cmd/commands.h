// The commands of ptdecode: each adds its options to the program and gives back what runs it.
#pragma once

#include <functional>

#include "cli/options/cli_app.h"

namespace ptd::cli {

/// Runs a command after the options were read; returns the exit status.
using Command = std::function<int()>;

Command add_info(CLI::App& app);
Command add_functions(CLI::App& app);
Command add_timeline(CLI::App& app);
Command add_flame(CLI::App& app);
Command add_export(CLI::App& app);
Command add_report(CLI::App& app);
Command add_coverage(CLI::App& app);
Command add_profile(CLI::App& app);
Command add_packets(CLI::App& app);
Command add_script(CLI::App& app);
Command add_stat(CLI::App& app);
Command add_image(CLI::App& app);
Command add_check(CLI::App& app);
Command add_demo(CLI::App& app);
Command add_verify(CLI::App& app);
Command add_record(CLI::App& app);
Command add_sessions(CLI::App& app);
Command add_snapshot(CLI::App& app);
Command add_stop(CLI::App& app);
Command add_bundle(CLI::App& app);
Command add_replay(CLI::App& app);

}  // namespace ptd::cli
