// Handles of the C API: opaque numbers that are looked up, so that a freed or foreign handle is an error and never an access.
#pragma once

#include <cstdint>
#include <memory>

#include "ptdecode/ptdecode.h"
#include "ptdecode/recording.h"

namespace ptd::capi {

/// What a ptd_recording stands for. Immutable once opened; shared by the handle and by every cursor and table made from it.
struct OpenedRecording {
  std::unique_ptr<const Recording> recording;
};

/// The recording of a handle, null if the handle is NULL, freed or of another type. Any thread.
[[nodiscard]] std::shared_ptr<const OpenedRecording> find(const ptd_recording* handle);
/// Registers a recording; never null.
[[nodiscard]] ptd_recording* add(std::shared_ptr<const OpenedRecording> recording);
/// Frees the handle; false if it is not one.
bool remove(const ptd_recording* handle);

}  // namespace ptd::capi
