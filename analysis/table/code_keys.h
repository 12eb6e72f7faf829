// CodeKeys: names code independently of the recording and of the address at which it was mapped.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/table/column.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Not thread-safe. The recording must outlive it.
class CodeKeys {
 public:
  struct Key {
    int32_t code = -1;          ///< index into codes; -1: nothing is mapped there
    uint64_t offset_bytes = 0;  ///< in the file, or in the mapping
    auto operator<=>(const Key&) const = default;
  };
  struct Found {
    Key key;
    Interval valid;  ///< times at which the answer is the same
  };
  explicit CodeKeys(const Recording& recording) : timeline_(recording.timeline()) {}

  /// The build id of the code at an address, and the offset in its file. Without a build id, as of generated code, a hash of the bytes of
  /// its mapping, and the offset in that.
  [[nodiscard]] Found find(SpaceId space, Ip ip, TimeNs when);
  NameList codes;

 private:
  const Timeline timeline_;
  std::vector<int32_t> code_of_;  ///< by section; kUnknown: not looked up
};

}  // namespace ptd
