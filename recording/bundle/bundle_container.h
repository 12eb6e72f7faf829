// The container format of a bundle: a header and chunks, each with length and checksum. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "image/base/fnv.h"
#include "image/base/whole_file.h"
#include "perfio/output_file.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

inline constexpr uint32_t kBundleVersion = 2;

/// Chunk types of versions 1 and 2. A reader skips unknown ones that begin with a lower-case letter and refuses all others.
namespace chunk {
inline constexpr std::string_view kInfo = "INFO", kConfig = "CONF", kStreams = "STRM", kAux = "AUX ", kContexts = "CTXT", kNotes = "NOTE",
                                  kImage = "IMAG", kCode = "CODE", kLines = "LINE", kSymbols = "SYMS", kPokes = "POKE", kSpans = "SPAN",
                                  kArm = "ARMS", kGuests = "GUES", kEvents = "evnt", kEventNames = "enam", kOrigin = "orig",
                                  kWindows = "wndw", kSymbolPlaces = "splc", kAliases = "sals", kRangePlaces = "rplc", kRangeLines = "glin",
                                  kFrames = "fram", kSites = "land", kGivenComms = "gcom", kLeaves = "leav", kPlan = "PLAN",
                                  kIndex = "INDX", kEnd = "END ";
}  // namespace chunk

/// The content of all compressed chunks but AUX is at most so many bytes, and kContentGrowth more for each byte of the file.
inline constexpr uint64_t kFreeContentBytes = 16ULL << 20, kContentGrowth = 64;

/// Writes chunks sequentially to a temporary file next to `path`, which finish() renames.
class BundleFileWriter {
 public:
  static Result<std::unique_ptr<BundleFileWriter>> create(const std::string& path);
  /// Writes nothing; only measures the size.
  static Result<std::unique_ptr<BundleFileWriter>> measure();
  /// Removes the temporary file unless finish() was called.
  ~BundleFileWriter() = default;
  BundleFileWriter(const BundleFileWriter&) = delete;
  BundleFileWriter& operator=(const BundleFileWriter&) = delete;
  [[nodiscard]] Status add(std::string_view type, Bytes content);
  /// Compresses quickly from here on: for files that are read a few times.
  void set_fast() { fast_ = true; }
  /// Writes the end mark, opens the temporary file as check_bundle() does, closes and renames it. Errors: also those of check_bundle().
  [[nodiscard]] Status finish();
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] uint64_t raw_bytes() const { return raw_bytes_; }  ///< of the chunks, before compression

 private:
  BundleFileWriter() = default;
  std::unique_ptr<WholeFile> whole_;
  [[nodiscard]] Status append(Bytes bytes);
  [[nodiscard]] Status check() const;
  std::unique_ptr<perfio::OutputFile> file_;  // null: only measured
  uint64_t size_bytes_ = 0, raw_bytes_ = 0, free_bytes_ = kFreeContentBytes;
  uint32_t chunks_ = 0;
  uint64_t header_hash_ = kFnvStart;  ///< of the headers written
  bool fast_ = false;
};

/// The chunks of a bundle, decompressed, by type.
using BundleChunks = std::map<std::string, std::vector<std::byte>, std::less<>>;

/// The hash that chunks are checked with.
[[nodiscard]] uint64_t hash_of_chunk(Bytes bytes);

/// Errors: file_format (not a bundle, damaged, a chunk twice), file_cut, unsupported (newer version, unknown chunk).
Result<BundleChunks> read_bundle_chunks(Bytes file, const std::string& path);

/// Opens the bundle or plan in `file` without its trace files, and discards it. Errors: those of opening it, without its name.
[[nodiscard]] Status check_bundle(Bytes file);

/// Returns a hash of the type, encoding, sizes and checksum of every chunk of a bundle that read_bundle_chunks() accepts: equal content,
/// equal hash.
[[nodiscard]] uint64_t hash_of_bundle(Bytes file);

}  // namespace ptd
