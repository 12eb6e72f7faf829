// Monitor: see monitor.h.
#include "replay/gdb/monitor.h"

#include <algorithm>
#include <optional>

#include "replay/gdb/code_versions.h"
#include "replay/gdb/move_commands.h"
#include "replay/gdb/packets.h"
#include "replay/symbol_files.h"
#include "replay/text.h"

namespace ptd::replay {

namespace {

constexpr std::string_view kHelp =
    "time              the current time, thread and cpu\n"
    "seek SECONDS      move to this time of the recording; +SECONDS and -SECONDS: from here\n"
    "percent N         move to N % of the recording\n"
    "stop-at SECONDS   the next continue that passes this time stops there, in either direction; without a time: forget all\n"
    "gaps              the nearest gaps, and edges of windows: where flow is missing, and why\n"
    "events            the nearest events: interrupts, faults, start and end of tracing\n"
    "marks             how certain the block at the pc is\n"
    "versions [ADDR]   the contents that the instruction at ADDR (default: pc) had over time\n"
    "symbols           write a script that loads symbols, and defines replay-seek, replay-next and so on\n";
constexpr std::string_view kHelpEnd =
    "After a move, GDB shows old registers until 'maintenance flush register-cache' ('replay-seek' of the script does both,\n"
    "and selects the thread that executes at that time). The commands are for the thread that GDB has selected.\n";

constexpr size_t kListed = 10, kMostMonitorItems = 1U << 21, kMostPages = 64, kMostStops = 64;

/// "24.3417" -> nanoseconds. At most nine decimals.
std::optional<uint64_t> parse_seconds(std::string_view text) {
  constexpr uint64_t kSecond = 1'000'000'000, kMost = UINT64_MAX / kSecond - 1;
  uint64_t whole = 0, part = 0, scale = kSecond;
  bool point = false, digits = false;
  for (const char c : text) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') return std::nullopt;
    digits = true;
    if (!point) {
      whole = whole * 10 + static_cast<uint64_t>(c - '0');
      if (whole > kMost) return std::nullopt;
    } else if (scale > 1) {
      scale /= 10;
      part += scale * static_cast<uint64_t>(c - '0');
    }
  }
  return digits ? std::optional(whole * kSecond + part) : std::nullopt;
}

}  // namespace

std::string Monitor::execute(std::string_view command, ThreadKey thread) {
  moved_ = false;
  while (!command.empty() && command.back() <= ' ') command.remove_suffix(1);
  const size_t space = std::min(command.find(' '), command.size());
  const std::string_view verb = command.substr(0, space);
  std::string_view word = command.substr(space);
  while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
  if (verb == "time") return time(thread);
  if (verb == "seek") return seek(word);
  if (verb == "percent") return percent(word);
  if (verb == "stop-at") return stop_at(word);
  if (verb == "gaps") return list(FlowItem::gap);
  if (verb == "events") return list(FlowItem::event);
  if (verb == "marks") return of(thread) + marks(thread);
  if (verb == "versions") return of(thread) + versions(word, thread);
  if (verb == "symbols") return of(thread) + symbols(thread);
  if (const auto printed = move_command(*session_, moves_, verb, thread, moved_)) return of(thread) + *printed;
  const std::string help = std::string(kHelp) + std::string(kMoveHelp) + std::string(kHelpEnd);
  if (verb.empty() || verb == "help") return help;
  return "no such command: " + plain(verb.substr(0, 64)) + "; the commands are:\n" + help;
}

std::string Monitor::of(ThreadKey thread) const {
  const ThreadList& threads = session_->threads();
  if (threads.all().size() < 2 || !threads.contains(thread)) return "";
  return "thread " + std::to_string(thread) + " " + threads.name(thread, session_->cursor().time()) + ":\n";
}

