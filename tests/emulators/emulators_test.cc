// Which emulator is chosen. The programs imitate the help of QEMU's linux-user/main.c: "usage: qemu-TARGET [options] program" and a line for
// each option; a build without CONFIG_PLUGIN has no line for -plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "capture/emulators/emulator_build.h"
#include "capture/emulators/emulator_query.h"
#include "capture/emulators/run_command.h"

namespace ptd::emulators {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

class Emulators : public testing::Test {
 protected:
  Emulators() {
    std::string name = (fs::temp_directory_path() / "ptdecode-emulators-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    search_.name = "qemu-x86_64";
    search_.path = folder_ + "/first:" + folder_ + "/second";
    search_.built = folder_ + "/built";
    search_.most_time = milliseconds(5000);
  }
  ~Emulators() override { fs::remove_all(folder_); }

  std::string put(const std::string& path, const std::string& script) const {
    const fs::path file = folder_ + "/" + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << "#!/bin/sh\n" << script;
    fs::permissions(file, fs::perms::owner_all);
    return file.string();
  }
  static std::string help(const std::string& machine, bool plugins) {
    return "cat << END\nusage: qemu-" + machine + " [options] program [arguments...]\nLinux CPU emulator (compiled for " + machine +
           " emulation)\n\nArgument             Env-variable      Description\n-h                                     print this help\n" +
           (plugins ? "-plugin              QEMU_PLUGIN       [file=]<file>[,<argname>=<argvalue>]\n" : "") +
           "-version             QEMU_VERSION      display version information and exit\nEND\n";
  }

  std::string folder_;
  EmulatorSearch search_;
};

TEST_F(Emulators, OneWithPluginsWorks) {
  const std::string path = put("second/qemu-x86_64", help("x86_64", true));
  const Emulator chosen = choose_emulator(search_);
  EXPECT_EQ(chosen.fitness, Fitness::works);
  EXPECT_EQ(chosen.path, path);
}

TEST_F(Emulators, OneThatRefusesPluginsIsNamed) {
  const std::string path = put("first/qemu-x86_64", help("x86_64", false));
  const Emulator chosen = choose_emulator(search_);
  EXPECT_EQ(chosen.fitness, Fitness::no_plugins);
  EXPECT_EQ(chosen.found, path + " was built without plugins");
}

TEST_F(Emulators, TheSearchGoesOnToOneThatWorks) {
  put("first/qemu-x86_64", help("x86_64", false));
  const std::string second = put("second/qemu-x86_64", help("x86_64", true));
  EXPECT_EQ(choose_emulator(search_).path, second);
  fs::remove(second);
  const std::string built = put("built/qemu_10.0/qemu-x86_64", help("x86_64", true));
  EXPECT_EQ(choose_emulator(search_).path, built);
  EXPECT_EQ(find_emulators(search_, true).size(), 2U);
}

TEST_F(Emulators, OneThatHangsIsKilledWithItsChildren) {
  const std::string mark = folder_ + "/survived";
  put("first/qemu-x86_64", "(sleep 3; touch " + mark + ") &\nsleep 1000\n");
  search_.most_time = milliseconds(300);
  const auto start = steady_clock::now();
  const Emulator chosen = choose_emulator(search_);
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(3));
  EXPECT_EQ(chosen.fitness, Fitness::no_answer);
  EXPECT_THAT(chosen.found, HasSubstr("did not end"));
  put("first/qemu-x86_64", "exec >&- 2>&-\nsleep 1000\n");  // closes its output first
  EXPECT_THAT(choose_emulator(search_).found, HasSubstr("did not end"));
  put("first/qemu-x86_64", "trap '' TERM INT\nwhile :; do echo x; done\n");  // without end
  EXPECT_THAT(choose_emulator(search_).found, HasSubstr("did not end"));
  ::sleep(3);
  EXPECT_FALSE(fs::exists(mark));
}

TEST_F(Emulators, MissingOnes) {
  EXPECT_EQ(choose_emulator(search_).fitness, Fitness::missing);
  EXPECT_EQ(choose_emulator(search_).found, "qemu-x86_64 is not installed");
  search_.path.clear();
  search_.built.clear();
  EXPECT_EQ(choose_emulator(search_).fitness, Fitness::missing);
  search_.given = folder_ + "/nowhere";
  EXPECT_EQ(choose_emulator(search_).found, folder_ + "/nowhere is not an executable program");
  search_.given = folder_;  // a folder
  EXPECT_EQ(choose_emulator(search_).fitness, Fitness::missing);
  search_.given = "no-such-name";
  EXPECT_EQ(choose_emulator(search_).found, "no-such-name is not an executable program");
}

TEST_F(Emulators, OneOfAnotherMachine) {
  const std::string path = put("first/qemu-x86_64", help("aarch64", true));
  EXPECT_EQ(choose_emulator(search_).fitness, Fitness::other_machine);
  EXPECT_EQ(choose_emulator(search_).found, path + " emulates aarch64, not x86_64");
  search_.name = "qemu-aarch64";
  search_.given = path;
  EXPECT_EQ(choose_emulator(search_).fitness, Fitness::works);
}

TEST_F(Emulators, ProgramsThatAreNoEmulator) {
  for (const char* script : {"exit 1\n", "kill -SEGV $$\n", "echo '-plugin x'\n", "head -c 300000 /dev/zero\n", "printf 'usage: qemu-'\n"}) {
    put("first/qemu-x86_64", script);
    EXPECT_EQ(choose_emulator(search_).fitness, Fitness::no_answer) << script;
  }
  std::ofstream(folder_ + "/first/qemu-x86_64") << "no program\n";
  EXPECT_EQ(choose_emulator(search_).fitness, Fitness::no_answer);
}

TEST_F(Emulators, AGivenOneIsTheOnlyCandidate) {
  put("first/qemu-x86_64", help("x86_64", true));
  search_.given = put("own/qemu", help("x86_64", false));
  EXPECT_EQ(choose_emulator(search_).fitness, Fitness::no_plugins);
  put("first/my-qemu", help("x86_64", true));
  search_.given = "my-qemu";
  EXPECT_EQ(choose_emulator(search_).path, folder_ + "/first/my-qemu");
}

TEST_F(Emulators, BuiltOnesThatOthersCanChangeAreIgnored) {
  put("built/qemu_9/qemu-x86_64", help("x86_64", true));
  put("built/.work/qemu-x86_64", help("x86_64", true));
  ASSERT_EQ(list_built(search_.built).size(), 1U);
  fs::permissions(folder_ + "/built/qemu_9", fs::perms::group_write | fs::perms::others_write, fs::perm_options::add);
  EXPECT_TRUE(list_built(search_.built).empty());
  fs::permissions(folder_ + "/built/qemu_9", fs::perms::owner_all);
  fs::permissions(folder_ + "/built", fs::perms::others_write, fs::perm_options::add);
  EXPECT_TRUE(list_built(search_.built).empty());
}

TEST_F(Emulators, RemovalIsLimitedToBuilds) {
  put("built/qemu_9/qemu-x86_64", "");
  put("built/qemu_10/qemu-x86_64", "");
  put("other/file", "");
  EXPECT_EQ(remove_built(search_.built, "../other").error().code, ErrorCode::not_found);
  ASSERT_TRUE(remove_built(search_.built, "qemu_9").ok());
  EXPECT_TRUE(fs::exists(folder_ + "/built/qemu_10"));
  EXPECT_EQ(*remove_built(search_.built, ""), 1U);
  EXPECT_FALSE(fs::exists(search_.built));
  EXPECT_EQ(*remove_built(search_.built, ""), 0U);
  EXPECT_TRUE(fs::exists(folder_ + "/other/file"));
}

TEST(EmulatorBuild, Progress) {
  uint64_t done = 0, all = 0;
  EXPECT_TRUE(parse_progress("[31/120] Compiling C object", done, all));
  EXPECT_EQ(done, 31U);
  EXPECT_EQ(all, 120U);
  for (const char* line : {"", "[", "[]", "[/]", "[1/]", "[/1]", "[2/1] x", "[1/0]", "[x/2]", "31/120", "[1]/2", "[1/99999999999]"})
    EXPECT_FALSE(parse_progress(line, done, all)) << line;
}

TEST(RunCommand, LimitsWhatItKeeps) {
  CommandOptions options;
  options.most_bytes = 10;
  uint64_t seen = 0;
  options.see = [&](std::string_view text) { seen += text.size(); };
  const CommandOutcome outcome = run_command({"head", "-c", "100000", "/dev/zero"}, options);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.text.size(), 10U);
  EXPECT_EQ(seen, 100000U);
  EXPECT_EQ(run_command({"/nowhere/program"}, {}).status, 127);
  EXPECT_EQ(run_command({}, {}).status, -1);
}

}  // namespace
}  // namespace ptd::emulators
