// ScatteredRead: reads a large mapping record by record, without the trace between the records.
#pragma once

#include <cstdint>

#include "ptdecode/types.h"

namespace ptd::perfio {

inline constexpr uint64_t kScatteredBytes = 64ULL << 20;  ///< smaller mappings are left to the system's read-ahead

/// While an object of this class exists, the system does not read ahead in the mapping. Without it, each page that is read costs
/// megabytes of read-ahead, most of it trace that the records skip. Mappings below kScatteredBytes are not changed.
class ScatteredRead {
 public:
  /// `mapping` must outlive the object.
  explicit ScatteredRead(Bytes mapping);
  ~ScatteredRead();
  ScatteredRead(const ScatteredRead&) = delete;
  ScatteredRead& operator=(const ScatteredRead&) = delete;

 private:
  Bytes mapping_;
};

/// Advises the system to read the window at `offset_bytes` of a large mapping. Returns the offset at which the window ends.
uint64_t read_window(Bytes mapping, uint64_t offset_bytes);

}  // namespace ptd::perfio
