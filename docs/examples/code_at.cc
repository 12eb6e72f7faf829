// Lists the versions of the code at an address, with the times at which each was live. Usage: code_at ADDRESS [RECORDING]
#include <ptdecode/disassembler.h>
#include <ptdecode/recording.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::string seconds(ptd::TimeNs time) {
  if (time == ptd::kTimeMin || time == ptd::kTimeMax) return "";
  char text[40];
  std::snprintf(text, sizeof text, "%llu.%09llu", static_cast<unsigned long long>(time.value / 1'000'000'000),
                static_cast<unsigned long long>(time.value % 1'000'000'000));
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  char* rest = nullptr;
  const ptd::Ip ip{argc < 2 ? 0 : std::strtoull(argv[1], &rest, 16)};
  if (argc < 2 || rest == argv[1] || *rest != '\0') {
    std::fprintf(stderr, "usage: code_at ADDRESS [RECORDING], with a hexadecimal address of the kernel\n");
    return 2;
  }
  ptd::OpenOptions options;
  options.stashes = ptd::usual_stashes();
  if (argc > 2) options.path = argv[2];
  const auto opened = ptd::Recording::open(options);
  if (!opened.ok()) {
    std::fprintf(stderr, "code_at: %s\n", opened.error().message.c_str());
    return 1;
  }

  const ptd::Timeline& timeline = (*opened)->timeline();
  const ptd::Disassembler disassembler;
  uint32_t versions = 0;
  for (const ptd::SiteId id : timeline.sites_in(ptd::kKernelSpace, ip, 1)) {
    const ptd::Timeline::SiteInfo site = timeline.site(id);
    for (uint32_t number = 0; number < site.versions; ++number, ++versions) {
      const ptd::Timeline::VersionInfo version = timeline.version(id, number);
      const ptd::Interval live = version.certain.empty() ? version.possible : version.certain;
      std::printf("%llx  %s..%s  %s\n", static_cast<unsigned long long>(site.ip.value), seconds(live.first).c_str(),
                  seconds(live.last).c_str(),
                  version.known ? disassembler.text(version.bytes, site.ip, ptd::ExecMode::bits64).c_str() : "bytes not known");
    }
  }
  std::printf("%u versions\n", versions);
  return 0;
}
