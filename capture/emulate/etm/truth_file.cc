// Ground truth files.
#include "capture/emulate/etm/truth_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "image/base/mapped_file.h"

namespace ptd::emulate {
namespace {

constexpr std::array<char, 8> kMagic = {'P', 'T', 'D', 'T', 'R', 'U', 'T', 'H'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHeaderBytes = 16, kBufferBytes = size_t{1} << 20;
constexpr int kCompressionLevel = 3;
constexpr uint64_t kMaxInsnBytes = 15, kMaxBlocks = uint64_t{1} << 28;
// A file that compresses well can define any number of blocks. Those of a program take a few bytes of memory for one of the file.
constexpr uint64_t kFreeBlockBytes = uint64_t{128} << 20, kBlockBytesOfByte = 64;
constexpr auto kFirstBlock = static_cast<uint64_t>(TruthTag::block);

// How many numbers follow a tag, blocks not counted.
int fields_of(uint64_t tag) {
  if (tag >= kFirstBlock) return 0;
  switch (static_cast<TruthTag>(tag)) {
    case TruthTag::define:
    case TruthTag::part:
      return 3;
    case TruthTag::psb:
    case TruthTag::event:
      return 2;
    case TruthTag::time:
      return 1;
    default:
      return 0;
  }
}

// One record; false at the end or where it is not whole.
bool get_record(Bytes& log, uint64_t& tag, std::array<uint64_t, 3>& field) {
  if (!take_number(log, tag)) return false;
  for (int i = 0; i < fields_of(tag); ++i) {
    if (!take_number(log, field[static_cast<size_t>(i)])) return false;
  }
  return true;
}

}  // namespace

void for_each_log_record(Bytes log, const std::function<void(uint64_t tag, const std::array<uint64_t, 3>& field)>& on_record,
                         const std::function<void(Bytes)>& on_passed) {
  uint64_t tag = 0;
  Bytes rest = log;
  for (std::array<uint64_t, 3> field{}; get_record(rest, tag, field); field = {}) {
    on_record(tag, field);
    if (const size_t passed = log.size() - rest.size(); passed >= kBufferBytes) {
      on_passed(log.first(passed));
      log = rest;
    }
  }
}

Result<std::unique_ptr<TruthFileWriter>> TruthFileWriter::create(const std::string& path) {
  auto file = perfio::OutputFile::create(path);
  if (!file) return file.error();
  std::unique_ptr<TruthFileWriter> writer(new TruthFileWriter);
  writer->file_ = std::move(*file);
  writer->compressor_ = std::make_unique<perfio::ZstdCompressor>(kCompressionLevel);
  std::array<std::byte, kHeaderBytes> header{};
  std::memcpy(header.data(), kMagic.data(), kMagic.size());
  std::memcpy(header.data() + kMagic.size(), &kVersion, sizeof kVersion);
  if (Status status = writer->file_->append(header); !status) return status.error();
  return writer;
}

Status TruthFileWriter::write_out(size_t at_least) {
  if (raw_.size() < at_least) return {};
  packed_.clear();
  if (!compressor_->add(raw_, packed_)) return Error{ErrorCode::unsupported_compression, "zstd cannot compress a ground truth", 0};
  raw_.clear();
  return file_->append(packed_);
}

uint32_t TruthFileWriter::local_number(uint64_t number, const Lookup& lookup, bool& known) {
  known = true;
  if (number < numbers_.size() && numbers_[number] != 0) return numbers_[number] - 1;
  const TruthBlock* block = number < kMaxBlocks ? lookup(number) : nullptr;
  known = block != nullptr;
  if (block == nullptr) return 0;
  if (numbers_.size() <= number) numbers_.resize(number + 1 + number / 2);
  numbers_[number] = next_ + 1;
  put_definition(block->ip, std::as_bytes(std::span(block->lengths)), block->bytes);
  return next_ - 1;
}

void TruthFileWriter::put_definition(uint64_t ip, Bytes lengths, Bytes code) {
  TruthLog out(raw_);
  out.put(static_cast<uint64_t>(TruthTag::define));
  out.put(next_++);
  out.put(ip);
  out.put(lengths.size());
  raw_.insert(raw_.end(), lengths.begin(), lengths.end());
  raw_.insert(raw_.end(), code.begin(), code.end());
}

// A block that the log itself defines: its lengths and bytes follow the numbers. It may reuse the number of an older one.
bool TruthFileWriter::take_definition(Bytes& log, const std::array<uint64_t, 3>& field) {
  const auto [number, ip, count] = field;
  if (number >= kMaxBlocks || count == 0 || count > kMaxInsns || count > log.size()) return false;
  const Bytes lengths = log.first(count);
  uint64_t size = 0;
  for (const std::byte length : lengths) size += static_cast<uint8_t>(length);
  if (size > log.size() - count) return false;
  if (numbers_.size() <= number) numbers_.resize(number + 1 + number / 2);
  put_definition(ip, lengths, log.subspan(count, size));
  numbers_[number] = next_;
  log = log.subspan(count + size);
  return true;
}

Status TruthFileWriter::append(Bytes log, const Lookup& lookup, uint64_t stream_base_bytes, const std::function<void(Bytes)>& on_passed) {
  numbers_.clear();
  Bytes held = log;
  TruthLog out(raw_);
  uint64_t tag = 0;
  for (std::array<uint64_t, 3> field{}; get_record(log, tag, field); field = {}) {
    bool known = true;
    if (tag >= kFirstBlock) {
      const uint32_t number = local_number(tag - kFirstBlock, lookup, known);
      out.block(number);
    } else if (static_cast<TruthTag>(tag) == TruthTag::part) {
      const uint32_t number = local_number(field[0], lookup, known);
      out.part(number, static_cast<unsigned>(field[1]), static_cast<unsigned>(field[2]));
    } else if (static_cast<TruthTag>(tag) == TruthTag::psb) {
      out.psb(field[0] + stream_base_bytes, field[1]);
    } else if (static_cast<TruthTag>(tag) == TruthTag::define) {
      if (!take_definition(log, field)) return {};  // cut inside
    } else {
      out.put(tag);
      for (int i = 0; i < fields_of(tag); ++i) out.put(field[static_cast<size_t>(i)]);
    }
    if (!known) return Error{ErrorCode::contradictory_record, "a ground truth names an undefined block", 0};
    if (Status status = write_out(kBufferBytes); !status) return status;
    if (const size_t passed = held.size() - log.size(); passed >= kBufferBytes) {
      on_passed(held.first(passed));
      held = log;
    }
  }
  return {};
}

Status TruthFileWriter::finish() {
  if (Status status = write_out(1); !status) return status;
  return file_->close();
}

struct TruthFileReader::State {
  std::shared_ptr<const MappedFile> file;
  Bytes packed;
  perfio::ZstdDecompressor unpacker;
  std::vector<std::byte> buffer;
  Bytes here;  // of buffer, not read yet
  std::deque<TruthBlock> blocks;
  std::string error;
  bool drained = false;
  uint64_t block_bytes = 0;  // of memory

