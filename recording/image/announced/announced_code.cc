// Converts announcements to sections, edits and names.
#include "recording/image/announced/announced_code.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "image/base/interrupt.h"
#include "image/placed_name.h"
#include "image/timeline_access.h"
#include "recording/image/announced/live_code.h"
#include "recording/image/announced/open_windows.h"
#include "recording/image/announced/relists.h"

namespace ptd {
namespace {

constexpr uint64_t kMostBytes = 2ULL << 30;  // of all records
constexpr const char* kModule = "[jit]";

std::string range_text(uint64_t address, uint64_t size) { return "[" + hex_text(address) + ", " + hex_text(address + size) + ")"; }

Finding finding_of(FindingKind kind, SpaceId space, Interval time, std::string what) {
  Finding finding;
  finding.kind = kind;
  finding.space = space;
  finding.time = time;
  finding.what = std::move(what);
  return finding;
}

}  // namespace

/// What a space has at one moment.
struct AnnouncedCode::State {
  LiveCode live;
  ChangedFiles files;
};

/// The code of one space while its announcements are applied in order.
class AnnouncedCode::Space {
 public:
  struct Who {
    SpaceId space;
    int32_t pid = -1;
    bool names_only = false;          ///< its code is known from elsewhere
    TimeNs forked = kTimeMin;         ///< when it was forked from a process that announced code
    const Children* forks = nullptr;  ///< of all spaces, to those whose code is not known from elsewhere
    bool any_remapped = false;        ///< in some space
  };
  Space(ImageBuild& image, const Timeline& mappings, Who who, std::vector<MappedMemory> memory, std::vector<Remapped> remapped, State start,
        CodeNames& names)
      : image_(image),
        mappings_(mappings),
        who_(who),
        memory_(std::move(memory)),
        remapped_(std::move(remapped)),
        live_(std::move(start.live)),
        files_(std::move(start.files)),
        names_(names) {
    std::ranges::stable_sort(remapped_, {}, &Remapped::when);
  }

  void apply(const Change& change) {
    const Announcement& what = change.what;
    pass(change.time.first, std::max(change.time.first, TimeNs{std::max<uint64_t>(change.time.last.value, 1) - 1}));
    if (!who_.names_only && !is_mapped(what.address, what.size_bytes)) return refuse(change);
    if (change.open) return leave_open(change);
    switch (what.kind) {
      case AnnounceKind::load:
        return what.relisted ? relist(change) : load(change, live_of(what), live_.overlaps(what.address, what.size_bytes));
      case AnnounceKind::move:
        return move(change);
      case AnnounceKind::unload:
        return unload(what.address, what.size_bytes, change.time.last);
      case AnnounceKind::patch:
        return patch(change);
      default:
        return;
    }
  }
  void finish() { pass(kTimeMax, kTimeMax); }
  /// Returns what a child starts with that is forked at this time. What `changing` has begun by then is in it, as assumed.
  [[nodiscard]] State fork(SpaceId space, TimeNs when, OpenWindows& changing, const std::vector<Change>& changes) {
    State child{live_.fork(), files_};
    for (size_t i = next_remapped_; i < remapped_.size() && remapped_[i].when <= when; ++i)
      child.files.remap(remapped_[i],
                        [&](uint64_t address, uint64_t size, const LiveFunction&, uint64_t) { child.live.doubt(address, size); });
    const bool few = changing.at(when, [&](size_t i) { begin_in(child.live, changes[i]); });
    if (!few) image_.builder.add_lost_window(space, {when, kTimeMax});
    return child;
  }

 private:
  // Where all code is known, its bytes are not needed.
  [[nodiscard]] std::shared_ptr<std::vector<std::byte>> share(const std::vector<std::byte>& code) const {
    return code.empty() || who_.names_only ? nullptr : std::make_shared<std::vector<std::byte>>(code);
  }

