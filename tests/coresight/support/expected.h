// Expected results of the CoreSight cases: executed ranges and packet listings of OpenCSD 1.8.0.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::test {

/// ETMCCER of cs-Snowball. Bit 28 is 0: timestamps are Gray-coded. The peer lists the codes.
inline constexpr uint32_t kCcerOfSnowball = 0x000008ea;

/// A snapshot with its expected results.
struct Capture {
  std::string name, path, expected_dir, suffix;
  std::string results;  ///< of OpenCSD's own tests: path of its listing without the ending; expected_dir is empty then
};
/// Returns its result files; empty if it has none.
[[nodiscard]] std::string ranges_of(const Capture& capture);
[[nodiscard]] std::string session_ranges_of(const Capture& capture);  ///< of all buffers; those of ranges_of() are of the first only
[[nodiscard]] std::string listing_of(const Capture& capture);
/// Prints the capture's name in a test's name.
void PrintTo(const Capture& capture, std::ostream* out);
/// Returns the captures by name; none without a corpus.
[[nodiscard]] std::vector<Capture> captures();
/// Returns the snapshots of OpenCSD's own tests with listings made by its scripts: $PTDECODE_OPENCSD_TESTS is the folder decoder/tests of
/// its source, with snapshots*/NAME and results*/NAME.ppl.
[[nodiscard]] std::vector<Capture> upstream_captures();
/// Returns `path`, or its compressed variant; empty if neither exists.
[[nodiscard]] std::string existing(const std::string& path);

/// Instructions executed one after the other.
struct Range {
  uint64_t start = 0, end = 0, instructions = 0;
  bool executed = false;  ///< the last instruction, if it is a branch, was taken
  friend bool operator==(const Range&, const Range&) = default;
};
using RangesById = std::map<uint32_t, std::vector<Range>>;

/// Lines `id start end instructions executed` of a ranges file, hex addresses; or the ranges in a listing (.ppl).
[[nodiscard]] bool read_ranges(const std::string& path, RangesById& ranges);
/// Returns every block of a recording as a range; streams [first, last).
[[nodiscard]] RangesById decode_ranges(const Recording& recording, uint32_t first, uint32_t last);
/// Joins ranges that follow each other over branches that were not taken.
[[nodiscard]] std::vector<Range> joined(const std::vector<Range>& ranges);
/// Describes the first difference; empty if there is none.
[[nodiscard]] std::string difference(const std::vector<Range>& expected, const std::vector<Range>& found);

/// One packet of a listing.
struct ListedPacket {
  uint64_t offset = 0;  ///< in the buffer
  std::string name;     ///< "I_ATOM_F1"
  std::string text;     ///< what follows the name
  uint64_t size = 0;
};
[[nodiscard]] bool read_listing(const std::string& path, std::map<uint32_t, std::vector<ListedPacket>>& packets);

}  // namespace ptd::test
