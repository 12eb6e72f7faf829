// apt without root rights.
#include "capture/emulators/apt_client.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "capture/emulators/run_command.h"
#include "image/base/system_error.h"

namespace ptd::emulators {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::string source_line(const std::string& line, PackageKind kind) {
  const size_t bar = line.find('|');
  const std::string origin = line.substr(0, bar);
  if (bar == std::string::npos || (origin != "Debian" && origin != "Ubuntu")) return {};
  for (const char* other : {"-backports", "-proposed", "experimental"}) {
    if (line.find(other, line.find(' ', bar)) != std::string::npos) return {};
  }
  const std::string key =
      origin == "Debian" ? "/usr/share/keyrings/debian-archive-keyring.gpg" : "/usr/share/keyrings/ubuntu-archive-keyring.gpg";
  const std::string repository = (::access(key.c_str(), R_OK) == 0 ? "[signed-by=" + key + "] " : "") + line.substr(bar + 1);
  if (kind == PackageKind::source) return "deb-src " + repository;
  std::string lines = "deb " + repository;
  // "URI RELEASE COMPONENT": the suite of backports is a sibling of the release itself, not of its updates.
  const size_t release = line.find(' ', bar) + 1, end = line.find(' ', release);
  const std::string name = line.substr(release, end - release);
  if (kind == PackageKind::binary_with_backports && origin == "Debian" && end != std::string::npos && name.find('-') == std::string::npos)
    lines += "\n" + lines.substr(0, lines.find(' ' + name + ' ') + 1) + name + "-backports" + line.substr(end);
  return lines;
}

Words apt_words(const std::string& work, const Words& more) {
  Words words = {"apt-get", "-q", "-y"};
  for (const std::string& option :
       {"Dir::State=" + work + "/state", std::string("Dir::State::status=/var/lib/dpkg/status"), "Dir::Cache=" + work + "/cache",
        "Dir::Etc::SourceList=" + work + "/sources.list", std::string("Dir::Etc::SourceParts=/dev/null"),
        std::string("APT::Sandbox::User="), std::string("APT::Get::AllowUnauthenticated=false"),
        std::string("Acquire::AllowInsecureRepositories=false"), std::string("Acquire::AllowWeakRepositories=false"),
        std::string("APT::Update::Error-Mode=any"), std::string("APT::Update::Post-Invoke-Success::="),
        std::string("Acquire::Languages=none")}) {
    words.push_back("-o");
    words.push_back(option);
  }
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Result<std::string> write_sources(const std::string& work, PackageKind kind) {
  std::error_code error;
  for (const char* name : {"/state/lists/partial", "/cache/archives/partial", "/source"}) {
    if (!fs::create_directories(work + name, error) && error)
      return system_error("cannot create " + work + name, ErrorCode::write_failed, error.value());
  }
  CommandOptions plenty;
  plenty.most_bytes = 1U << 20;
  const CommandOutcome listed =
      run_command({"apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"}, plenty);
  std::set<std::string> lines;
  std::string origin;
  std::istringstream text(listed.text);
  for (std::string line; std::getline(text, line);) {
    if (const std::string source = source_line(line, kind); !source.empty()) {
      lines.insert(source);
      origin = line.substr(0, line.find('|'));
    }
  }
  if (lines.empty())
    return Error{ErrorCode::not_found, "apt knows no repository of Debian or Ubuntu: see 'apt-get indextargets'; run apt-get update", 0};
  std::ofstream file(work + "/sources.list");
  for (const std::string& line : lines) file << line << '\n';
  if (!file.flush()) return system_error("cannot write to " + work, ErrorCode::write_failed);
  return origin;
}

}  // namespace ptd::emulators
