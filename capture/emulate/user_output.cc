// Reads the plugin's files.
#include "capture/emulate/user_output.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>
#include <utility>

#include "capture/emulate/shared/mapped_log.h"
#include "capture/emulate/shared/user_config.h"
#include "capture/emulate/unit/truth_log.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEventsEnding = ".events";

uint64_t to_number(const std::string& word) {
  uint64_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

void read_blocks(const std::string& path, UserImage& image) {
  const LogData data = read_log(path);
  Bytes bytes = data.bytes;
  uint64_t again = 0, number = 0, tsc = 0;
  while (take_number(bytes, again) && take_number(bytes, number) && take_number(bytes, tsc)) {
    if (again == 0) {
      TruthBlock block;
      uint64_t count = 0, size = 0;
      if (!take_number(bytes, block.ip) || !take_number(bytes, count) || count > kMaxInsns || bytes.size() < count) return;
      for (uint64_t i = 0; i < count; ++i) {
        block.lengths.push_back(static_cast<uint8_t>(bytes[i]));
        size += block.lengths.back();
      }
      bytes = bytes.subspan(count);
      if (bytes.size() < size) return;
      block.bytes.assign(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
      bytes = bytes.subspan(size);
      image.own_blocks.push_back(std::move(block));
    }
    image.translations.push_back({tsc, number, again != 0});
  }
}

std::vector<UserEvent> read_events(const std::string& path) {
  std::vector<UserEvent> events;
  const LogData data = read_log(path);
  std::istringstream lines(std::string(reinterpret_cast<const char*>(data.bytes.data()), data.bytes.size()));
  std::string line;
  while (std::getline(lines, line) && !lines.eof()) {  // a line without an end was cut
    std::istringstream words(line);
    UserEvent event;
    std::string word;
    if (!(words >> event.tsc >> event.kind)) continue;
    while (words >> word) event.words.push_back(word);
    events.push_back(std::move(event));
  }
  return events;
}

bool is_thread_start(const std::vector<UserEvent>& events) { return !events.empty() && events.front().kind == "thread"; }

bool ends_in_exec(const UserImage& image) {
  return std::any_of(image.threads.begin(), image.threads.end(),
                     [](const UserThreadOutput& thread) { return !thread.events.empty() && thread.events.back().kind == "exec"; });
}

// Threads that were there when their process ended said nothing themselves.
void end_threads(UserImage& image) {
  const bool exec = ends_in_exec(image);
  for (UserThreadOutput& thread : image.threads) {
    const std::string& last = thread.events.back().kind;
    if (last == "exit" || (exec && (last == "exec" || thread.tid == image.pid))) continue;
    thread.events.push_back({image.last_tsc, "exit", {}});
    thread.silent_end = true;
  }
}

// A killed process does not record its end. For the program itself the recorder has the time.
void date_end(std::vector<UserImage>& images, uint64_t ended_tsc) {
  UserImage* last = nullptr;
  for (UserImage& image : images) {
    if (image.pid == images.front().pid) last = &image;
  }
  if (last == nullptr) return;
  const bool told = std::any_of(last->threads.begin(), last->threads.end(), [](const UserThreadOutput& thread) {
    return thread.events.back().kind == "exec" || (thread.events.back().kind == "exit" && !thread.end.unknown);
  });
  if (!told) last->last_tsc = std::max(last->last_tsc, ended_tsc);
}

// Each thread but the first was cloned by another, whose call began before.
void find_creators(std::vector<UserThreadOutput>& threads) {
  std::map<uint64_t, std::map<uint64_t, int32_t>> clones;  // by number and time of the call: who called. Numbers come again
  for (const UserThreadOutput& creator : threads) {
    for (const UserEvent& event : creator.events) {
      if (event.kind == "cloned") clones[event.number(0)][event.number(1)] = creator.tid;
    }
  }
  for (UserThreadOutput& thread : threads) {
    const auto calls = clones.find(static_cast<uint64_t>(thread.tid));
    if (calls == clones.end()) continue;
    const auto after = calls->second.upper_bound(thread.first_tsc);
    if (after == calls->second.begin()) continue;
    std::tie(thread.created_tsc, thread.creator) = *std::prev(after);
  }
}

/// Unique numbers for processes and threads. Those that the plugin sees are of the process' own PID namespace, and in two
/// namespaces two processes may both be 1.
class Numbers {
 public:
  explicit Numbers(std::vector<UserImage>& images) : images_(images), process_(images.size()) {}
  void run() {
    for (size_t i = 0; i < images_.size(); ++i) {
      UserImage& image = images_[i];
      const int before = image.parent >= 0 ? -1 : image_before(i);
      process_[i] = before >= 0 ? process_[static_cast<size_t>(before)] : next_process_++;
      const int32_t given = image.pid;
      image.pid = number_of(process_[i], given);
      if (image.parent >= 0 && image.forker >= 0) image.forker = number_of(process_[static_cast<size_t>(image.parent)], image.forker);
      for (UserThreadOutput& thread : image.threads) {
        thread.tid = number_of(process_[i], thread.tid);
        if (thread.creator >= 0) thread.creator = number_of(process_[i], thread.creator);
        thread.pid = image.pid;
      }
    }
  }

 private:
  // The image that began this one by exec: the last one with the same number that ended so before this one began. Limitation: if two
  // processes have one number, in two namespaces, and both execute exec before either program begins, they may be exchanged.
  int image_before(size_t index) {
    int any = -1;
    for (size_t i = index; i-- > 0;) {
      if (given_[i] != images_[index].pid || continued_.count(i) != 0 || !ends_in_exec(images_[i])) continue;
      const bool ended = images_[i].last_tsc <= images_[index].first_tsc;
      if (any < 0 || ended) any = static_cast<int>(i);
      if (ended) break;
    }
    if (any >= 0) continued_.insert(static_cast<size_t>(any));
    return any;
  }
  int32_t number_of(uint32_t process, int32_t given) {
    const auto known = numbers_.find({process, given});
    if (known != numbers_.end()) return known->second;
    const auto [owner, fresh] = owners_.try_emplace(given, process);
    return numbers_[{process, given}] = fresh || owner->second == process ? given : next_number_++;
  }
  std::vector<UserImage>& images_;
  std::vector<uint32_t> process_;
  std::vector<int32_t> given_ = given_numbers(images_);
  std::set<size_t> continued_;
  std::map<std::pair<uint32_t, int32_t>, int32_t> numbers_;  // by process and given number
  std::map<int32_t, uint32_t> owners_;                       // process whose given number stays
  uint32_t next_process_ = 0;
  int32_t next_number_ = (1 << 22) + 1;  // no process of Linux has a higher one ("PID_MAX_LIMIT")

  static std::vector<int32_t> given_numbers(const std::vector<UserImage>& images) {
    std::vector<int32_t> numbers;
    for (const UserImage& image : images) numbers.push_back(image.pid);
    return numbers;
  }
};

}  // namespace

uint64_t UserEvent::number(size_t index) const { return index < words.size() ? to_number(words[index]) : 0; }

std::string UserEvent::text(size_t index) const { return index < words.size() ? text_of_hex(words[index]) : std::string(); }

void release_pages(Bytes passed) {
  constexpr uintptr_t kPage = 4096;
  const auto first = (reinterpret_cast<uintptr_t>(passed.data()) + kPage - 1) & ~(kPage - 1);
  const auto end = reinterpret_cast<uintptr_t>(passed.data() + passed.size()) & ~(kPage - 1);
  if (first < end) (void)madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

LogData read_log(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file || (*file)->bytes().size() < kMappedLogHeaderBytes) return {};
  uint64_t header[2] = {};  // size, cut
  const Bytes bytes = (*file)->bytes();
  std::memcpy(header, bytes.data(), sizeof header);
  return {*file, bytes.subspan(kMappedLogHeaderBytes, std::min<uint64_t>(header[0], bytes.size() - kMappedLogHeaderBytes)), header[1] != 0};
}

bool has_user_output(const std::string& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == kEventsEnding && is_thread_start(read_events(entry.path().string()))) return true;
  }
  return false;
}

