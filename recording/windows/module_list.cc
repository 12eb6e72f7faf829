// Lists of modules: CSV, or the output of WinDbg.
#include "recording/windows/module_list.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "image/base/mapped_file.h"
#include "ptdecode/types.h"
#include "recording/image/words.h"

namespace ptd {
namespace {

constexpr uint64_t kMostListBytes = 16U << 20;
constexpr size_t kMostModules = 8192, kMostFields = 256;
constexpr std::string_view kBlanks = " \t\r";

// Hex, as WinDbg writes addresses: 00007ffb`12340000.
bool take_address(std::string_view text, uint64_t& value) {
  std::string digits(text);
  std::erase(digits, '`');
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return error == std::errc() && end == digits.data() + digits.size();
}

std::string_view next_word(std::string_view& text) {
  text = trimmed(text);
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

// Fields may be quoted; a quote in a quoted field is doubled.
std::vector<std::string> csv_fields(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (quoted && line[i] == '"' && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[i++];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      if (fields.size() == kMostFields) break;
      fields.emplace_back();
    } else {
      fields.back() += line[i];
    }
  }
  for (std::string& field : fields) field = trimmed(field);
  return fields;
}

class ListReader {
 public:
  ListReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Result<std::vector<ListedModule>> read() {
    if (text_.starts_with("\xff\xfe") || text_.starts_with("\xfe\xff"))
      return Error{ErrorCode::bad_format, name_ + " is UTF-16 text: save it as UTF-8 (Export-Csv -Encoding utf8)", 0};
    if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);
    while (!text_.empty()) {
      const size_t line_bytes = std::min(text_.find('\n'), text_.size());
      const std::string_view line = trimmed(text_.substr(0, line_bytes));
      text_.remove_prefix(std::min(text_.size(), line_bytes + 1));
      ++number_;
      if (line.empty() || line.starts_with('#')) continue;
      if (Status status = take_line(line); !status.ok()) return status.error();
      if (modules_.size() > kMostModules)
        return Error{ErrorCode::too_large, name_ + " has more than " + std::to_string(kMostModules) + " modules", 0};
    }
    if (modules_.empty())
      return Error{ErrorCode::bad_format,
                   name_ + " lists no module: it is neither CSV with BaseAddress, ModuleMemorySize and FileName, nor the output of 'lm f'",
                   0};
    std::stable_sort(modules_.begin(), modules_.end(), [](const ListedModule& a, const ListedModule& b) { return a.base < b.base; });
    return std::move(modules_);
  }

 private:
  enum Column { kBase, kSize, kPath, kTimestamp, kColumns };

  Status take_line(std::string_view line) {
    if (is_csv_) return take_csv(line);
    if (modules_.empty() && take_header(line)) return {};
    return take_windbg(line);
  }

  // Returns whether the line has the names of the columns.
  bool take_header(std::string_view line) {
    static constexpr std::array<std::array<std::string_view, 2>, kColumns> kNames = {
        {{"baseaddress", "base"}, {"modulememorysize", "size"}, {"filename", "path"}, {"timedatestamp", "timestamp"}}};
    const std::vector<std::string> fields = csv_fields(line);
    columns_.fill(fields.size());
    for (size_t column = 0; column < kColumns; ++column) {
      for (size_t i = 0; i < fields.size(); ++i) {
        if (std::ranges::find(kNames[column], lower_case(fields[i])) != kNames[column].end()) columns_[column] = i;
      }
    }
    is_csv_ =
        std::ranges::all_of(std::array{columns_[kBase], columns_[kSize], columns_[kPath]}, [&](size_t at) { return at < fields.size(); });
    if (columns_[kTimestamp] == fields.size()) columns_[kTimestamp] = kNoColumn;
    return is_csv_;
  }

  Status take_csv(std::string_view line) {
    const std::vector<std::string> fields = csv_fields(line);
    ListedModule module;
    if (std::max({columns_[kBase], columns_[kSize], columns_[kPath]}) >= fields.size()) return bad("has fewer fields than the header");
    if (!parse_number(fields[columns_[kBase]], module.base)) return bad("'" + fields[columns_[kBase]] + "' is no address");
    if (!parse_number(fields[columns_[kSize]], module.size_bytes)) return bad("'" + fields[columns_[kSize]] + "' is no size");
    module.path = fields[columns_[kPath]];
    if (columns_[kTimestamp] < fields.size() && !fields[columns_[kTimestamp]].empty()) {
      uint64_t value = 0;
      if (!parse_number(fields[columns_[kTimestamp]], value) || value > UINT32_MAX)
        return bad("'" + fields[columns_[kTimestamp]] + "' is no TimeDateStamp");
      module.timestamp = static_cast<uint32_t>(value);
    }
    return add(std::move(module));
  }

  Status take_windbg(std::string_view line) {
    constexpr std::string_view kUnloaded = "Unloaded modules";
    if (line.starts_with(kUnloaded)) is_unloaded_ = true;
    ListedModule module;
    uint64_t end = 0;
    std::string_view rest = line;
    if (is_unloaded_ || !take_address(next_word(rest), module.base) || !take_address(next_word(rest), end)) return {};
    (void)next_word(rest);  // the module's name in WinDbg
    module.path = trimmed(rest);
    if (module.path.empty() || module.path.starts_with('(')) return bad("has no path: use 'lm f'");
    if (end < module.base) return bad("ends before it starts");
    module.size_bytes = end - module.base;
    return add(std::move(module));
  }

  Status add(ListedModule module) {
    if (module.path.empty()) return bad("has no path");
    if (module.size_bytes == 0 || module.size_bytes > ~module.base) return bad("has a size that does not fit into the address space");
    modules_.push_back(std::move(module));
    return {};
  }

  [[nodiscard]] Error bad(const std::string& why) const {
    return {ErrorCode::bad_format, name_ + ":" + std::to_string(number_) + ": " + why, 0};
  }

  static constexpr size_t kNoColumn = ~size_t{0};
  std::string_view text_;
  const std::string& name_;
  size_t number_ = 0;
  bool is_csv_ = false, is_unloaded_ = false;
  std::array<size_t, kColumns> columns_{};
  std::vector<ListedModule> modules_;
};

}  // namespace

Result<std::vector<ListedModule>> parse_module_list(std::string_view text, const std::string& name) {
  return ListReader(text, name).read();
}

Result<std::vector<ListedModule>> read_module_list(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  const Bytes bytes = (*file)->bytes();
  if (bytes.size() > kMostListBytes) return Error{ErrorCode::too_large, path + " is larger than a list of modules may be (16 MiB)", 0};
  return parse_module_list({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace ptd
