// The C API: opening and closing recordings.
#include <utility>

#include "capi/handle.h"
#include "capi/message.h"
#include "ptdecode/recording.h"

using namespace ptd;

ptd_code ptd_open(const char* path, const ptd_open_options* options, ptd_recording** out, char** message) {
  return capi::guarded(message, [&]() -> ptd_code {
    if (path == nullptr || out == nullptr) return capi::fail(message, PTD_ERROR_NULL_ARGUMENT, "ptd_open: path or out is NULL");
    (void)options;
    OpenOptions open;
    open.path = path;
    auto recording = Recording::open(open);
    if (!recording.ok()) return capi::fail(message, recording.error());
    auto opened = std::make_shared<capi::OpenedRecording>();
    opened->recording = std::move(recording.value());
    *out = capi::add(std::move(opened));
    return PTD_OK;
  });
}

ptd_code ptd_close(ptd_recording* recording) {
  if (recording == nullptr) return PTD_OK;
  return capi::remove(recording) ? PTD_OK : PTD_ERROR_INVALID_HANDLE;
}

void ptd_free(void* memory) { std::free(memory); }
