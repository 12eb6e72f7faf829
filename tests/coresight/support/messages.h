// What a decode says beside executed ranges, as messages at places in the flow: of OpenCSD's listings and of ours.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::test {

/// One message. `ranges_before`: executed ranges of its trace id before it.
struct Message {
  size_t ranges_before = 0;
  std::string text;
  friend bool operator==(const Message&, const Message&) = default;
};

/// Messages of one trace id, by kind: each kind is compared in its order.
struct Messages {
  std::map<std::string, std::vector<Message>> by_kind;
  size_t ranges = 0;
  std::vector<uint64_t> time;     ///< of each range: the last timestamp before it; 0: none
  std::vector<uint64_t> cycles;   ///< of each range: counted before it
  std::vector<size_t> returns;    ///< ours, ETE: positions after an ERET
  std::vector<size_t> stops;      ///< places where the trace unit stopped: the peer's Discard, our `disabled`
  size_t waiting_contexts = 0;    ///< contexts at the end of the list after which nothing ran yet
  size_t overflow_at = SIZE_MAX;  ///< ours: place of the last overflow
  uint64_t cycles_now = 0, time_now = 0;
  void add(const std::string& kind, const std::string& text) { by_kind[kind].push_back({ranges, text}); }
};
using MessagesById = std::map<uint32_t, Messages>;

/// The OCSD_GEN_TRC_ELEM_ lines of a listing.
[[nodiscard]] bool read_messages(const std::string& path, MessagesById& messages);
/// Blocks, events, marks and gaps of streams [first, last).
[[nodiscard]] MessagesById decode_messages(const Recording& recording, uint32_t first, uint32_t last);

}  // namespace ptd::test
