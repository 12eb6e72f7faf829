// JitFold: a sideband fold of processes with a jitdump.
#pragma once

#include <string>
#include <vector>

#include "tests/unit/recording/fold_support.h"

namespace ptd {

inline constexpr uint64_t kJitCode = 0x7f0000000000;

/// A jitdump whose functions have 16 bytes each.
class JitdumpBytes {
 public:
  explicit JitdumpBytes(uint32_t pid) {
    put(uint32_t{0x4A695444}), put(uint32_t{1}), put(uint32_t{40}), put(uint32_t{62}), put(uint32_t{0}), put(pid), put(uint64_t{0}),
        put(uint64_t{0});
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

}  // namespace ptd
