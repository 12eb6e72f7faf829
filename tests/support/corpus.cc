// The test corpus: finds it and reads the files of a case.
#include "tests/support/corpus.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace ptd::test {
namespace fs = std::filesystem;

std::string corpus_dir() {
  const char* env = std::getenv("PTDECODE_CORPUS");
  const fs::path dir = env != nullptr && *env != 0 ? fs::path(env) : fs::path(PTD_SOURCE_DIR) / ".." / "shared" / "corpus";
  std::error_code error;
  if (!fs::is_directory(dir / "pt-xdc-unzip", error)) return {};
  return fs::weakly_canonical(dir, error).string();
}

bool corpus_required() {
  const char* env = std::getenv("PTDECODE_REQUIRE_CORPUS");
  return env != nullptr && *env != 0 && std::strcmp(env, "0") != 0;
}

std::optional<std::vector<std::byte>> read_file(const std::string& path) {
  // gzread passes uncompressed files through.
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return std::nullopt;
  std::vector<std::byte> out;
  std::vector<std::byte> chunk(1U << 20);
  for (;;) {
    const int got = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()));
    if (got < 0) {
      gzclose(file);
      return std::nullopt;
    }
    if (got == 0) break;
    out.insert(out.end(), chunk.begin(), chunk.begin() + got);
  }
  gzclose(file);
  return out;
}

