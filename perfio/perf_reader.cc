// PerfReader: connects mapping, header, record streams, sorting and record building.
#include "perfio/perf_reader.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <list>

#include "image/base/directory.h"
#include "perfio/damage_log.h"
#include "perfio/file_header.h"
#include "perfio/ordering.h"
#include "perfio/record_builder.h"
#include "perfio/recording_file.h"
#include "perfio/scattered_read.h"

namespace ptd::perfio {

std::string ReadDamage::unknown_text() const {
  if (unknown_records == 0) return {};
  std::string types;
  for (const uint32_t type : unknown_types) types += (types.empty() ? "" : ", ") + std::to_string(type);
  return std::to_string(unknown_records) + (unknown_records == 1 ? " record of an" : " records of") + " unknown type" +
         (unknown_types.size() == 1 ? " (" : "s (") + types + ") " + (unknown_records == 1 ? "is" : "are") +
         " skipped: a newer kernel or perf wrote the recording";
}

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMergeRecords = 1024;  // how many records of one data.N file are read before another file's turn is considered

/// The files beside `data` in a directory.
struct DirectoryForm {
  std::vector<std::string> kcore_dirs;  ///< names
  std::vector<std::string> data_files;  ///< names: data.0, data.1, ...
  std::string missing;                  ///< the first name that is not there, although later ones are
};

/// A file of a recording's folder.
RegularFile open_part(const std::string& folder, const std::string& name, bool allow_outside) {
  return allow_outside ? open_regular(folder + "/" + name) : open_beneath(folder, name);
}

/// The first file of a kcore_dir that leads out of the recording's folder; "" if none does.
std::string leads_out(const std::string& folder, const std::string& kcore_dir) {
  for (const char* file : {"/kcore", "/kallsyms", "/modules"}) {
    if (open_beneath(folder, kcore_dir + file).outside) return kcore_dir + file;
  }
  return {};
}

DirectoryForm list_directory(const std::string& path) {
  DirectoryForm out;
  std::vector<std::pair<uint64_t, std::string>> numbered;
  constexpr size_t kMostEntries = 1U << 20;
  for (const DirectoryEntry& entry : entries_of(path, kMostEntries)) {
    const std::string& name = entry.name;
    std::error_code ignored;
    if (name.starts_with("kcore_dir") && fs::is_directory(path + "/" + name, ignored)) out.kcore_dirs.push_back(name);
    uint64_t number = 0;
    const char* end_of_name = name.data() + name.size();
    if (name.starts_with("data.") && std::from_chars(name.data() + 5, end_of_name, number).ptr == end_of_name && name.size() > 5)
      numbered.emplace_back(number, name);
  }
  std::sort(out.kcore_dirs.begin(), out.kcore_dirs.end());
  std::sort(numbered.begin(), numbered.end());
  for (auto& [number, file] : numbered) {
    if (number > out.data_files.size() && out.missing.empty()) out.missing = "data." + std::to_string(out.data_files.size());
    out.data_files.push_back(std::move(file));
  }
  return out;
}

class ReaderImpl final : public PerfReader {
 public:
  static Result<std::unique_ptr<PerfReader>> make(const std::string& path, const ReadLimits& limits);

  [[nodiscard]] const std::vector<EventAttr>& attrs() const override { return builder_.attrs(); }
  [[nodiscard]] const Features& features() const override { return builder_.features(); }
  [[nodiscard]] const std::vector<std::string>& kcore_dirs() const override { return kcore_dirs_; }
  [[nodiscard]] uint64_t size_bytes() const override;
  [[nodiscard]] Bytes file_bytes() const override { return file_->bytes(); }
  [[nodiscard]] std::vector<Bytes> mappings() const override;
  [[nodiscard]] bool is_pipe() const override { return pipe_; }
  Status read(const std::function<bool(const Record&)>& on_record) override;
  [[nodiscard]] const ReadDamage& damage() const override { return damage_; }

 private:
  ReaderImpl(std::shared_ptr<const MappedFile> file, FileLayout layout, const ReadLimits& limits)
      : file_(std::move(file)),
        pipe_(layout.pipe),
        data_begin_(layout.data_begin),
        data_end_(layout.data_end),
        limits_(limits),
        builder_(std::move(layout.attrs), std::move(layout.features), layout.tracing_data) {}

  Status take_directory(const std::string& path);
  void read_ahead_pipe_headers();
  void apply(const RawRecord& raw);
  bool next(RawStream& stream, RawRecord& raw);
  bool take(const RawRecord& raw, RecordQueue& queue, uint64_t& latest);
  bool deliver(const RawRecord& raw);
  bool read_one(RecordQueue& queue);
  bool read_merged(RecordQueue& queue);

