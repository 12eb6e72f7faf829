// Options that every command has: what to open and how; and the parsers of their values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/options/cli_app.h"
#include "ptdecode/recording.h"
#include "recording/data/open_request.h"

namespace ptd::cli {

/// The options as they are typed. open_recording() parses them.
struct InputOptions {
  std::string path = "perf.data";
  std::string pt_path, winipt_path, modules_path, pt_cpu, tsc_ctc, clock_freq;
  std::vector<std::string> images;
  std::string pages;
  std::optional<unsigned> mtc_period, nominal_ratio;
  std::vector<std::string> symfs, kcore_after, debug_dirs, maps;
  std::string build_id_cache, stash;
  std::string guestmount, guestkallsyms, guestmodules, guestvmlinux;
  bool no_debuginfod = false;
  bool no_time = false, freeze = false, no_anchors = false;
  std::string slack, drop_poke;
  bool strict = false;       ///< gaps make the exit status 3
  bool quiet = false;        ///< no progress, no summary
  bool is_repeated = false;  ///< opened again: the warnings have been said

  /// Returns the options with which the recording is opened again.
  [[nodiscard]] InputOptions repeated() const {
    InputOptions again = *this;
    again.is_repeated = true;
    return again;
  }
  [[nodiscard]] bool is_raw() const { return !pt_path.empty() || !winipt_path.empty(); }
  /// Returns the file with the trace.
  [[nodiscard]] const std::string& source() const { return !pt_path.empty() ? pt_path : !winipt_path.empty() ? winipt_path : path; }
};

/// Adds -i, --pt, --symfs and the rest to a command.
void add_input_options(CLI::App& command, InputOptions& input);

/// Returns the options of add_input_options() that say what to open, as they were given to a command: "-i FILE --symfs ROOT".
[[nodiscard]] std::string given_input(const CLI::App& command, const InputOptions& input);

/// Opens the recording that the options name, and shows progress. Warnings of the recording go to standard error.
[[nodiscard]] Result<std::unique_ptr<Recording>> open_recording(const InputOptions& input);
/// Returns the error, or one that says what to do if there is no such file.
[[nodiscard]] Error explain_absent(const InputOptions& input, const Error& error);
/// Returns the options for the library, for commands that open a recording more than once (demo, verify).
[[nodiscard]] Result<OpenRequest> open_options(const InputOptions& input);
[[nodiscard]] Result<RawOptions> raw_options(const InputOptions& input);

/// "6/94/3" -> family 6, model 94, stepping 3; the stepping may be left out.
[[nodiscard]] Result<pt::CpuId> parse_cpu(std::string_view text);
/// "250/2": two positive numbers of 32 bits.
[[nodiscard]] Result<std::pair<uint32_t, uint32_t>> parse_tsc_ctc(std::string_view text);
/// "PID:FILE[,off=N][,size=N]@ADDR".
[[nodiscard]] Result<AssumedMapping> parse_map(std::string_view text);
/// "N[,SEED]".
struct DropPoke {
  uint32_t every = 0, seed = 0;
};
[[nodiscard]] Result<DropPoke> parse_drop_poke(std::string_view text);
/// "3ms", "500us", "20ns", "1s"; a bare number is nanoseconds.
[[nodiscard]] Result<uint64_t> parse_duration_ns(std::string_view text);
/// "2.4GHz" -> 2,400,000,000. Units: Hz (default), kHz, MHz, GHz.
[[nodiscard]] Result<uint64_t> parse_frequency_hz(std::string_view text);
/// "17.865267613" (seconds) -> nanoseconds, exactly.
[[nodiscard]] Result<uint64_t> parse_seconds_ns(std::string_view text);
/// "A,B", "A," or ",B" in seconds, perf's spelling of --time.
[[nodiscard]] Result<Interval> parse_time_range(std::string_view text);
/// Hex with or without 0x.
[[nodiscard]] Result<Ip> parse_address(std::string_view text);
/// "1,3-5" -> {1, 3, 4, 5}, for -C, --pid, --tid. At most 65536 numbers.
[[nodiscard]] Result<std::vector<int32_t>> parse_number_list(std::string_view option, std::string_view text);

/// Prints "ptdecode: <message>" to standard error and returns the exit status.
int report_error(const Error& error);
/// Returns warning lines about files whose names or source lines are wrong or missing, as found so far. Empty if there are none.
[[nodiscard]] std::string symbol_warnings(const Recording& recording);

}  // namespace ptd::cli