  bool refill(size_t wanted) {
    while (here.size() < wanted && !drained) {
      std::vector<std::byte> rest(here.begin(), here.end());
      const size_t kept = rest.size();
      rest.resize(kept + kBufferBytes);
      const size_t got = unpacker.step(packed, std::span(rest).subspan(kept));
      rest.resize(kept + got);
      buffer = std::move(rest);
      here = buffer;
      drained = got == 0;
    }
    return here.size() >= wanted;
  }
  bool define(uint64_t number, uint64_t ip, uint64_t count) {
    if (number != blocks.size() || count == 0 || count > kMaxInsns || !refill(count)) return false;
    TruthBlock block;
    block.ip = ip;
    uint64_t size = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const auto length = static_cast<uint8_t>(here[i]);
      if (length == 0 || length > kMaxInsnBytes) return false;
      block.lengths.push_back(length);
      size += length;
    }
    here = here.subspan(count);
    if (!refill(size)) return false;
    block.bytes.assign(here.begin(), here.begin() + static_cast<ptrdiff_t>(size));
    here = here.subspan(size);
    block_bytes += sizeof block + block.lengths.capacity() + block.bytes.capacity();
    if (block_bytes > kFreeBlockBytes + kBlockBytesOfByte * file->bytes().size()) {
      error = "the ground truth defines more blocks than a file of its size can";
      return false;
    }
    blocks.push_back(std::move(block));
    return true;
  }
  bool damaged() {
    if (!error.empty()) return false;
    error = drained && unpacker.is_cut() ? "the ground truth is cut: it ends inside a block" : "the ground truth is damaged";
    return false;
  }
};

TruthFileReader::TruthFileReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TruthFileReader::~TruthFileReader() = default;
const std::string& TruthFileReader::error() const { return state_->error; }

bool TruthFileReader::is_truth_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  return file.ok() && (*file)->bytes().size() >= kHeaderBytes && std::memcmp((*file)->bytes().data(), kMagic.data(), kMagic.size()) == 0;
}

