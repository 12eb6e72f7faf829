// AnnouncedCode: sections, edits and names from the announcements of run-times (docs/ANNOUNCE.md). Private to recording.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perfio/announce/announcement.h"
#include "recording/image/announced/changed_files.h"
#include "recording/image/fresh_memory.h"
#include "recording/image/image_build.h"
#include "recording/image/names/address_ranges.h"
#include "recording/image/names/code_names.h"

namespace ptd {

/// Collects the announcements of all processes, then adds their code. Not thread-safe.
class AnnouncedCode {
 public:
  /// Adds a record of the process with this space. That it is of this process comes from the recording; its content is not trusted.
  /// `offset_bytes`: of its sample, for findings.
  void add(SpaceId space, int32_t pid, TimeNs time, Bytes record, uint64_t offset_bytes);
  [[nodiscard]] bool has(SpaceId space) const { return joiners_.contains(space); }
  /// Returns where the process announced bytes of code, or moved code to; null if nowhere.
  [[nodiscard]] const AddressRanges* code_of(SpaceId space) const {
    const auto process = joiners_.find(space);
    return process == joiners_.end() ? nullptr : &process->second.code;
  }
  /// Returns whether the process announced loads, moves or patches there.
  [[nodiscard]] bool changes(SpaceId space, Ip ip, uint64_t size_bytes) const {
    const auto process = joiners_.find(space);
    return process != joiners_.end() && process->second.changed.overlap(ip.value, size_bytes);
  }
  /// A file's code was mapped again. Where this process, or one that it descends from, has changed it by then, either content is possible.
  void remap(SpaceId space, int32_t pid, const Remapped& range);
  [[nodiscard]] bool empty() const { return joiners_.empty() && refused_.empty(); }
  /// Adds sections, edits, removals, names, windows of lost records and findings. `mappings` has the executable mappings of the recording.
  /// `memory` gives that of a space. Of the spaces in `names_only`, all code is known already: it gets names.
  using MemoryOf = std::function<std::vector<MappedMemory>(SpaceId space)>;
  void add_to(ImageBuild& image, const Timeline& mappings, const MemoryOf& memory, const std::set<SpaceId>& names_only, CodeNames& names);

 private:
  /// Announcements of one space, from the begin of each to its end.
  struct Change {
    Announcement what;                 ///< the end; of a begin without an end, the begin
    std::vector<std::byte> old_bytes;  ///< given at the begin
    Interval time;                     ///< in which either content may run
    bool open = false;                 ///< no end is there
    /// Of relisted code: it did not change since then; of an open one: what the range holds is known again.
    TimeNs known_since;
    TimeNs lost_until = kTimeMin;  ///< the end of the last gap before it; kTimeMin: there was none
    bool unbegun = false;          ///< a patch without a begin: when it was written is not known
    bool contradicts = false;      ///< the begin should have been heard; of an open one: the next end there is of another name
    bool joined_late = false;      ///< its process had announced before a reader came
  };
  using Children = std::multimap<std::pair<SpaceId, TimeNs>, SpaceId>;  ///< by the space that forked, and when
  struct Process {
    int32_t pid = -1;
    std::map<uint64_t, AnnounceJoiner> instances;
    AddressRanges code, changed;
    std::vector<Remapped> remapped;
  };
  struct State;
  class Space;
  class Begun;
  void take_history(ImageBuild& image, SpaceId space, bool names_only, AnnounceHistory history, std::vector<Change>& changes) const;
  [[nodiscard]] Children children_of(const Timeline& mappings) const;
  static Children forks_of(const Timeline& mappings, const std::set<SpaceId>& names_only);
  static void pair_ends(AnnounceHistory& history, std::vector<Change>& changes);

  std::map<SpaceId, Process> joiners_;
  std::map<std::pair<int32_t, std::string>, uint64_t> refused_;  ///< by process and sentence: records
  std::map<std::pair<int32_t, std::string>, std::pair<SpaceId, TimeNs>> refused_at_;
  uint64_t bytes_ = 0;
  bool any_remapped_ = false;
};

}  // namespace ptd