std::vector<UserImage> read_user_output(const std::string& folder) {
  std::map<std::string, UserImage> by_name;
  std::map<std::string, std::string> parents;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != kEventsEnding) continue;
    const std::string stem = entry.path().string().substr(0, entry.path().string().size() - kEventsEnding.size());
    UserThreadOutput thread;
    thread.events = read_events(entry.path().string());
    if (!is_thread_start(thread.events)) continue;
    thread.pid = static_cast<int32_t>(thread.events.front().number(0));
    thread.tid = static_cast<int32_t>(thread.events.front().number(1));
    thread.first_tsc = thread.events.front().tsc;
    thread.end = complete_thread(stem, fs::exists(stem + ".truth", error));
    thread.last_tsc = std::max(thread.events.back().tsc, thread.end.moment.totals.tsc);
    thread.packet_path = stem + ".pt";
    thread.truth_path = stem + ".truth";
    const std::string file = fs::path(stem).filename().string();
    const std::string name = file.substr(0, file.find('.', file.find('.') + 1));
    UserImage& image = by_name[name];
    image.name = name;
    image.pid = thread.pid;
    for (const UserEvent& event : thread.events) {
      if (event.kind != "forked" || event.words.size() < 3) continue;
      parents[name] = event.words[1];
      image.parent_blocks = event.number(2);
      image.first_tsc = event.number(3);
      image.forker = static_cast<int32_t>(event.number(4));
    }
    image.threads.push_back(std::move(thread));
  }
  std::vector<UserImage> images;
  for (auto& [name, image] : by_name) {
    std::sort(image.threads.begin(), image.threads.end(), [](const auto& a, const auto& b) { return a.first_tsc < b.first_tsc; });
    image.first_tsc = image.first_tsc == 0 ? image.threads.front().first_tsc : std::min(image.first_tsc, image.threads.front().first_tsc);
    for (const UserThreadOutput& thread : image.threads) image.last_tsc = std::max(image.last_tsc, thread.last_tsc);
    find_creators(image.threads);
    read_blocks(folder + "/" + name + ".blocks", image);
    if (!image.translations.empty()) {
      image.first_tsc = std::min(image.first_tsc, image.translations.front().tsc);
      image.last_tsc = std::max(image.last_tsc, image.translations.back().tsc);
    }
    // A program's first block is translated before its first thread tells what was mapped: that was so from the start.
    for (UserEvent& event : image.threads.front().events) {
      if (event.kind == "thread" || event.kind == "first_map") event.tsc = image.first_tsc;
    }
    images.push_back(std::move(image));
  }
  std::sort(images.begin(), images.end(), [](const auto& a, const auto& b) { return a.first_tsc < b.first_tsc; });
  date_end(images, SharedCount::read(folder + "/" + kEndedFile));
  for (UserImage& image : images) end_threads(image);
  for (size_t i = 0; i < images.size(); ++i) {
    const auto parent = parents.find(images[i].name);
    if (parent == parents.end()) continue;
    for (size_t k = 0; k < i; ++k) {
      if (images[k].name == parent->second) images[i].parent = static_cast<int>(k);
    }
  }
  Numbers(images).run();
  return images;
}

const TruthBlock* find_block(const std::vector<UserImage>& images, size_t index, uint64_t number) {
  const UserImage* image = &images[index];
  while (number < image->parent_blocks && image->parent >= 0) image = &images[static_cast<size_t>(image->parent)];
  const uint64_t own = number - image->parent_blocks;
  return number >= image->parent_blocks && own < image->own_blocks.size() ? &image->own_blocks[own] : nullptr;
}

}  // namespace ptd::emulate
