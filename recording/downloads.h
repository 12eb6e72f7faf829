// Lets the command line interrupt downloads of missing files.
#pragma once

namespace ptd {

/// Sets a function that ends downloads from debuginfod servers when it returns true; called about ten times per second on the waiting
/// thread.
void stop_downloads_when(bool (*stop)());

}  // namespace ptd
