// Encodes the input of a timeline builder, and symbols, as bytes.
#include "recording/bundle/bundle_image.h"

#include <algorithm>
#include <array>
#include <set>

#include "image/base/interrupt.h"
#include "image/source/elf_file.h"
#include "ptdecode/guest.h"
#include "recording/perf/sideband_fold.h"

namespace ptd {
namespace {

enum Tag : uint8_t {
  kAddSpace,
  kForkSpace,
  kSection,
  kRemove,
  kEdit,
  kCopy,
  kLostWindow,
  kFinding,
  kSpaceLostWindow,
  kAddGuestSpace,
  kTags
};

// The numbers of enumerators in the file: places in these lists, to which new ones are appended.
constexpr std::array kOrigins = {EditOrigin::text_poke,  EditOrigin::bpf,    EditOrigin::jitdump,
                                 EditOrigin::dated_copy, EditOrigin::healed, EditOrigin::announced};
constexpr std::array kFindings = {
    FindingKind::poke_old_bytes_mismatch, FindingKind::poke_healed,       FindingKind::poke_lost_by_copy, FindingKind::base_copy_redated,
    FindingKind::base_copy_unexplained,   FindingKind::build_id_mismatch, FindingKind::file_missing,      FindingKind::file_changed,
    FindingKind::section_overlap,         FindingKind::bpf_bytes_missing, FindingKind::records_lost,      FindingKind::bad_record,
    FindingKind::clock_contradicts,       FindingKind::trace_lost};
static_assert(kOrigins.back() == EditOrigin::announced && kOrigins.size() == static_cast<size_t>(EditOrigin::announced) + 1);
static_assert(kFindings.back() == FindingKind::trace_lost && kFindings.size() == static_cast<size_t>(FindingKind::trace_lost) + 1);
/// Copies are compared byte by byte.
constexpr uint64_t kMaxCopies = 4096, kMaxCopyBytes = 2ULL << 30;
/// A space takes up to 170 bytes of memory, and next to nothing in a compressed file.
constexpr uint64_t kMaxSpaces = 1ULL << 20;
/// Of memory, for each entry, about.
constexpr uint64_t kEntryBytes = 256;

template <class List, class Value>
uint64_t number_of(const List& list, Value value) {
  const auto found = std::find(list.begin(), list.end(), value);
  return static_cast<uint64_t>(found == list.end() ? list.size() - 1 : static_cast<size_t>(found - list.begin()));
}

void write_place(const CodePlace& place, ByteWriter& out) {
  out.number(place.blob);
  out.number(place.offset_bytes);
  out.number(place.size_bytes);
}

CodePlace read_place(ByteReader& in) {
  CodePlace place;
  place.blob = in.number();
  place.offset_bytes = in.number();
  place.size_bytes = in.number();
  return place;
}

// A longer name is cut, as in a symbol table.
std::string read_name(ByteReader& in) {
  std::string name = in.text();
  if (name.size() > kMaxSymbolNameBytes) name.resize(kMaxSymbolNameBytes);
  return name;
}

SpaceId read_space(ByteReader& in) { return SpaceId{static_cast<uint32_t>(in.number_to(UINT32_MAX))}; }

/// One call of operator() an operation.
class OpWriter {
 public:
  OpWriter(const CodeModes& modes, const BundleCodeWriter& code, ByteWriter& out) : modes_(modes), code_(code), out_(out) {}

