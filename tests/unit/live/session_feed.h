// Records for tests of sessions, as the rings give them.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "capture/live/session/session_log.h"
#include "perfio/format/record_encode.h"
#include "perfio/format/wire.h"

namespace ptd::live {

inline perfio::EventAttr session_attr() {
  perfio::EventAttr attr;
  attr.sample_type = perfio::kSampleTid | perfio::kSampleTime | perfio::kSampleCpu | perfio::kSampleIdentifier;
  attr.sample_id_all = true;
  attr.ids = {5};
  return attr;
}

inline std::vector<std::byte> bytes_of(const perfio::Payload& payload, uint64_t time, uint16_t misc = 0) {
  perfio::EncodeContext context;
  context.sample_id.time = time;
  context.sample_id.id = 5;
  context.misc = misc;
  std::vector<std::byte> bytes;
  EXPECT_TRUE(perfio::encode_record(payload, context, session_attr(), bytes));
  return bytes;
}

/// Appends records in the way of a ring.
struct Feed {
  SessionLog& log;
  uint64_t position = 0, time = 1;
  void operator()(const perfio::Payload& payload, uint16_t misc = 0) {
    const std::vector<std::byte> bytes = bytes_of(payload, time++, misc);
    position += bytes.size();
    log.append({EntryKind::record, 1, position, bytes});
  }
};

}  // namespace ptd::live
