// ArmSources: splits CoreSight buffers into one stream per trace source. Private to recording.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/arm/frames.h"
#include "recording/trace/streams.h"

namespace ptd {

/// What a stream of CoreSight trace is, beside its bytes.
struct ArmSource {
  arm::TraceConfig config;
  std::string name;  ///< of the source ("ETM_0")
  std::string core;  ///< of the core that it traces ("cpu_0"), may be empty
  /// (stream offset, offset in the buffer) of each run of bytes that stood side by side in the buffer, in order.
  std::vector<std::pair<uint64_t, uint64_t>> places;

  /// Offset in the buffer of a byte of the stream.
  [[nodiscard]] uint64_t place_of(uint64_t stream_offset) const;
};

/// Sentences on what of these sources cannot be followed; none if all of it can.
[[nodiscard]] std::vector<std::string> tell_limits(const std::vector<ArmSource>& sources);

/// Collects the bytes of sources that share formatted buffers. Feed buffers in order, then take().
class ArmSources {
 public:
  /// A source that writes with this id; of several with one id the last gets what comes.
  size_t add_source(ArmSource source);
  [[nodiscard]] const ArmSource& source(size_t index) const { return sources_[index].source; }

  /// How the bytes of a formatted buffer stand, which what tells of it may not know: the format in which they are more of these sources'
  /// own.
  [[nodiscard]] arm::FrameFormat likely_format(Bytes buffer, arm::FrameFormat told, const std::vector<size_t>& members) const;
  /// A formatted buffer: what each id wrote goes to the source of that id among `members`.
  void add_frames(Bytes buffer, uint64_t buffer_offset, arm::FrameFormat format, const std::vector<size_t>& members);
  /// Bytes of one source as they are.
  void add_raw(size_t source, Bytes bytes, uint64_t buffer_offset);
  /// What comes next from these sources does not join what came.
  void break_here(const std::vector<size_t>& members, AuxBreak why);
  /// All written so far was written before `time`.
  void written(const std::vector<size_t>& members, TimeNs time);

  /// The stream of a source; its bytes are kept by `owners`.
  [[nodiscard]] AuxStream take(size_t index, std::vector<std::shared_ptr<const void>>& owners);
  [[nodiscard]] ArmSource& taken_source(size_t index) { return sources_[index].source; }
  /// A sentence on bytes of ids that no source has; empty if there are none.
  [[nodiscard]] std::string tell_strangers() const;

 private:
  struct Entry {
    ArmSource source;
    std::vector<std::byte> bytes;
    std::vector<std::pair<uint64_t, AuxBreak>> breaks;
    std::vector<std::pair<uint64_t, TimeNs>> written;
  };
  void append(Entry& entry, Bytes bytes, uint64_t place);
  std::vector<Entry> sources_;
  std::map<uint8_t, uint64_t> strangers_;
};

}  // namespace ptd
