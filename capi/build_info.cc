// Version, commit and libraries of this build. The one file that asks each library for its version.
#include <Zydis/Zydis.h>
#include <capstone/capstone.h>
#include <elfutils/libdwfl.h>
#include <opencsd/c_api/opencsd_c_api.h>
#include <openssl/crypto.h>
#include <zstd.h>

#include <nlohmann/json.hpp>
#ifdef PTD_HAS_LZMA
#include <lzma.h>
#endif

#include <array>
#include <cinttypes>
#include <cstdio>

#include "capi/commit.h"
#include "ptdecode/ptdecode.h"

namespace {

using Text = std::array<char, 1024>;

const char* lzma_version() {
#ifdef PTD_HAS_LZMA
  return lzma_version_string();
#else
  return "none";
#endif
}

/// Lines "name value". Without allocation, so that it cannot fail. Capstone tells two numbers; libiberty has no version.
Text build_info() {
  int capstone_major = 0, capstone_minor = 0;
  cs_version(&capstone_major, &capstone_minor);
  const uint64_t zydis = ZydisGetVersion();
  Text text{};
  std::snprintf(
      text.data(), text.size(),
      "ptdecode %s\ncommit %s\nelfutils %s\nOpenSSL %s\nzstd %s\nliblzma %s\nZydis %u.%u.%u\nCapstone %d.%d\nOpenCSD %s\nnlohmann-json "
      "%d.%d.%d\n",
      ptd_version(), ptd::capi::kCommit, dwfl_version(nullptr), OpenSSL_version(OPENSSL_VERSION_STRING), ZSTD_versionString(),
      lzma_version(), static_cast<unsigned>(ZYDIS_VERSION_MAJOR(zydis)), static_cast<unsigned>(ZYDIS_VERSION_MINOR(zydis)),
      static_cast<unsigned>(ZYDIS_VERSION_PATCH(zydis)), capstone_major, capstone_minor, ocsd_get_version_str(),
      NLOHMANN_JSON_VERSION_MAJOR, NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH);
  return text;
}

}  // namespace

const char* ptd_version() { return PTD_VERSION; }

const char* ptd_build_info() {
  static const Text text = build_info();
  return text.data();
}
