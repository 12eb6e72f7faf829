// write_requested_bundle(): write_bundle() for OpenRequest. Private to the project.
#pragma once

#include <span>

#include "ptdecode/bundle.h"
#include "recording/data/open_request.h"

namespace ptd {

/// Same as write_bundle(), which converts its options. `also` replaces BundleOptions::also.
[[nodiscard]] Result<BundleReport> write_requested_bundle(const OpenRequest& options, const BundleOptions& bundle,
                                                          std::span<const OpenRequest> also);

}  // namespace ptd
