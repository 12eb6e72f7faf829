// Sideband records of an emulated run, as the kernel would have written them, and jitdumps for code from no file.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "capture/emulate/code_model.h"
#include "capture/emulate/jitdump_writer.h"
#include "capture/emulate/user_output.h"
#include "perfio/format/records.h"

namespace ptd::emulate {

/// A record that waits to be sorted by time.
struct TimedRecord {
  uint64_t tsc = 0;
  int32_t pid = -1, tid = -1;
  perfio::Payload payload;
  uint32_t cpu = 0;
};

using BuildIds = std::map<std::string, std::set<std::string>>;

/// Goes through the images in order of time. Lifetime: the images outlive it.
class UserSideband {
 public:
  struct Places {
    std::string work_folder;
    bool ran_code = true;    ///< false: no jitdumps
    std::string jit_prefix;  ///< jitdumps become PREFIX/N/jit-PID.dump, copies of files PREFIX/files/N/NAME
  };
  /// `first_comm`: the name of the first program.
  UserSideband(const std::vector<UserImage>& images, Places places, std::string first_comm);
  Status run();
  [[nodiscard]] std::vector<TimedRecord>& records() { return records_; }
  [[nodiscard]] uint64_t code_loads() const { return code_loads_; }
  [[nodiscard]] uint64_t programs() const { return programs_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// A process and the program of another kind that it executed, outside the emulator.
  struct Escape {
    int32_t pid = -1;
    std::string path;
  };
  [[nodiscard]] const std::vector<Escape>& escapes() const { return escapes_; }
  /// Build ids of the files that were mapped, raw, by path: each that a file of this path had when it was mapped, "" of one without.
  [[nodiscard]] std::vector<std::string> paths() const;
  [[nodiscard]] const BuildIds& build_ids() const { return build_ids_; }

 private:
  struct Space {
    CodeModel shown;                 ///< as a reader of the records so far sees it
    std::vector<UserMap> files;      ///< as it really is
    bool has_writable_code = false;  ///< a record said so of a file, here or before a fork
    std::optional<UserMap> vdso;     ///< the emulator's, before any of its code ran; `path`: the name of its copy in the working folder
  };
  struct Step;
  Status run_image(size_t index);
  void begin_image(size_t index, Space& space);
  Status on_event(size_t index, Space& space, const UserThreadOutput& thread, const UserEvent& event);
  Status on_map(size_t index, Space& space, const UserEvent& event);
  Status map_vdso(size_t index, Space& space);
  static std::vector<UserMap> loaded_code(Space& space, const UserMap& map);
  static std::filesystem::path new_folder(const std::filesystem::path& prefix, size_t& next);
  Status place_copy(const std::string& name, UserMap& map);
  Status on_protection(size_t index, Space& space, const UserEvent& event);
  struct MemoryRange {
    uint64_t first = 0, size_bytes = 0;
  };
  void put_anonymous(size_t index, uint64_t tsc, const Space& space, MemoryRange range);
  void warn_of_refused();
  Status on_block(size_t index, Space& space, const UserBlock& translation);
  Status open_jitdump(size_t index);
  Status tell(size_t index, uint64_t tsc, uint64_t ip, Bytes code);
  void put_mapping(size_t index, uint64_t tsc, const UserMap& map);
  Status put_file(size_t index, uint64_t tsc, Space& space, const UserMap& map);
  void put(uint64_t tsc, int32_t pid, int32_t tid, perfio::Payload payload);

  const std::vector<UserImage>& images_;
  Places places_;
  std::map<int32_t, std::string> next_comm_;  ///< of the program that a process is about to exec
  std::vector<TimedRecord> records_;
  std::map<size_t, Space> at_fork_;         ///< what a child starts with
  std::unique_ptr<JitdumpWriter> jitdump_;  ///< of the current image
  size_t jitdump_marker_ = 0;               ///< its record in records_
  BuildIds build_ids_;
  std::map<std::string, std::string> copies_;  ///< paths, by name in the working folder
  size_t next_dump_ = 0, next_copy_ = 0;       ///< numbers of folders: all below exist
  std::set<std::string> lost_files_;
  std::vector<std::string> warnings_;
  std::vector<Escape> escapes_;
  std::map<std::string, std::vector<std::string>> refused_;  ///< calls that the emulator refused, by program
  std::string first_comm_;
  uint64_t code_loads_ = 0, programs_ = 0;
};

}  // namespace ptd::emulate
