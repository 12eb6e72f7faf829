// Gzip: a stream of bytes in gzip's format.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ptd::cli {

/// Returns the version of zlib that is loaded.
[[nodiscard]] const char* version_of_zlib();

/// [RFC 1952]. Not thread-safe. Throws std::bad_alloc if there is no memory for its tables (256 KiB).
class Gzip {
 public:
  Gzip();
  ~Gzip();
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  /// Appends what is known of the compressed stream to `out`.
  void add(std::string_view bytes, std::string& out) { write(bytes, false, out); }
  /// Ends the stream.
  void finish(std::string& out) { write({}, true, out); }

 private:
  void write(std::string_view bytes, bool last, std::string& out);
  struct Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace ptd::cli
