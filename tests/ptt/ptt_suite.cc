// libipt's .ptt tests as input: directives of the files, and execution of pttc.
#include "tests/ptt/ptt_suite.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

extern char** environ;

namespace ptd::ptt {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// Returns the value of a comment of the form `; KEY VALUE`; empty for other lines. libipt's test script uses the first word after the
// semicolon as KEY.
std::string directive(const std::string& line, const std::string& key) {
  const size_t start = line.find_first_not_of(" \t");
  if (start == std::string::npos || line[start] != ';') return {};
  const size_t at = line.find_first_not_of(" \t", start + 1);
  if (at == std::string::npos || line.compare(at, key.size(), key) != 0) return {};
  const size_t value = line.find_first_not_of(" \t", at + key.size());
  return value == std::string::npos || value == at + key.size() ? std::string{} : line.substr(value);
}

// A folder that is removed with its content.
class ScratchDir {
 public:
  ScratchDir() {
    std::string pattern = (fs::temp_directory_path() / "ptdecode-ptt-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~ScratchDir() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Runs pttc; returns its exit status, -1 if it could not be started. It writes into its working folder.
int run_pttc(const std::string& pttc, const PttRun& run, const fs::path& dir) {
  std::vector<std::string> words{pttc};
  if (!run.cpu.empty()) words.insert(words.end(), {"--cpu", run.cpu});
  words.push_back(run.path);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, dir.c_str());
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawn(&child, pttc.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

Bytes from(const std::vector<std::byte>& bytes, uint64_t offset) { return Bytes(bytes).subspan(std::min<uint64_t>(offset, bytes.size())); }

// The test's ptxed option `--raw FILE:OFFSET:ADDRESS`: a second section over the code at its org.
void add_raw(const PttRun& run, const std::vector<std::byte>& bytes, test::SparseMemory& code) {
  unsigned long long offset = 0, ip = 0;
  const std::string raw = run.value("--raw");
  const size_t colon = raw.find(':');
  if (colon != std::string::npos && std::sscanf(raw.c_str() + colon, ":%llx:%llx", &offset, &ip) == 2) code.add(ip, from(bytes, offset));
}

}  // namespace

bool PttRun::has(const std::string& option) const {
  const auto words = words_of(options);
  return std::find(words.begin(), words.end(), option) != words.end();
}

std::string PttRun::value(const std::string& option) const {
  const auto words = words_of(options);
  const auto at = std::find(words.begin(), words.end(), option);
  return at == words.end() || at + 1 == words.end() ? std::string{} : *(at + 1);
}

std::vector<PttRun> list_runs(const std::string& suite_dir, std::string& error) {
  std::vector<std::string> paths;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(suite_dir, failed)) {
    if (entry.path().extension() == ".ptt") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) error = suite_dir + " holds no .ptt file";
  std::vector<PttRun> runs;
  for (const std::string& path : paths) {
    PttRun run;
    run.path = path;
    run.test = fs::path(path).stem().string();
    std::vector<std::string> cpus;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      if (const std::string cpu = directive(line, "cpu"); !cpu.empty()) cpus.push_back(words_of(cpu).front());
      if (const std::string options = directive(line, "opt:ptxed"); !options.empty()) run.options += options + " ";
      const auto words = words_of(line);
      if (words.size() == 2 && words[0] == "org") run.code_ip = std::strtoull(words[1].c_str(), nullptr, 0);
    }
    if (cpus.empty()) cpus.emplace_back();
    for (const std::string& cpu : cpus) {
      run.cpu = cpu;
      runs.push_back(run);
    }
  }
  return runs;
}

Made make(const PttRun& run, const std::string& pttc) {
  Made made;
  const ScratchDir scratch;
  if (const int status = run_pttc(pttc, run, scratch.path()); status != 0) {
    made.error = pttc + " failed with " + std::to_string(status) + " (it needs yasm)";
    return made;
  }
  const std::string base = (scratch.path() / run.test).string();
  std::string cpu = run.cpu.empty() ? "" : "-cpu_" + run.cpu;
  std::replace(cpu.begin(), cpu.end(), '/', '_');
  const auto trace = test::read_file(base + ".pt");
  const auto code = test::read_file(base + ".bin");
  if (!trace || !code) {
    made.error = pttc + " wrote no " + base + ".pt and .bin";
    return made;
  }
  made.trace = *trace;
  add_raw(run, *code, made.code);
  made.code.add(run.code_ip, *code);
  if (const auto want = test::read_lines(base + "-ptxed" + cpu + ".exp")) {
    made.expects_flow = true;
    made.want = *want;
  }
  return made;
}

pt::CpuId cpu_of(const std::string& text) {
  unsigned family = 0, model = 0, stepping = 0;
  std::sscanf(text.c_str(), "%u/%u/%u", &family, &model, &stepping);
  return {static_cast<uint16_t>(family), static_cast<uint8_t>(model), static_cast<uint8_t>(stepping)};
}

}  // namespace ptd::ptt