  void operator()(const AddSpaceOp& op) {
    out_.number(op.machine == 0 ? kAddSpace : kAddGuestSpace);
    if (op.machine != 0) out_.number(op.machine);
  }
  void operator()(const ForkSpaceOp& op) {
    out_.number(kForkSpace);
    out_.number(op.parent.value);
    out_.time(op.when);
  }
  void operator()(const Section& section) {
    out_.number(kSection);
    out_.number(section.space.value);
    out_.number(section.ip.value);
    out_.number(section.size_bytes);
    out_.interval(section.live);
    out_.text(section.path);
    out_.text(section.build_id);
    out_.number(section.file_offset_bytes);
    const auto mode = modes_.find({section.path, section.build_id});
    out_.number((section.assumed ? 1 : 0) + 2 * static_cast<uint64_t>(mode == modes_.end() ? ExecMode::unknown : mode->second));
    write_place(code_.place(section.code.bytes), out_);
  }
  void operator()(const RemoveOp& op) {
    out_.number(kRemove);
    out_.number(op.space.value);
    out_.number(op.ip.value);
    out_.number(op.size_bytes);
    out_.time(op.when);
  }
  void operator()(const Edit& edit) {
    out_.number(kEdit);
    out_.number(edit.space.value);
    out_.number(edit.ip.value);
    out_.blob(edit.old_bytes);
    out_.blob(edit.new_bytes);
    out_.interval(edit.time);
    out_.number(number_of(kOrigins, edit.origin));
    out_.signed_number(edit.cpu);
    out_.number(edit.record_offset_bytes);
  }
  void operator()(const DatedCopy& copy) {
    out_.number(kCopy);
    out_.number(copy.space.value);
    out_.number(copy.ip.value);
    out_.interval(copy.taken);
    out_.text(copy.path);
    write_place(code_.place(copy.code.bytes), out_);
  }
  void operator()(const LostWindowOp& op) {
    out_.number(kLostWindow);
    out_.interval(op.window);
  }
  void operator()(const SpaceLostWindowOp& op) {
    out_.number(kSpaceLostWindow);
    out_.number(op.space.value);
    out_.interval(op.window);
  }
  void operator()(const Finding& finding) {
    out_.number(kFinding);
    write_finding(finding, out_);
  }

 private:
  const CodeModes& modes_;
  const BundleCodeWriter& code_;
  ByteWriter& out_;
};

std::vector<std::byte> own(Bytes bytes) { return {bytes.begin(), bytes.end()}; }

/// Reads operations into an ImageBuild. Each returns false where something does not fit.
class OpReader {
 public:
  OpReader(ByteReader& in, const BundleCodeReader& code, const OpenRequest& options, ImageBuild& image)
      : in_(in), code_(code), options_(options), image_(image) {}

  bool next(std::vector<PokeStamp>& kept, const std::vector<PokeStamp>& pokes) {
    switch (in_.number_to(kTags - 1)) {
      case kAddSpace:
        return add_space(0);
      case kForkSpace:
        return fork_space();
      case kSection:
        return section();
      case kRemove:
        return remove();
      case kEdit:
        return edit(kept, pokes);
      case kCopy:
        return copy();
      case kLostWindow:
        image_.builder.add_lost_window(in_.interval());
        return in_.ok();
      case kFinding:
        return finding();
      case kSpaceLostWindow:
        return space_lost_window();
      case kAddGuestSpace:
        return add_space(static_cast<uint32_t>(in_.number_to(kUnknownGuest)));
      default:
        return false;
    }
  }

