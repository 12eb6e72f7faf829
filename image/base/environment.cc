// Environment variables.
#include "image/base/environment.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace ptd::environment {
namespace {

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string home() { return value_of("HOME"); }
std::string cache_home() { return value_of("XDG_CACHE_HOME"); }
std::string runtime_dir() { return value_of("XDG_RUNTIME_DIR"); }
std::string debuginfod_urls() { return value_of("DEBUGINFOD_URLS"); }
std::string stash() { return value_of("PTDECODE_STASH"); }
std::string demo() { return value_of("PTDECODE_DEMO"); }
std::string empty_variable() {
  for (const char* name : {"PTDECODE_STASH", "PTDECODE_DEMO"}) {
    if (const char* value = std::getenv(name); value != nullptr && *value == '\0') return name;
  }
  return {};
}
std::string qemu_sysroot() { return value_of("QEMU_LD_PREFIX"); }

std::string temporary_folder() {
  std::string folder = value_of("TMPDIR");
  return folder.empty() ? "/tmp" : folder;
}

std::string search_path() {
  const char* path = std::getenv("PATH");
  return path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
}

std::string own_program() {
  std::error_code error;
  const std::filesystem::path known = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return known.string();
  const auto* started = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return started == nullptr ? std::string() : std::filesystem::absolute(started, error).string();
}

char** variables() { return environ; }

}  // namespace ptd::environment