  // Anonymous memory that became executable by `until` shows the code that was announced there before. Changes to a file's code that was
  // mapped again are not certain from then on. A change that is about to be applied ends at `writable_until` at the earliest: memory that
  // became writable in it may be written to afterwards, while any other protection within it is part of the change.
  void pass(TimeNs until, TimeNs writable_until) {
    for (; next_remapped_ < remapped_.size(); ++next_remapped_) {
      const Remapped& range = remapped_[next_remapped_];
      if (range.when > (range.now_writable ? writable_until : until)) break;
      files_.remap(range, [&](uint64_t address, uint64_t size, const LiveFunction& left, uint64_t skip) {
        doubt_left(address, size, left, skip, range.when);
      });
    }
    memory_.pass(until, [this](const MappedMemory& memory) {
      live_.each(memory.first, memory.end - memory.first, [&](uint64_t begin, const LiveFunction& live) {
        const uint64_t first = std::max(begin, memory.first), end = std::min(begin + live.size_bytes, memory.end);
        if (!memory.has_code_of(live.since)) {
          live_.cut(first, end - first);
        } else if (live.code && live.since <= memory.since) {
          add_section(first, end - first, live_.frozen(live), memory.since, false, first - begin);
        }
      });
    });
  }

  // Whether a file's code became writable then, and has a section of its own from then on.
  [[nodiscard]] bool became_writable(uint64_t address, TimeNs when) const {
    auto each = std::ranges::lower_bound(remapped_, when, {}, &Remapped::when);
    while (each != remapped_.end() && each->when == when && !(each->now_writable && address - each->address < each->size_bytes)) ++each;
    return each != remapped_.end() && each->when == when;
  }

  // The section at `when`, or the one that it follows because the file's code became writable after `since`.
  [[nodiscard]] SectionId mapped_at(uint64_t address, TimeNs when, TimeNs since) const {
    for (;;) {
      const SectionId id = mappings_.section_at(who_.space, Ip{address}, when);
      const TimeNs begun = id == kNoSection ? kTimeMin : mappings_.section(id).live.first;
      if (begun <= since || !became_writable(address, begun)) return id;
      when = TimeNs{begun.value - 1};
    }
  }

  // When the change can have been made: not before the file's code there became writable.
  [[nodiscard]] Interval time_of(const Change& change) const {
    const SectionId id = who_.any_remapped ? mappings_.section_at(who_.space, Ip{change.what.address}, change.time.last) : kNoSection;
    const TimeNs begun = id == kNoSection ? kTimeMin : mappings_.section(id).live.first;
    return {begun > change.time.first && became_writable(change.what.address, begun) ? begun : change.time.first, change.time.last};
  }

  // The section of a file's code that became writable during the change would hide what counts from the begin.
  void add_over_writable(const Change& change, const LiveFunction& what) {
    uint64_t address = change.what.address, skip = 0;
    for (uint64_t part = 0; who_.any_remapped && skip < change.what.size_bytes; address += part, skip += part) {
      const SectionId id = mappings_.section_at(who_.space, Ip{address}, change.time.last);
      if (id == kNoSection) return;
      const Section& section = mappings_.section(id);
      part = std::min<uint64_t>(change.what.size_bytes - skip, section.size_bytes - (address - section.ip.value));
      if (section.live.first > change.time.first && became_writable(address, section.live.first))
        add_section(address, part, what, section.live.first, false, skip);
    }
  }

