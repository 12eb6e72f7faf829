// CodeNames: names of generated code, from jitdumps, announcements and programs. Private to recording.
#pragma once

#include <set>
#include <vector>

#include "recording/image/image_build.h"
#include "recording/image/names/forked_spaces.h"
#include "recording/image/names/live_names.h"

namespace ptd {

/// Collects names of several sources, then adds them, each until other code, or what a record maps, replaces it. A child inherits the names
/// of its parent (Symbolizer::add_range()), so code and mappings of the child end them there. Not thread-safe.
class CodeNames {
 public:
  /// Adds code that is live from range.live.first on. Its name may be empty: code without a name, or none. `order`: the time by which it is
  /// sorted among other code and mappings; of one time, mappings are first, and code is in the order of the calls.
  void add(NamedRange range, TimeNs order, NamedPlace place = NamedPlace::code);
  void add(NamedRange range, NamedPlace place = NamedPlace::code) {
    const TimeNs from = range.live.first;
    add(std::move(range), from, place);
  }
  struct Rules {
    bool early = true;  ///< see LiveNames
    /// Memory without a file ends names, too. It is reported again when it becomes executable, after its code was logged.
    bool memory_ends = false;
  };
  /// Adds the names, and returns the spaces that have any. `mappings`: all of the recording.
  std::set<SpaceId> add_to(ImageBuild& image, const UserMappings& mappings, const ForkedSpaces& forks, Rules rules);
  [[nodiscard]] bool empty() const { return codes_.empty(); }

 private:
  struct Code {
    NamedRange range;
    TimeNs order;
    NamedPlace place = NamedPlace::code;
    bool mapping = false;
  };
  void add_mappings(const UserMappings& mappings, const ForkedSpaces& forks, bool memory_ends);

  std::vector<Code> codes_;
};

}  // namespace ptd
