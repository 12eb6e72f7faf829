// TimelineAccess: settings and facts of a Timeline for its loaders. Private to the project.
#pragma once

#include <memory>
#include <utility>

#include "image/timeline_data.h"
#include "ptdecode/timeline.h"

namespace ptd {

struct TimelineAccess {
  /// Logs every fetch through this Timeline and through later copies of it in `log`. Null: no log.
  static void log_fetches(Timeline& timeline, std::shared_ptr<FetchLog> log) { timeline.fetch_log_ = std::move(log); }
  /// Restricts fetches through this Timeline and through later copies of it to the code in `limits`. Null: no restriction.
  static void limit_code(Timeline& timeline, std::shared_ptr<const CodeLimits> limits) { timeline.code_limits_ = std::move(limits); }
  /// Returns how many spaces there are; those of the host are numbered first.
  [[nodiscard]] static size_t space_count(const Timeline& timeline) { return timeline.data().spaces.size(); }
  /// Returns the fork that made a space of the host; without a parent if there was none.
  [[nodiscard]] static Fork fork_of(const Timeline& timeline, SpaceId space) {
    const SpaceData& data = timeline.data().spaces[space.value];
    return {data.forked_from, data.forked};
  }
  [[nodiscard]] static bool has_space(const Timeline& timeline, SpaceId space) {
    return timeline.data().index_of(space) < timeline.data().spaces.size();
  }
};

}  // namespace ptd
