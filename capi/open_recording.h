// Opening: from the options of the C API to a handle.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "capi/control.h"
#include "capi/handle.h"
#include "recording/data/open_request.h"

namespace ptd::capi {

/// Reads the caller's options into `request` and `control`. PTD_OK, or a code with a message.
[[nodiscard]] ptd_code read_open_options(const ptd_open_options* options, OpenRequest& request, Control& control, char** message);

/// Opens, and sets *out to a handle. `memory` is kept as long as the recording. `name`: replaces request.path in messages; empty: nothing.
/// May throw.
[[nodiscard]] ptd_code open_handle(OpenRequest& request, Control& control, std::shared_ptr<const void> memory, std::string_view name,
                                   ptd_recording** out, char** message);

}  // namespace ptd::capi
