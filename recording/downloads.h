// Downloads of missing files, as the command line ends them.
#pragma once

namespace ptd {

/// Downloads from debuginfod servers end when `stop` returns true: it is asked about once a second, on the thread that waits.
void stop_downloads_when(bool (*stop)());

}  // namespace ptd