std::string Monitor::time(ThreadKey thread) {
  const TimeNs now = session_->cursor().time();
  const Interval span = session_->span();
  std::string text = now == kTimeMin ? "a time that is not known" : seconds(now) + " s";
  if (now != kTimeMin && span.first <= now && span.first < span.last && span.last != kTimeMax) {
    const double share = static_cast<double>(now.value - span.first.value) / static_cast<double>(span.last.value - span.first.value);
    const auto tenths = static_cast<uint64_t>(1000 * std::min(share, 1.0));
    text += ", " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " % of " + seconds(span.first) + " to " +
            seconds(span.last);
  }
  const auto place = session_->place_of(thread);
  if (place) {
    const int32_t cpu = session_->recording().streams()[place->stream].cpu;
    text += "; thread " + std::to_string(thread) + " " + session_->threads().name(thread, now);
    if (cpu >= 0) text += ", cpu " + std::to_string(cpu);
    if (place->time > now) text += ", runs again at " + seconds(place->time) + " s";
    if (place->time < now) text += ", ran last at " + seconds(place->time) + " s";
  }
  return text + "\n";
}

std::string Monitor::after_move() {
  moved_ = true;
  return "now at " + time(session_->current());
}

std::string Monitor::seek(std::string_view word) {
  const bool later = word.starts_with('+'), earlier = word.starts_with('-');
  const auto ns = parse_seconds(later || earlier ? word.substr(1) : word);
  if (!ns) return "seek needs a time in seconds, such as: monitor seek 24.3417, or: monitor seek +0.001\n";
  const uint64_t now = session_->cursor().time().value;
  uint64_t to = *ns;
  if (later) to = now + std::min(*ns, UINT64_MAX - now);
  if (earlier) to = now - std::min(*ns, now);
  if (!session_->seek(TimeNs{to})) return "the recording has no flow\n";
  return after_move();
}

