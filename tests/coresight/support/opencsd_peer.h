// The full decoder of the packaged OpenCSD library, as a second source of flow.
#pragma once

#include <opencsd/c_api/opencsd_c_api.h>

#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/types.h"

namespace ptd::test {

/// Adds a full decoder of ETMv4 or ETE to the tree. Returns false if the library rejects it.
bool make_peer(dcd_tree_handle_t tree, const arm::TraceConfig& config);

/// Returns the addresses of the instructions that the peer reports for `trace`, with `code` at `ip`.
std::vector<uint64_t> peer_flow(const arm::TraceConfig& config, Ip ip, Bytes code, Bytes trace);

}  // namespace ptd::test
