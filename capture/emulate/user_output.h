// Reads the plugin's files from the working folder: process images, their threads, events and blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/emulate/etm/truth_file.h"
#include "capture/emulate/shared/thread_state.h"
#include "image/base/mapped_file.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

/// A line of a thread's events.
struct UserEvent {
  uint64_t tsc = 0;
  std::string kind;
  std::vector<std::string> words;
  [[nodiscard]] uint64_t number(size_t index) const;   ///< 0 if there is none
  [[nodiscard]] std::string text(size_t index) const;  ///< of a hex word
};

/// A block as it was translated, or seen again after its place held other bytes.
struct UserBlock {
  uint64_t tsc = 0;
  uint64_t number = 0;
  bool again = false;
};

struct UserThreadOutput {
  int32_t pid = -1, tid = -1;
  int32_t creator = -1;      ///< the thread that cloned it, and with it its name
  uint64_t created_tsc = 0;  ///< 0: as far as is known, when it began
  uint64_t first_tsc = 0, last_tsc = 0;
  std::vector<UserEvent> events;
  std::string packet_path, truth_path;
  ThreadEnd end;
  bool silent_end = false;  ///< its process ended without an event of this thread
};

/// One process image: from exec or fork to exec or exit.
struct UserImage {
  std::string name;  ///< of its files
  int32_t pid = -1;
  uint64_t first_tsc = 0, last_tsc = 0;
  int parent = -1;                        ///< index of the image that it was forked from at first_tsc, or -1: it began with exec
  int32_t forker = -1;                    ///< the parent's thread that forked
  uint64_t parent_blocks = 0;             ///< blocks that the parent had by then: they keep their numbers
  std::vector<UserThreadOutput> threads;  ///< in the order of their start
  std::vector<UserBlock> translations;    ///< its own, in order of time
  std::vector<TruthBlock> own_blocks;     ///< number `parent_blocks` on
};

/// Data of a MappedLog file; empty if there is none. The file keeps them mapped.
struct LogData {
  std::shared_ptr<const MappedFile> file;
  Bytes bytes;
  bool cut = false;  ///< more should have followed
};
/// Takes the whole pages of `passed`, part of a mapped file, out of this process's memory; they are read again if they are touched.
void release_pages(Bytes passed);
[[nodiscard]] LogData read_log(const std::string& path);

/// Everything in the folder, images in order of time, after completing the logs of all threads: their processes must be gone. Damaged lines
/// and images without a start are left out.
[[nodiscard]] std::vector<UserImage> read_user_output(const std::string& folder);
/// Whether read_user_output() would find any image.
[[nodiscard]] bool has_user_output(const std::string& folder);
/// Block `number` of image `index`, looked up through its parents; null if none defines it.
[[nodiscard]] const TruthBlock* find_block(const std::vector<UserImage>& images, size_t index, uint64_t number);

}  // namespace ptd::emulate
