// CodeLog: compares translated code with what ran at its address before.
#include "capture/emulate/plugin/code_log.h"

namespace ptd::emulate {

bool CodeLog::open(const std::string& path) {
  file_ = std::fopen(path.c_str(), "wb");
  return file_ != nullptr;
}

void CodeLog::see(uint64_t time_ns, uint64_t ip, Bytes code) {
  if (file_ == nullptr) return;
  bool is_new = false;
  for (size_t i = 0; i < code.size(); ++i) {
    std::unique_ptr<Page>& page = pages_[(ip + i) / kPageBytes];
    if (page == nullptr) page = std::make_unique<Page>();
    const uint64_t at = (ip + i) % kPageBytes;
    is_new = is_new || !page->known[at] || page->bytes[at] != code[i];
    page->known[at] = true;
    page->bytes[at] = code[i];
  }
  if (!is_new) return;
  const uint64_t head[] = {time_ns, ip, code.size()};
  if (std::fwrite(head, sizeof(head), 1, file_) != 1 || std::fwrite(code.data(), 1, code.size(), file_) != code.size()) ++failures_;
}

void CodeLog::close() {
  if (file_ != nullptr && std::fclose(file_) != 0) ++failures_;
  file_ = nullptr;
  pages_.clear();
}

}  // namespace ptd::emulate