 private:
  // The first space of a guest comes with its kernel's.
  bool add_space(uint32_t machine) {
    spaces_ += machine != 0 && kernels_.insert(machine).second ? 2 : 1;
    if (!in_.ok() || spaces_ > kMaxSpaces) return false;
    note(image_.builder.add_space(machine));
    return true;
  }
  [[nodiscard]] static uint32_t index_of(SpaceId space) {
    return machine_of(space) == 0 ? space.value : space.value & ((1U << kGuestSpaceBits) - 1);
  }
  void note(SpaceId made) {
    if (is_kernel_space(made)) return;
    machines_.resize(std::max<size_t>(machines_.size(), size_t{index_of(made)} + 1), kKernel);
    machines_[index_of(made)] = static_cast<uint8_t>(machine_of(made));
  }
  [[nodiscard]] bool has(SpaceId space) const {
    if (is_kernel_space(space)) return machine_of(space) == 0 || kernels_.contains(machine_of(space));
    return index_of(space) < machines_.size() && machines_[index_of(space)] == machine_of(space);
  }
  bool fork_space() {
    const SpaceId parent = read_space(in_);
    const TimeNs when = in_.time();
    if (!in_.ok() || !has(parent) || ++spaces_ > kMaxSpaces) return false;
    note(image_.builder.fork_space(parent, when));
    return true;
  }
  bool section() {
    Section section;
    section.space = read_space(in_);
    section.ip = Ip{in_.number()};
    section.size_bytes = in_.number();
    section.live = in_.interval();
    section.path = in_.text();
    section.build_id = in_.text();
    section.file_offset_bytes = in_.number();
    const uint64_t assumed_and_mode = in_.number_to(2 * static_cast<uint64_t>(ExecMode::bits64) + 1);
    section.assumed = assumed_and_mode % 2 != 0;
    if (assumed_and_mode >= 2) image_.note_mode(section.path, section.build_id, static_cast<ExecMode>(assumed_and_mode / 2));
    if (!code_.find(read_place(in_), section.code) || !has(section.space)) return false;
    image_.add_section(std::move(section));
    return in_.ok();
  }
  bool remove() {
    const SpaceId space = read_space(in_);
    const Ip ip{in_.number()};
    const uint64_t size = in_.number();
    const TimeNs when = in_.time();
    if (!in_.ok() || !has(space)) return false;
    image_.builder.remove(space, ip, size, when);
    return true;
  }
  bool edit(std::vector<PokeStamp>& kept, const std::vector<PokeStamp>& pokes) {
    Edit edit;
    edit.space = read_space(in_);
    edit.ip = Ip{in_.number()};
    edit.old_bytes = own(in_.blob());
    edit.new_bytes = own(in_.blob());
    edit.time = in_.interval();
    edit.origin = kOrigins[in_.number_to(kOrigins.size() - 1)];
    edit.cpu = in_.id();
    edit.record_offset_bytes = in_.number();
    if (!in_.ok() || !has(edit.space)) return false;
    if (edit.origin == EditOrigin::text_poke) {
      const uint64_t index = poke_++;
      if (SidebandFold::drops(options_, index)) return true;
      if (index < pokes.size()) kept.push_back(pokes[index]);
    }
    image_.builder.add_edit(std::move(edit));
    return true;
  }
  bool copy() {
    DatedCopy copy;
    copy.space = read_space(in_);
    copy.ip = Ip{in_.number()};
    copy.taken = in_.interval();
    copy.path = in_.text();
    if (!code_.find(read_place(in_), copy.code) || !has(copy.space)) return false;
    copy_bytes_ += copy.code.bytes.size();
    if (++copies_ > kMaxCopies || copy_bytes_ > kMaxCopyBytes) return false;
    image_.builder.add_copy(std::move(copy));
    return in_.ok();
  }
  bool space_lost_window() {
    const SpaceId space = read_space(in_);
    const Interval window = in_.interval();
    if (!in_.ok() || !has(space)) return false;
    image_.builder.add_lost_window(space, window);
    return true;
  }
  bool finding() {
    Finding finding = read_finding(in_);
    if (!in_.ok()) return false;
    image_.builder.add_finding(std::move(finding));
    return true;
  }

