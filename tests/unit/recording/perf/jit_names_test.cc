// Sideband fold: names of jitdumps and announcements, and what ends them.
#include <string_view>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

using image_test::bytes_of;

constexpr uint64_t kJitCode = 0x7f0000000000;

/// A jitdump whose functions have 16 bytes each.
class JitdumpBytes {
 public:
  explicit JitdumpBytes(uint32_t pid) {
    put(uint32_t{0x4A695444}), put(uint32_t{1}), put(uint32_t{40}), put(uint32_t{62}), put(uint32_t{0}), put(pid), put(uint64_t{0}), put(uint64_t{0});
  }
  JitdumpBytes& load(uint64_t time, uint32_t pid, uint64_t address, char name, uint8_t byte) {
    put(uint32_t{0}), put(uint32_t{16 + 40 + 2 + 16}), put(time), put(pid), put(pid);
    put(address), put(address), put(uint64_t{16}), put(++index_), put(name), put('\0');
    for (int i = 0; i < 16; ++i) put(byte);
    return *this;
  }
  JitdumpBytes& move(uint64_t time, uint32_t pid, uint64_t from, uint64_t to, uint64_t index) {
    put(uint32_t{1}), put(uint32_t{16 + 48}), put(time), put(pid), put(pid), put(to), put(from), put(to), put(uint64_t{16}), put(index);
    return *this;
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <typename T>
  void put(T value) {
    image_test::append(bytes_, value);
  }
  std::vector<std::byte> bytes_;
  uint64_t index_ = 0;
};

class JitFold : public Fold {
 protected:
  void finish_with(const JitdumpBytes& dump) {
    dir_.write("tmp/jit-10.dump", dump.bytes());
    finish();
  }
  std::string name_at(int32_t pid, uint64_t address, uint64_t time) {
    const SpaceId space = data_->contexts.at_thread(pid, TimeNs{time}).space;
    const auto symbol = data_->symbolizer->find(space, Ip{address}, TimeNs{time});
    return symbol ? std::string(symbol->name) : "";
  }
};

TEST_F(JitFold, AFileThatIsMappedOverCodeEndsItsNames) {
  comm(10, 10, "java", false, 0);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  map(10, kJitCode + 0x2000, "/bin/two", 20);
  map(10, kJitCode, "//anon", 50);
  map(10, kJitCode + 0x1000, "//anon", 1500);  // made executable after its code was logged
  map(10, kJitCode, "/bin/one", 2000);
  finish_with(JitdumpBytes(10)
                  .load(1000, 10, kJitCode + kCode, 'a', 0x11)
                  .load(1001, 10, kJitCode + 0xff8, 'b', 0x12)
                  .load(1002, 10, kJitCode + 0x1800, 'c', 0x13)
                  .load(1003, 10, kJitCode + 0x2000 + kCode, 'd', 0x14)
                  .load(3000, 10, kJitCode + 0x800, 'e', 0x15));
  EXPECT_EQ(name_at(10, kJitCode + kCode, 100), "a") << "its first call may have an earlier time";
  EXPECT_EQ(name_at(10, kJitCode + kCode, 1999), "a");
  EXPECT_EQ(name_at(10, kJitCode + kCode, 2000), "");
  EXPECT_EQ(user_byte(10, kJitCode + kCode, 2000), 0x55);
  EXPECT_EQ(name_at(10, kJitCode + 0xff8, 2500), "");
  EXPECT_EQ(name_at(10, kJitCode + 0x1000, 2500), "b") << "this part was not replaced";
  EXPECT_EQ(name_at(10, kJitCode + 0x1800, 2500), "c");
  EXPECT_EQ(name_at(10, kJitCode + 0x2000 + kCode, 100), "") << "there was a file before";
  EXPECT_EQ(name_at(10, kJitCode + 0x2000 + kCode, 1003), "d");
  EXPECT_EQ(name_at(10, kJitCode + 0x800, 2500), "");
  EXPECT_EQ(name_at(10, kJitCode + 0x800, 3000), "e");
}

}  // namespace
}  // namespace ptd
