// Code bytes of bundles: the included parts of files and memory copies, each stored once. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "image/code_limits.h"
#include "ptdecode/error.h"
#include "ptdecode/timeline.h"
#include "recording/bundle/bundle_wire.h"
#include "recording/bundle/line_runs.h"

namespace ptd {

/// Lines of kCodeLineBytes bytes (address / kCodeLineBytes) that were fetched, by space.
using CodeLines = std::map<uint32_t, LineRuns>;

/// Position of bytes in the blobs of a bundle. blob 0: no bytes.
struct CodePlace {
  uint64_t blob = 0, offset_bytes = 0, size_bytes = 0;
};

/// Collects the bytes to store. Adjacent spans of memory (one mapped file seen by many sections) become one blob.
class BundleCodeWriter {
 public:
  void add_source(const CodeBytes& code);
  /// Call after the last add_source() and before the functions below.
  void merge_sources();
  [[nodiscard]] CodePlace place(Bytes bytes) const;
  /// `bytes` must be within a source.
  void keep(Bytes bytes);
  void write(ByteWriter& out);
  [[nodiscard]] uint64_t kept_bytes() const { return kept_bytes_; }
  [[nodiscard]] uint64_t source_bytes() const;
  /// Returns how many bytes of these pieces are stored, each counted once. Call after write().
  [[nodiscard]] uint64_t kept_of(const std::vector<Bytes>& pieces) const;

 private:
  struct Range {
    uintptr_t first = 0, end = 0;
  };
  static void merge(std::vector<Range>& ranges);
  [[nodiscard]] std::vector<Range> stored_runs() const;
  void leave_out_absent();
  void leave_out_zeros();
  std::vector<Range> blobs_, kept_;
  std::map<uintptr_t, std::shared_ptr<const void>> sparse_;  ///< code of a bundle, by its address
  uint64_t kept_bytes_ = 0;
};

/// The blobs of an open bundle: each as long as the original, with the stored bytes and zeros, which CodeLimits hide, elsewhere. Only
/// stored bytes use memory.
class BundleCodeReader {
 public:
  /// Errors: file_format.
  [[nodiscard]] Status read(ByteReader in);
  /// Returns false for an invalid position.
  [[nodiscard]] bool find(CodePlace place, CodeBytes& code) const;

 private:
  struct Blob {
    std::shared_ptr<const std::byte> memory;
    uint64_t size_bytes = 0;
  };
  std::vector<Blob> blobs_;
};

void write_lines(const CodeLines& lines, ByteWriter& out);
/// A list for kNoSpace is skipped. Errors: file_format, also for a list of a space of the host that `timeline` does not have.
Result<std::shared_ptr<const CodeLimits>> read_lines(ByteReader in, const Timeline& timeline);

}  // namespace ptd