  // What a change left there is still so, or the file's code is there again: the latter is taken where nothing was left.
  void doubt_left(uint64_t address, uint64_t size, const LiveFunction& left, uint64_t skip, TimeNs when) {
    for (uint64_t part = 0; !who_.names_only && size != 0; address += part, skip += part, size -= part) {
      const SectionId id = mappings_.section_at(who_.space, Ip{address}, when);
      if (id == kNoSection || mapped_at(address, when, left.told) != mappings_.section_at(who_.space, Ip{address}, left.told)) return;
      Section section = mappings_.section(id);
      const uint64_t offset = address - section.ip.value;
      part = std::min<uint64_t>(size, section.size_bytes - offset);
      const bool is_loaded = left.code && live_.overlaps(address, part);
      live_.doubt(address, part);
      if (is_loaded) {
        add_section(address, part, left, when, true, skip);
        continue;
      }
      section.space = who_.space;
      section.ip = Ip{address};
      section.size_bytes = part;
      section.file_offset_bytes += offset;
      section.live = {when, kTimeMax};
      section.assumed = true;
      const Bytes file = section.code.bytes.subspan(std::min<uint64_t>(offset, section.code.bytes.size()));
      section.code = left.code ? CodeBytes{left.code, left.bytes().subspan(skip, part)}
                               : CodeBytes{section.code.owner, file.first(std::min<uint64_t>(part, file.size()))};
      image_.builder.add_section(std::move(section));
    }
  }

  // Whether all of the range was mapped executable at some time: memory is often made executable after the code is announced. A recording
  // with a complete jitdump has no records of anonymous memory.
  [[nodiscard]] bool is_mapped(uint64_t address, uint64_t size) const {
    for (const uint64_t end = address + size; address < end;) {
      uint64_t reach = address;
      for (const SectionId id : mappings_.sections_at(who_.space, Ip{address})) {
        const Section& section = mappings_.section(id);
        reach = std::max(reach, section.ip.value + section.size_bytes);
      }
      if (reach == address) return false;
      address = reach;
    }
    return true;
  }

  void report(FindingKind kind, Ip ip, Interval time, std::string what) {
    if (who_.names_only) return;
    Finding finding = finding_of(kind, who_.space, time, "process " + std::to_string(who_.pid) + ": " + std::move(what));
    finding.ip = ip;
    image_.builder.add_finding(std::move(finding));
  }

  void refuse(const Change& change) {
    constexpr uint64_t kReported = 64;
    if (++refused_ > kReported) return;
    const Announcement& what = change.what;
    report(FindingKind::bad_record, Ip{what.address}, change.time,
           "announced code at " + range_text(what.address, what.size_bytes) +
               " is outside of the executable mappings that the recording has of it: not used" +
               (refused_ == kReported ? " (further ones are not listed)" : ""));
  }

  // The process ended in between, or the recording did, or the same change began again: what the range holds from then on is not known.
  void leave_open(const Change& change) {
    const bool is_new = change.what.kind == AnnounceKind::load && !live_.overlaps(change.what.address, change.what.size_bytes);
    if (is_new && !change.contradicts) return;
    live_.doubt(change.what.address, change.what.size_bytes);
    const Interval window{change.time.first, change.known_since};
    suspect(window);
    const char* until = change.contradicts        ? "until a change of another name ended there"
                        : window.last == kTimeMax ? "since then"
                                                  : "until the same change began again and ended";
    report(FindingKind::records_lost, Ip{change.what.address}, window,
           "a change of its code at " + range_text(change.what.address, change.what.size_bytes) +
               " was announced to begin and not to end: its code is suspect " + until);
  }

  // When it was written is not known: no earlier than what was there.
  void apply_unbegun(const Change& change) {
    const Announcement& what = change.what;
    TimeNs since = std::min(change.known_since, change.time.first);
    if (change.contradicts && live_.overlaps(what.address, what.size_bytes)) since = live_since(what, change.time.first);
    suspect({since, change.time.last});
    if (!change.contradicts) return;
    report(FindingKind::records_lost, Ip{what.address}, {since, change.time.last},
           "a patch of " + range_text(what.address, what.size_bytes) +
               " was announced to end and not to begin: its code is suspect until then");
  }

  // Returns when the oldest of the code in the range was announced, or `otherwise` if that is earlier.
  [[nodiscard]] TimeNs live_since(const Announcement& what, TimeNs otherwise) const {
    live_.each(what.address, what.size_bytes, [&](uint64_t, const LiveFunction& live) { otherwise = std::min(otherwise, live.since); });
    return otherwise;
  }

