// AnnouncedCode: the begin and the end of each change.
#include <set>
#include <tuple>

#include "recording/image/announced/announced_code.h"
#include "recording/image/announced/relists.h"

namespace ptd {

/// The changes that were announced to begin and not yet to end.
class AnnouncedCode::Begun {
 public:
  explicit Begun(std::vector<Change>& changes) : changes_(changes) {}

  void begin(Announcement what) {
    if (what.kind == AnnounceKind::patch) patch_begins_.insert(what.runtime);
    const auto [open, is_new] = begun_.try_emplace(key_of(what));
    if (!is_new) {
      open->second.abandoned.push_back(changes_.size());
      leave(std::move(open->second.what));
    }
    open->second.what = std::move(what);
  }
  /// Gives the end its begin. A patch always has one, except that some run-times never announce it, and that it may not have been heard.
  void end(Change& change, bool may_be_unheard) {
    const Announcement& what = change.what;
    const auto open = begun_.find(key_of(what));
    const bool is_same =
        open != begun_.end() && (open->second.what.name == what.name || open->second.what.name.empty() || what.name.empty());
    if (!is_same) {
      if (open != begun_.end()) leave_to(open, what.time.last);
      change.contradicts = what.kind == AnnounceKind::patch && patch_begins_.contains(what.runtime);
      change.unbegun = what.kind == AnnounceKind::patch && (may_be_unheard || change.contradicts);
      return;
    }
    for (const size_t abandoned : open->second.abandoned) changes_[abandoned].known_since = what.time.last;
    change.time = hull(change.time, open->second.what.time);
    change.old_bytes = std::move(open->second.what.code);
    begun_.erase(open);
  }
  /// What began before a gap and did not end may have ended in it: the gap counts from the begin on.
  void pass(AnnounceGap& gap) {
    for (const auto& [key, open] : begun_) gap.time.first = std::min(gap.time.first, open.what.time.first);
    begun_.clear();
    patch_begins_.clear();
  }
  void finish() {
    for (auto& [key, open] : begun_) leave(std::move(open.what));
  }

 private:
  using Key = std::tuple<uint32_t, AnnounceKind, uint64_t, uint64_t>;
  struct Open {
    Announcement what;
    std::vector<size_t> abandoned;  // of changes_: the same change began before and did not end
  };
  static Key key_of(const Announcement& what) { return {what.runtime, what.kind, what.address, what.size_bytes}; }

  // Another change ended there: what began did not end, or its end is damaged.
  void leave_to(std::map<Key, Open>::iterator open, TimeNs end) {
    for (const size_t abandoned : open->second.abandoned) changes_[abandoned].known_since = end;
    leave(std::move(open->second.what));
    changes_.back().known_since = end;
    changes_.back().contradicts = true;
    begun_.erase(open);
  }

  void leave(Announcement what) {
    Change change;
    change.time = what.time;
    change.open = true;
    change.known_since = kTimeMax;
    change.what = std::move(what);
    changes_.push_back(std::move(change));
  }

  std::vector<Change>& changes_;
  std::map<Key, Open> begun_;
  std::set<uint32_t> patch_begins_;  // run-times that announced that a patch begins
};

// Joins each end with the begin before it.
void AnnouncedCode::pair_ends(AnnounceHistory& history, std::vector<Change>& changes) {
  const Relists relists(history.announcements);
  Begun begun(changes);
  auto gap = history.gaps.begin();
  for (Announcement& what : history.announcements) {
    for (; gap != history.gaps.end() && gap->first_seq <= what.seq; ++gap) begun.pass(*gap);
    if (!is_code(what)) continue;
    if (what.begin) {
      begun.begin(std::move(what));
      continue;
    }
    Change change;
    change.time = what.time;
    change.what = std::move(what);
    const Announcement& end = change.what;
    if (gap != history.gaps.begin()) change.lost_until = std::prev(gap)->time.last;
    // If it began before a reader listened, either content may have run until it ended, and a list shows only the new one.
    begun.end(change, history.attached && change.lost_until == kTimeMin);
    change.known_since = history.attached ? history.attached_at : change.time.first;
    if (change.lost_until != kTimeMin) {
      change.known_since = std::min(std::prev(gap)->time.first, change.time.first);
    } else if (relists.is_later(end.runtime, end.seq, change.time.first)) {
      change.known_since = change.time.first;
    }
    if (end.unwatched) change.known_since = change.time.first;
    changes.push_back(std::move(change));
  }
  for (; gap != history.gaps.end(); ++gap) begun.pass(*gap);
  begun.finish();
}

}  // namespace ptd
