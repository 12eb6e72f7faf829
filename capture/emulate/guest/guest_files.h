// Small helpers of the program that runs in the emulated machine: messages, files, modules.
#pragma once

#include <cstdint>
#include <string>

namespace ptd::emulate::guest {

/// Prints a line on the machine's console, which the host keeps in a file.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// Writes to a file of tracefs, procfs or sysfs; `append`: adds to its list. Returns false after reporting a failure, once for each path
/// and text.
bool write_file(const std::string& path, const std::string& text, bool append = false);
/// Returns the content of a file; "" if it cannot be read.
[[nodiscard]] std::string read_file(const std::string& path);
void pin_to(int cpu);
void sleep_ms(uint32_t ms);
/// Loads a module, compressed or not. Returns false after reporting a failure. A module that is loaded already is no failure.
bool load_module(const std::string& path);
bool unload_module(const std::string& name);
/// Mounts; returns false after reporting a failure.
bool mount_at(const char* source, const std::string& target, const char* type, unsigned long flags = 0, const char* options = nullptr);
/// Creates a directory and its parents.
void make_folder(const std::string& path);

}  // namespace ptd::emulate::guest
