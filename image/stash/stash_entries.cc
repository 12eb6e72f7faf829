// Entries of recordings as text.
#include "image/stash/stash_entries.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <tuple>

#include "image/stash/content_hash.h"

namespace ptd::stash {
namespace {

constexpr std::string_view kEntriesFormat = "ptdecode-stash-entries 1";
constexpr std::string_view kFormatName = "ptdecode-stash-entries ";
constexpr std::array<const char*, 6> kKinds = {"file", "deleted", "memory", "vdso", "anonymous", "jitdump"};

std::string escape(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte == '%' || byte == 0x7f) {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15U];
    } else {
      out += c;
    }
  }
  return out.empty() ? "%" : out;  // a field is never empty
}

int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

bool unescape(std::string_view text, std::string& out) {
  out.clear();
  if (text == "%") return true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) return false;
    out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    i += 2;
  }
  return true;
}

std::string_view take(std::string_view& text, char end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view word = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return word;
}

template <typename Number>
bool take_number(std::string_view& line, Number& number, int base = 10) {
  const std::string_view word = take(line, ' ');
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
  return !word.empty() && error == std::errc{} && end == word.data() + word.size();
}

bool parse_entry(std::string_view line, Entry& entry) {
  if (!take_number(line, entry.generation) || !take_number(line, entry.time_ns) || !take_number(line, entry.address, 16) ||
      !take_number(line, entry.size_bytes, 16) || !take_number(line, entry.file_offset_bytes, 16))
    return false;
  const std::string_view kind = take(line, ' ');
  const auto known = std::find(kKinds.begin(), kKinds.end(), kind);
  if (known == kKinds.end()) return false;
  entry.kind = static_cast<EntryKind>(known - kKinds.begin());
  entry.hash = take(line, ' ');
  if (!is_hash(entry.hash)) return false;
  entry.build_id = take(line, ' ');
  if (entry.build_id == "-") entry.build_id.clear();
  return unescape(take(line, ' '), entry.path) && line.empty();
}

}  // namespace

const char* name(EntryKind kind) { return kKinds.at(static_cast<size_t>(kind)); }

std::string to_text(const Entries& entries) {
  std::string text = std::string(kEntriesFormat) + "\nrecording " + escape(entries.recording) + "\nhost " + escape(entries.host) +
                     "\nmade " + std::to_string(entries.made_s) + "\n";
  std::vector<const Entry*> sorted;
  for (const Entry& entry : entries.entries) sorted.push_back(&entry);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Entry* a, const Entry* b) { return std::tie(a->pid, a->generation) < std::tie(b->pid, b->generation); });
  int32_t pid = -1;
  for (const Entry* entry : sorted) {
    if (entry->pid != pid || entry == sorted.front()) text += "process " + std::to_string(entry->pid) + "\n";
    pid = entry->pid;
    std::array<char, 160> numbers{};
    const int length = std::snprintf(numbers.data(), numbers.size(), "%llu %llu %llx %llx %llx ",  // NOLINT: intended use
                                     static_cast<unsigned long long>(entry->generation), static_cast<unsigned long long>(entry->time_ns),
                                     static_cast<unsigned long long>(entry->address), static_cast<unsigned long long>(entry->size_bytes),
                                     static_cast<unsigned long long>(entry->file_offset_bytes));
    text.append(numbers.data(), static_cast<size_t>(length));
    text += std::string(name(entry->kind)) + " " + entry->hash + " " + (entry->build_id.empty() ? "-" : entry->build_id) + " " +
            escape(entry->path) + "\n";
  }
  return text + "sum " + hash_of(bytes_of(text)) + "\n";
}

Result<Entries> parse_entries(std::string_view text) {
  const auto bad = [](const char* what) { return Error{ErrorCode::bad_format, std::string("entries of the stash: ") + what, 0}; };
  if (!text.starts_with(kFormatName)) return bad("no entries");
  if (take(text, '\n') != kEntriesFormat)
    return Error{ErrorCode::unsupported_version, "entries of the stash: written by another version of ptdecode", 0};
  const std::string_view body = text;
  Entries entries;
  int32_t pid = -1;
  bool whole = false;
  while (!text.empty()) {
    const std::string_view before = body.substr(0, body.size() - text.size());
    std::string_view line = take(text, '\n');
    const std::string_view rest = line;
    const std::string_view word = take(line, ' ');
    if (word == "recording" || word == "host") {
      if (!unescape(line, word == "host" ? entries.host : entries.recording)) return bad("invalid name");
    } else if (word == "made") {
      if (!take_number(line, entries.made_s)) return bad("invalid time");
    } else if (word == "process") {
      if (!take_number(line, pid)) return bad("invalid process");
    } else if (word == "sum") {
      whole = text.empty() && body.ends_with('\n') && line == hash_of(bytes_of(std::string(kEntriesFormat) + "\n" + std::string(before)));
      break;
    } else {
      Entry entry;
      entry.pid = pid;
      if (!parse_entry(rest, entry)) return bad("invalid line");
      entries.entries.push_back(std::move(entry));
    }
  }
  if (!whole) return bad("truncated or damaged");
  return entries;
}

void number_generations(Entries& entries) {
  std::map<int32_t, uint64_t> next;
  for (Entry& entry : entries.entries) entry.generation = next[entry.pid]++;
}

void merge(const Entries& older, Entries& entries) {
  const auto key = [](const Entry& e) {
    return std::tie(e.pid, e.time_ns, e.address, e.size_bytes, e.file_offset_bytes, e.kind, e.hash, e.path);
  };
  std::vector<Entry> all = older.entries;
  std::map<int32_t, uint64_t> next;
  for (const Entry& entry : all) next[entry.pid] = std::max(next[entry.pid], entry.generation + 1);
  std::sort(all.begin(), all.end(), [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
  const size_t known = all.size();
  for (Entry& entry : entries.entries) {
    const auto end = all.begin() + static_cast<std::ptrdiff_t>(known);
    const auto same = std::lower_bound(all.begin(), end, entry, [&](const Entry& a, const Entry& b) { return key(a) < key(b); });
    if (same != end && key(*same) == key(entry)) continue;
    entry.generation = next[entry.pid]++;
    all.push_back(std::move(entry));
  }
  entries.entries = std::move(all);
}

}  // namespace ptd::stash