  void suspect(Interval window) {
    if (!who_.names_only) image_.builder.add_lost_window(who_.space, window);
  }

  void remove(uint64_t address, uint64_t size, TimeNs when) {
    if (!who_.names_only && size != 0) image_.builder.remove(who_.space, Ip{address}, size, when);
  }

  void add_edit(const Change& change, const std::vector<std::byte>& new_bytes) {
    if (who_.names_only) return;
    const uint64_t offset = change.what.record_offset_bytes;
    image_.builder.add_edit(
        {who_.space, Ip{change.what.address}, change.old_bytes, new_bytes, time_of(change), EditOrigin::announced, -1, offset});
  }

  // `what` does not change any more.
  void add_section(uint64_t address, uint64_t size, const LiveFunction& what, TimeNs from, bool assumed = false, uint64_t skip = 0,
                   SpaceId space = kNoSpace) {
    if (who_.names_only) return;
    Section section;
    section.space = space == kNoSpace ? who_.space : space;
    section.ip = Ip{address};
    section.size_bytes = size;
    section.live = {from, kTimeMax};
    section.path = kModule;
    section.assumed = assumed || what.assumed;
    if (what.code) section.code = {what.code, what.bytes().subspan(skip, size)};
    image_.add_section(std::move(section));
  }

  // In the order of the announcements, whatever the times from which they count.
  void name(NamedRange range, NamedPlace place) {
    latest_ = std::max(latest_, range.live.first);
    names_.add(std::move(range), latest_, place);
  }

  static std::shared_ptr<const GeneratedLines> lines_of(const Announcement& what) {
    if (what.lines.empty() || what.file.empty()) return nullptr;
    auto lines = std::make_shared<GeneratedLines>();
    lines->file = what.file;
    for (const AnnounceLine& line : what.lines) lines->lines.push_back({line.offset_bytes, line.line});
    std::stable_sort(lines->lines.begin(), lines->lines.end(),
                     [](const auto& a, const auto& b) { return a.offset_bytes < b.offset_bytes; });
    return lines;
  }

  [[nodiscard]] LiveFunction live_of(const Announcement& what) const {
    LiveFunction live;
    live.size_bytes = what.size_bytes;
    live.code = share(what.code);
    live.name = what.name;
    live.lines = lines_of(what);
    if (!what.code.empty()) live.told = what.time.last;
    return live;
  }

  void set_live(uint64_t address, LiveFunction live, TimeNs from) {
    live.since = from;
    const NamedPlace place = live.code || who_.names_only ? NamedPlace::code : NamedPlace::unknown;
    name({who_.space, Ip{address}, live.size_bytes, {from, kTimeMax}, live.name, kModule, {}, live.lines}, place);
    live_.set(address, std::move(live));
  }

  // `over_live`: it is written over code that may run until the end.
  void load(const Change& change, LiveFunction what, bool over_live) {
    const uint64_t address = change.what.address, size = change.what.size_bytes;
    const bool is_edit = over_live && what.code && !what.assumed;
    if (is_edit) {
      const Bytes code = what.bytes();
      add_edit(change, {code.begin(), code.end()});
    }
    add_section(address, size, what, is_edit ? change.time.last : change.time.first);
    if (!is_edit) {
      add_over_writable(change, what);
      add_to_children(change, what);
    }
    note_left(address, what, change.time.last);
    set_live(address, std::move(what), change.time.first);
  }

  // A child that is forked while it is written has all of it, a part or nothing. It can move what it has.
  void begin_in(LiveCode& child, const Change& change) const {
    const Announcement& what = change.what;
    child.doubt(what.address, what.size_bytes);
    if (what.kind != AnnounceKind::load && what.kind != AnnounceKind::move) return;
    LiveFunction begun = what.kind == AnnounceKind::move ? moved_by(what) : live_of(what);
    begun.since = change.time.first;
    begun.assumed = true;
    child.set(what.address, std::move(begun));
  }

