// Debuginfod: downloads files by build id from the DEBUGINFOD_URLS servers. Loads libdebuginfod at run time if installed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ptd {

/// Queries the servers on demand and caches all results, including misses. Thread-safe. Environment variables, such as for the cache
/// folder: debuginfod-client-config(7). Limits, unless the environment sets tighter ones: 300 s per file, 10 s with almost no data, and
/// the size that `known_bytes` allows.
class Debuginfod {
 public:
  /// Returns null if DEBUGINFOD_URLS is empty or libdebuginfod is not installed.
  static std::shared_ptr<Debuginfod> open();
  ~Debuginfod();
  Debuginfod(const Debuginfod&) = delete;
  Debuginfod& operator=(const Debuginfod&) = delete;

  /// Returns the path of a copy of the program or library (with `debug`, of its debug information) with this build id, in hex; "" if no
  /// server has one. `known_bytes`: the minimum size of the program; a reply of more than most_bytes() is refused. After a reply that is
  /// neither a file nor "not found", as when the network is down, the servers are not queried again.
  std::string find(const std::string& build_id, bool debug, uint64_t known_bytes);
  /// Returns the maximum size of a program, or of its debug information, given its minimum size. Debug information can be about 30 times
  /// as large as the code.
  [[nodiscard]] static constexpr uint64_t most_bytes(uint64_t known_bytes) {
    constexpr uint64_t kLeast = 64ULL << 20, kMost = 8ULL << 30, kRatio = 64;
    return known_bytes > (kMost - kLeast) / kRatio ? kMost : kLeast + kRatio * known_bytes;
  }
  /// Sets a function that ends the downloads of this process when it returns true; it is called about ten times per second on the waiting
  /// thread. Null: none.
  static void set_stop(bool (*stop)());
  /// Returns why the servers are no longer queried; "" while they respond.
  [[nodiscard]] std::string trouble() const;

 private:
  struct Library;
  explicit Debuginfod(std::shared_ptr<Library> library);
  mutable std::mutex mutex_;
  std::shared_ptr<Library> library_;  ///< shared with a thread that is not waited for
  std::map<std::pair<std::string, bool>, std::string> known_;
  std::string trouble_;
};

}  // namespace ptd
