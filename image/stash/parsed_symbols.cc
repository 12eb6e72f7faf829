// Parsed symbols of contents.
#include "image/stash/parsed_symbols.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "image/stash/content_hash.h"
#include "image/stash/stash.h"
#include "image/stash/stash_dir.h"

namespace ptd::stash {
namespace {

constexpr std::string_view kMagic = "ptdsym-5";
constexpr const char* kFolder = "symbols-5";
constexpr uint32_t kFunction = 1U << 31, kGlobal = 1U << 30, kWeak = 1U << 29, kLengthMask = kWeak - 1;

struct Header {
  std::array<char, 8> magic{};
  uint64_t count = 0, name_bytes = 0;
  std::array<char, kHashDigits> hash{};
};
struct Row {
  uint64_t address = 0, size_bytes = 0;
  uint32_t name_at = 0, name_length_and_flags = 0;
};
static_assert(sizeof(Row) == 24 && sizeof(Header) == 24 + kHashDigits);

Result<Dir> folder_of(const Stash& stash, const std::string& hash) {
  if (!is_hash(hash)) return Error{ErrorCode::bad_format, "'" + hash + "' names no content", 0};
  const Result<Dir> parsed = stash.top().sub(kParsed, true);
  if (!parsed) return parsed.error();
  const Result<Dir> format = parsed->sub(kFolder, true);
  return format ? format->sub(hash.substr(0, kFolderDigits), true) : Result<Dir>(format.error());
}

std::string to_bytes(const std::vector<ElfSymbol>& symbols) {
  std::string rows, names;
  for (const ElfSymbol& symbol : symbols) {
    const std::string name = symbol.place.empty() ? symbol.name : symbol.name + '\0' + symbol.place;
    const auto length = static_cast<uint32_t>(std::min<size_t>(name.size(), kLengthMask));
    const Row row{symbol.address, symbol.size_bytes, static_cast<uint32_t>(names.size()),
                  length | (symbol.function ? kFunction : 0) | (symbol.global ? kGlobal : 0) | (symbol.weak ? kWeak : 0)};
    rows.append(reinterpret_cast<const char*>(&row), sizeof row);
    names.append(name, 0, length);
  }
  const std::string body = rows + names;
  const std::string hash = hash_of(bytes_of(body));
  Header header;
  std::copy(kMagic.begin(), kMagic.end(), header.magic.begin());
  header.count = symbols.size();
  header.name_bytes = names.size();
  std::copy(hash.begin(), hash.end(), header.hash.begin());
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

std::optional<std::vector<ElfSymbol>> from_bytes(Bytes bytes) {
  Header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const Bytes body = bytes.subspan(sizeof header);
  if (std::string_view(header.magic.data(), header.magic.size()) != kMagic || header.name_bytes > body.size()) return std::nullopt;
  const uint64_t row_bytes = body.size() - header.name_bytes;
  if (row_bytes % sizeof(Row) != 0 || row_bytes / sizeof(Row) != header.count) return std::nullopt;
  if (hash_of(body) != std::string_view(header.hash.data(), header.hash.size())) return std::nullopt;
  const char* names = reinterpret_cast<const char*>(body.data()) + row_bytes;
  std::vector<ElfSymbol> symbols(header.count);
  uint64_t at = 0;  // names are stored consecutively: together they are no longer than the header says
  for (size_t i = 0; i < symbols.size(); ++i) {
    Row row;
    std::memcpy(&row, body.data() + i * sizeof row, sizeof row);
    const uint32_t length = row.name_length_and_flags & kLengthMask;
    if (row.name_at != at || length > header.name_bytes - at) return std::nullopt;
    at += length;
    const std::string_view text(names + row.name_at, length);
    const size_t end = std::min(text.find('\0'), text.size());
    symbols[i] = {row.address,
                  row.size_bytes,
                  std::string(text.substr(0, end)),
                  (row.name_length_and_flags & kFunction) != 0,
                  (row.name_length_and_flags & kGlobal) != 0,
                  std::string(text.substr(std::min(end + 1, text.size()))),
                  (row.name_length_and_flags & kWeak) != 0};
  }
  if (at != header.name_bytes) return std::nullopt;
  return symbols;
}

}  // namespace

std::vector<ElfSymbol> symbols_of(const Stash& stash, const std::string& hash, const ElfFile& elf) {
  const Result<Dir> folder = folder_of(stash, hash);
  if (!folder) return elf.read_symbols();
  if (const Result<Fd> fd = folder->open_file(hash); fd) {
    const auto file = MappedFile::open(fd->get(), hash);
    if (file.ok()) {
      if (auto symbols = from_bytes((*file)->bytes())) return std::move(*symbols);
    }
  }
  std::vector<ElfSymbol> symbols = elf.read_symbols();
  const std::string bytes = to_bytes(symbols);
  if (bytes.size() <= UINT32_MAX) (void)folder->publish(hash, 0600, true, bytes_of(bytes));
  return symbols;
}

}  // namespace ptd::stash
