// Which emulator is chosen. The programs imitate the help of QEMU's linux-user/main.c: "usage: qemu-TARGET [options] program" and a line
// for each option; a build without CONFIG_PLUGIN has no line for -plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "capture/emulators/apt_client.h"
#include "capture/emulators/emulator_build.h"
#include "capture/emulators/emulator_fetch.h"
#include "capture/emulators/emulator_query.h"
#include "capture/emulators/run_command.h"

namespace ptd::emulators {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

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
  for (const char* script :
       {"exit 1\n", "kill -SEGV $$\n", "echo '-plugin x'\n", "head -c 300000 /dev/zero\n", "printf 'usage: qemu-'\n"}) {
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

/// A build whose programs are scripts: what it runs, refuses and leaves.
class EmulatorBuilds : public Emulators {
 protected:
  EmulatorBuilds() {
    options_.folder = folder_ + "/cache/built";
    options_.needed_bytes = 0;
    options_.jobs = 3;
    put("bin/apt-get", "echo \"apt-get $*\" >> " + folder_ + "/calls\n" + R"(case "$*" in
      indextargets*)
        printf '%s\n' 'Debian|http://mirror/debian/ trixie main' 'Debian|http://mirror/debian/ trixie main' 'Vendor|http://vendor/ stable main' \
          'Debian|http://mirror/debian/ trixie-backports main' 'no line of it' ;;
      *" source "*) echo package > qemu_9.dsc ;;
    esac
    )");
    put("bin/dpkg-source", "echo \"dpkg-source $*\" >> " + folder_ + "/calls\nmkdir qemu && cp " + folder_ + "/bin/configure qemu/\n");
    put("bin/configure", "echo log > config.log\n[ \"$1\" != --help ] || exec echo '  --disable-download  x'\necho \"configure $*\" >> " +
                             folder_ + "/calls\n");
    for (const char* name : {"cc", "meson", "pkg-config", "python3", "make"}) put(std::string("bin/") + name, "");
    ninja(help("x86_64", true), help("aarch64", true));
    ::setenv("PATH", (folder_ + "/bin:/usr/bin:/bin").c_str(), 1);
  }
  ~EmulatorBuilds() override { ::setenv("PATH", before_.c_str(), 1); }

  /// A compiler of two emulators, which are these scripts.
  void ninja(const std::string& x86, const std::string& arm) const {
    put("made/qemu-x86_64", x86);
    put("made/qemu-aarch64", arm);
    put("bin/ninja", "echo \"ninja $*\" >> " + folder_ + "/calls\necho '[1/2] compiling'\ncp " + folder_ + "/made/* .\n");
  }
  [[nodiscard]] std::string calls() const { return text_of(folder_ + "/calls"); }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Builds, which must fail with this code and leave no files but the log and the lock.
  std::string message_of_failure(ErrorCode code) {
    const Result<BuiltEmulator> built = build_emulator(options_);
    if (built) return "it did not fail";
    EXPECT_EQ(built.error().code, code) << built.error().message;
    for (const fs::directory_entry& entry : fs::directory_iterator(options_.folder)) {
      EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("build.log", "lock"));
    }
    return built.error().message;
  }

  BuildOptions options_;
  const std::string before_ = std::getenv("PATH");
};

TEST_F(EmulatorBuilds, ChecksTheSourceAndBuildsIt) {
  std::vector<std::pair<uint64_t, uint64_t>> progress;
  options_.on_progress = [&](uint64_t done, uint64_t all) { progress.emplace_back(done, all); };
  const std::string list = folder_ + "/list";
  put("bin/apt-get", text_of(folder_ + "/bin/apt-get") + "case \"$*\" in *update) cp sources.list " + list + ";; esac\n");
  const Result<BuiltEmulator> built = build_emulator(options_);
  ASSERT_TRUE(built) << built.error().message;
  EXPECT_EQ(built->folder, options_.folder + "/qemu_9");
  search_.path.clear();
  search_.built = options_.folder;
  EXPECT_EQ(choose_emulator(search_).path, built->folder + "/qemu-x86_64");
  EXPECT_THAT(progress, testing::ElementsAre(std::pair<uint64_t, uint64_t>{1, 2}));
  EXPECT_FALSE(fs::exists(options_.folder + "/.work"));
  EXPECT_FALSE(fs::exists("config.log"));  // configure's, in the user's working directory
  for (const char* option : {"APT::Get::AllowUnauthenticated=false", "Acquire::AllowInsecureRepositories=false",
                             "Acquire::AllowWeakRepositories=false", "APT::Update::Error-Mode=any", "Dir::Etc::SourceParts=/dev/null"})
    EXPECT_THAT(calls(), HasSubstr(option));
  EXPECT_THAT(calls(), HasSubstr("dpkg-source --require-strong-checksums --extract qemu_9.dsc qemu\n"));
  EXPECT_THAT(calls(), HasSubstr("--enable-plugins"));
  EXPECT_THAT(calls(), HasSubstr(" --disable-download\n"));  // but no option that this configure does not know
  EXPECT_THAT(calls(), HasSubstr("ninja -j 3 qemu-x86_64 qemu-aarch64\n"));
  const std::string lines = text_of(list);  // of the release only, each once, with the distribution's key if it is installed
  EXPECT_THAT(lines, testing::MatchesRegex(
                         "deb-src (.signed-by=/usr/share/keyrings/debian-archive-keyring.gpg. )?http://mirror/debian/ trixie main\n"));
}