std::string Monitor::percent(std::string_view word) {
  if (word.ends_with('%')) word.remove_suffix(1);
  const auto share = parse_seconds(word);  // in units of 1e-9
  const Interval span = session_->span();
  if (!share || *share > 100'000'000'000) return "percent needs a number from 0 to 100\n";
  if (span.first >= span.last || span.last == kTimeMax) return "the recording has no times\n";
  const double part = static_cast<double>(*share) / 1e11 * static_cast<double>(span.last.value - span.first.value);
  if (!session_->seek(TimeNs{span.first.value + static_cast<uint64_t>(part)})) return "the recording has no flow\n";
  return after_move();
}

std::string Monitor::stop_at(std::string_view word) {
  if (word.empty()) {
    stops_.clear();
    return "no times to stop at\n";
  }
  const auto ns = parse_seconds(word);
  if (!ns) return "stop-at needs a time in seconds, such as: monitor stop-at 24.3417\n";
  if (stops_.size() >= kMostStops) return "too many times; 'monitor stop-at' forgets all\n";
  stops_.push_back(TimeNs{*ns});
  return "will stop at " + seconds(TimeNs{*ns}) + " s\n";
}

std::string Monitor::item_text(const ReplayCursor& cursor) const {
  std::string text = seconds(cursor.item().time) + " thread " + std::to_string(cursor.thread()) + " ";
  if (cursor.item().is_window) return text + "window: another snapshot or AUX sample begins; what ran before it is not traced\n";
  if (cursor.item().kind == FlowItem::gap) {
    const Gap& gap = cursor.gap();
    text += std::string(name(gap.reason)) + ": " + sentence(gap.reason);
    if (gap.ip.value != 0) text += ", at " + hex(gap.ip);
    return text + "\n";
  }
  const Event& event = cursor.event();
  text += name(event.kind);
  if ((event.flags & kEventHasFrom) != 0) text += " from " + hex(event.from);
  if ((event.flags & kEventHasTo) != 0) text += " to " + hex(event.to);
  if (event.payload != 0) text += " payload " + hex(event.payload);
  return text + "\n";
}

// Looks at a bounded part of the recording on both sides.
std::string Monitor::list(FlowItem kind) {
  const TimeNs now = session_->cursor().time();
  TimeNs first = now, last = now;
  std::vector<std::string> before, after;
  const auto enough = [&, pages = session_->store().decoded_pages()](size_t items, const std::vector<std::string>& lines) {
    return lines.size() >= kListed || items >= kMostMonitorItems || session_->store().decoded_pages() - pages > kMostPages;
  };
  ReplayCursor back(session_->cursor()), ahead(session_->cursor());
  bool begins = true, ends = true;
  for (size_t i = 0; back.enter_previous(); ++i) {
    if (!(begins = !enough(i, before))) break;
    first = back.item().time;
    if (back.item().kind == kind) before.push_back("  " + item_text(back));
    back.leave_backward();
  }
  for (size_t i = 0; ahead.enter_next(); ++i) {
    if (!(ends = !enough(i, after))) break;
    last = ahead.item().time;
    if (ahead.item().kind == kind) after.push_back("  " + item_text(ahead));
    ahead.leave_forward();
  }
  std::string text;
  for (auto line = before.rbegin(); line != before.rend(); ++line) text += *line;
  text += "> " + seconds(now) + " now\n";
  for (const std::string& line : after) text += line;
  return text + "searched from " + (begins ? std::string("the beginning") : seconds(first) + " s") + " to " +
         (ends ? std::string("the end") : seconds(last) + " s") + "\n";
}

std::string Monitor::marks(ThreadKey thread) {
  const auto place = session_->place_of(thread);
  if (!place) return "the thread has no instruction near here\n";
  struct Word {
    BlockFlag flag;
    const char* text;
  };
  constexpr Word kWords[] = {
      {BlockFlag::ambiguous, "ambiguous: several versions of the code were possible, and the packets fit more than one"},
      {BlockFlag::suspect, "suspect: the code may be wrong, because records or packets were lost nearby"},
      {BlockFlag::assumed, "assumed: the code is from an image that was guessed, not recorded"},
      {BlockFlag::healed, "healed: the code is a version that was rebuilt from later records or from the packets"},
      {BlockFlag::chosen, "chosen: several versions were possible, and only one fits the packets"}};
  std::string text;
  for (const Word& word : kWords) {
    if (has(place->flags, word.flag)) text += std::string(word.text) + "\n";
  }
  return hex(place->ip) + " in the block at " + hex(place->block->ip) + " of " + std::to_string(place->block->instructions) +
         " instructions: " + (text.empty() ? "certain\n" : "\n" + text);
}

std::string Monitor::versions(std::string_view word, ThreadKey thread) {
  const auto place = session_->place_of(thread);
  std::optional<uint64_t> address = place ? std::optional(place->ip.value) : std::nullopt;
  if (!word.empty()) {
    (void)take(word, "0x");
    address = take_hex(word);
  }
  if (!address || !word.empty()) return "versions needs a hexadecimal address\n";
  return versions_text(*session_, thread, Ip{*address});
}

std::string Monitor::symbols(ThreadKey thread) {
  if (folder_.empty()) return "no folder for symbol files\n";
  SymbolRequest request;
  const auto place = session_->place_of(thread);
  request.when = place ? session_->code_time(*place) : session_->cursor().time();
  if (place) {
    request.space = place->space;
    request.comm = session_->recording().comm_at(place->pid, place->time);
  }
  request.machine = elf_machine_;
  request.is_64bit = is_64bit_;
  request.folder = folder_;
  request.commands = move_script();
  const Result<SymbolFiles> made = write_symbol_files(session_->recording(), session_->memory(), request);
  if (!made) return plain(made.error().message) + "\n";
  symbol_space_ = request.space;
  return "wrote " + made->script + ": " + std::to_string(made->files) + " files of the process, " + std::to_string(made->names) +
         " names of other code\nsource " + made->script + "\n";
}

}  // namespace ptd::replay
