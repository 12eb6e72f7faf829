// A forked program that announces, in step with the test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "announce/ptd_announce.h"
#include "capture/announce/announce_listener.h"
#include "perfio/announce/announcement.h"

namespace ptd::announce {

/// The program's side: wait() returns when the test calls go(), which returns when the program waits again or has ended.
class Steps {
 public:
  Steps() {
    (void)!pipe2(to_.data(), O_CLOEXEC);
    (void)!pipe2(from_.data(), O_CLOEXEC);
  }
  void wait() const {
    char byte = 0;
    (void)!write(from_[1], &byte, 1);
    (void)!read(to_[0], &byte, 1);
  }
  void keep_program_ends() const {
    close(to_[1]);
    close(from_[0]);
  }
  void keep_test_ends() const {
    close(to_[0]);
    close(from_[1]);
  }
  void start() const {
    char byte = 0;
    (void)!read(from_[0], &byte, 1);
  }
  void go() const {
    char byte = 0;
    (void)!write(to_[1], &byte, 1);
    (void)!read(from_[0], &byte, 1);
  }

 private:
  std::array<int, 2> to_{}, from_{};
};

/// Runs `body` in a child, up to its first wait().
class Program {
 public:
  explicit Program(const std::function<void(const Steps& steps)>& body) {
    pid_ = fork();
    if (pid_ == 0) {
      (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
      steps_.keep_program_ends();
      body(steps_);
      _exit(0);
    }
    steps_.keep_test_ends();
    steps_.start();
  }
  ~Program() {
    (void)kill(pid_, SIGKILL);
    (void)end();
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  void go() const { steps_.go(); }
  [[nodiscard]] int32_t pid() const { return pid_; }
  /// Waits for its end; its status as waitpid() has it.
  int end() {
    int status = -1;
    if (!ended_) (void)waitpid(pid_, &status, 0);
    ended_ = true;
    return status;
  }

 private:
  Steps steps_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

/// Collects what a listener hears, by instance.
class Collector {
 public:
  void take(const Heard& heard) {
    const auto parsed = parse_announce_record(heard.record);
    if (!parsed.ok()) {
      errors.push_back(parsed.error().message);
      return;
    }
    pids[parsed->instance] = heard.pid;
    joiners[parsed->instance].add(*parsed, TimeNs{heard.when.mono_ns});
  }
  AnnounceHistory of(int32_t pid) {
    for (auto& [instance, owner] : pids) {
      if (owner == pid) return joiners[instance].finish();
    }
    return {};
  }
  std::map<uint64_t, AnnounceJoiner> joiners;
  std::map<uint64_t, int32_t> pids;
  std::vector<std::string> errors;
};

inline ptd_announcement load_of(uint64_t address, const std::vector<char>& code, const char* name, uint32_t runtime = 0) {
  ptd_announcement what{};
  what.runtime = runtime;
  what.kind = PTD_ANNOUNCE_LOAD;
  what.phase = PTD_ANNOUNCE_END;
  what.address = address;
  what.size = code.size();
  what.code = code.data();
  what.name = name;
  return what;
}

inline std::vector<char> code_of(size_t size, char seed) {
  std::vector<char> code(size);
  for (size_t i = 0; i < size; ++i) code[i] = static_cast<char>(seed + i * 7);
  return code;
}

/// A listener and what it hears.
class Ring : public testing::Test {
 protected:
  Collector heard;
  AnnounceListener listener{[this](const Heard& h) { heard.take(h); }};
  void drain() {
    while (listener.drain() != 0) listener.release();
  }
  /// Returns what a program announces in its first step.
  AnnounceHistory heard_of(Program& program) {
    listener.look({program.pid()});
    program.go();
    drain();
    listener.stop();
    return heard.of(program.pid());
  }
};

}  // namespace ptd::announce