  std::shared_ptr<const MappedFile> file_;
  std::vector<std::shared_ptr<const MappedFile>> more_files_;  ///< data.N
  bool pipe_;
  uint64_t data_begin_, data_end_;
  ReadLimits limits_;
  RecordBuilder builder_;
  std::vector<std::string> kcore_dirs_;
  uint64_t applied_until_ = 0;  ///< header records of the main file before this offset are in builder_
  ReadDamage open_damage_, damage_;
  const std::function<bool(const Record&)>* on_record_ = nullptr;
};

// Names a recording inside a folder that is none itself.
std::string explain_directory(const std::string& path) {
  constexpr size_t kMostEntries = 1000;
  std::vector<std::string> inside;
  std::error_code error;
  fs::directory_iterator at(path, fs::directory_options::skip_permission_denied, error);
  for (size_t i = 0; !error && at != fs::directory_iterator() && i < kMostEntries; at.increment(error), ++i) {
    std::error_code ignored;
    const fs::path& entry = at->path();
    const bool is_file = fs::is_regular_file(entry, ignored) && entry.extension() == ".data";
    const bool is_folder = fs::is_directory(entry, ignored) &&
                           (fs::is_regular_file(entry / "snapshot.ini", ignored) || fs::is_regular_file(entry / "data", ignored));
    if (is_file || is_folder) inside.push_back(entry.string());
  }
  std::sort(inside.begin(), inside.end());
  // A CoreSight snapshot has a trace.ini too; more of it is not known here.
  std::error_code none;
  const char* part = fs::is_regular_file(path + "/trace.ini", none) ? "snapshot.ini" : "data";
  std::string text = path + " is a directory without a file `" + part + "`";
  if (!inside.empty()) text += "; it contains the recording " + inside.front() + (inside.size() > 1 ? " and others" : "");
  return text;
}

Result<std::unique_ptr<PerfReader>> ReaderImpl::make(const std::string& path, const ReadLimits& limits) {
  std::error_code error;
  const bool directory = path != "-" && fs::is_directory(path, error);
  const std::string data_path = directory ? path + "/data" : path;
  if (directory && !fs::exists(data_path, error)) return Error{ErrorCode::missing_part, explain_directory(path), 0};
  auto file = directory ? MappedFile::open(open_part(path, "data", limits.allow_outside), data_path) : open_recording_file(data_path);
  if (!file) return file.error();
  ReadDamage damage;
  auto layout = read_file_header(file.value()->bytes(), input_name(data_path), damage);
  if (!layout) return layout.error();
  std::unique_ptr<ReaderImpl> reader(new ReaderImpl(std::move(file).value(), std::move(layout).value(), limits));
  reader->open_damage_ = std::move(damage);
  if (directory) {
    if (Status status = reader->take_directory(path); !status) return status.error();
  }
  if (reader->pipe_) reader->read_ahead_pipe_headers();
  reader->damage_ = reader->open_damage_;
  return std::unique_ptr<PerfReader>(std::move(reader));
}

Status ReaderImpl::take_directory(const std::string& path) {
  const DirectoryForm form = list_directory(path);
  const auto leave_out = [&](const std::string& name) { add_damage_message(open_damage_, path + "/" + name + ": " + kOutsideReason); };
  for (const std::string& name : form.kcore_dirs) {
    const std::string outside = limits_.allow_outside ? std::string() : leads_out(path, name);
    if (outside.empty()) kcore_dirs_.push_back((fs::path(path) / name).string());
    if (!outside.empty()) leave_out(outside);
  }
  if (!form.missing.empty())
    add_damage_message(open_damage_, path + "/" + form.missing + " is missing, and later files of its kind are there");
  for (const std::string& name : form.data_files) {
    std::error_code ignored;
    if (!fs::is_regular_file(path + "/" + name, ignored)) {
      add_damage_message(open_damage_, path + "/" + name + " is no regular file: its records are not read");
      continue;
    }
    const RegularFile part = open_part(path, name, limits_.allow_outside);
    auto more = MappedFile::open(part, path + "/" + name);
    if (!more && !part.outside) return more.error();
    if (part.outside) leave_out(name);
    if (!more) continue;
    if (more_files_.empty()) open_damage_.files.emplace_back("data");
    more_files_.push_back(std::move(more).value());
    open_damage_.files.push_back(name);
  }
  return {};
}

std::vector<Bytes> ReaderImpl::mappings() const {
  std::vector<Bytes> all{file_->bytes()};
  for (const auto& more : more_files_) all.push_back(more->bytes());
  return all;
}

uint64_t ReaderImpl::size_bytes() const {
  uint64_t sum = file_->bytes().size();
  for (const auto& more : more_files_) sum += more->bytes().size();
  return sum;
}

/// The events come first in a pipe; with them known at open(), attrs() serves both forms alike.
void ReaderImpl::read_ahead_pipe_headers() {
  ReadDamage ignored;  // read() finds it again
  ExpansionBudget budget;
  RawStream stream(file_->bytes(), data_begin_, data_end_, ignored, budget);
  RawRecord raw;
  uint64_t before = data_begin_;
  while (stream.next(raw) && raw.header.type >= kRecordUserStart && !raw.transient && raw.header.type != kRecordFinishedRound) {
    (void)builder_.apply_header_record(raw);
    before = stream.position();
  }
  applied_until_ = before;
}

void ReaderImpl::apply(const RawRecord& raw) {
  const bool in_main_file = raw.bytes.data() >= file_->bytes().data() && raw.bytes.data() < file_->bytes().data() + file_->bytes().size();
  if (in_main_file && raw.file_offset_bytes < applied_until_) return;
  if (!builder_.apply_header_record(raw)) add_bad_record(damage_, raw.file_offset_bytes, "a header record contradicts itself");
  if (in_main_file) applied_until_ = raw.file_offset_bytes + 1;
}

bool ReaderImpl::deliver(const RawRecord& raw) {
  constexpr size_t kMostTypes = 16;
  if (is_unknown_type(raw.header.type)) {
    ++damage_.unknown_records;
    if (damage_.unknown_types.size() < kMostTypes) damage_.unknown_types.insert(raw.header.type);
  }
  Record record;
  damage_.file = raw.file;
  if (!builder_.build(raw, record)) {
    add_bad_record(damage_, raw.file_offset_bytes, "a record of type " + std::to_string(raw.header.type) + " contradicts itself");
    return true;
  }
  return (*on_record_)(record);
}

bool ReaderImpl::next(RawStream& stream, RawRecord& raw) {
  if (!stream.next(raw)) return false;
  raw.file = damage_.file;
  const RecordBuilder::OwnSize own = builder_.own_size(raw);
  if (own.bytes < raw.bytes.size()) stream.shorten(raw, own.bytes, own.is_certain);
  return true;
}

/// Queues a record that has a time, delivers any other at once. `latest` follows the times seen.
bool ReaderImpl::take(const RawRecord& raw, RecordQueue& queue, uint64_t& latest) {
  if (raw.header.type >= kRecordUserStart) apply(raw);
  const uint64_t time = builder_.time_of(raw);
  if (time == 0) return deliver(raw);
  latest = std::max(latest, time);
  return queue.add(time, raw);
}

bool ReaderImpl::read_one(RecordQueue& queue) {
  ExpansionBudget budget;
  RawStream stream(file_->bytes(), data_begin_, data_end_, damage_, budget);
  RawRecord raw;
  uint64_t latest = 0;
  while (next(stream, raw)) {
    if (!take(raw, queue, latest)) return false;
    if (raw.header.type == kRecordFinishedRound && !queue.finish_round()) return false;
  }
  return true;
}

/// Several files, each one ring in order of time (save for the odd nested interrupt): always continues with the file whose time is
/// earliest, and delivers up to what every file had reached one turn ago. No FINISHED_ROUND is needed; those in `data` speak of that file
/// only.
bool ReaderImpl::read_merged(RecordQueue& queue) {
  struct Source {
    RawStream stream;
    uint64_t latest = 0, latest_before = 0;
  };
  ExpansionBudget budget;
  std::vector<Source> sources;
  sources.push_back({RawStream(file_->bytes(), data_begin_, data_end_, damage_, budget)});
  for (const auto& more : more_files_) {
    const auto number = static_cast<uint32_t>(sources.size());
    sources.push_back({RawStream(more->bytes(), 0, more->bytes().size(), damage_, budget, number)});
  }
  RawRecord raw;
  while (!sources.empty()) {
    const auto earliest =
        std::min_element(sources.begin(), sources.end(), [](const Source& a, const Source& b) { return a.latest < b.latest; });
    earliest->latest_before = earliest->latest;
    bool more = true;
    for (uint64_t i = 0; i < kMergeRecords && more; ++i) {
      more = next(earliest->stream, raw);
      if (more && !take(raw, queue, earliest->latest)) return false;
    }
    if (!more) sources.erase(earliest);
    if (sources.empty()) break;
    uint64_t reached = ~0ULL;
    for (const Source& source : sources) reached = std::min(reached, source.latest_before);
    if (!queue.flush_until(reached)) return false;
  }
  return true;
}

Status ReaderImpl::read(const std::function<bool(const Record&)>& on_record) {
  damage_ = open_damage_;
  on_record_ = &on_record;
  std::list<ScatteredRead> scattered;
  for (const Bytes mapping : mappings()) scattered.emplace_back(mapping);
  RecordQueue queue(limits_, damage_, [this](const RawRecord& raw) { return deliver(raw); });
  const bool go_on = more_files_.empty() ? read_one(queue) : read_merged(queue);
  if (go_on) (void)queue.flush_all();
  on_record_ = nullptr;
  return {};
}

}  // namespace

Result<std::unique_ptr<PerfReader>> PerfReader::open(const std::string& path, const ReadLimits& limits) {
  return ReaderImpl::make(path, limits);
}

}  // namespace ptd::perfio
