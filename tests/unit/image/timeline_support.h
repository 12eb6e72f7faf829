// Short forms for timeline tests.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "ptdecode/code_view.h"
#include "ptdecode/timeline.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::timeline_test {

inline constexpr uint64_t kKernelIp = 0xffffffff81000000ULL;

inline std::vector<std::byte> bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

inline CodeBytes owned(std::vector<std::byte> content) {
  auto owner = std::make_shared<std::vector<std::byte>>(std::move(content));
  return {owner, Bytes{*owner}};
}
inline CodeBytes filled(size_t size, int value) { return owned(std::vector<std::byte>(size, static_cast<std::byte>(value))); }

inline Section section(SpaceId space, uint64_t ip, CodeBytes code, Interval live = {}) {
  Section section;
  section.space = space;
  section.ip = Ip{ip};
  section.size_bytes = code.bytes.size();
  section.live = live;
  section.code = std::move(code);
  return section;
}

inline Interval at(uint64_t t) { return {TimeNs{t}, TimeNs{t}}; }
inline Interval during(uint64_t first, uint64_t last) { return {TimeNs{first}, TimeNs{last}}; }

inline Edit edit(SpaceId space, uint64_t ip, std::vector<std::byte> old_bytes, std::vector<std::byte> new_bytes, Interval time) {
  Edit edit;
  edit.space = space;
  edit.ip = Ip{ip};
  edit.old_bytes = std::move(old_bytes);
  edit.new_bytes = std::move(new_bytes);
  edit.time = time;
  return edit;
}
inline Edit poke(uint64_t ip, std::initializer_list<int> old_bytes, std::initializer_list<int> new_bytes, uint64_t time) {
  return edit(kKernelSpace, ip, bytes(old_bytes), bytes(new_bytes), at(time));
}

inline std::string to_hex(Bytes bytes) {
  std::string out;
  char text[3];
  for (const std::byte byte : bytes) {
    std::snprintf(text, sizeof text, "%02x", static_cast<unsigned>(byte));
    out += text;
  }
  return out;
}

struct Got {
  FetchResult result;
  std::vector<CodeCandidate> candidates;
  unsigned span_bytes = 15;

  /// Returns the candidates' first span_bytes bytes, separated by blanks.
  [[nodiscard]] std::string hex() const { return join(span_bytes); }
  [[nodiscard]] std::string first_bytes() const { return join(1); }

 private:
  [[nodiscard]] std::string join(size_t length) const {
    std::string out;
    for (const CodeCandidate& candidate : candidates) {
      if (!out.empty()) out += ' ';
      out += to_hex(candidate.bytes.first(std::min<size_t>(length, candidate.bytes.size())));
    }
    return out;
  }
};

inline Got fetch(CodeView& view, SpaceId space, uint64_t ip, Interval when, unsigned span_bytes = 15,
                 std::vector<VersionFloor> floors = {}) {
  Got got;
  got.span_bytes = span_bytes;
  got.candidates.resize(32);
  got.result = view.fetch(space, Ip{ip}, when, floors, got.candidates, span_bytes);
  got.candidates.resize(got.result.count);
  return got;
}

}  // namespace ptd::timeline_test
