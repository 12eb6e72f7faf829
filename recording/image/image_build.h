// ImageBuild: collects mappings and names of a recording, then makes its timeline and symbolizer. Private to recording.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "image/source/code_source.h"
#include "ptdecode/symbols.h"
#include "recording/data/image_log.h"
#include "recording/data/recording_data.h"

namespace ptd {

/// A user mapping, from a record.
struct UserMapping {
  SpaceId space;
  int32_t pid = -1;
  Ip ip;
  uint64_t size_bytes = 0;
  uint64_t file_offset_bytes = 0;
  SharedText path;
  SharedText build_id;  ///< hex, may be empty
  TimeNs from;          ///< mapped since
  FileId file_id;
  bool shared = false;        ///< MAP_SHARED
  bool assumed = false;       ///< it is a guess that this file is mapped there
  bool again = false;         ///< anonymous memory, or a file's, that was mapped there before
  bool was_writable = false;  ///< a private mapping that is, or was, writable and executable: the program may have changed its code
  bool now_writable = false;  ///< a file's that was mapped there before, and was not writable
  SharedText label = {};      ///< path of the section if it is not `path`: a guest's file is not the host's file of that name
};

/// Those of a recording, in the order of their records. There may be millions: a vector takes three times their memory while it grows.
using UserMappings = std::deque<UserMapping>;

/// Returns the mapping as CodeSource wants it. `roots`: see MappedPath.
[[nodiscard]] MappedPath wanted_of(const UserMapping& mapping, const std::vector<std::string>* roots);

/// Not thread-safe; finish() consumes it.
class ImageBuild {
 public:
  explicit ImageBuild(const OpenRequest& options, int64_t recorded_at_ns = 0);

  LoggedBuilder builder;
  CodeSource source;

  /// Finds the file and adds the section. Without bytes, the section is added and listed as missing. `roots`: see MappedPath. `last`: the
  /// last mapping of the same path in the recording. If its file is used and is not that of this mapping, this one's path gets the ending
  /// " (replaced)", because names and lines of the file are not its own.
  void add_mapping(const UserMapping& mapping, const std::vector<std::string>* roots = nullptr, const UserMapping* last = nullptr);
  /// Reports a mapping that does not fit into the address space, which add_mapping() ignores; once for each path.
  void report_unmappable(const UserMapping& mapping);
  /// Records, for `bundle --dry-run`, which file provides the bytes of sections with this path and build id, and why it may be used.
  void note_origin(const std::string& path, const std::string& build_id, const std::string& file, const std::string& why) {
    builder.note_origin({path, build_id}, {file, why});
  }
  /// Records how the code of a file's sections is read.
  void note_mode(const std::string& path, const std::string& build_id, ExecMode mode) {
    modes_.insert_or_assign({path, build_id}, mode);
    builder.note_mode({path, build_id}, mode);
  }
  /// Adds a section with bytes.
  void add_section(Section section) {
    given_.push_back({section.space, section.ip, section.size_bytes});
    builder.add_section(std::move(section));
  }
  struct Extent {
    SpaceId space;
    Ip ip;
    uint64_t size_bytes = 0;
  };
  /// Returns the places of the sections that add_section() has added.
  [[nodiscard]] const std::vector<Extent>& given() const { return given_; }
  void add_range(NamedRange range) { ranges_.push_back(std::move(range)); }
  /// Sets this file and its separate debug file as the source of symbols for sections with this path and build id.
  void add_symbol_file(const std::string& section_path, const std::string& file_path, const std::string& build_id);
  /// See Symbolizer::add_module_folder().
  void add_module_folder(std::string folder) { module_folders_.push_back(std::move(folder)); }
  void add_missing(const std::string& path, const std::string& build_id, const std::string& reason);
  /// Builds timeline, symbolizer and list of missing images into `data`.
  void finish(RecordingData& data);

 private:
  struct SymbolFile {
    std::string section_path, file_path, build_id;
  };
  std::vector<NamedRange> ranges_;
  std::vector<Extent> given_;
  std::vector<SymbolFile> symbol_files_;
  std::set<std::pair<std::string, std::string>> named_;                                      // (path, build id) of symbol_files_
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const ElfFile>> elf_files_;  // of sections, by (path, build id)
  CodeModes modes_;
  std::vector<std::string> module_folders_;
  std::map<std::pair<std::string, std::string>, std::string> missing_;  // (path, build id) -> reason
  [[nodiscard]] bool has_symbol_file(const std::string& section_path, const std::string& build_id) const {
    return named_.contains({section_path, build_id});
  }
  void add_symbol_files(const Section& section, const MappedPath& wanted, const FoundCode& found);
  void append_symbol_file(const std::string& section_path, const std::string& file_path, const std::string& build_id);
  bool is_replaced(const UserMapping& mapping, const std::vector<std::string>* roots, const UserMapping* last, const FoundCode& found);
  FoundCode find_code(const UserMapping& mapping, const MappedPath& wanted);
  void tell_of_kept(RecordingData& data) const;
  void add_later_copies(const UserMapping& mapping, const MappedPath& wanted, Bytes first);
  void add_executable_part(const Section& section, const ElfFile& elf);
  void note_damage(const std::string& file);
  void note_machine(const std::string& path, const std::string& build_id, const ElfFile& elf);
  void leave_out(const UserMapping& mapping, TimeNs since);
  void doubt_written(const UserMapping& mapping);
  // paths: whether the last mapping's file is used and has no build id.
  std::map<std::string, bool> used_without_id_;
  std::set<std::string> replaced_;                    // paths whose files are not the recorded ones, and are not used
  std::set<std::string> written_;                     // paths whose mappings programs may have written to
  std::set<std::string> unmappable_;                  // paths with a mapping that does not fit into the address space
  std::set<std::pair<uint64_t, uint64_t>> examined_;  // symbol files, by identity
  std::set<std::string> damaged_;                     // sentences
  std::set<std::string> doubted_;                     // paths whose files may not be the recorded ones, and are used
  std::set<std::string> kept_used_;                   // paths whose bytes came from a stash
  std::set<std::tuple<std::string, std::string, CodeStatus>> found_reported_;  // (path, build id) whose findings for that status are out
};

/// When the recording (a file, or a folder with the file `data`) was last written, in nanoseconds since the epoch; 0 if it is absent. A
/// time of whole seconds, as archives keep it, counts as the end of its second.
[[nodiscard]] int64_t written_at_ns(const std::string& recording);

/// Returns the default build-id cache: $HOME/.debug, "" without HOME.
[[nodiscard]] std::string default_build_id_cache();

}  // namespace ptd
