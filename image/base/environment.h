// The environment variables that the project reads. No other code reads the environment; tests/tidy checks this.
#pragma once

#include <string>

namespace ptd::environment {

// Each function returns the current value of its variable; "" if it is not set. Thread-safe as long as no thread changes the environment.

[[nodiscard]] std::string home();             ///< HOME
[[nodiscard]] std::string cache_home();       ///< XDG_CACHE_HOME
[[nodiscard]] std::string runtime_dir();      ///< XDG_RUNTIME_DIR
[[nodiscard]] std::string debuginfod_urls();  ///< DEBUGINFOD_URLS: the servers of debug information, separated by blanks
[[nodiscard]] std::string stash();            ///< PTDECODE_STASH: a directory, or "off"
[[nodiscard]] std::string demo();             ///< PTDECODE_DEMO: the folder of the demonstration's recordings
/// Returns the name of a PTDECODE_ variable that is set but empty, which is a mistake such as `PTDECODE_STASH=$DIR` without DIR; "" if none
/// is.
[[nodiscard]] std::string empty_variable();
[[nodiscard]] std::string qemu_sysroot();  ///< QEMU_LD_PREFIX: where qemu-user looks for a program's dynamic linker

/// Returns TMPDIR; "/tmp" if it is not set or empty.
[[nodiscard]] std::string temporary_folder();
/// Returns PATH; the system's default folders if it is not set. An empty PATH stays empty.
[[nodiscard]] std::string search_path();

/// Returns the path of the running program: as the system knows it, without /proc as it was started; "" if neither is known.
[[nodiscard]] std::string own_program();

/// Returns all variables in the form for execve(). Valid until the environment is changed.
[[nodiscard]] char** variables();

}  // namespace ptd::environment
