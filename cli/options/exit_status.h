// Exit statuses of ptdecode, in one place, and the error of an option that leads to kExitUsage.
#pragma once

#include <string>
#include <utility>

#include "ptdecode/error.h"

namespace ptd::cli {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFile = 1;           ///< a file could not be opened or read
inline constexpr int kExitUsage = 2;          ///< bad option or argument
inline constexpr int kExitFinding = 3;        ///< finding or difference; with --strict also a gap
inline constexpr int kExitCannotRun = 126;    ///< a program to run exists and cannot be executed, as shells count it
inline constexpr int kExitNoProgram = 127;    ///< a program to run does not exist
inline constexpr int kExitInterrupted = 130;  ///< Ctrl-C, as shells count it

/// The status that an error of opening or creating ends the program with.
constexpr int exit_status_of(ErrorKind kind) { return kind == ErrorKind::usage ? kExitUsage : kExitFile; }

inline Error bad_option(std::string message) { return Error{ErrorCode::bad_option, std::move(message), 0}; }

}  // namespace ptd::cli
