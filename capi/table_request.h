// Options of tables of the C API.
#pragma once

#include <memory>

#include "analysis/table/table.h"
#include "capi/control.h"
#include "capi/handle.h"

namespace ptd::capi {

/// Reads the caller's options (NULL: the defaults) into `control` and `request`. PTD_OK, or a code with a message.
[[nodiscard]] ptd_code read_table_options(const ptd_table_options* options, const OpenedRecording& opened,
                                          const std::shared_ptr<Control>& control, TableRequest& request, char** message);

}  // namespace ptd::capi
