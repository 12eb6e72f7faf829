// Demangles Rust's v0 names through libiberty, within a limit: a few hundred bytes with back references can expand to more text than fits
// in memory, and libiberty writes all of it.
#include "image/symbols/rust_name.h"

#define HAVE_DECL_BASENAME 1  // libiberty.h's declaration conflicts with the C++ one
#include <libiberty/demangle.h>

#include <csetjmp>
#include <cstddef>
#include <cstring>

namespace ptd {
namespace {

constexpr size_t kMaxPieces = 1U << 14;  ///< an empty tuple counts as a piece
constexpr size_t kMaxReadableBytes = 8192;

/// The output written so far. Has no destructor, because longjmp skips it.
struct Written {
  std::jmp_buf full;
  size_t bytes = 0, pieces = 0;
  char text[kMaxReadableBytes];
};

extern "C" void take_piece(const char* text, size_t bytes, void* opaque) {
  auto* written = static_cast<Written*>(opaque);
  if (++written->pieces > kMaxPieces || bytes > kMaxReadableBytes - written->bytes) std::longjmp(written->full, 1);
  std::memcpy(written->text + written->bytes, text, bytes);
  written->bytes += bytes;
}

/// Returns false if it is not such a name, or too long.
bool write_name(const char* name, Written& written) {
  if (setjmp(written.full) != 0) return false;
  return rust_demangle_callback(name, 0, take_piece, &written) != 0;
}

}  // namespace

std::string demangle_rust(const std::string& name) {
  Written written;
  return write_name(name.c_str(), written) ? std::string(written.text, written.bytes) : std::string();
}

namespace {

// The output counted so far. Has no destructor, because longjmp skips it.
struct Counted {
  std::jmp_buf full;
  size_t bytes = 0;
};

extern "C" void count_piece(const char*, size_t bytes, void* opaque) {
  constexpr size_t kMaxCppBytes = 1U << 16;
  auto* counted = static_cast<Counted*>(opaque);
  counted->bytes += bytes;
  if (counted->bytes > kMaxCppBytes) std::longjmp(counted->full, 1);
}

}  // namespace

bool is_bounded_cpp_name(const std::string& name) {
  Counted counted;
  if (setjmp(counted.full) != 0) return false;
  (void)cplus_demangle_v3_callback(name.c_str(), DMGL_PARAMS | DMGL_TYPES, count_piece, &counted);
  return true;
}

}  // namespace ptd