std::optional<std::vector<std::string>> read_lines(const std::string& path) {
  const auto bytes = read_file(path);
  if (!bytes) return std::nullopt;
  std::vector<std::string> lines;
  std::string line;
  for (const std::byte b : *bytes) {
    if (b == std::byte{'\n'}) {
      lines.push_back(std::move(line));
      line.clear();
    } else {
      line.push_back(static_cast<char>(b));
    }
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

void SparseMemory::add(uint64_t address, Bytes bytes) { pieces_.try_emplace(address, bytes.begin(), bytes.end()); }

size_t SparseMemory::read(uint64_t address, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    auto it = pieces_.upper_bound(address + done);
    if (it == pieces_.begin()) break;
    --it;
    const uint64_t skip = address + done - it->first;
    if (skip >= it->second.size()) break;
    const size_t count = std::min<size_t>(out.size() - done, it->second.size() - skip);
    std::memcpy(out.data() + done, it->second.data() + skip, count);
    done += count;
  }
  return done;
}

std::vector<std::string> flow_cases() {
  return {"pt-dynamorio-simple", "pt-lldb-multifile", "pt-lldb-single", "pt-xdc-mruby", "pt-xdc-unzip"};
}

namespace {

// Reads the file or its .gz form.
std::optional<std::vector<std::string>> read_lines_maybe_gz(const std::string& path) {
  if (auto lines = read_lines(path)) return lines;
  return read_lines(path + ".gz");
}

bool load_images(const nlohmann::json& json, PtCase& out, std::string& why) {
  if (json.contains("page_image")) {
    out.pages_dump_path = out.dir + "/" + json["page_image"]["pages"].get<std::string>();
    out.pages_addresses_path = out.dir + "/" + json["page_image"]["addresses"].get<std::string>();
    const auto pages = read_file(out.pages_dump_path);
    const auto addresses = read_file(out.pages_addresses_path);
    if (!pages || !addresses) {
      why = out.name + ": page image is not readable";
      return false;
    }
    for (size_t i = 0; i * 8 + 8 <= addresses->size() && i * 4096 + 4096 <= pages->size(); ++i) {
      uint64_t address = 0;
      std::memcpy(&address, addresses->data() + i * 8, 8);
      out.memory.add(address, Bytes(*pages).subspan(i * 4096, 4096));
    }
  }
  if (!json.contains("images")) return true;
  for (const auto& image : json["images"]) {
    CaseImage one{out.dir + "/" + image["file"].get<std::string>(), image["file_offset"].get<uint64_t>(), image["size"].get<uint64_t>(),
                  std::stoull(image["load_address"].get<std::string>(), nullptr, 16)};
    const auto file = read_file(one.path);
    if (!file || file->size() < one.file_offset_bytes + one.size_bytes) {
      why = one.path + ": not readable or shorter than case.json says";
      return false;
    }
    out.memory.add(one.load_address, Bytes(*file).subspan(one.file_offset_bytes, one.size_bytes));
    out.images.push_back(std::move(one));
  }
  return true;
}

}  // namespace

std::optional<PtCase> load_case(const std::string& name, std::string& why) {
  PtCase out;
  out.name = name;
  out.dir = corpus_dir() + "/" + name;
  std::ifstream file(out.dir + "/case.json");
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (json.is_discarded()) {
    why = out.dir + "/case.json: not readable as JSON";
    return std::nullopt;
  }
  if (const auto& cpu = json["cpu"]; cpu.is_object())
    out.cpu = {cpu["family"].get<uint16_t>(), cpu["model"].get<uint8_t>(), cpu["stepping"].get<uint8_t>()};
  if (json.contains("config")) {
    const auto& config = json["config"];
    out.mtc_period = config.value("mtc_freq", uint8_t{0});
    out.max_nonturbo_ratio = config.value("nom_freq", uint8_t{0});
    out.tsc_ctc_ratio_d = config.value("cpuid_0x15_eax", 0U);
    out.tsc_ctc_ratio_n = config.value("cpuid_0x15_ebx", 0U);
  }
  out.trace_path = out.dir + "/" + json["trace"]["file"].get<std::string>();
  if (fs::exists(out.dir + "/trace.json")) out.bundle_path = out.dir + "/trace.json";
  const auto trace = read_file(out.trace_path);
  if (!trace || !load_images(json, out, why)) {
    if (why.empty()) why = out.trace_path + ": not readable";
    return std::nullopt;
  }
  out.trace = *trace;
  const auto insns = read_lines_maybe_gz(out.dir + "/expected/insns.txt");
  const auto events = read_lines_maybe_gz(out.dir + "/expected/events.txt");
  if (!insns || !events) {
    why = out.dir + "/expected: insns or events not readable";
    return std::nullopt;
  }
  out.insns.reserve(insns->size());
  for (const auto& line : *insns) out.insns.push_back(std::stoull(line, nullptr, 16));
  out.events = *events;
  if (auto errors = read_lines_maybe_gz(out.dir + "/expected/errors.txt")) out.errors = *errors;
  return out;
}

std::string unpacked_kernel_pokes(std::string& why) {
  const std::string archive = corpus_dir() + "/pt-kernel-pokes/recording.tar.xz";
  const auto bytes = read_file(archive);
  if (!bytes) {
    why = archive + ": not readable";
    return {};
  }
  const auto crc = crc32_z(0, reinterpret_cast<const unsigned char*>(bytes->data()), bytes->size());
  const fs::path dir = fs::path(PTD_BINARY_DIR) / "corpus-cache" / ("pt-kernel-pokes-" + std::to_string(crc));
  std::error_code error;
  if (fs::exists(dir / "complete", error)) return dir.string();
  // Tests run in parallel: each unpacks into its own folder, and the first to finish renames it.
  const fs::path own = dir.string() + "." + std::to_string(::getpid());
  fs::create_directories(own, error);
  const std::string command = "tar -C '" + own.string() + "' -xJf '" + archive + "'";
  if (error || std::system(command.c_str()) != 0) {
    why = "cannot unpack: " + command;
    return {};
  }
  std::ofstream(own / "complete") << "unpacked\n";
  fs::rename(own, dir, error);
  if (error) fs::remove_all(own, error);
  if (!fs::exists(dir / "complete", error)) {
    why = "cannot make " + dir.string();
    return {};
  }
  return dir.string();
}

}  // namespace ptd::test
