// The configuration that the runner passes to the plugin, and the names of the plugin's output files.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>

#include "capture/emulate/unit/pt_encoder.h"

namespace ptd::emulate {

/// Settings of one emulated recording. They travel as lines "name value" in the file kConfigFile of the working folder.
struct UserConfig {
  PtEncoderOptions pt;
  bool ete = false;                ///< of aarch64 programs, an ETE trace in place of ETMv4
  bool truth = false;              ///< also write the ground truth
  bool date_changes = true;        ///< a PSB+ before and one after each change of known code, so that its date is exact
  bool work_clock = false;         ///< time advances with instructions: see WorkClock
  bool announce = true;            ///< listen to what programs announce (libptd-announce)
  bool ran_code = true;            ///< write code from no file, as it ran, to a jitdump
  uint64_t overflow_bytes = 0;     ///< lose packets after as many bytes, again and again; 0 never
  uint64_t aux_sample_bytes = 0;   ///< of trace in each sample (--aux-sample), one every pt.pause_every_bytes; 0: all trace is recorded
  uint64_t most_log_bytes = 0;     ///< limit of the working folder's size; 0: none
  uint64_t overflow_blocks = 500;  ///< for as many blocks
};

inline constexpr const char* kConfigFile = "config";
/// A SharedCount: threads and programs that could not be recorded at all, with their process numbers.
inline constexpr const char* kMissingFile = "missing";
/// A SharedCount: bytes that the logs use on the disk.
inline constexpr const char* kSpaceFile = "space";
/// A SharedCount: processes of which nothing more can be recorded.
inline constexpr const char* kStoppedFile = "stopped";
/// A SharedCount: the TSC at which the recorder saw the program end; 0 if it did not see it.
inline constexpr const char* kEndedFile = "ended";

/// Lower-case hex of text, "-" for none: how strings are written in the lines of events and plans.
[[nodiscard]] std::string hex_of(const std::string& text);
/// Undoes hex_of().
[[nodiscard]] std::string text_of_hex(const std::string& hex);
/// Reads "NAME NUMBER" up to the first line that is none.
[[nodiscard]] std::map<std::string, uint64_t> read_values(std::istream& lines);
/// The lines of `config`.
[[nodiscard]] std::string to_text(const UserConfig& config);
/// Unknown names are left alone.
[[nodiscard]] UserConfig config_from_text(const std::string& text);

}  // namespace ptd::emulate