TEST_F(EmulatorBuilds, AFailedStepIsNamedWithItsComplaint) {
  put("bin/ninja", "echo 'x.c:1: error: no such thing'\necho 'y.c:1: error: another'\necho 'ninja: build stopped'\nexit 1\n");
  EXPECT_EQ(message_of_failure(ErrorCode::start_failed),
            "compiling: ninja failed (exit status 1): x.c:1: error: no such thing; its output is in " + options_.folder + "/build.log");
  EXPECT_THAT(text_of(options_.folder + "/build.log"), HasSubstr("ninja: build stopped"));
  put("bin/dpkg-source", "echo 'dpkg-source: error: file qemu_9.tar.xz has checksum 1 instead of 2'\nexit 25\n");
  EXPECT_THAT(message_of_failure(ErrorCode::start_failed),
              testing::StartsWith("checking and unpacking qemu_9: dpkg-source failed (exit status 25): dpkg-source: "
                                  "error: file qemu_9.tar.xz has checksum 1 instead of 2; "));
  EXPECT_EQ(calls().find("configure"), calls().find("configure --target"));
  put("bin/apt-get",
      "case \"$*\" in indextargets*) echo 'Debian|http://mirror/debian/ trixie main';; *) echo 'E: Failed to fetch'; exit 100;; esac\n");
  EXPECT_THAT(message_of_failure(ErrorCode::start_failed),
              HasSubstr("reading the list of source packages: apt-get failed (exit status 100): E: Failed to fetch; "));
  put("bin/apt-get", "case \"$*\" in indextargets*) echo 'Vendor|http://vendor/ stable main';; esac\n");
  EXPECT_THAT(message_of_failure(ErrorCode::not_found), HasSubstr("run apt-get update"));
  put("bin/apt-get", "case \"$*\" in indextargets*) echo 'Debian|http://mirror/debian/ trixie main';; esac\n");
  EXPECT_THAT(message_of_failure(ErrorCode::not_found), HasSubstr("no .dsc of qemu"));
}

TEST_F(EmulatorBuilds, AnUnusableResultIsNotKept) {
  ninja(help("x86_64", true), help("aarch64", false));
  EXPECT_THAT(message_of_failure(ErrorCode::start_failed), HasSubstr("qemu-aarch64 was built without plugins"));
}

TEST_F(EmulatorBuilds, MissingProgramsAndSpaceAreNamedBeforeTheDownload) {
  options_.needed_bytes = UINT64_MAX;
  EXPECT_THAT(message_of_failure(ErrorCode::no_space), HasSubstr("of free disk space"));
  EXPECT_EQ(calls(), "");
  ::setenv("PATH", (folder_ + "/bin").c_str(), 1);
  fs::remove(folder_ + "/bin/meson");
  fs::remove(folder_ + "/bin/dpkg-source");
  EXPECT_THAT(message_of_failure(ErrorCode::missing_program), testing::EndsWith(": apt install dpkg-dev meson"));
  fs::remove(folder_ + "/bin/apt-get");
  EXPECT_THAT(message_of_failure(ErrorCode::missing_program), HasSubstr("apt-get is not installed"));
}

TEST_F(EmulatorBuilds, StopsOnRequestWithItsChildren) {
  const std::string mark = folder_ + "/survived";
  put("bin/ninja", "(sleep 2; touch " + mark + ") &\necho '[1/2] compiling'\nsleep 1000\n");
  bool begun = false;
  options_.on_progress = [&](uint64_t, uint64_t) { begun = true; };
  options_.stop = [&] { return begun; };
  const auto start = steady_clock::now();
  EXPECT_EQ(message_of_failure(ErrorCode::cancelled), "compiling: stopped");
  EXPECT_LT(steady_clock::now() - start, std::chrono::seconds(60));
  ::sleep(3);
  EXPECT_FALSE(fs::exists(mark));
}

