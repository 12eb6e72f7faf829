// GuestMachines: the guests that a host's recording names, and where the code of each comes from. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ptdecode/guest.h"
#include "recording/data/recording_data.h"
#include "recording/image/image_build.h"
#include "recording/image/kernel_image.h"

namespace ptd {

/// One guest. Its code comes from, in this order: the recording's kcore_dir__PID, --guestmount DIR/PID, --guestkallsyms and the like.
struct GuestMachine {
  Guest guest;  ///< without a cpu
  KernelImage kernel;
  std::string kcore_dir;                                   ///< of the recording; empty: none
  std::vector<std::string> roots;                          ///< of its file system
  bool has_records = false;                                ///< the recording holds records of the guest itself (perf inject --guest-data)
  bool is_named = false;                                   ///< the user or the recording names its code
  std::unordered_map<std::string, std::string> build_ids;  ///< of its files, by path
  std::map<int32_t, bool> cpus_seen;                       ///< guest cpus with a context switch
};

/// Not thread-safe.
class GuestMachines {
 public:
  /// `kcore_dirs`: PerfReader::kcore_dirs().
  void add_sources(const OpenRequest& options, const std::vector<std::string>& kcore_dirs, std::vector<std::string>& warnings);
  /// Returns the guest that process `pid` runs, which is added if it is new; 0: that of all processes that no other guest names. Null if
  /// there are too many.
  GuestMachine* of(int32_t pid);
  [[nodiscard]] GuestMachine* find(uint32_t machine);
  /// Removes the build ids of guests from `features` and stores them.
  void take_build_ids(perfio::Features& features);
  /// Adds the code and names of all guests, and the threads that run their cpus, to the image and the contexts.
  void finish(const OpenRequest& options, ImageBuild& image, RecordingData& data, const std::unordered_map<int32_t, int32_t>& pids);

 private:
  void add_cpus(RecordingData& data, const std::unordered_map<int32_t, int32_t>& pids);
  void add_code(const OpenRequest& options, GuestMachine& machine, ImageBuild& image, RecordingData& data);
  void add_folders(std::vector<std::string>& warnings, const std::unordered_map<int32_t, int32_t>& pids);
  void warn_of_refused(std::vector<std::string>& warnings) const;
  std::map<int32_t, GuestMachine> by_pid_;
  std::map<int32_t, std::string> folders_;  ///< of --guestmount, by process; those of guests in by_pid_ are their roots
  std::set<int32_t> refused_;               ///< processes of guests that were too many
};

/// Returns ".PID", or "" for the guest of all processes: how names tell guests apart.
[[nodiscard]] std::string suffix_of(const Guest& guest);
/// Returns "VM:PID COMM", the name of a guest's thread.
[[nodiscard]] std::string guest_thread_name(int32_t pid, const std::string& comm);
/// Returns the path of sections with a file of a guest.
[[nodiscard]] std::string guest_path(const Guest& guest, const std::string& path);

}  // namespace ptd
