// Lets the command line interrupt downloads of missing files.
#pragma once

namespace ptd {

/// Downloads from debuginfod servers end when `stop` returns true: it is asked about once a second, on the thread that waits.
void stop_downloads_when(bool (*stop)());

}  // namespace ptd
