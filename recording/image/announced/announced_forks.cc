// AnnouncedCode: which processes descend from which.
#include "image/timeline_access.h"
#include "recording/image/announced/announced_code.h"

namespace ptd {

// The processes that announced code, by the one that they descend from and the time at which their line left it.
AnnouncedCode::Children AnnouncedCode::children_of(const Timeline& mappings) const {
  std::vector<Fork> nearest(TimelineAccess::space_count(mappings));  // each space's fork from a process that announced code
  Children children;
  for (uint32_t id = 0; id < nearest.size(); ++id) {
    const Fork fork = TimelineAccess::fork_of(mappings, SpaceId{id});
    if (fork.parent == kNoSpace) continue;
    nearest[id] = has(fork.parent) || fork.parent.value >= id ? fork : nearest[fork.parent.value];
    if (has(SpaceId{id}) && has(nearest[id].parent)) children.emplace(std::pair(nearest[id].parent, nearest[id].when), SpaceId{id});
  }
  return children;
}

AnnouncedCode::Children AnnouncedCode::forks_of(const Timeline& mappings, const std::set<SpaceId>& names_only) {
  Children forks;
  for (uint32_t id = 0; id < TimelineAccess::space_count(mappings); ++id) {
    const Fork fork = TimelineAccess::fork_of(mappings, SpaceId{id});
    if (fork.parent != kNoSpace && !names_only.contains(SpaceId{id})) forks.emplace(std::pair(fork.parent, fork.when), SpaceId{id});
  }
  return forks;
}

}  // namespace ptd
