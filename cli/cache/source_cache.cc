// SourceCache: see source_cache.h.
#include "cli/cache/source_cache.h"

#include <fmt/format.h>

#include "analysis/names/short_name.h"
#include "cli/cache/symbol_cache.h"
#include "cli/text/clean_text.h"
#include "ptdecode/guest.h"

namespace ptd::cli {

namespace {

std::string line_text(const SourceFrame& frame) {
  if (frame.file.empty()) return "??";
  return frame.line == 0 ? fmt::format("{}:?", short_path(frame.file)) : fmt::format("{}:{}", short_path(frame.file), frame.line);
}

std::string text_of(const std::vector<SourceFrame>& frames) {
  if (frames.empty()) return {};
  std::string text = line_text(frames.front());
  for (size_t i = 1; i < frames.size(); ++i) {
    text += fmt::format("{}{} inlined at {}", i == 1 ? " (" : ", ",
                        frames[i - 1].function.empty() ? "??" : short_function(frames[i - 1].function), line_text(frames[i]));
  }
  return frames.size() > 1 ? text + ")" : text;
}

}  // namespace

std::string unproven_text(std::string_view module_path) {
  return fmt::format(
      "ptdecode: warning: no build id of this module is recorded; {} is used because its functions have the kernel's addresses\n",
      shown(module_path));
}

void UnprovenFiles::add(std::string_view module_path) {
  const std::lock_guard lock(mutex_);
  paths_.emplace(module_path);
}

std::string UnprovenFiles::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const std::string& path : paths_) text += unproven_text(path);
  return text;
}

const std::string& SourceCache::find(SpaceId space, Ip ip, TimeNs when) {
  space = space_at(space, ip);
  const uint64_t key = ip.value ^ (static_cast<uint64_t>(space.value) << 48);
  if (entries_.size() >= kMaxEntries) entries_.clear();
  const auto [at, is_new] = entries_.try_emplace(key);
  Entry& entry = at->second;
  if (!is_new && entry.space == space && entry.valid.contains(when)) return entry.text;
  const SourcePlace place = recording_.symbolizer().source_at(space, ip, when);
  entry = {space, place.valid, text_of(place.frames)};
  if (unproven_ != nullptr && is_kernel_half(ip) && !place.frames.empty()) {
    const auto file = recording_.symbolizer().file_place(space, ip, when);
    if (file && file->relocatable && file->build_id.empty()) unproven_->add(file->path);
  }
  return entry.text;
}

}  // namespace ptd::cli