Result<std::unique_ptr<TruthFileReader>> TruthFileReader::open(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  const Bytes bytes = (*file)->bytes();
  uint32_t version = 0;
  if (bytes.size() >= kHeaderBytes) std::memcpy(&version, bytes.data() + kMagic.size(), sizeof version);
  if (version != kVersion || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error{ErrorCode::bad_magic, path + ": not a ground truth of version 1", 0};
  }
  auto state = std::make_unique<State>();
  state->file = *file;
  state->packed = bytes.subspan(kHeaderBytes);
  return std::unique_ptr<TruthFileReader>(new TruthFileReader(std::move(state)));
}

bool TruthFileReader::next(TruthRecord& record) {
  State& s = *state_;
  constexpr size_t kMostNumbers = 40;  // bytes of a tag and three fields
  while (true) {
    if (s.here.size() < kMostNumbers) (void)s.refill(kMostNumbers);
    if (s.here.empty()) return s.unpacker.failed() || s.unpacker.is_cut() ? s.damaged() : false;
    uint64_t tag = 0;
    std::array<uint64_t, 3> field{};
    bool whole = take_number(s.here, tag);
    for (int i = 0; whole && i < fields_of(tag); ++i) whole = take_number(s.here, field[static_cast<size_t>(i)]);
    if (!whole) return s.damaged();
    record = {};
    if (tag >= kFirstBlock || static_cast<TruthTag>(tag) == TruthTag::part) {
      const bool part = tag < kFirstBlock;
      const uint64_t number = part ? field[0] : tag - kFirstBlock;
      if (number >= s.blocks.size()) return s.damaged();
      record.block = &s.blocks[number];
      record.tag = part ? TruthTag::part : TruthTag::block;
      const uint64_t size = record.block->lengths.size();
      if (part && (field[1] > size || field[2] > size - field[1])) return s.damaged();
      record.first = static_cast<uint32_t>(field[1]);
      record.count = static_cast<uint32_t>(part ? field[2] : size);
      return true;
    }
    record.tag = static_cast<TruthTag>(tag);
    switch (record.tag) {
      case TruthTag::define:
        if (!s.define(field[0], field[1], field[2])) return s.damaged();
        continue;
      case TruthTag::psb:
        record.offset_bytes = field[0];
        record.tsc = field[1];
        return true;
      case TruthTag::event:
        record.event = static_cast<TruthEvent>(field[0] & 1);
        record.ip = field[1];
        return true;
      case TruthTag::lose:
      case TruthTag::recover:
      case TruthTag::end:
        return true;
      default:
        return s.damaged();
    }
  }
}

}  // namespace ptd::emulate