  ByteReader& in_;
  const BundleCodeReader& code_;
  const OpenRequest& options_;
  ImageBuild& image_;
  static constexpr uint8_t kKernel = 0xff;
  std::vector<uint8_t> machines_;  // of the spaces of processes, by their number on all machines
  std::set<uint32_t> kernels_;     // machines of guests
  uint64_t spaces_ = 1, copies_ = 0, copy_bytes_ = 0, poke_ = 0;
};

}  // namespace

void write_finding(const Finding& finding, ByteWriter& out) {
  out.number(number_of(kFindings, finding.kind));
  out.number(finding.space.value);
  out.number(finding.ip.value);
  out.interval(finding.time);
  out.blob(finding.expected);
  out.blob(finding.found);
  out.text(finding.what);
}

Finding read_finding(ByteReader& in) {
  Finding finding;
  finding.kind = kFindings[in.number_to(kFindings.size() - 1)];
  finding.space = read_space(in);
  finding.ip = Ip{in.number()};
  finding.time = in.interval();
  finding.expected = own(in.blob());
  finding.found = own(in.blob());
  finding.what = in.text();
  return finding;
}

void write_image(const ImageLog& log, const BundleCodeWriter& code, ByteWriter& out) {
  out.number(log.ops.size());
  OpWriter writer(log.modes, code, out);
  for (const ImageOp& op : log.ops) std::visit(writer, op);
}

Status read_image(ByteReader in, const BundleCodeReader& code, const OpenRequest& options, ImageBuild& image,
                  std::vector<PokeStamp>& pokes) {
  OpReader reader(in, code, options, image);
  std::vector<PokeStamp> kept;
  constexpr uint64_t kEntries = 1024;  // between two checks
  for (uint64_t left = in.count(kEntryBytes); left > 0; --left) {
    if (left % kEntries == 0) check_interrupt();
    const uint64_t at = in.offset();
    if (!in.ok() || !reader.next(kept, pokes)) return Error{ErrorCode::contradictory_record, "an entry of the image is invalid", at};
  }
  if (!in.done()) return Error{ErrorCode::bad_format, "the image's entries end early", in.offset()};
  pokes = std::move(kept);
  return {};
}

void write_symbols(const SymbolPick& pick, ByteWriter& out) {
  out.number(pick.ranges.size());
  for (const NamedRange& range : pick.ranges) {
    out.number(range.space.value);
    out.number(range.ip.value);
    out.number(range.size_bytes);
    out.interval(range.live);
    out.text(range.name.str());
    out.text(range.module);
  }
  out.number(pick.files.size());
  for (const FileSymbolPick& file : pick.files) {
    out.text(file.section_path);
    out.text(file.build_id);
    out.text(file.module);
    out.number(file.symbols.size());
    for (const FixedSymbol& symbol : file.symbols) {
      out.number(symbol.file_offset_bytes);
      out.number(symbol.reach_bytes);
      out.number(symbol.size_bytes);
      out.text(symbol.name);
    }
  }
}

namespace {

// Writes the texts that `texts_of` returns for each symbol, with the indexes of its file and of the symbol. Returns false if there are
// none.
template <class TextsOf>
bool write_texts(const SymbolPick& pick, ByteWriter& out, const TextsOf& texts_of) {
  uint64_t count = 0;
  const auto visit = [&](const auto& visitor) {
    for (size_t file = 0; file < pick.files.size(); ++file) {
      for (size_t i = 0; i < pick.files[file].symbols.size(); ++i) {
        for (const std::string& text : texts_of(pick.files[file].symbols[i])) visitor(file, i, text);
      }
    }
  };
  visit([&count](size_t, size_t, const std::string&) { ++count; });
  out.number(count);
  visit([&out](size_t file, size_t symbol, const std::string& text) {
    out.number(file);
    out.number(symbol);
    out.text(text);
  });
  return count != 0;
}

template <class Store>
Status read_texts(ByteReader in, SymbolPick& pick, std::string_view what, const Store& store) {
  for (uint64_t left = in.count(2 * sizeof(std::string)); left > 0 && in.ok(); --left) {
    const uint64_t file = in.number(), symbol = in.number();
    std::string text = in.text();
    if (file >= pick.files.size() || symbol >= pick.files[file].symbols.size())
      return Error{ErrorCode::contradictory_record, "it names a symbol that does not exist", in.offset()};
    store(pick.files[file].symbols[symbol], std::move(text));
  }
  if (!in.done()) return Error{ErrorCode::contradictory_record, "the list of " + std::string(what) + " is inconsistent", in.offset()};
  return {};
}

}  // namespace

bool write_places(const SymbolPick& pick, ByteWriter& out) {
  return write_texts(pick, out, [](const FixedSymbol& symbol) { return std::span(&symbol.place, symbol.place.empty() ? 0 : 1); });
}

bool write_aliases(const SymbolPick& pick, ByteWriter& out) {
  return write_texts(pick, out, [](const FixedSymbol& symbol) { return std::span(symbol.aliases); });
}

Status read_places(ByteReader in, SymbolPick& pick) {
  return read_texts(in, pick, "source files", [](FixedSymbol& symbol, std::string place) { symbol.place = std::move(place); });
}

Status read_aliases(ByteReader in, SymbolPick& pick) {
  return read_texts(in, pick, "other names", [](FixedSymbol& symbol, std::string name) {
    if (name.size() > kMaxSymbolNameBytes) name.resize(kMaxSymbolNameBytes);
    if (symbol.aliases.size() + 1 < Symbolizer::kMostNames) symbol.aliases.push_back(std::move(name));
  });
}

bool write_range_places(const SymbolPick& pick, ByteWriter& out) {
  const auto has_place = [](const NamedRange& range) { return !range.place.empty(); };
  const auto count = static_cast<uint64_t>(std::count_if(pick.ranges.begin(), pick.ranges.end(), has_place));
  out.number(count);
  for (size_t i = 0; i < pick.ranges.size(); ++i) {
    if (!has_place(pick.ranges[i])) continue;
    out.number(i);
    out.text(pick.ranges[i].place);
  }
  return count != 0;
}

Status read_range_places(ByteReader in, SymbolPick& pick) {
  for (uint64_t left = in.count(sizeof(NamedRange)); left > 0 && in.ok(); --left) {
    const uint64_t range = in.number();
    std::string place = read_name(in);
    if (range >= pick.ranges.size()) return Error{ErrorCode::contradictory_record, "it names a range that does not exist", in.offset()};
    pick.ranges[range].place = std::move(place);
  }
  if (!in.done()) return Error{ErrorCode::contradictory_record, "the list of places is inconsistent", in.offset()};
  return {};
}

bool write_range_lines(const SymbolPick& pick, ByteWriter& out) {
  const auto has_lines = [](const NamedRange& range) { return range.lines != nullptr && !range.lines->lines.empty(); };
  const auto count = static_cast<uint64_t>(std::count_if(pick.ranges.begin(), pick.ranges.end(), has_lines));
  out.number(count);
  for (size_t i = 0; i < pick.ranges.size(); ++i) {
    if (!has_lines(pick.ranges[i])) continue;
    out.number(i);
    out.text(pick.ranges[i].lines->file);
    out.number(pick.ranges[i].lines->lines.size());
    uint32_t before = 0;
    for (const GeneratedLines::Line& line : pick.ranges[i].lines->lines) {
      out.number(line.offset_bytes - before);
      out.number(line.line);
      before = line.offset_bytes;
    }
  }
  return count != 0;
}

Status read_range_lines(ByteReader in, SymbolPick& pick) {
  for (uint64_t left = in.count(sizeof(GeneratedLines)); left > 0 && in.ok(); --left) {
    const uint64_t range = in.number();
    auto lines = std::make_shared<GeneratedLines>();
    lines->file = read_name(in);
    uint32_t offset = 0;
    for (uint64_t count = in.count(sizeof(GeneratedLines::Line)); count > 0 && in.ok(); --count) {
      offset += static_cast<uint32_t>(in.number_to(~offset));
      lines->lines.push_back({offset, static_cast<uint32_t>(in.number_to(~uint32_t{0}))});
    }
    if (range >= pick.ranges.size()) return Error{ErrorCode::contradictory_record, "it names a range that does not exist", in.offset()};
    pick.ranges[range].lines = std::move(lines);
  }
  if (!in.done()) return Error{ErrorCode::contradictory_record, "the list of lines is inconsistent", in.offset()};
  return {};
}

bool write_frames(const SymbolPick& pick, ByteWriter& out) {
  uint64_t count = 0;
  for (const FileSymbolPick& file : pick.files) count += file.frames.size();
  out.number(count);
  for (size_t file = 0; file < pick.files.size(); ++file) {
    for (const FrameSpan& frame : pick.files[file].frames) {
      out.number(file);
      out.number(frame.start);
      out.number(frame.size_bytes);
      out.number(frame.is_function ? 1 : 0);
    }
  }
  return count != 0;
}

Status read_frames(ByteReader in, SymbolPick& pick) {
  for (uint64_t left = in.count(sizeof(FrameSpan)); left > 0 && in.ok(); --left) {
    const uint64_t file = in.number();
    FrameSpan frame;
    frame.start = in.number();
    frame.size_bytes = in.number_to(~frame.start);
    frame.is_function = in.number_to(1) != 0;
    if (file >= pick.files.size()) return Error{ErrorCode::contradictory_record, "it names a file that does not exist", in.offset()};
    pick.files[file].frames.push_back(frame);
  }
  if (!in.done()) return Error{ErrorCode::contradictory_record, "the list of functions is inconsistent", in.offset()};
  return {};
}

bool write_sites(const SymbolPick& pick, ByteWriter& out) {
  uint64_t count = 0;
  for (const FileSymbolPick& file : pick.files) count += file.sites.size();
  out.number(count);
  for (size_t file = 0; file < pick.files.size(); ++file) {
    for (const CallSite& site : pick.files[file].sites) {
      out.number(file);
      out.number(site.start);
      out.number(site.size_bytes);
      out.signed_number(static_cast<int64_t>(site.landing - site.start));
    }
  }
  return count != 0;
}

Status read_sites(ByteReader in, SymbolPick& pick) {
  for (uint64_t left = in.count(sizeof(CallSite)); left > 0 && in.ok(); --left) {
    const uint64_t file = in.number();
    CallSite site;
    site.start = in.number();
    site.size_bytes = in.number_to(~site.start);
    site.landing = site.start + static_cast<uint64_t>(in.signed_number());
    if (file >= pick.files.size()) return Error{ErrorCode::contradictory_record, "it names a file that does not exist", in.offset()};
    pick.files[file].sites.push_back(site);
  }
  if (!in.done()) return Error{ErrorCode::contradictory_record, "the list of landing pads is inconsistent", in.offset()};
  return {};
}

Result<SymbolPick> read_symbols(ByteReader in) {
  SymbolPick pick;
  for (uint64_t left = in.count(sizeof(NamedRange)); left > 0 && in.ok(); --left) {
    NamedRange& range = pick.ranges.emplace_back();
    range.space = read_space(in);
    range.ip = Ip{in.number()};
    range.size_bytes = in.number_to(~range.ip.value);
    range.live = in.interval();
    range.name = read_name(in);
    range.module = read_name(in);
  }
  for (uint64_t left = in.count(sizeof(FileSymbolPick)); left > 0 && in.ok(); --left) {
    FileSymbolPick& file = pick.files.emplace_back();
    file.section_path = in.text();
    file.build_id = in.text();
    file.module = read_name(in);
    for (uint64_t symbols = in.count(sizeof(FixedSymbol)); symbols > 0 && in.ok(); --symbols) {
      FixedSymbol& symbol = file.symbols.emplace_back();
      symbol.file_offset_bytes = in.number();
      symbol.reach_bytes = in.number();
      symbol.size_bytes = in.number();
      symbol.name = read_name(in);
    }
  }
  if (!in.done()) return Error{ErrorCode::contradictory_record, "the list of names is inconsistent", in.offset()};
  return pick;
}

}  // namespace ptd