TEST_F(EmulatorBuilds, OneAtATimeInAFolderOfTheUser) {
  options_.on_step = [&, done = false](const std::string&) mutable {
    if (std::exchange(done, true)) return;
    EXPECT_EQ(build_emulator(options_).error().code, ErrorCode::busy);
    EXPECT_EQ(remove_built(options_.folder, "").error().code, ErrorCode::busy);
  };
  ASSERT_TRUE(build_emulator(options_).ok());
  fs::permissions(options_.folder, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(build_emulator(options_).error().code, ErrorCode::untrusted_file);
  options_.folder.clear();
  EXPECT_EQ(build_emulator(options_).error().code, ErrorCode::not_found);
}

// The help of qemu-system: softmmu/vl.c.
std::string system_help(const std::string& version, bool plugins, bool shares) {
  return "cat << END\nQEMU emulator version " + version + " (Debian 1:" + version +
         ")\nusage: qemu-system-x86_64 [options] [disk_image]\n" + (shares ? "-fsdev local,id=id,path=path\n" : "") +
         (plugins ? "-plugin [file=]<file>[,<argname>=<argvalue>]\n" : "") + "END\n";
}

TEST_F(Emulators, MachinesNeedPluginsThatReadRegistersAndShares) {
  search_.name = "qemu-system-x86_64";
  const auto fitness = [&](const std::string& version, bool plugins, bool shares) {
    put("first/qemu-system-x86_64", system_help(version, plugins, shares));
    return choose_emulator(search_).fitness;
  };
  EXPECT_EQ(fitness("10.0.2", true, true), Fitness::works);
  EXPECT_EQ(fitness("9.2.0", true, true), Fitness::works);
  EXPECT_EQ(fitness("9.1.3", true, true), Fitness::too_old);
  EXPECT_EQ(fitness("7.2.18", true, true), Fitness::too_old);
  EXPECT_THAT(choose_emulator(search_).found, HasSubstr("is QEMU 7.2, whose plugins cannot read registers (9.2 or later can)"));
  EXPECT_EQ(fitness("10.0.2", false, true), Fitness::no_plugins);
  EXPECT_EQ(fitness("10.0.2", true, false), Fitness::no_plugins);
}

TEST_F(Emulators, FetchedOnesAreFoundAndKernelsToo) {
  search_.name = "qemu-system-x86_64";
  put("built/qemu-system-9.2/qemu-system-x86_64", system_help("9.2.0", true, true));
  const std::string newest = put("built/qemu-system-10.0/qemu-system-x86_64", system_help("10.0.2", true, true));
  EXPECT_EQ(choose_emulator(search_).path, newest);
  for (const char* release : {"6.1.0-9-amd64", "6.1.0-44-amd64"}) put(std::string("built/linux-image-") + release + "/boot/vmlinuz", "");
  EXPECT_THAT(list_fetched_kernels(folder_ + "/built"),
              testing::ElementsAre(folder_ + "/built/linux-image-6.1.0-44-amd64", folder_ + "/built/linux-image-6.1.0-9-amd64"));
  const auto removed = remove_built(folder_ + "/built", "");
  ASSERT_TRUE(removed);
  EXPECT_EQ(*removed, 4U);
}

TEST(EmulatorFetch, PackagesThatAptLists) {
  const auto packages = packages_in(
      "Reading package lists...\n"
      "'http://deb/pool/q/qemu/qemu-system-x86_10.0.2+ds-2_amd64.deb' qemu-system-x86_1%3a10.0.2+ds-2_amd64.deb 10176912 SHA256:00\n"
      "'http://deb/pool/x' broken\n'\n'http://deb/x' a_b\n"
      "'http://deb/seabios.deb' seabios_1.16.3-2~bpo12+1_all.deb 164452 SHA256:00\n");
  ASSERT_EQ(packages.size(), 2U);
  EXPECT_EQ(packages[0].name, "qemu-system-x86");
  EXPECT_EQ(packages[0].version, "1:10.0.2+ds-2");
  EXPECT_EQ(packages[0].architecture, "amd64");
  EXPECT_EQ(packages[1].architecture, "all");
  EXPECT_EQ(packages[1].version, "1.16.3-2~bpo12+1");
}

TEST(EmulatorFetch, BackportsOfTheReleaseItself) {
  const auto lines = [](const char* line) { return source_line(line, PackageKind::binary_with_backports); };
  EXPECT_THAT(lines("Debian|http://mirror/debian bookworm main"),
              testing::MatchesRegex("deb .*http://mirror/debian bookworm main\ndeb .*http://mirror/debian bookworm-backports main"));
  EXPECT_THAT(lines("Debian|http://mirror/debian bookworm-updates main"),
              testing::MatchesRegex("deb .*http://mirror/debian bookworm-updates main"));
  EXPECT_THAT(lines("Ubuntu|http://mirror/ubuntu noble main"), testing::MatchesRegex("deb .*http://mirror/ubuntu noble main"));
  EXPECT_EQ(lines("Vendor|http://vendor stable main"), "");
}

TEST(EmulatorBuild, Complaints) {
  for (const char* line : {"E: Unable to locate", "../meson.build:3:0: ERROR: x", "a.c:1:2: error: x", "dpkg-source: error: x"})
    EXPECT_TRUE(is_complaint(line));
  for (const char* line : {"", "ninja: build stopped", "checking error handling", "W: x"}) EXPECT_FALSE(is_complaint(line)) << line;
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
