// Builds qemu-user with plugins.
#include "capture/emulators/emulator_build.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "capture/emulators/emulator_query.h"
#include "capture/emulators/run_command.h"
#include "image/base/environment.h"
#include "image/base/system_error.h"

namespace ptd::emulators {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kWork = ".work";
constexpr const char* kNames[] = {"qemu-x86_64", "qemu-aarch64"};

/// Holds the folder of builds for one process at a time.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder) : fd_(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    held_ = fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
    number_ = errno;
  }
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  [[nodiscard]] Status status(const std::string& folder) const {
    if (held_) return {};
    if (number_ == EWOULDBLOCK) return Error{ErrorCode::busy, folder + ": another 'ptdecode emulator' is at work there", 0};
    return system_error("cannot open " + folder + "/lock", ErrorCode::write_failed, number_);
  }

 private:
  int fd_ = -1, number_ = 0;
  bool held_ = false;
};

bool in_path(const std::string& program) {
  const std::string places = environment::search_path();
  for (size_t at = 0; at <= places.size();) {
    const size_t end = std::min(places.find(':', at), places.size());
    if (::access((places.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

Status check_tools() {
  struct Tool {
    const char *program, *package;
  };
  std::set<std::string> packages;
  if (!in_path("apt-get")) return Error{ErrorCode::missing_program, "apt-get is not installed: sources are taken from Debian's or Ubuntu's packages", 0};
  for (const Tool& tool : {Tool{"dpkg-source", "dpkg-dev"}, Tool{"cc", "gcc"}, Tool{"ninja", "ninja-build"}, Tool{"meson", "meson"},
                           Tool{"pkg-config", "pkg-config"}, Tool{"python3", "python3"}, Tool{"make", "make"}}) {
    if (!in_path(tool.program)) packages.insert(tool.package);
  }
  if (!in_path("pkg-config") || run_command({"pkg-config", "--exists", "glib-2.0"}, {}).status != 0) packages.insert("libglib2.0-dev");
  if (!in_path("python3") || run_command({"python3", "-c", "import venv, ensurepip"}, {}).status != 0) packages.insert("python3-venv");
  if (packages.empty()) return {};
  std::string list;
  for (const std::string& package : packages) list += " " + package;
  return Error{ErrorCode::missing_program, "programs for the build are not installed: apt install" + list, 0};
}

/// One build: its working folder and its log. Removes the folder at the end.
class Build {
 public:
  Build(const BuildOptions& options, std::string work) : options_(options), work_(std::move(work)), log_(options.folder + "/build.log") {}
  ~Build() {
    std::error_code error;
    fs::remove_all(work_, error);
  }
  Build(const Build&) = delete;
  Build& operator=(const Build&) = delete;

  [[nodiscard]] Result<BuiltEmulator> run();

 private:
  [[nodiscard]] Status run_step(const std::string& what, const Words& words, const std::string& folder);
  [[nodiscard]] Status list_sources();
  [[nodiscard]] Status download();
  [[nodiscard]] Status compile();
  [[nodiscard]] Result<BuiltEmulator> put_in_place();
  void follow(std::string_view text);
  void see_line();

  const BuildOptions& options_;
  const std::string work_;
  std::ofstream log_;
  std::string line_, complaint_, version_;
};

void Build::follow(std::string_view text) {
  log_ << text << std::flush;
  constexpr size_t kMostLine = 256;
  for (const char c : text) {
    if (c != '\n' && c != '\r') {
      if (line_.size() < kMostLine) line_ += c;
      continue;
    }
    see_line();
    line_.clear();
  }
}

void Build::see_line() {
  uint64_t done = 0, all = 0;
  if (options_.on_progress && parse_progress(line_, done, all)) options_.on_progress(done, all);
  if (complaint_.empty() && is_complaint(line_)) complaint_ = line_;
}

Status Build::run_step(const std::string& what, const Words& words, const std::string& folder) {
  if (options_.on_step) options_.on_step(what);
  log_ << "== " << what << ":";
  for (const std::string& word : words) log_ << ' ' << word;
  log_ << std::endl;
  complaint_.clear();
  CommandOptions options;
  options.folder = folder;
  options.see = [this](std::string_view text) { follow(text); };
  options.stop = options_.stop;
  const CommandOutcome outcome = run_command(words, options);
  if (outcome.stopped) return Error{ErrorCode::cancelled, what + ": stopped", 0};
  if (outcome.status == 0) return {};
  return Error{ErrorCode::start_failed,
               what + ": " + words.front() + " failed (exit status " + std::to_string(outcome.status) + ")" +
                   (complaint_.empty() ? "" : ": " + complaint_) + "; its output is in " + options_.folder + "/build.log", 0};
}

// apt's options: our lists and cache, the system's settings otherwise (proxies), only signed repositories, and no list may be missing.
Words apt(const std::string& work, const Words& more) {
  Words words = {"apt-get", "-q", "-y"};
  for (const std::string& option :
       {"Dir::State=" + work + "/state", std::string("Dir::State::status=/var/lib/dpkg/status"), "Dir::Cache=" + work + "/cache",
        "Dir::Etc::SourceList=" + work + "/sources.list", std::string("Dir::Etc::SourceParts=/dev/null"),
        std::string("APT::Sandbox::User="), std::string("APT::Get::AllowUnauthenticated=false"), std::string("Acquire::AllowInsecureRepositories=false"),
        std::string("Acquire::AllowWeakRepositories=false"), std::string("APT::Update::Error-Mode=any"), std::string("APT::Update::Post-Invoke-Success::="), std::string("Acquire::Languages=none")}) {
    words.push_back("-o");
    words.push_back(option);
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The line of sources.list for a line "ORIGIN|REPOSITORY RELEASE COMPONENT" of apt; empty for one that is not of the installed release.
// Restricts the repository to the distribution's own key where its file exists; apt checks with all keys that it trusts elsewhere.
std::string source_line(const std::string& line) {
  const size_t bar = line.find('|');
  const std::string origin = line.substr(0, bar);
  if (bar == std::string::npos || (origin != "Debian" && origin != "Ubuntu")) return {};
  for (const char* other : {"-backports", "-proposed", "experimental"}) {
    if (line.find(other, line.find(' ', bar)) != std::string::npos) return {};
  }
  const std::string key = origin == "Debian" ? "/usr/share/keyrings/debian-archive-keyring.gpg" : "/usr/share/keyrings/ubuntu-archive-keyring.gpg";
  return "deb-src " + (::access(key.c_str(), R_OK) == 0 ? "[signed-by=" + key + "] " : "") + line.substr(bar + 1);
}

// The source repositories that belong to the distribution's binary ones, whether or not apt is configured for sources.
Status Build::list_sources() {
  std::error_code error;
  for (const char* name : {"/state/lists/partial", "/cache/archives/partial", "/source"}) {
    if (!fs::create_directories(work_ + name, error) && error)
      return system_error("cannot create " + work_ + name, ErrorCode::write_failed, error.value());
  }
  CommandOptions plenty;
  plenty.most_bytes = 1U << 20;
  const CommandOutcome listed =
      run_command({"apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"}, plenty);
  std::set<std::string> lines;
  std::istringstream text(listed.text);
  for (std::string line; std::getline(text, line);) {
    if (const std::string source = source_line(line); !source.empty()) lines.insert(source);
  }
  if (lines.empty())
    return Error{ErrorCode::not_found, "apt knows no repository of Debian or Ubuntu: see 'apt-get indextargets'; run apt-get update", 0};
  std::ofstream file(work_ + "/sources.list");
  for (const std::string& line : lines) file << line << '\n';
  return file.flush() ? Status() : system_error("cannot write to " + work_, ErrorCode::write_failed);
}

Status Build::download() {
  if (Status status = list_sources(); !status) return status;
  if (Status status = run_step("reading the list of source packages", apt(work_, {"update"}), work_); !status) return status;
  const std::string place = work_ + "/source";
  if (Status status = run_step("downloading the source package of qemu", apt(work_, {"source", "--download-only", "--only-source", "qemu"}), place); !status)
    return status;
  std::error_code error;
  std::string description;
  for (const fs::directory_entry& entry : fs::directory_iterator(place, error)) {
    if (entry.path().extension() == ".dsc") description = entry.path().filename().string();
  }
  if (description.empty()) return Error{ErrorCode::not_found, "apt-get source downloaded no .dsc of qemu; see " + options_.folder + "/build.log", 0};
  version_ = fs::path(description).stem().string();
  return run_step("checking and unpacking " + version_, {"dpkg-source", "--require-strong-checksums", "--extract", description, "qemu"}, place);
}

Status Build::compile() {
  const std::string source = work_ + "/source/qemu", place = work_ + "/build";
  std::error_code error;
  fs::create_directory(place, error);
  CommandOptions plenty;
  plenty.most_bytes = 1U << 20;
  plenty.folder = place;  // configure writes a log where it runs, even for its help
  const std::string known = run_command({source + "/configure", "--help"}, plenty).text;
  Words words = {source + "/configure", "--target-list=x86_64-linux-user,aarch64-linux-user", "--without-default-features", "--enable-linux-user",
                 "--enable-plugins", "--disable-system", "--disable-tools", "--disable-docs"};
  for (const char* option : {"--disable-download", "--disable-install-blobs"}) {  // not known to QEMU 7.2
    if (known.find(std::string(option).substr(sizeof "--disable-" - 1)) != std::string::npos) words.emplace_back(option);
  }
  if (Status status = run_step("configuring", words, place); !status) return status;
  const unsigned jobs = options_.jobs != 0 ? options_.jobs : std::max(1U, std::thread::hardware_concurrency());
  return run_step("compiling", {"ninja", "-j", std::to_string(jobs), kNames[0], kNames[1]}, place);
}

Result<BuiltEmulator> Build::put_in_place() {
  const std::string place = work_ + "/finished", target = options_.folder + "/" + version_;
  std::error_code error;
  fs::create_directory(place, error);
  for (const char* name : kNames) {
    fs::rename(work_ + "/build/" + name, place + "/" + name, error);
    if (error) return system_error("cannot move the built " + std::string(name), ErrorCode::write_failed, error.value());
    (void)run_command({"strip", place + "/" + name}, {});
    (void)::chmod((place + "/" + name).c_str(), 0755);
    const Emulator built = query_emulator(place + "/" + name, name, std::chrono::seconds(10));
    if (built.fitness != Fitness::works) return Error{ErrorCode::start_failed, "the build is unusable: " + built.found, 0};
  }
  fs::remove_all(target, error);
  fs::rename(place, target, error);
  if (error) return system_error("cannot create " + target, ErrorCode::write_failed, error.value());
  return BuiltEmulator{target, version_};
}

Result<BuiltEmulator> Build::run() {
  if (!log_) return system_error("cannot write to " + options_.folder + "/build.log", ErrorCode::write_failed);
  if (Status status = download(); !status) return status.error();
  if (Status status = compile(); !status) return status.error();
  return put_in_place();
}

Status make_folder(const std::string& folder) {
  if (folder.empty()) return Error{ErrorCode::not_found, "neither XDG_CACHE_HOME nor HOME is set: no place for the build", 0};
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot create " + folder, ErrorCode::write_failed);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{ErrorCode::untrusted_file, folder + " belongs to another user, or others can write to it", 0};
  return {};
}

}  // namespace

bool parse_progress(std::string_view line, uint64_t& done, uint64_t& all) {
  constexpr size_t kMostDigits = 9;
  const auto number = [&](size_t begin, size_t end, uint64_t& value) {
    if (begin >= end || end - begin > kMostDigits) return false;
    value = 0;
    for (const char c : line.substr(begin, end - begin)) {
      if (c < '0' || c > '9') return false;
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    return true;
  };
  const size_t slash = line.find('/'), end = line.find(']');
  if (!line.starts_with('[') || slash == std::string_view::npos || end == std::string_view::npos || end < slash) return false;
  return number(1, slash, done) && number(slash + 1, end, all) && all != 0 && done <= all;
}

bool is_complaint(std::string_view line) {
  return line.starts_with("E: ") || line.find("error: ") != std::string_view::npos || line.find("ERROR: ") != std::string_view::npos;
}

Result<BuiltEmulator> build_emulator(const BuildOptions& options) {
  if (Status status = check_tools(); !status) return status.error();
  if (Status status = make_folder(options.folder); !status) return status.error();
  const FolderLock lock(options.folder);
  if (Status status = lock.status(options.folder); !status) return status.error();
  std::error_code error;
  const std::string work = options.folder + "/" + kWork;
  fs::remove_all(work, error);
  if (!fs::create_directory(work, error)) return system_error("cannot create " + work, ErrorCode::write_failed, error.value());
  if (const fs::space_info space = fs::space(work, error); !error && space.available < options.needed_bytes) {
    fs::remove_all(work, error);
    return Error{ErrorCode::no_space, options.folder + ": the build needs " + std::to_string(options.needed_bytes >> 20) + " MiB of free disk space, and " +
                                          std::to_string(space.available >> 20) + " MiB are free", 0};
  }
  return Build(options, work).run();
}

Result<size_t> remove_built(const std::string& folder, const std::string& name) {
  std::error_code error;
  if (folder.empty() || !fs::exists(folder, error)) {
    if (name.empty()) return size_t{0};
    return Error{ErrorCode::not_found, "no built emulator " + name, 0};
  }
  if (Status status = make_folder(folder); !status) return status.error();
  const FolderLock lock(folder);
  if (Status status = lock.status(folder); !status) return status.error();
  size_t removed = 0;
  for (const std::string& build : list_built(folder)) {
    if (!name.empty() && fs::path(build).filename() != name) continue;
    fs::remove_all(build, error);
    if (error) return system_error("cannot remove " + build, ErrorCode::write_failed, error.value());
    ++removed;
  }
  if (!name.empty() && removed == 0) return Error{ErrorCode::not_found, "no built emulator " + name + " in " + folder, 0};
  fs::remove_all(folder + "/" + kWork, error);
  if (name.empty()) fs::remove_all(folder, error);
  return removed;
}

}  // namespace ptd::emulators
