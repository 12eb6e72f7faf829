// Debuginfod: files by build id from the servers that DEBUGINFOD_URLS names. The door to libdebuginfod, which is loaded if it is there.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace ptd {

/// Asks when it is asked; answers, also that there is none, are remembered. Thread-safe. Where the files are kept, for how long a server is
/// waited for and what else the environment rules: debuginfod-client-config(7).
class Debuginfod {
 public:
  /// Null if DEBUGINFOD_URLS is empty or libdebuginfod is not installed.
  static std::shared_ptr<Debuginfod> open();
  ~Debuginfod();
  Debuginfod(const Debuginfod&) = delete;
  Debuginfod& operator=(const Debuginfod&) = delete;

  /// The path of a copy of the program or library (or, `debug`, of its debug information) with this build id, in hex; "" if no server has
  /// one. After an answer that is neither, as where the network is down, nobody is asked again.
  std::string find(const std::string& build_id, bool debug);
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
