// SystemGlue: registers that QEMU does not expose or does not read end the emulator.
#include "capture/emulate/plugin/system_glue.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

struct qemu_plugin_register {
  uint64_t value;
  int bytes;  // that QEMU reads; -1: it fails
};

namespace {

std::map<std::string, qemu_plugin_register> g_registers;
std::vector<qemu_plugin_reg_descriptor> g_descriptors;
GArray g_list;
std::vector<uint8_t> g_bytes;
GByteArray g_buffer;

}  // namespace

// QEMU's and GLib's side.
extern "C" {

void* current_cpu = nullptr;
void* qemu_get_cpu(int) { return nullptr; }
int64_t icount_get() { return 0; }
GByteArray* g_byte_array_new(void) { return &g_buffer; }
GByteArray* g_byte_array_set_size(GByteArray* array, unsigned size) {
  g_bytes.resize(size);
  *array = {g_bytes.data(), size};
  return array;
}
GArray* qemu_plugin_get_registers(void) {
  g_descriptors.clear();
  for (auto& [name, one] : g_registers) g_descriptors.push_back({&one, name.c_str(), "core"});
  g_list = {reinterpret_cast<char*>(g_descriptors.data()), static_cast<unsigned>(g_descriptors.size())};
  return &g_list;
}
int qemu_plugin_read_register(qemu_plugin_register* one, GByteArray* array) {
  if (one->bytes <= 0) return one->bytes;
  (void)g_byte_array_set_size(array, static_cast<unsigned>(one->bytes));
  std::memset(array->data, 0, array->len);
  std::memcpy(array->data, &one->value, std::min<size_t>(sizeof(one->value), array->len));
  return one->bytes;
}
bool qemu_plugin_read_memory_vaddr(uint64_t, GByteArray*, size_t) { return false; }

}  // extern "C"

namespace ptd::emulate {
namespace {

class Glue : public testing::Test {
 protected:
  Glue() {
    g_registers = {{"pc", {0x1000, 8}}, {"ELR_EL1", {0x2000, 16}}, {"CONTEXTIDR_EL1", {7, 4}}, {"x0", {1, 8}}};
    std::string why;
    EXPECT_TRUE(glue_.attach({GuestRegister::pc, GuestRegister::elr_el1, GuestRegister::contextidr_el1}, why)) << why;
  }
  SystemGlue glue_;
};

TEST_F(Glue, RegistersAreRead) {
  EXPECT_EQ(glue_.read(GuestRegister::pc), 0x1000U);
  EXPECT_EQ(glue_.read(GuestRegister::elr_el1), 0x2000U);
  EXPECT_EQ(glue_.read(GuestRegister::contextidr_el1), 7U);
}

TEST_F(Glue, AMissingRegisterEndsTheEmulator) {
  g_registers.erase("ELR_EL1");
  g_registers.erase("CONTEXTIDR_EL1");
  EXPECT_EXIT((void)glue_.read(GuestRegister::pc), testing::ExitedWithCode(1),
              "^ptdecode system plugin: this QEMU does not expose registers that the trace needs: ELR_EL1, CONTEXTIDR_EL1\n$");
}

TEST_F(Glue, ARegisterThatIsNotReadEndsTheEmulator) {
  for (const int bytes : {-1, 0, 2}) {
    g_registers["ELR_EL1"].bytes = bytes;
    EXPECT_EQ(glue_.read(GuestRegister::pc), 0x1000U);
    EXPECT_EXIT((void)glue_.read(GuestRegister::elr_el1), testing::ExitedWithCode(1),
                "^ptdecode system plugin: this QEMU does not read the register ELR_EL1\n$");
  }
}

}  // namespace
}  // namespace ptd::emulate
