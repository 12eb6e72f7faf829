// Downloads: forwards to Debuginfod.
#include "recording/downloads.h"

#include "image/source/debuginfod.h"

namespace ptd {

void stop_downloads_when(bool (*stop)()) { Debuginfod::set_stop(stop); }

}  // namespace ptd
