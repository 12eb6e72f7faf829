// OpenCSD's full decoder of the packaged library, as a second source of flow.
#pragma once

#include <opencsd/c_api/opencsd_c_api.h>

#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/types.h"

namespace ptd::test {

/// Adds a full decoder of ETMv4 or ETE to the tree. False: the library does not want to.
bool make_peer(dcd_tree_handle_t tree, const arm::TraceConfig& config);

/// Addresses of the instructions that the peer gives for `trace`, with `code` at `ip`.
std::vector<uint64_t> peer_flow(const arm::TraceConfig& config, Ip ip, Bytes code, Bytes trace);

}  // namespace ptd::test
