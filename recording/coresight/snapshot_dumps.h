// SnapshotDumps: the memory dumps of a snapshot, each in its memory spaces. Private to recording.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "decoder/arm/options.h"
#include "recording/coresight/snapshot_ini.h"
#include "recording/data/own_files.h"
#include "recording/image/image_build.h"
#include "recording/image/image_files.h"

namespace ptd {

/// Collects dumps, then lays them out as sections:
///
///     address  ----------------------------------->
///     EL1N     [ kernel (space=N)  ][ any         ]     a space of the timeline for each set of dumps that some world sees;
///     EL3      [ monitor (EL3) ]    [ any         ]     of two dumps of one world and address the earlier counts; a finding if they differ
class SnapshotDumps {
 public:
  static constexpr size_t kMost = 1U << 14;  ///< dumps of one snapshot; more are counted, and reported by place()
  /// Adds a dump section. `path`: path of its file, which is opened through `files`. `warnings` gets one sentence per unusable dump.
  void add(const IniSection& dump, const std::string& path, const OwnFiles& files, std::vector<std::string>& warnings);
  /// Adds a file that the user gives, seen by all worlds. Errors: those of pieces_of().
  [[nodiscard]] Status add(const RawImage& image);
  /// To be called once. Adds all to the image: those that EL1N sees to `user`. Gives the space of each world, or none_of_worlds() if all
  /// see the same. `own_upper`: set to whether each space has its own upper half (FollowOptions).
  [[nodiscard]] std::array<SpaceId, arm::kWorlds> place(ImageBuild& image, SpaceId user, bool& own_upper,
                                                        std::vector<std::string>& warnings);

 private:
  struct Dump {
    uint64_t address = 0, length = 0, offset = 0;
    uint32_t worlds = 0;  ///< a bit each
    std::string path;
    OwnFiles::Opened opened;
    bool given = false;  ///< by the user, not by the snapshot
    bool below = false;  ///< all others count first: its file says that it lies elsewhere
  };
  struct File {
    OwnFiles::Opened opened;
    std::shared_ptr<const ElfFile> elf;  ///< null: no ELF file
  };
  [[nodiscard]] const File& read(const std::string& path, const OwnFiles& files, std::vector<std::string>& warnings);
  void add(const std::vector<ImagePiece>& pieces, Dump like);
  class Layer;
  class Overlaps;
  void note_files(ImageBuild& image) const;
  [[nodiscard]] bool upper_halves_differ() const;
  [[nodiscard]] Layer covered_twice() const;
  std::vector<Dump> dumps_;
  std::set<std::string> refused_;      // sentences on dumps that are not used, or not as they say
  std::map<std::string, File> files_;  // by path
  KnownElfs elfs_;
  std::set<std::pair<const ElfFile*, uint32_t>> programs_;  // files and worlds whose segments are among dumps_
  size_t seen_ = 0;                                         // sections given to add()
};

}  // namespace ptd
