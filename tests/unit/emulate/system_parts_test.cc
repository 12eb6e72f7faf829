// Parts of --emulate=system: events, the guest's configuration, frames, the initramfs, kernels. The formats are those of the kernel's
// documentation: arch/x86/boot.rst (bzImage), driver-api/early-userspace/buffer-format.rst (newc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "capture/emulate/shared/guest_channel.h"
#include "capture/emulate/shared/guest_config.h"
#include "capture/emulate/system/guest_archive.h"
#include "capture/emulate/system/kernel_image.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(KernelEvents, NamesAndCounts) {
  const auto events = parse_kernel_events("tracepoints=200,kprobes,sched:sched_switch=3");
  ASSERT_TRUE(events);
  ASSERT_EQ(events->size(), 3U);
  EXPECT_EQ((*events)[0].name, "tracepoints");
  EXPECT_EQ((*events)[0].count, 200U);
  EXPECT_EQ((*events)[1].count, 0U);
  EXPECT_EQ((*events)[2].name, "sched:sched_switch");
  EXPECT_TRUE(parse_kernel_events("")->empty());
}

TEST(KernelEvents, RefusesWhatTheKernelDoesNotHave) {
  for (const char* text : {"foo", ",", "keys,", "keys=0", "keys=x", "keys=1000001", "sched:", ":x", "sched:../enable", "a:b:c", "keys=-1"})
    EXPECT_EQ(parse_kernel_events(text).error().code, ErrorCode::bad_option) << text;
}

TEST(GuestConfig, AnyBytesOfWordsSurvive) {
  GuestConfig config;
  config.program = "/bin/a=b\nc";
  config.words = {"", "x=y", "\xff\x01 \t"};
  config.variables = {"A=1=2", "EMPTY="};
  config.events = {{"keys", 7}, {"sched:sched_switch", 0}};
  config.terminal[1] = true;
  config.rows = 65535;
  config.trace_config = ~uint64_t{0};
  const auto read = guest_config_from(to_text(config));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->program, config.program);
  EXPECT_EQ(read->words, config.words);
  EXPECT_EQ(read->variables, config.variables);
  EXPECT_EQ(read->events.at(0).count, 7U);
  EXPECT_EQ(read->events.at(1).name, "sched:sched_switch");
  EXPECT_THAT(read->terminal, ElementsAre(false, true, false));
  EXPECT_EQ(read->rows, 65535);
  EXPECT_EQ(read->trace_config, ~uint64_t{0});
}

TEST(GuestConfig, RefusesWhatIsNone) {
  using namespace std::string_literals;
  for (const std::string& text : {"program"s, "program=x"s, "=x\0"s, "other=1\0"s, "rows=70000\0"s, "terminal=3\0"s, "event=foo\0"s, "\0"s})
    EXPECT_FALSE(guest_config_from(text)) << text;
}

class Channel : public testing::Test {
 protected:
  Channel() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_), 0); }
  ~Channel() override {
    for (const int fd : ends_) {
      if (fd >= 0) close(fd);
    }
  }
  int ends_[2] = {-1, -1};
};

TEST_F(Channel, FramesArriveWhole) {
  GuestChannel from(ends_[0]), to(ends_[1]);
  std::string long_text(1 << 20, 'x');
  for (size_t i = 0; i < long_text.size(); ++i) long_text[i] = static_cast<char>(i * 7 / 3);
  std::thread sender([&] {
    EXPECT_TRUE(from.send(GuestFrame::output, long_text));
    EXPECT_TRUE(from.send(GuestFrame::exited, number_bytes(3)));
    shutdown(ends_[0], SHUT_RDWR);
  });
  std::string got;
  uint32_t status = 0;
  while (to.take([&](GuestFrame kind, std::string_view payload) {
    if (kind == GuestFrame::output) got += payload;
    if (kind == GuestFrame::exited) status = number_in(payload);
  })) {
  }
  sender.join();
  EXPECT_EQ(got, long_text);
  EXPECT_EQ(status, 3U);
}

TEST_F(Channel, ByteByByteAndTooLong) {
  GuestChannel to(ends_[1]);
  const std::string frame = std::string(1, 7) + number_bytes(2) + "ab";
  int frames = 0;
  for (const char c : frame) {
    ASSERT_EQ(write(ends_[0], &c, 1), 1);
    EXPECT_TRUE(to.take([&](GuestFrame, std::string_view payload) { frames += payload == "ab" ? 1 : 100; }));
  }
  EXPECT_EQ(frames, 1);
  const std::string huge = std::string(1, 7) + number_bytes(0xffffffff);
  ASSERT_EQ(write(ends_[0], huge.data(), huge.size()), static_cast<ssize_t>(huge.size()));
  EXPECT_FALSE(to.take([](GuestFrame, std::string_view) { FAIL(); }));
}

