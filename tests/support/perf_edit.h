// Copies a recording while dropping, changing and inserting records; other records keep their bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "perfio/perf_reader.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

/// One record in file order, as the editor sees it.
struct EditRecord {
  const Record& record;  ///< parsed, record.raw are its bytes; the payload is OtherRecord if it cannot be parsed
  uint64_t number = 0;   ///< position among all records of the file, from 0
  const std::vector<EventAttr>& attrs;
};

/// The edit of a record. Default: keep.
struct EditAction {
  bool drop = false;                           ///< the record and what follows it
  std::vector<std::vector<std::byte>> before;  ///< whole records to insert before it (encode_record)
  std::vector<std::byte> replace;              ///< if not empty: a whole record instead of it
  bool replace_payload = false;                ///< AUXTRACE: `payload` instead of what follows; the record's size is set
  std::vector<std::byte> payload;
};

/// Copies file or directory form `from` to `to` (data.N files are not handled, compressed records are written plain). Features are copied
/// as bytes, except COMPRESSED and the AUXTRACE index, which is recreated. kcore_dir* are copied if `copy_kcore`. Errors: those of opening
/// and writing; `unsupported` for the pipe form.
Status edit_perf_data(const std::string& from, const std::string& to, const std::function<EditAction(const EditRecord&)>& editor,
                      bool copy_kcore = true);

}  // namespace ptd::perfio
