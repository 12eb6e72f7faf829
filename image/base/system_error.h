// Errors of system calls.
#pragma once

#include <cerrno>
#include <string>

#include "ptdecode/error.h"

namespace ptd {

/// Returns the code for an errno; `otherwise` for an errno without a code.
[[nodiscard]] ErrorCode code_of_errno(int number, ErrorCode otherwise = ErrorCode::open_failed);
/// Returns an error with the message "what: " and the system's text for the errno `number`.
[[nodiscard]] Error system_error(const std::string& what, ErrorCode otherwise = ErrorCode::open_failed, int number = errno);

}  // namespace ptd