  // The same in the bytes of children.
  void add_to_children(const Change& change, const LiveFunction& what) {
    const auto end = who_.forks->lower_bound({who_.space, change.time.last});
    for (auto child = who_.forks->lower_bound({who_.space, change.time.first}); child != end; ++child)
      add_section(change.what.address, change.what.size_bytes, what, child->first.second, true, 0, child->second);
  }

  void relist(const Change& change) {
    const Announcement& what = change.what;
    const LiveFunction* known = live_.find(what.address, what.size_bytes);
    LiveFunction listed = live_of(what);
    const bool is_known = known != nullptr && (!listed.code || (known->code && std::ranges::equal(known->bytes(), listed.bytes())));
    if (is_known) return list_again(change, *known, listed);
    const bool contradicts = change.lost_until == kTimeMin && live_.overlaps(what.address, what.size_bytes) && !may_be_newer(change);
    if (contradicts) contradict(change);
    const SectionId memory = mappings_.section_at(who_.space, Ip{what.address}, change.time.first);
    const TimeNs mapped = std::max(memory == kNoSection ? kTimeMin : mappings_.section(memory).live.first, who_.forked);
    const bool is_older = change.lost_until == kTimeMin && !contradicts;  // than this process's first record
    if (is_older && mapped < change.known_since) add_section(what.address, what.size_bytes, listed, mapped, true);
    const TimeNs from = contradicts ? change.time.first : std::max(mapped, change.known_since);
    add_section(what.address, what.size_bytes, listed, from);
    note_left(what.address, listed, change.time.last);
    set_live(what.address, std::move(listed), from);
  }

  // Code that is known already. Its bytes are certain from now on if they are given, and no longer certain if they are not and records were
  // lost.
  void list_again(const Change& change, LiveFunction known, const LiveFunction& listed) {
    const Announcement& what = change.what;
    const bool doubted = !listed.code && known.code && known.told <= change.lost_until, settled = listed.code && known.assumed;
    const bool renamed = known.name != what.name;
    if (renamed) known.name = listed.name, known.lines = listed.lines;
    if (listed.code) {
      known.told = listed.told;
      note_left(what.address, listed, change.time.last);
    }
    if (doubted || settled) {
      known.assumed = doubted;
      known = live_.frozen(std::move(known));
      add_section(what.address, what.size_bytes, known, change.time.first);
    }
    if (renamed) return set_live(what.address, std::move(known), change.time.first);
    live_.set(what.address, std::move(known));
  }

  // A child may have changed what it inherited before a reader came, unless its first announcement was read. What is assumed may be
  // anything.
  [[nodiscard]] bool may_be_newer(const Change& change) const {
    const Announcement& what = change.what;
    bool newer = true;
    live_.each(what.address, what.size_bytes, [&](uint64_t, const LiveFunction& live) {
      newer = newer && (live.assumed || (change.joined_late && live.since <= who_.forked));
    });
    return newer;
  }

  // Code that a run-time lists is other than what it announced before, and no number is missing.
  void contradict(const Change& change) {
    const Announcement& what = change.what;
    const TimeNs since = live_since(what, change.time.first);
    suspect({since, change.time.last});
    report(FindingKind::poke_old_bytes_mismatch, Ip{what.address}, {since, change.time.last},
           "the code listed at " + range_text(what.address, what.size_bytes) +
               " differs from what was announced there: a change was not announced, and its code is suspect since then");
  }

  // What was at the old place, with what is announced of it now.
  [[nodiscard]] LiveFunction moved_by(const Announcement& what) const {
    LiveFunction moved = live_of(what);
    const LiveFunction* known = live_.find(what.old_address, what.size_bytes);
    if (known == nullptr) return moved;
    LiveFunction old = moved.code || who_.names_only ? *known : live_.frozen(*known);
    if (moved.code) old.take_code(moved);
    if (moved.lines) old.lines = moved.lines;
    if (!moved.name.empty()) old.name = moved.name;
    return old;
  }

