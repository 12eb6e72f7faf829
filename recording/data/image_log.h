// ImageLog: logs the input of a timeline in order, so that a bundle can replay it. Private to recording.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "image/fetch_log.h"
#include "image/timeline_access.h"
#include "ptdecode/timeline_builder.h"

namespace ptd {

/// One call of a TimelineBuilder.
struct AddSpaceOp {
  uint32_t machine = 0;     ///< see guest.h
  SpaceId made = kNoSpace;  ///< the space that the builder returned
};
struct ForkSpaceOp {
  SpaceId parent;
  TimeNs when;
  SpaceId made = kNoSpace;
};
struct RemoveOp {
  SpaceId space;
  Ip ip;
  uint64_t size_bytes = 0;
  TimeNs when;
};
struct LostWindowOp {
  Interval window;
};
struct SpaceLostWindowOp {
  SpaceId space;
  Interval window;
};
using ImageOp = std::variant<AddSpaceOp, ForkSpaceOp, Section, RemoveOp, Edit, DatedCopy, LostWindowOp, Finding, SpaceLostWindowOp>;

/// bits32 or bits64, by path and build id of a file's sections, as its machine says.
using CodeModes = std::map<std::pair<std::string, std::string>, ExecMode>;

/// The origin of a section's bytes.
struct CodeOrigin {
  std::string file, why;
};

/// Bytes of sections and copies are shared with the recording, not copied.
class ImageLog {
 public:
  bool share = false;  ///< its bytes are for others: only code that is proven may be read (CodeSourceOptions::share)
  std::vector<ImageOp> ops;
  std::map<std::pair<std::string, std::string>, CodeOrigin> origins;  ///< by path and build id of the section
  CodeModes modes;
  std::shared_ptr<FetchLog> fetches = std::make_shared<FetchLog>();  ///< what decoding the recording looks at
};

/// A TimelineBuilder that logs its input, if there is a log. Not thread-safe.
class LoggedBuilder {
 public:
  explicit LoggedBuilder(std::shared_ptr<ImageLog> log) : log_(std::move(log)) {}

  [[nodiscard]] SpaceId add_space(uint32_t machine = 0) {
    const SpaceId made = builder_.add_space(machine);
    note(AddSpaceOp{machine, made});
    return made;
  }
  [[nodiscard]] SpaceId fork_space(SpaceId parent, TimeNs when) {
    const SpaceId made = builder_.fork_space(parent, when);
    note(ForkSpaceOp{parent, when, made});
    return made;
  }
  void add_section(Section section) {
    note(section);
    builder_.add_section(std::move(section));
  }
  void remove(SpaceId space, Ip ip, uint64_t size_bytes, TimeNs when) {
    note(RemoveOp{space, ip, size_bytes, when});
    builder_.remove(space, ip, size_bytes, when);
  }
  void add_edit(Edit edit) {
    note(edit);
    builder_.add_edit(std::move(edit));
  }
  void add_copy(DatedCopy copy) {
    note(copy);
    builder_.add_copy(std::move(copy));
  }
  void add_lost_window(Interval window) {
    note(LostWindowOp{window});
    builder_.add_lost_window(window);
  }
  void add_lost_window(SpaceId space, Interval window) {
    note(SpaceLostWindowOp{space, window});
    builder_.add_lost_window(space, window);
  }
  void add_finding(Finding finding) {
    note(finding);
    builder_.add_finding(std::move(finding));
  }
  void note_origin(const std::pair<std::string, std::string>& section, CodeOrigin origin) {
    if (log_) log_->origins.insert_or_assign(section, std::move(origin));
  }
  void note_mode(const std::pair<std::string, std::string>& section, ExecMode mode) {
    if (log_) log_->modes.insert_or_assign(section, mode);
  }
  void set_word_bytes(unsigned word_bytes) { builder_.set_word_bytes(word_bytes); }
  void freeze_at_first_version() { builder_.freeze_at_first_version(); }

  [[nodiscard]] Timeline sections() const { return builder_.sections(); }
  /// Builds the timeline, whose fetches are logged too.
  [[nodiscard]] Timeline build() {
    Timeline timeline = builder_.build();
    if (log_) TimelineAccess::log_fetches(timeline, log_->fetches);
    return timeline;
  }

 private:
  void note(ImageOp op) {
    if (log_) log_->ops.push_back(std::move(op));
  }
  TimelineBuilder builder_;
  std::shared_ptr<ImageLog> log_;
};

}  // namespace ptd