class Files : public testing::Test {
 protected:
  Files() {
    std::string name = (fs::temp_directory_path() / "ptdecode-system-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }
  std::string put(const std::string& path, const std::string& content) const {
    fs::create_directories(fs::path(folder_ + "/" + path).parent_path());
    std::ofstream(folder_ + "/" + path, std::ios::binary) << content;
    return folder_ + "/" + path;
  }
  /// A file with the fields of a bzImage that name its release.
  std::string put_image(const std::string& path, const std::string& release) const {
    std::string image(0x1000, '\0');
    image.replace(0x202, 4, "HdrS");
    image[0x20f] = 0x04;  // kernel_version: 0x400, to which 0x200 is added
    const std::string version = release + " (builder@host) #1 SMP";
    image.replace(0x600, version.size(), version);
    return put(path, image);
  }
  void put_modules(const std::string& release, const std::vector<std::string>& names) const {
    for (const std::string& name : names) put("root/lib/modules/" + release + "/kernel/drivers/" + name, name);
  }
  std::string folder_;
};

TEST_F(Files, ArchiveHasInitConfigAndModulesInOrder) {
  const std::string archive = folder_ + "/archive";
  ASSERT_TRUE(write_guest_archive(archive, put("guest", "GUEST"), "CONFIG", {put("z.ko", "first"), put("a.ko.xz", "second!")}).ok());
  std::ifstream file(archive, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::map<std::string, std::string> entries;
  std::map<std::string, unsigned long> modes;
  for (size_t at = 0; at + 110 <= bytes.size();) {
    ASSERT_EQ(bytes.substr(at, 6), "070701");
    const auto field = [&](size_t index) { return std::stoul(bytes.substr(at + 6 + 8 * index, 8), nullptr, 16); };
    const std::string name = bytes.substr(at + 110, field(11) - 1);
    const size_t data = (at + 110 + field(11) + 3) / 4 * 4;
    entries[name] = bytes.substr(data, field(6));
    modes[name] = field(1);
    if (name == "TRAILER!!!") break;
    at = (data + field(6) + 3) / 4 * 4;
  }
  EXPECT_EQ(entries.at("init"), "GUEST");
  EXPECT_EQ(modes.at("init"), 0100755U);
  EXPECT_EQ(modes.at("dev"), 040755U);
  EXPECT_EQ(entries.at("guest-config"), "CONFIG");
  EXPECT_EQ(entries.at("modules/10-z.ko"), "first");
  EXPECT_EQ(entries.at("modules/11-a.ko.xz"), "second!");
  EXPECT_EQ(entries.count("TRAILER!!!"), 1U);
  EXPECT_EQ(write_guest_archive(archive, folder_ + "/absent", "", {}).error().kind(), ErrorKind::file_open);
}

TEST_F(Files, KernelThatRunsIsPreferredElseTheNewest) {
  for (const char* release : {"6.1.0-9-amd64", "6.1.0-44-amd64", "5.10.0-1-amd64"}) {
    put_image(std::string("root/boot/vmlinuz-") + release, release);
    put_modules(release, {"virtio.ko"});
  }
  EXPECT_EQ(find_kernel({"", "5.10.0-1-amd64", {folder_ + "/root/boot"}})->release, "5.10.0-1-amd64");
  EXPECT_EQ(find_kernel({"", "6.18-other", {folder_ + "/none", folder_ + "/root/boot"}})->release, "6.1.0-44-amd64");
  EXPECT_EQ(find_kernel({"", "", {folder_ + "/root/boot"}})->modules, fs::canonical(folder_ + "/root/lib/modules/6.1.0-44-amd64"));
}

TEST_F(Files, MissingKernelsAreNamedWithWhatHelps) {
  EXPECT_THAT(find_kernel({"", "", {folder_}}).error().message, HasSubstr("apt install linux-image-amd64"));
  put_image("root/boot/vmlinuz-6.1.0-9-amd64", "6.1.0-9-amd64");
  EXPECT_THAT(find_kernel({"", "", {folder_ + "/root/boot"}}).error().message, HasSubstr("vmlinuz-6.1.0-9-amd64 has no modules: "));
  EXPECT_EQ(find_kernel({folder_ + "/root/boot/vmlinuz-6.1.0-9-amd64", "", {}}).error().code, ErrorCode::missing_part);
  EXPECT_EQ(find_kernel({put("text", std::string(0x400, 'x')), "", {}}).error().code, ErrorCode::bad_option);
  EXPECT_EQ(find_kernel({folder_ + "/absent", "", {}}).error().code, ErrorCode::not_found);
  std::string cut = put_image("cut", "6.1");
  fs::resize_file(cut, 0x20f);
  EXPECT_EQ(release_of_image(cut), "");
}

TEST_F(Files, ModulesOfTheHostsFilesInTheOrderOfLoading) {
  const KernelImage kernel{put_image("root/boot/vmlinuz-6.1", "6.1"), "6.1", folder_ + "/root/lib/modules/6.1"};
  put_modules("6.1", {"9p.ko.xz", "overlay.ko", "virtio_ring.ko", "virtio-pci.ko", "9pnet.ko", "9pnet_virtio.ko", "other.ko"});
  put("root/lib/modules/6.1/modules.builtin", "kernel/drivers/virtio/virtio.ko\nkernel/drivers/char/virtio_console.ko\n");
  const auto modules = early_modules(kernel);
  ASSERT_TRUE(modules) << modules.error().message;
  std::vector<std::string> names;
  for (const std::string& module : *modules) names.push_back(fs::path(module).filename().string());
  EXPECT_THAT(names, ElementsAre("virtio_ring.ko", "virtio-pci.ko", "9pnet.ko", "9pnet_virtio.ko", "9p.ko.xz", "overlay.ko"));
  fs::remove(folder_ + "/root/lib/modules/6.1/kernel/drivers/9p.ko.xz");
  EXPECT_THAT(early_modules(kernel).error().message, HasSubstr("has no module 9p, "));
}

}  // namespace
}  // namespace ptd::emulate
