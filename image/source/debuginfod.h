// Debuginfod: downloads files by build id from the DEBUGINFOD_URLS servers. Loads libdebuginfod at run time if installed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ptd {

/// Asks when it is asked; answers, also that there is none, are remembered. Thread-safe. Where the files are kept and what else the
/// environment rules: debuginfod-client-config(7). Limits, unless the environment sets tighter ones: 300 s for a file, 10 s with
/// almost no bytes, and the size that `known_bytes` allows.
class Debuginfod {
 public:
  /// Null if DEBUGINFOD_URLS is empty or libdebuginfod is not installed.
  static std::shared_ptr<Debuginfod> open();
  ~Debuginfod();
  Debuginfod(const Debuginfod&) = delete;
  Debuginfod& operator=(const Debuginfod&) = delete;

  /// The path of a copy of the program or library (or, `debug`, of its debug information) with this build id, in hex; "" if no server has
  /// one. `known_bytes`: how long the program is at least; an answer of more than most_bytes() is refused. After an answer that is neither
  /// a file nor that there is none, as where the network is down, nobody is asked again.
  std::string find(const std::string& build_id, bool debug, uint64_t known_bytes);
  /// How large a program, or its debug information, may be of which `known_bytes` are known: debug information takes up to some 30 times
  /// the code that it describes.
  [[nodiscard]] static constexpr uint64_t most_bytes(uint64_t known_bytes) {
    constexpr uint64_t kLeast = 64ULL << 20, kMost = 8ULL << 30, kRatio = 64;
    return known_bytes > (kMost - kLeast) / kRatio ? kMost : kLeast + kRatio * known_bytes;
  }
  /// Downloads of this process end when `stop` returns true: it is asked about once a second. Null: nobody is asked.
  static void set_stop(bool (*stop)());
  /// Why nobody is asked any more; "" as long as servers answer.
  [[nodiscard]] std::string trouble() const;

 private:
  struct Library;
  explicit Debuginfod(std::unique_ptr<Library> library);
  mutable std::mutex mutex_;
  std::unique_ptr<Library> library_;
  std::map<std::pair<std::string, bool>, std::string> known_;
  std::string trouble_;
};

}  // namespace ptd
