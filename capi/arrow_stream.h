// Tables as Arrow C streams. Source: Arrow, "The Arrow C data interface", "The Arrow C stream interface".
#pragma once

#include <memory>

#include "analysis/table/table.h"
#include "capi/control.h"
#include "capi/handle.h"
#include "ptdecode/ptdecode.h"

namespace ptd::capi {

/// Fills `out` with a stream that reads `table`. The stream owns its arguments and frees them when it is released.
void export_stream(std::shared_ptr<const OpenedRecording> recording, std::unique_ptr<Table> table, std::shared_ptr<Control> control,
                   ArrowArrayStream& out);

}  // namespace ptd::capi