  void move(const Change& change) {
    const Announcement& what = change.what;
    LiveFunction moved = moved_by(what);
    const bool over_live = live_.overlaps(what.address, what.size_bytes);  // also over its own old place
    if (what.old_address != what.address) leave(what, change.time.last);
    load(change, std::move(moved), over_live);
  }

  void cut(uint64_t address, uint64_t size, TimeNs when) {
    live_.cut(address, size);
    LiveFunction nothing;
    nothing.size_bytes = size;
    note_left(address, std::move(nothing), when);
  }

  void note_left(uint64_t address, LiveFunction left, TimeNs when) {
    if (who_.any_remapped && left.size_bytes != 0) files_.set(address, std::move(left), when);
  }

  // Its old place may overlap the new one.
  void leave(const Announcement& move, TimeNs when) {
    const uint64_t size = move.size_bytes, old = move.old_address, to = move.address;
    cut(old, size, when);
    name({who_.space, Ip{old}, size, {when, kTimeMax}, {}, {}}, NamedPlace::nothing);
    if (to > old) return remove(old, std::min(size, to - old), when);
    const uint64_t rest = std::min(size, old - to);
    remove(old + (size - rest), rest, when);
  }

  void unload(uint64_t address, uint64_t size, TimeNs when) {
    cut(address, size, when);
    name({who_.space, Ip{address}, size, {when, kTimeMax}, {}, {}}, NamedPlace::nothing);
    remove(address, size, when);
  }

  void patch(const Change& change) {
    const Announcement& what = change.what;
    note_left(what.address, live_of(what), change.time.last);
    if (what.code.empty()) {
      remove(what.address, what.size_bytes, change.time.first);
      live_.forget(what.address, what.size_bytes);
      return report(FindingKind::bad_record, Ip{what.address}, change.time,
                    "a patch of " + range_text(what.address, what.size_bytes) + " was announced without its bytes: they are not known");
    }
    if (change.unbegun) apply_unbegun(change);
    add_edit(change, what.code);
    live_.patch(what.address, what.code);
  }

