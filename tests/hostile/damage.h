// Damages captures and checks the results. Findings are messages; none means success.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "tests/support/flow.h"

namespace ptd::test {

struct DamagePlan {
  uint64_t cuts = 25, mutations = 25;
  uint64_t seed = 1;
};

/// A trace with its code, decoded in memory.
struct PtCapture {
  std::string name;
  std::vector<std::byte> trace;
  Machine machine;
  pt::DecoderOptions options;
};

/// The output before a cut or mutation equals the undamaged output; the flow resumes at the next PSB. Every case decodes the segments
/// around the damage; one in 64, and all of a small capture, the whole trace.
void check_damaged_pt(const PtCapture& capture, const DamagePlan& plan, std::vector<std::string>& findings);

/// A perf.data file, opened alone or as the member `data` of a directory.
struct PerfCapture {
  std::string name;
  std::vector<std::byte> file;
  std::string kcore_dir;           ///< of a directory; empty: the file alone
  std::vector<std::string> symfs;  ///< roots of images
};

/// The records before the damage are read as from the whole file; recordings open or report an error; and if trace bytes are damaged, the
/// segments of every stream that the damage does not touch decode to the same flow.
void check_damaged_perf(const PerfCapture& capture, const DamagePlan& plan, std::vector<std::string>& findings);

/// Returns the file without most of its AUX bytes: each AUXTRACE keeps the bytes before its PSB number `psbs` (counted from 0), so that
/// every sideband record can be damaged, and is moved after the sideband, so that a cut in it removes nothing else. Empty if it is not a
/// perf.data file.
[[nodiscard]] std::vector<std::byte> first_segments_of(const std::vector<std::byte>& file, unsigned psbs);

/// Any file, damaged, through every function that accepts such a file: recording, raw trace, code image, page dump, jitdump, names. It is
/// accepted or refused with a message.
void check_damaged_file(const std::string& path, const std::vector<std::byte>& file, const DamagePlan& plan,
                        std::vector<std::string>& findings);

/// The members of an LLDB bundle (its description, traces and modules), damaged one at a time. Segments that are not affected by a damaged
/// trace decode to the same flow.
void check_damaged_bundle(const std::string& dir, const DamagePlan& plan, std::vector<std::string>& findings);

/// The files of a CoreSight snapshot directory, damaged one at a time. It opens or reports an error; segments whose bytes are before a
/// damage of the only buffer decode to the same flow.
void check_damaged_snapshot(const std::string& dir, const DamagePlan& plan, std::vector<std::string>& findings);
/// A cs_etm recording: the same, if its trace is damaged.
void check_damaged_etm_perf(const std::string& name, const std::vector<std::byte>& file, const DamagePlan& plan,
                            std::vector<std::string>& findings);

/// Copies of a bundle, of 1 MB, in which one list has tiny items without end: each is refused with a message that names a limit.
void check_tiny_items(const std::string& bundle, std::vector<std::string>& findings);

/// Returns the bytes with the one at `at` and up to `length` - 1 after it changed.
[[nodiscard]] std::vector<std::byte> mutated(const std::vector<std::byte>& bytes, uint64_t at, uint64_t length, uint64_t seed);

}  // namespace ptd::test