  ImageBuild& image_;
  const Timeline& mappings_;
  Who who_;
  FreshMemory memory_;
  std::vector<Remapped> remapped_;
  size_t next_remapped_ = 0;
  uint64_t refused_ = 0;
  LiveCode live_;
  ChangedFiles files_;
  CodeNames& names_;
  TimeNs latest_ = kTimeMin;
};

void AnnouncedCode::add(SpaceId space, int32_t pid, TimeNs time, Bytes record, uint64_t offset_bytes) {
  const auto parsed = parse_announce_record(record);
  bytes_ += record.size();
  if (!parsed.ok() || bytes_ > kMostBytes) {
    const std::pair key(pid, parsed.ok() ? "more than 2 GiB of announcements" : parsed.error().message);
    constexpr size_t kMostKinds = 4096;
    if (refused_.size() >= kMostKinds && !refused_.contains(key)) return;
    ++refused_[key];
    refused_at_.try_emplace(key, space, time);
    return;
  }
  Process& process = joiners_[space];
  process.pid = pid;
  const bool has_code =
      (parsed->kind == AnnounceKind::load && !parsed->begin && parsed->code_bytes != 0) || parsed->kind == AnnounceKind::move;
  if (has_code) process.code.add(parsed->address, parsed->size_bytes);
  const bool changes = parsed->kind != AnnounceKind::unload && is_code(*parsed) && !parsed->begin;
  if (changes) process.changed.add(parsed->address, parsed->size_bytes);
  process.instances[parsed->instance].add(*parsed, time, offset_bytes);
}

void AnnouncedCode::remap(SpaceId space, int32_t pid, const Remapped& range) {
  Process& process = joiners_[space];
  process.pid = pid;
  process.remapped.push_back(range);
  any_remapped_ = true;
}

// Reports what is missing, and marks the time until all code was relisted.
void AnnouncedCode::take_history(ImageBuild& image, SpaceId space, bool names_only, AnnounceHistory history,
                                 std::vector<Change>& changes) const {
  const int32_t pid = joiners_.at(space).pid;
  const Relists relists(history.announcements);
  const auto& announcements = history.announcements;
  const bool joined_late = history.attached && !announcements.empty() && announcements.front().seq != 0;
  const size_t first = changes.size();
  pair_ends(history, changes);
  for (size_t i = first; i < changes.size(); ++i) changes[i].joined_late = joined_late;
  for (const AnnounceGap& gap : names_only ? std::vector<AnnounceGap>() : history.gaps) {
    const TimeNs told = relists.all_after(gap.first_seq + gap.count);
    const Interval window{gap.time.first, std::max(gap.time.last, told)};
    image.builder.add_lost_window(space, window);
    const std::string last = std::to_string(gap.first_seq + gap.count - 1);
    const std::string lost =
        gap.count == 0   ? std::string("announcements of its generated code were not read") + (window == Interval{} ? "" : " for a while")
        : gap.count == 1 ? "1 announcement of its generated code is lost (number " + last + ")"
                         : std::to_string(gap.count) + " announcements of its generated code are lost (numbers " +
                               std::to_string(gap.first_seq) + " to " + last + ")";
    image.builder.add_finding(finding_of(FindingKind::records_lost, space, window,
                                         "process " + std::to_string(pid) + ": " + lost + ": its code is suspect " +
                                             (told != kTimeMax           ? "until it announced all of it again"
                                              : window.first == kTimeMin ? "throughout"
                                                                         : "since then")));
  }
}

void AnnouncedCode::add_to(ImageBuild& image, const Timeline& mappings, const MemoryOf& memory, const std::set<SpaceId>& names_only,
                           CodeNames& names) {
  for (const auto& [key, count] : refused_) {
    const auto& [space, time] = refused_at_[key];
    image.builder.add_finding(finding_of(FindingKind::bad_record, space, {time, kTimeMax},
                                         "process " + std::to_string(key.first) + ": " + std::to_string(count) +
                                             (count == 1 ? " record is" : " records are") + " not used: " + key.second));
  }
  LiveFunctions functions;
  const Children children = children_of(mappings), forks = forks_of(mappings, names_only);
  std::map<SpaceId, std::pair<State, TimeNs>> inherited;
  for (auto& [space, process] : joiners_) {  // parents first
    std::vector<Change> changes;
    const bool known = names_only.contains(space);
    for (auto& [instance, joiner] : process.instances) take_history(image, space, known, joiner.finish(), changes);
    std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time.last < b.time.last; });
    const auto start = inherited.find(space);
    const TimeNs forked = start == inherited.end() ? kTimeMin : start->second.second;
    OpenWindows changing;
    for (size_t i = 0; i < changes.size(); ++i) changing.add(changes[i].time, i);
    State begin = start == inherited.end() ? State{LiveCode(functions), ChangedFiles(functions)} : start->second.first;
    Space code(image, mappings, {space, process.pid, known, forked, &forks, any_remapped_}, memory(space), std::move(process.remapped),
               std::move(begin), names);
    auto child = children.lower_bound({space, kTimeMin});
    const auto fork_until = [&, parent = space](TimeNs time) {
      for (; child != children.end() && child->first.first == parent && child->first.second < time; ++child)
        inherited.insert_or_assign(child->second,
                                   std::pair(code.fork(child->second, child->first.second, changing, changes), child->first.second));
    };
    for (const Change& change : changes) {
      check_interrupt();
      fork_until(change.time.last);
      code.apply(change);
    }
    fork_until(kTimeMax);
    code.finish();
    inherited.erase(space);
  }
  if (functions.too_many_copies())
    image.builder.add_finding(
        finding_of(FindingKind::bad_record, kNoSpace, {kTimeMin, kTimeMax},
                   "announced code was patched, and moved or inherited, too often: the bytes of some that was moved then are not known"));
  joiners_.clear();
}

}  // namespace ptd
